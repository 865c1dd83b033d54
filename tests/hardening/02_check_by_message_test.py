#!/usr/bin/env python3
"""A member sends a well-sealed message that no rank of ours would send: a push that claims to have
no gradient, but carries four bytes of one.

Rank 0 is real (`sluice bench rank`); this program plays rank 1. The message used to abort rank 0.
Rank 0 must refuse it and name rank 1. The first run learns the plan's hash from the gathering, and
the second run uses it. With `--nonsense SEED` rank 1 sends random messages instead, all of them
well sealed.
"""

import argparse
import json
import random
import secrets
import sys
import tempfile
from collections.abc import Iterator
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

# A refusal names the sender or its message.
REFUSALS = (
    "rank 1 is lost",
    "rank 1 sent",
    "1 -> 0 bulk #0",
)


def messages(seed: int | None) -> Iterator[tuple[dict[str, int], bytes]]:
    """Yields the fields of each header, and its payload."""
    if seed is None:
        for slice_number in range(2):  # one of the two slices is rank 0's
            yield {"flags": 0x0400, "slice": slice_number, "stage": PUSH, "dtype": F32}, bytes(4)
        return
    luck = random.Random(seed)
    for _ in range(200):
        payload = luck.randbytes(4 * luck.choice((0, 1, 20, 5_000, 10_000)))
        fields = {"flags": luck.choice((0, 2, 4, luck.getrandbits(16) & ~1)),
                  "slice": luck.randrange(4), "stage": luck.randrange(10),
                  "dtype": luck.randrange(6), "step": luck.choice((0, 1, 2, 1 << 60)),
                  "tensor": luck.randrange(3)}  # fmt: skip
        yield fields, payload


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nonsense", type=int, metavar="SEED")
    seed = parser.parse_args().nonsense
    guard()
    folder = tempfile.TemporaryDirectory()
    profile = Path(folder.name) / "model.json"
    profile.write_text(
        json.dumps(
            {
                "model": "tiny",
                "note": "for a demonstration",
                "tensors": [
                    {"name": "layer0", "parameters": 20_000, "forward": 0.3, "backward": 0.7}
                ],
            }
        )
    )
    task = json.dumps(
        {
            "profile": str(profile),
            "computeSeconds": 0.05,
            "warmUp": 0,
            "iterations": 1000,
            "update": "mean-gradient",
            "watchNetwork": False,
            "compareWithReference": False,
            "unevenness": {
                "stragglers": 0,
                "stragglerFactor": 1,
                "jitterPeriod": 0,
                "jitterFactor": 1,
            },
        }
    )
    plan = b"0" * 64
    for _ in range(2):
        key, port = secrets.token_hex(32), free_port()
        victim = Rank(
            [SLUICE, "bench", "rank", task],
            0,
            2,
            port,
            SLUICE_JOB_KEY=key,
            SLUICE_ENCRYPT="on",
            SLUICE_LOG="info",
        )
        try:
            member = Rendezvous(port, key, rank=1)
            start(member)
            plans = member.gather("plan/model/hash", plan)
            if plans[0] != plan:
                plan = plans[0]
                continue
            ports = bring_address(member, "fabric/model")
            # In TLS nothing follows a payload.
            stream = Tls(connect(ports[0]), member.job_key, stream_claim(1, 0, BULK))
            if len(stream.read(72)) != 72:
                verdict(False, "rank 1 was not let in, so nothing was shown")
            for number, (fields, payload) in enumerate(messages(seed)):
                sealed = header(
                    stream.send_key,
                    source=1,
                    destination=0,
                    lane=BULK,
                    sequence=number,
                    length=len(payload),
                    **fields,
                )
                if not stream.write(sealed + payload):
                    break
            is_named = any(victim.wait_for(text, 4) for text in REFUSALS)
            end = how_it_ended(victim.process, 5)
            verdict(is_named and "signal" not in end, f"rank 0: {end}, {victim.lines[-3:]}")
        finally:
            victim.end()
    sys.exit("the plan was not learnt")


main()
