#!/usr/bin/env bash
# A process that was left over from an earlier launch, with the same key, port and settings, must
# not take a rank's place. The test runs once with a launcher that names its launches (SLURM_JOB_ID)
# and twice without one. Without a launcher rank 0 knows the leftover by its age, both if it comes
# before the right process and if it comes after it. Each time the right rank 1 must get its place,
# and the leftover must end by itself with a line that says what it is.
root=$(cd "$(dirname "$0")/../.." && pwd)
SLUICE=${SLUICE:-$root/build/release/bin/sluice}
[ -x "$SLUICE" ] || { echo "not run: $SLUICE is not built"; exit 77; }
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 SLUICE_RENDEZVOUS_TIMEOUT=30s SLUICE_LOG=error
unset SLURM_JOB_ID TORCHELASTIC_RUN_ID
SLUICE_JOB_KEY=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export SLUICE_JOB_KEY
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
task='{"case": "idle", "seconds": 2, "warm_up": 0.1, "outlives_loss": true}'

# run NAME REASON SECONDS_BETWEEN_RANKS [VARIABLE OF THE LEFTOVER] [VARIABLE OF THE JOB]
run() {
    local name=$1 reason=$2 between=$3 before=${4:-NOTHING=1} now=${5:-NOTHING=1}
    export MASTER_PORT=$((20000 + RANDOM % 9000))
    # The leftover's rank 0 is gone.
    env RANK=1 "$before" "$SLUICE" bench fabric-rank "$task" >"$folder/leftover" 2>&1 &
    local leftover=$!
    sleep 1.5
    local begun=$SECONDS
    env RANK=0 "$now" "$SLUICE" bench fabric-rank "$task" >"$folder/zero" 2>&1 &
    local zero=$!
    sleep "$between"
    env RANK=1 "$now" "$SLUICE" bench fabric-rank "$task" >"$folder/one" 2>&1 &
    local one=$!
    wait $leftover; local leftover_code=$?
    local took=$((SECONDS - begun))
    wait $one; local one_code=$?
    wait $zero; local zero_code=$?
    if [ $one_code = 0 ] && [ $zero_code = 0 ] && [ $leftover_code != 0 ] && grep -q "$reason" "$folder/leftover" &&
        grep -q "^ready" "$folder/one" && ! grep -q "^lost" "$folder/zero" && [ $took -le 6 ]; then
        echo "gone: $name: the right rank 1 met rank 0, and after $took s the leftover said: $(tail -n 1 "$folder/leftover")"
    else
        echo "IT SHOWS: $name: exit codes rank 0 $zero_code, rank 1 $one_code, leftover $leftover_code (pid $leftover), $took s"
        tail -n 3 "$folder/zero" "$folder/one" "$folder/leftover"
        failed=1
    fi
}

run "a launcher that names its launches" "belongs to another launch" 0.2 SLURM_JOB_ID=1 SLURM_JOB_ID=2
run "no launcher, the leftover comes first" "left over from an earlier launch" 1.2
run "no launcher, the right process comes first" "left over from an earlier launch" 0
exit $failed
