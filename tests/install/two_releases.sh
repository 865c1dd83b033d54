#!/usr/bin/env bash
# Makes two releases in a row in a copy of this repository, serves them from an index on loopback,
# installs the first, trains and saves a checkpoint, installs the second over it, and goes on from
# the checkpoint there. Then it builds a wheel from the source distribution, as on a machine with
# Debian's packages, and trains with that. It takes minutes, so it is no step of the gate; run it
# before a release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
room=$(mktemp -d)
server=
end() {
  [[ -z $server ]] || kill "$server"
  rm -rf "$room"
}
trap end EXIT
fail() {
  echo "release_test: $1" >&2
  exit 1
}
unset PYTHONPATH
# Objects of a unity build hold the paths of their sources, so the first release compiles everything
# anew, and the second release only the file with the version.
git clone --quiet . "$room/copy"
export CCACHE_BASEDIR=$room/copy CCACHE_NOHASHDIR=1
mkdir -p "$room/copy/build" "$room/index/torch-sluice"
[[ ! -d build/static ]] || cp -a build/static "$room/copy/build/static"
[[ ! -d build/release-tools ]] || ln -s "$PWD/build/release-tools" "$room/copy/build/release-tools"
cd "$room/copy"
git config user.name test && git config user.email test@localhost
for version in 90.1.0 90.2.0; do
  sed -i "s/^## \[Unreleased\]\$/&\n\n### Added\n- The release $version of a test./" CHANGELOG.md
  git commit --quiet --all --message "Prepare $version"
  start=$SECONDS
  scripts/release.sh "$version" "$room/index/torch-sluice"
  echo "release_test: the release $version took $((SECONDS - start)) s"
  git rev-parse --verify --quiet "v$version" >/dev/null || fail "no tag v$version"
done
[[ $(grep -c '^## \[90\.' CHANGELOG.md) == 2 ]] || fail "the changelog does not have both releases"

python3 -u -m http.server --bind 127.0.0.1 --directory "$room/index" 0 >"$room/server.log" 2>&1 &
server=$!
for _ in $(seq 50); do
  port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$room/server.log")
  [[ -z $port ]] || break
  sleep 0.2
done
python3 -m venv --without-pip "$room/venv"
python=$room/venv/bin/python
site=$(python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))')
echo "$site" >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch-of-the-caller.pth"
install() { PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= "$python" -m pip install --quiet --index-url "http://127.0.0.1:$port/" "$@"; }
cat >"$room/train.py" <<'END'
import sys
import torch
import sluice
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
model, optimizer = sluice.distribute(model, lambda ps: torch.optim.AdamW(ps, lr=0.1), server_optimizer=True)
path, expected = sys.argv[1:3]
assert sluice.__version__ == expected, sluice.__version__
if len(sys.argv) > 3:
    saved = torch.load(path, weights_only=False)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    assert saved["version"] != sluice.__version__
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
state = optimizer.state_dict()
steps = next(iter(state["state"].values()))["step"]
print("sluice", sluice.__version__, "steps", int(steps))
torch.save({"model": model.state_dict(), "optimizer": state, "version": sluice.__version__}, path)
END
cd "$room"
install --only-binary :all: torch-sluice==90.1.0
"$python" train.py checkpoint.pt 90.1.0
install --only-binary :all: --upgrade torch-sluice
"$python" train.py checkpoint.pt 90.2.0 load | tee "$room/second"
grep -q 'steps 6' "$room/second" || fail "the second release has not gone on from the checkpoint"
echo "release_test: 90.2.0 was installed over 90.1.0 and has gone on from its checkpoint"

# pip would unpack the sources in a folder of its own, where the compiler's cache does not know them.
echo "release_test: building a wheel from the source distribution, which takes minutes"
tar -xzf "$room/index/torch-sluice/torch_sluice-90.2.0.tar.gz"
export CCACHE_BASEDIR=$room/torch_sluice-90.2.0
start=$SECONDS
python3 -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$room/built" \
  -Ccmake.define.CMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" "$room/torch_sluice-90.2.0"
echo "release_test: that took $((SECONDS - start)) s"
install --force-reinstall --no-deps "$room"/built/torch_sluice-90.2.0-*.whl
"$python" train.py other.pt 90.2.0
echo "release_test: a wheel built from the source distribution trains"
