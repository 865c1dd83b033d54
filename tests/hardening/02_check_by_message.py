#!/usr/bin/env python3
"""A member sends a well-sealed message that no rank of ours would send: a push that says that it has no gradient, and has four bytes of one.

Rank 0 is real (`sluice bench rank`); rank 1 is spoken by hand. The message used to abort rank 0. Rank 0 must refuse it and name rank 1.
The first run learns the plan's hash from the gathering, the second uses it.
"""

import json
import secrets
import sys
import tempfile
from pathlib import Path

from peer import (
    BULK,
    F32,
    PUSH,
    SLUICE,
    Rank,
    Rendezvous,
    Tls,
    bring_address,
    connect,
    free_port,
    guard,
    header,
    how_it_ended,
    start,
    stream_claim,
    verdict,
)

REFUSALS = ("rank 1 sent", "1 -> 0 bulk #0")  # the sender, or its message, by name


def main() -> None:
    guard()
    folder = tempfile.TemporaryDirectory()
    profile = Path(folder.name) / "model.json"
    profile.write_text(json.dumps({"model": "tiny", "note": "for a demonstration",
                                   "tensors": [{"name": "layer0", "parameters": 20_000, "forward": 0.3, "backward": 0.7}]}))
    task = json.dumps({"profile": str(profile), "computeSeconds": 0.05, "warmUp": 0, "iterations": 1000, "update": "mean-gradient",
                       "watchNetwork": False, "compareWithReference": False,
                       "unevenness": {"stragglers": 0, "stragglerFactor": 1, "jitterPeriod": 0, "jitterFactor": 1}})
    plan = b"0" * 64
    for _ in range(2):
        key, port = secrets.token_hex(32), free_port()
        victim = Rank([SLUICE, "bench", "rank", task], 0, 2, port, SLUICE_JOB_KEY=key, SLUICE_ENCRYPT="on", SLUICE_LOG="info")
        try:
            member = Rendezvous(port, key, rank=1)
            start(member)
            plans = member.gather("plan/model/hash", plan)
            if plans[0] != plan:
                plan = plans[0]
                continue
            ports = bring_address(member, "fabric/model")
            stream = Tls(connect(ports[0]), member.job_key, stream_claim(1, 0, BULK))  # in TLS nothing follows a payload
            if len(stream.read(72)) != 72:
                verdict(False, "rank 1 was not let in, so nothing was shown")
            for number in range(2):  # one of the two slices is rank 0's
                stream.write(header(stream.send_key, source=1, destination=0, lane=BULK, sequence=number, length=4, flags=0x0400, tensor=0,
                                    slice=number, stage=PUSH, dtype=F32) + bytes(4))
            is_named = any(victim.wait_for(text, 4) for text in REFUSALS)
            end = how_it_ended(victim.process, 5)
            verdict(is_named and "signal" not in end, f"rank 0: {end}, {victim.lines[-3:]}")
        finally:
            victim.end()
    sys.exit("the plan was not learnt")


main()
