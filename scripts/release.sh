#!/usr/bin/env bash
# Makes a release: cuts the changelog, sets the version, builds the wheel, the source distribution
# and the bill of materials, checks them, commits and tags. It uploads nothing; the last lines say
# how.
#
#   scripts/release.sh VERSION [DIRECTORY]    default: dist/VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() {
  echo "release: $1" >&2
  exit 1
}
version=${1:-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "usage: scripts/release.sh VERSION [DIRECTORY], as in scripts/release.sh 0.2.0"
out=$(realpath -m "${2:-dist/$version}")
[[ -z $(git status --porcelain) ]] || fail "there are changes that are not committed; commit or stash them"
[[ -z $(git tag --list "v$version") ]] || fail "the tag v$version is there already"
former=$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[[ $(printf '%s\n' "$former" "$version" | sort -V | tail -n 1) == "$version" ]] || fail "$version is older than $former"
isCut=$(grep -c "^## \[$version\] - " CHANGELOG.md || true)  # by hand
[[ $isCut == 1 ]] || sed -n '/^## \[Unreleased\]/,/^## \[[0-9]/p' CHANGELOG.md | grep -q '^- ' || fail "the changelog has nothing under [Unreleased]"

# These tools are for releases only, so they have an environment of their own.
tools=build/release-tools
if [[ ! -f $tools/ready ]]; then
  echo "release: installing build, auditwheel, twine and the validator of CycloneDX"
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet 'build==1.6.1' 'scikit-build-core==1.1.1' 'auditwheel==6.8.2' 'twine==7.0.0' \
    'cyclonedx-python-lib[json-validation]==11.12.0'
  touch "$tools/ready"
fi

# A release that fails leaves nothing behind.
isDone=no
end() { [[ $isDone == yes ]] || git checkout --quiet -- CMakeLists.txt CHANGELOG.md; }
trap end EXIT
sed -i "s/^project(sluice VERSION [0-9.]*/project(sluice VERSION $version/" CMakeLists.txt
[[ $isCut == 1 ]] || sed -i "s/^## \[Unreleased\]\$/## [Unreleased]\n\n## [$version] - $(date -u +%F)/" CHANGELOG.md

mkdir -p "$out"
echo "release: building the wheel"
scripts/build_wheels.sh "$out"
echo "release: building the source distribution"
"$tools/bin/python" -m build --sdist --no-isolation --outdir "$out" . >"$out/sdist.log" 2>&1 || { tail -n 20 "$out/sdist.log" >&2 && fail "no source distribution"; }
rm "$out/sdist.log"
cp build/static/torch-sluice.cdx.json "$out/torch_sluice-$version.cdx.json"
"$tools/bin/twine" check --strict "$out"/{torch_sluice,sluice_papers}-"$version"*.whl "$out"/torch_sluice-"$version".tar.gz
"$tools/bin/auditwheel" show --json "$out"/torch_sluice-"$version"*.whl >build/audit.json
python3 - build/audit.json <<'END'
import json, pathlib, sys
found = json.loads(pathlib.Path(sys.argv[1]).read_text())
tag, libraries = found["sym_tag"], sorted(found["external_libs"])
print(f"auditwheel: the symbols fit {tag}; libraries from elsewhere: {', '.join(libraries)}")
if tag not in found["wheel"]:
    sys.exit(f"release: {found['wheel']} has not the tag {tag}")
if foreign := [name for name in libraries if not name.startswith(("libtorch", "libc10"))]:
    sys.exit(f"release: the wheel lacks {', '.join(foreign)}")
END
"$tools/bin/python" - "$out/torch_sluice-$version.cdx.json" <<'END'
import pathlib, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(pathlib.Path(sys.argv[1]).read_text())
sys.exit(f"release: {sys.argv[1]}: {fault}" if fault else 0)
END
git diff --quiet -- CMakeLists.txt CHANGELOG.md || git commit --quiet --message "Release $version" -- CMakeLists.txt CHANGELOG.md
git tag --annotate "v$version" --message "sluice $version"
isDone=yes
ls -l "$out"
echo "release: v$version is tagged; publish it with 'git push --follow-tags' and '$tools/bin/twine upload $out/{torch_sluice,sluice_papers}-$version*.whl $out/torch_sluice-$version.tar.gz'"
