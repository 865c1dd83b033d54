#!/usr/bin/env bash
# Trains under Slurm with an installed sluice: Debian's munged, slurmctld and slurmd, started by hand
# in a private folder on loopback, one node of four CPUs. Then one task is killed, and the others must
# name it. Needs root, and the packages slurm-wlm and munge (apt install --no-install-recommends).
#
#   tests/hosts/slurm.sh PYTHON    an interpreter that has sluice and Torch
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
python=$(realpath -s "${1:?usage: tests/hosts/slurm.sh PYTHON}")
for program in munged slurmctld slurmd srun; do
  command -v "$program" >/dev/null || { echo "slurm: skipped: there is no $program; apt install slurm-wlm munge"; exit 77; }
done
room=$(mktemp -d)
mkdir "$room"/{munge,state,spool}
end() {
  scontrol shutdown &>/dev/null || true
  [[ ! -s $room/munge/pid ]] || kill "$(<"$room/munge/pid")" || true
  sleep 1
  rm -rf "$room"
}
trap end EXIT
head --bytes 1024 /dev/urandom >"$room/munge/key" && chmod 400 "$room/munge/key"
munged --force --key-file="$room/munge/key" --socket="$room/munge/socket" --pid-file="$room/munge/pid" \
  --log-file="$room/munge/log" --seed-file="$room/munge/seed"
cat >"$room/slurm.conf" <<END
ClusterName=one
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$room/munge/socket
CredType=cred/munge
StateSaveLocation=$room/state
SlurmdSpoolDir=$room/spool
SlurmctldPidFile=$room/slurmctld.pid
SlurmdPidFile=$room/slurmd.pid
SlurmctldLogFile=$room/slurmctld.log
SlurmdLogFile=$room/slurmd.log
SlurmctldPort=16817
SlurmdPort=16818
SrunPortRange=16820-16899
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=localhost NodeAddr=127.0.0.1 CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$room/slurm.conf
slurmctld -c -f "$SLURM_CONF"
slurmd -N localhost -f "$SLURM_CONF"
for _ in $(seq 100); do
  [[ $(sinfo --noheader --format=%t 2>/dev/null) != idle ]] || break
  sleep 0.1
done

export MASTER_ADDR=127.0.0.1 MASTER_PORT=16900 OMP_NUM_THREADS=1
echo "slurm: four tasks train"
srun -n 4 "$python" slurm_task.py train | tee "$room/trained"
[[ $(grep -c ' bits ' "$room/trained") == 4 && $(sed 's/.* bits //' "$room/trained" | sort -u | wc -l) == 1 ]] ||
  { echo "slurm: the tasks have not trained to the same bits" >&2 && exit 1; }
echo "slurm: task 2 is killed in step 5, and Slurm ends nobody for it"
srun -n 4 --no-kill --kill-on-bad-exit=0 "$python" slurm_task.py lose >"$room/lost" 2>"$room/errors" || true
cat "$room/lost"
[[ $(grep -c 'is told: .*rank 2' "$room/lost") == 3 ]] ||
  { tail -n 20 "$room/errors" >&2; echo "slurm: not every other task names rank 2" >&2 && exit 1; }
