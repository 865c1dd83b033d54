#!/usr/bin/env python3
"""A steady flood of connections must not keep out a peer that is far away.

Ranks 0 and 1 are real. This program plays rank 2, which is 60 ms away: it waits that long before
each of its messages. Ten times it proves the job key at rank 0's fabric port, with a claim that no
rank makes, so that rank 0 reports each proof that it has heard completely. It does so alone and
during a flood of about 4,000 connections a second.
"""

import secrets
import socket
import sys
import threading
import time

from peer import (
    FABRIC,
    SLUICE,
    Rank,
    Rendezvous,
    bring_address,
    connect,
    derive,
    free_port,
    guard,
    hello_of,
    hello_proof,
    keyed,
    receive,
    start,
    stream_claim,
    verdict,
)

AWAY = 0.06
HEARD = "refused a connection that holds the job key: it names no lane"
TRIES = 10


def slow_proof(port: int, key_hex: str) -> None:
    try:
        sock = connect(port)
        sock.settimeout(3)
        time.sleep(AWAY)
        key, hello = derive(key_hex, FABRIC), hello_of(FABRIC, stream_claim(2, 0, 3))
        sock.sendall(hello + hello_proof(key, hello))
        answer = receive(sock, 64)
        time.sleep(AWAY)
        sock.sendall(keyed(key, b"client proof", hello + answer[:32]))
        sock.recv(1)  # rank 0 hangs up in any case; its log shows if it has heard the proof
    except OSError:
        pass


def heard(rank: Rank, port: int, key: str) -> int:
    before = sum(HEARD in line for line in rank.lines)
    for _ in range(TRIES):
        slow_proof(port, key)
    time.sleep(0.3)
    return sum(HEARD in line for line in rank.lines) - before


def flood(port: int, stop: threading.Event, rate: float) -> float:
    """Makes connections until `stop`, and returns their number per second."""
    crowd: list[socket.socket] = []
    count, begun = 0, time.monotonic()
    while not stop.is_set() and time.monotonic() < begun + 20:
        for _ in range(40):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            crowd.append(one)
            count += 1
        for one in crowd[:-600]:
            one.close()
        del crowd[:-600]
        time.sleep(max(0.0, begun + count / rate - time.monotonic()))
    return count / (time.monotonic() - begun)


def main() -> None:
    guard()
    key, port = secrets.token_hex(32), free_port()
    task = '{"case": "idle", "seconds": 60, "warm_up": 0.5, "outlives_loss": true}'
    ranks = [
        Rank(
            [SLUICE, "bench", "fabric-rank", task],
            rank,
            3,
            port,
            SLUICE_JOB_KEY=key,
            SLUICE_ENCRYPT="off",
            SLUICE_SILENCE_LIMIT="60s",
        )
        for rank in range(2)
    ]
    try:
        member = Rendezvous(port, key, rank=2)
        start(member)
        ports = bring_address(member, "fabric/bench")
        member.gather("bench/ready", b"")
        alone = heard(ranks[0], ports[0], member.job_key)
        rates: list[float] = []
        stop = threading.Event()
        crowd = threading.Thread(target=lambda: rates.append(flood(ports[0], stop, 4000)))
        crowd.start()
        time.sleep(0.5)
        count = heard(ranks[0], ports[0], member.job_key)
        stop.set()
        crowd.join()
        lost = [
            line for rank in ranks for line in rank.lines if line.startswith(("lost 0", "lost 1"))
        ]
        verdict(
            alone == TRIES and count == TRIES and not lost and rates[0] > 500,
            f"alone {alone}, in the flood {count} of {TRIES} were heard ({rates[0]:.0f} "
            f"connections a second); lost: {lost}",
        )
    finally:
        for rank in ranks:
            rank.end()


if __name__ == "__main__":
    sys.exit(main())
