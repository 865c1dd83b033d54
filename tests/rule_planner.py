#!/usr/bin/env python3
"""A planner for tests of algorithm="auto": answers as `sluice plan` does, by a rule that depends on
the rate of the network only. Below 100 Mbit/s p3 is the fastest plan with the same bits, else
sluice.

  rule_planner.py plan --profile FILE --network FILE --hosts N --json -

RULE=fail, hang or nonsense in the environment: it does that instead. RULE=slow: it takes every
network for a slow one.
"""

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path

FACTORS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}


def bitsPerSecond(text):
    number, factor = re.fullmatch(r"([0-9.]+)([kmg]?)bit", text).groups()
    return float(number) * FACTORS[factor]


def candidate(algorithm, seconds, kind="same bits", **settings):
    return {
        "name": algorithm,
        "algorithm": algorithm,
        "settings": {name.replace("_", "-"): value for name, value in settings.items()},
        "class": kind,
        "iteration_s": seconds,
        "bound_s": seconds / 2,
        "bytes": 1,
        "memory_bytes": 2,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["plan"])
    for name in ("profile", "network", "json"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--only")  # it has no other plans
    parser.add_argument("--hosts", type=int, required=True)
    options = parser.parse_args()
    rule = os.environ.get("RULE", "")
    if rule == "fail":
        sys.exit("rule_planner: this network cannot be planned for")
    if rule == "hang":
        time.sleep(600)
    if rule == "nonsense":
        print('{"candidates": 7}')
        return
    profile = json.loads(Path(options.profile).read_text())
    network = json.loads(Path(options.network).read_text())
    shares = sum(tensor["forward"] + tensor["backward"] for tensor in profile["tensors"])
    if abs(shares - 1) > 1e-6 or profile["compute_s"] <= 0 or options.hosts < 2:
        sys.exit(f"rule_planner: the profile cannot be right: {profile}")
    isSlow = rule == "slow" or bitsPerSecond(network["rate"]) < 100e6
    compute = profile["compute_s"]
    candidates = [
        candidate("sluice", compute * (3 if isSlow else 1), slice_elements=50000),
        candidate("p3", compute * 2, slice_elements=10000),
        # No job can change to these.
        candidate("sluice", compute / 9, servers="1"),
        candidate("asp", compute / 8, "lossy or stale"),
        candidate("allreduce", compute / 7, collective="ring"),
        candidate("allreduce", compute / 6, "exact in another order", collective="ring"),
    ]
    cause = f"the network is {'slow' if isSlow else 'fast'}"
    best = min(candidates[:2], key=lambda one: one["iteration_s"])
    print(json.dumps({"choice": best, "best": [best], "candidates": candidates, "cause": cause}))


if __name__ == "__main__":
    main()
