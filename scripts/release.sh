#!/usr/bin/env bash
# Makes a release: cuts the changelog, sets the version, builds the wheels, the source distribution
# and the bill of materials, checks them, compares a wheel with a second build from another folder,
# writes the sums and signs them, commits and tags. It uploads nothing; the last lines say how.
#
#   scripts/release.sh VERSION [DIRECTORY]    default: dist/VERSION
#   PYTHONS='python3.11 python3.12' scripts/release.sh VERSION
#       wheels for these interpreters; default: python3
#   SIGNING_KEY=FILE scripts/release.sh VERSION
#       signs the sums with this key of minisign
#
# Each wheel has modules for all releases of Torch in packaging/torch_releases.txt that its Python has.
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

# A library with a known weakness must not be linked into wheels. Without the archive nobody knows, so
# somebody has to decide.
code=0
scripts/security_updates.sh || code=$?
((code != 1)) || fail "update these packages (sudo apt-get install --only-upgrade ...), and scripts/static_libraries.sh for those that it builds"
((code == 0)) || [[ ${UNASKED:-} == yes ]] || fail "ask again with a network, or say UNASKED=yes after looking by hand"

# These tools are for releases only, so they have an environment of their own.
tools=build/release-tools
if [[ ! -f $tools/ready ]]; then
  echo "release: installing build, twine and the validator of CycloneDX"
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet 'build==1.6.1' 'scikit-build-core==1.1.1' 'twine==7.0.0' \
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
# Prints the folders of Torch's headers for an interpreter, with ; between them.
headersFor() {
  local release folders=() number
  number=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  while read -r release; do
    # A Python has no wheels of releases that came before or long after it.
    if python3 scripts/torch_headers.py "$release" "$number" "build/torch/$number/$release" >&2; then
      folders+=("$PWD/build/torch/$number/$release/torch")
    fi
  done < <(grep -v '^#' packaging/torch_releases.txt)
  (IFS=';' && echo "${folders[*]}")
}
read -ra pythons <<<"${PYTHONS:-python3}"
for python in "${pythons[@]}"; do
  echo "release: building the wheel for $python"
  SLUICE_TORCH=$(headersFor "$python") PYTHON=$python scripts/build_wheels.sh "$out"
done

echo "release: building the first wheel again, in another folder"
again=$(mktemp -d)
git ls-files -z | tar --create --null --files-from - | tar --extract --directory "$again"
(
  cd "$again"
  SOURCE_DATE_EPOCH=$(git -C "$OLDPWD" log -1 --format=%ct) SLUICE_TORCH=$(cd "$OLDPWD" && headersFor "${pythons[0]}") \
    PYTHON=${pythons[0]} scripts/build_wheels.sh "$again/dist"
)
python3 scripts/wheel_check.py same "$again"/dist/torch_sluice-*.whl "$out"
rm -rf "$again"
echo "release: building the source distribution"
"$tools/bin/python" -m build --sdist --no-isolation --outdir "$out" . >"$out/sdist.log" 2>&1 || { tail -n 20 "$out/sdist.log" >&2 && fail "no source distribution"; }
rm "$out/sdist.log"
cp build/static/torch-sluice.cdx.json "$out/torch_sluice-$version.cdx.json"
"$tools/bin/twine" check --strict "$out"/{torch_sluice,sluice_papers}-"$version"*.whl "$out"/torch_sluice-"$version".tar.gz
"$tools/bin/python" - "$out/torch_sluice-$version.cdx.json" <<'END'
import pathlib, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(pathlib.Path(sys.argv[1]).read_text())
sys.exit(f"release: {sys.argv[1]}: {fault}" if fault else 0)
END
(cd "$out" && sha256sum -- *.whl *.tar.gz *.json >SHA256SUMS)
if [[ -n ${SIGNING_KEY:-} ]]; then
  minisign -S -s "$SIGNING_KEY" -t "sluice $version" -m "$out/SHA256SUMS"
else
  echo "release: SHA256SUMS is not signed; set SIGNING_KEY to a key of 'minisign -G'"
fi
git diff --quiet -- CMakeLists.txt CHANGELOG.md || git commit --quiet --message "Release $version" -- CMakeLists.txt CHANGELOG.md
git tag --annotate "v$version" --message "sluice $version"
isDone=yes
ls -l "$out"
echo "release: v$version is tagged; publish it with 'git push --follow-tags' and '$tools/bin/twine upload $out/{torch_sluice,sluice_papers}-$version*.whl $out/torch_sluice-$version.tar.gz'"
