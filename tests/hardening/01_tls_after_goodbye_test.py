#!/usr/bin/env python3
"""A member sends bytes after its goodbye, inside TLS.

Rank 0 is real and encrypts; this program plays rank 1. It says goodbye and goes on, once at the
start (the loop used to spin) and once after a large message (the bytes used to be written past the
end of a buffer). Rank 0 must name rank 1 and the reason, and end in good order.
"""

import secrets
import sys

from peer import (
    GOODBYE,
    SLUICE,
    URGENT,
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

REASON = "it sent bytes after its goodbye"


def attack(kind: str) -> tuple[bool, str]:
    key, port = secrets.token_hex(32), free_port()
    task = '{"case": "idle", "seconds": 1.5, "warm_up": 0.1, "outlives_loss": true}'
    victim = Rank(
        [SLUICE, "bench", "fabric-rank", task], 0, 2, port, SLUICE_JOB_KEY=key, SLUICE_ENCRYPT="on"
    )
    try:
        member = Rendezvous(port, key, rank=1)
        start(member)
        ports = bring_address(member, "fabric/bench")
        stream = Tls(connect(ports[0]), member.job_key, stream_claim(1, 0, URGENT))
        member.gather("bench/ready", b"")
        if len(stream.read(72)) != 72:
            return False, f"{kind}: rank 1 was not let in, so nothing was shown"
        about = {"source": 1, "destination": 0, "lane": URGENT}
        if kind == "spin":
            stream.write(
                header(stream.send_key, **about, sequence=0, length=0, flags=GOODBYE)
                + bytes(80_000)
            )
        else:
            large = 300_000  # more than rank 0 takes here, so it refuses and skips it
            stream.write(
                header(stream.send_key, **about, sequence=0, length=large)
                + bytes(large)
                + header(stream.send_key, **about, sequence=1, length=0, flags=GOODBYE)
                + b"A" * 700_000
            )
        is_named = victim.wait_for(REASON, 5)
        member.sock.close()
        end = how_it_ended(victim.process, 15)
        return (
            is_named and "signal" not in end and end != "still runs",
            f"{kind}: rank 0: {end}, {victim.lines[-2:]}",
        )
    finally:
        victim.end()


def main() -> None:
    guard()
    found = [attack(kind) for kind in (sys.argv[1:] or ["spin", "overflow"])]
    verdict(all(is_gone for is_gone, _ in found), "; ".join(text for _, text in found))


main()
