#!/usr/bin/env bash
# The first hour of a new user: a fresh account follows README.md, docs/start.md and docs/cluster.md
# as they are printed, from a built wheel. The blocks marked run, hour and lab are taken from the
# pages (tests/docs/code_blocks_test.py), in their order, and run in one shell. Prints the seconds
# of each step as a table.
#
#   sudo tests/docs/first_hour.sh [--write] [WHEEL]   default: the newest dist/torch_sluice-*.whl
#   sudo TORCH=2.13.0 tests/docs/first_hour.sh      this version of torch instead of the newest
#
# --write puts the table into docs/start.md. Needs root to make the account, which is removed at the
# end with all its files and processes. The account sees no clone and no build: its home holds
# dist/ with the wheel, and examples/. Ends after 15 minutes with an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
limit=900
pages=(README.md docs/start.md docs/cluster.md)

fail() {
  echo "first_hour: $*" >&2
  exit 1
}
isWritten=no
if [[ ${1:-} == --write ]]; then
  isWritten=yes
  shift
fi
[[ $(id -u) == 0 ]] || fail "a fresh account needs root; run: sudo tests/docs/first_hour.sh"
wheel=${1:-$(find dist -name 'torch_sluice-*.whl' -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d' ' -f2-)}
[[ -f $wheel ]] || fail "there is no wheel in dist/; make one: scripts/build_wheels.sh"

user=first-hour-$$
end() {
  local id
  id=$(id -u "$user" 2>/dev/null) || return 0
  pkill -KILL -U "$id" || true # everything that runs as the account, and nothing else
  for _ in 1 2 3 4 5; do
    userdel --force --remove "$user" &>/dev/null && return 0
    sleep 1
  done
  echo "first_hour: the account $user could not be removed; run: userdel --remove $user" >&2
}
trap end EXIT
useradd --create-home --shell /bin/bash "$user"
home=$(getent passwd "$user" | cut -d: -f6)
mkdir "$home/dist"
cp "$wheel" "$home/dist/"
cp -r examples "$home/"
python3 tests/docs/code_blocks_test.py script "${pages[@]}" --marks run,hour,lab >"$home/first_hour.sh"
variables=(HOME="$home" USER="$user" PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 STEPS="$home/steps.tsv")
# The index of this machine, if it has one of its own.
for name in PIP_FIND_LINKS PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CERT PIP_DEFAULT_TIMEOUT; do
  [[ -z ${!name:-} ]] || variables+=("$name=${!name}")
done
if [[ -n ${TORCH:-} ]]; then
  echo "torch==$TORCH" >"$home/constraints.txt"
  variables+=(PIP_CONSTRAINT="$home/constraints.txt")
fi
chown -R "$user:" "$home"

echo "the account $user follows ${pages[*]} with $(basename "$wheel")"
begun=$SECONDS
timeout --kill-after 20 "$limit" runuser --user "$user" -- env --ignore-environment --chdir="$home" \
  "${variables[@]}" bash first_hour.sh </dev/null || fail "a step failed after $((SECONDS - begun)) s (124: the limit of $limit s)"

table=$(python3 - "$home/steps.tsv" "$((SECONDS - begun))" <<'END'
import os, subprocess, sys
steps = {}
for line in open(sys.argv[1]):
    name, milliseconds = line.rstrip("\n").split("\t")
    steps[name] = steps.get(name, 0) + int(milliseconds) / 1000
print("| page | step | seconds |\n|---|---|---|")
for name, seconds in steps.items():
    page, heading = name.split(": ", 1)
    print(f"| {page} | {heading} | {seconds:.1f} |")
print(f"| | all | {int(sys.argv[2])} |")
load = os.getloadavg()[1]
date = subprocess.run(["date", "-u", "+%F"], capture_output=True, text=True).stdout.strip()
print(f"\n{date}, {os.cpu_count()} cores, load {load:.1f} in the last five minutes.")
END
)
echo
echo "$table"
if [[ $isWritten == yes ]]; then
  TABLE=$table python3 - docs/start.md <<'END'
import os, sys
text = open(sys.argv[1]).read()
marks = "<!-- first hour -->", "<!-- end of first hour -->"
assert all(text.count(mark) == 1 for mark in marks), "docs/start.md has lost its marks"
before, after = text.split(marks[0])[0], text.split(marks[1])[1]
open(sys.argv[1], "w").write(f"{before}{marks[0]}\n\n{os.environ['TABLE']}\n\n{marks[1]}{after}")
END
  echo "written to docs/start.md"
fi
