#!/usr/bin/env bash
# Tries the wheel with the CUDA build of each release of Torch that it has a module for, on this
# machine without a GPU. Nightly: it downloads about 1 GB for a release, and goes on where it was
# stopped.
#
#   scripts/every_torch.sh [DIRECTORY]               default: build/every-torch
#   RELEASES='2.13.0 2.15.0' scripts/every_torch.sh  these only
#   COMPILE=1 scripts/every_torch.sh                 also torch.compile, beside DDP
#
# One line of JSON for each release is appended to DIRECTORY/results.jsonl; docs/compatibility.md says
# what it holds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
room=$(realpath -m "${1:-build/every-torch}")
python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
mkdir -p "$room"
read -ra releases <<<"${RELEASES:-$(grep -v '^#' packaging/torch_releases.txt | tr '\n' ' ')}"

folders=()
for release in "${releases[@]}"; do
  python3 scripts/torch_headers.py "$release" "$python" "$room/headers/$release"
  folders+=("$room/headers/$release/torch")
done
if [[ ! -d $room/wheel/sluice ]]; then
  SLUICE_TORCH=$(IFS=';' && echo "${folders[*]}") scripts/build_wheels.sh "$room/dist"
  python3 -m pip install --quiet --no-deps --no-index --upgrade --target "$room/wheel" "$room"/dist/torch_sluice-*.whl
fi

failed=0
for release in "${releases[@]}"; do
  [[ ! -e $room/results.jsonl ]] || ! grep -q "\"release\": \"$release\"" "$room/results.jsonl" || continue
  begin=$SECONDS code=0
  python3 tests/torch/cuda_import.py "$release" "$room/torch/$release"
  (
    export PYTHONPATH=$room/wheel
    # shellcheck source=/dev/null
    . "$room/torch/$release/environment"
    python3 tests/torch/try_torch.py --modules "$room/wheel/sluice/_c10d" ${COMPILE:+--compile}
  ) >"$room/found.json" || code=1
  python3 - "$release" "$room" <<'END'
import json, pathlib, sys
release, room = sys.argv[1], pathlib.Path(sys.argv[2])
lines = (room / "found.json").read_text().splitlines()
found = json.loads(lines[-1]) if lines else {"faults": ["no result"]}
with (room / "results.jsonl").open("a") as results:
    results.write(json.dumps({"release": release} | found) + "\n")
print(f"every_torch: {release}: {'; '.join(found['faults']) or 'as it must be'}")
END
  ((code == 0)) || failed=1
  echo "every_torch: $release took $((SECONDS - begin)) s"
done
exit "$failed"
