#!/usr/bin/env python3
"""Another user of the same host must not be a member of a job without a key. Needs root, to become
that user.

Two real ranks on loopback without a job key. A process of uid 65534 asks rank 0 for the key of the
job, and tries the key that such jobs used to have (zeros) at the fabric port. A process of the
ranks' own user asks in the same way, as a control.
"""

import encodings.idna  # noqa: F401  (the other user may not be allowed to read it later)
import os
import socket
import sys

from peer import (
    FABRIC,
    SKIPPED,
    SLUICE,
    URGENT,
    Rank,
    connect,
    free_port,
    guard,
    listening_ports,
    plain_handshake,
    stream_claim,
    verdict,
)


def ask_for_key(port: int) -> int:
    """Returns the number of bytes that rank 0 hands out to this process."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(f"\0sluice 0 127.0.0.1:{port}".encode())
        return len(sock.recv(1000))


def try_zeros(ports: list[int]) -> str:
    for port in ports:
        try:
            plain_handshake(connect(port), "00" * 32, FABRIC, stream_claim(1, 0, URGENT))
        except (PermissionError, ConnectionError):
            continue
        return "let in"
    return "refused"


def as_nobody(port: int, others: list[int]) -> str:
    """Asks for the key as another user. It forks, since that user may not be allowed to read this
    file."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        try:
            text = f"{os.getuid()} {ask_for_key(port)} {try_zeros(others)}"
        except Exception as error:
            text = repr(error)
        os.write(write_end, text.encode())
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as said:
        return said.read()


def main() -> None:
    guard()
    if os.getuid() != 0:
        print("not run: needs root")
        sys.exit(SKIPPED)
    port = free_port()
    task = '{"case": "idle", "seconds": 20, "warm_up": 0.5, "outlives_loss": true}'
    ranks = [Rank([SLUICE, "bench", "fabric-rank", task], rank, 2, port) for rank in range(2)]
    try:
        assert all(rank.wait_for("ready", 30) for rank in ranks), [rank.lines for rank in ranks]
        others = [each for each in listening_ports(ranks[0].process.pid) if each != port]
        stranger = as_nobody(port, others)
        control = ask_for_key(port)
        is_named = ranks[0].wait_for("of user 65534", 5)
        lost = [line for rank in ranks for line in rank.lines if line.startswith("lost")]
        verdict(
            stranger == "65534 0 refused" and control == 64 and is_named and not lost,
            f"as uid 65534: {stranger!r}; as uid 0: {control} bytes; named: {is_named}; lost: "
            f"{lost}",
        )
    finally:
        for rank in ranks:
            rank.end()


main()
