"""Trains with torchft, on its ProcessGroupGloo or on ProcessGroupSluice: two replica groups of one
process, and a lighthouse.

torchft_job.py gloo|sluice FOLDER     starts the replicas itself

On sluice also: a replica is killed inside backward and comes back, and 200 quorums in one process.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import common
from torchft.coordination import LighthouseServer

how, folder = common.arguments()
HERE = Path(__file__).parent
PATIENCE = 300


def start(lighthouse: LighthouseServer, part: str, rank: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, HERE / "torchft_replica.py", how, folder]
    more = [part, str(rank), lighthouse.address()]
    return subprocess.Popen([*command, *more])


def meeting(least: int) -> LighthouseServer:
    return LighthouseServer("127.0.0.1:0", least, join_timeout_ms=1000, heartbeat_timeout_ms=2000)


def wait_for(replicas: list[subprocess.Popen[bytes]]) -> None:
    ends = [replica.wait(PATIENCE) for replica in replicas]
    assert ends == [0] * len(replicas), f"exit codes of the replicas: {ends}"


def train() -> None:
    lighthouse = meeting(2)
    wait_for([start(lighthouse, "same", rank) for rank in range(2)])
    lighthouse.shutdown()


def kill_and_return() -> dict[str, str]:
    lighthouse = meeting(1)
    survivor, killed = start(lighthouse, "survives", 0), start(lighthouse, "dies", 1)
    assert killed.wait(PATIENCE) == -signal.SIGKILL, "the replica was to be killed"
    wait_for([start(lighthouse, "returns", 1), survivor])
    lighthouse.shutdown()
    told = json.loads((folder / "survivor.json").read_text())
    told["checks"]["both replicas end with the same parameters"] = told["parameters"] == json.loads(
        (folder / "returned.json").read_text()
    )
    return {name: "" if is_met else "no" for name, is_met in told["checks"].items()}


def quorums() -> dict[str, str]:
    subprocess.run([sys.executable, HERE / "torchft_quorums.py", how, folder], check=True)
    checks: dict[str, str] = json.loads((folder / "quorums.json").read_text())
    return checks


train()
if how != "gloo":
    path = folder / f"{how}.0.json"
    result = json.loads(path.read_text())
    result["checks"] = kill_and_return() | quorums()
    path.write_text(json.dumps(result))
