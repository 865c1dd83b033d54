#!/usr/bin/env python3
"""Tries the sluice on PYTHONPATH with the Torch on PYTHONPATH, with two ranks on this machine, and
prints one line of JSON. Ends with 1 if anything is not as it must be.

  . DIR/environment && python3 tests/torch/try_torch.py            training, calls, a lost rank
  python3 tests/torch/try_torch.py --modules FOLDER                also: other releases' modules are refused
  python3 tests/torch/try_torch.py --compile                       also: torch.compile, minutes
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

RANK = pathlib.Path(__file__).with_name("rank.py")


def run(*what: str, ranks: int = 2, seconds: float = 240, **more: str) -> list[dict[str, object]]:
    """Runs the ranks, and returns what each has printed; {} for one that has printed nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(ranks):
        environment = os.environ | more | {
            "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
            "SLUICE_RENDEZVOUS_TIMEOUT": "60s", "GLOO_SOCKET_IFNAME": "lo",
        }  # fmt: skip
        started.append(
            subprocess.Popen(
                [sys.executable, RANK, *what],
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )  # fmt: skip
        )
    found = []
    for process in started:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += f"\nno end within {seconds:g} s"
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if not lines and process.returncode:
            print("\n".join(err.splitlines()[-12:]), file=sys.stderr)
        found.append(json.loads(lines[-1]) if lines else {})
    return found


def check(found: dict[str, object], faults: list[str], modules: pathlib.Path | None) -> None:
    ways = {"distribute": ("distribute",), "ddp": ("ddp", "sluice"), "gloo": ("ddp", "gloo")}
    trained = {name: run(*way) for name, way in ways.items()}
    found |= {name: trained["distribute"][0].get(name) for name in ("torch", "devices")}
    bits = {rank.get("bits") for ranks in trained.values() for rank in ranks}
    found["bits"] = len(bits)
    if None in bits or len(bits) != 1:
        faults.append(f"the bits differ: {trained}")
    calls = [rank.get("calls") or {} for rank in run("calls")]
    found["calls"] = sorted(name for name, is_right in calls[0].items() if is_right)
    if not all(each and all(each.values()) for each in calls):
        faults.append(f"calls give wrong results: {calls}")
    told = run("lose")[0].get("told", "")
    found["lost rank"] = told
    if "rank 1" not in str(told):
        faults.append(f"rank 0 is not told of the loss of rank 1: '{told}'")
    if modules is not None:
        refused = run("refuse", str(modules), ranks=1)[0].get("refused") or {}
        found["refused"] = sorted(name for name, why in refused.items() if "\n" not in why and why)
        if not refused:
            faults.append("no module of another release was tried")
        for name in set(refused) - set(found["refused"]):
            faults.append(
                f"the module for Torch {name} is not refused in one line: '{refused[name]}'"
            )


def check_compile(found: dict[str, object], faults: list[str]) -> None:
    for how in ("ddp", "sluice"):
        with tempfile.TemporaryDirectory() as cache:
            ranks = run("compile", how, seconds=600, TORCHINDUCTOR_CACHE_DIR=cache)
        found[f"compile with {how}"] = ranks[0].get(how)
        if not all(how in rank for rank in ranks) or ranks[0][how]["bits"] != ranks[1][how]["bits"]:
            faults.append(f"torch.compile with {how}: {ranks}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--modules", type=pathlib.Path, help="folder of all releases' modules")
    parser.add_argument("--compile", action="store_true", help="torch.compile, beside DDP")
    flags = parser.parse_args()
    found: dict[str, object] = {}
    faults: list[str] = []
    check(found, faults, flags.modules)
    if flags.compile:
        check_compile(found, faults)
    print(json.dumps(found | {"faults": faults}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
