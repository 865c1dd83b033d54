#!/usr/bin/env python3
"""Checks that ranks wait for a rank whose loop is busy for longer than silence-limit, and that a
stopped rank is lost in time.

  busy_loop_test.py SLUICE [--seconds 3] [--fabric tcp]

Two real processes on this machine with default limits. The loop of rank 1 works on one task for
SECONDS. Rank 0 must say that rank 1 is busy, lose nobody, and say when it is over. Then rank 1 is
stopped, and rank 0 must lose it after silence-limit. Prints one line of JSON; exit code 1 if a rank
was lost that should not be, or the other way round.
"""

import argparse
import json
import os
import queue
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time

SILENCE_LIMIT = 1.9  # the default
SLACK = 3.0  # seconds for a machine with too few cores


class Rank:
    """One process; `lines` is its output."""

    def __init__(self, program, rank, port, task, variables):
        environment = dict(
            os.environ,
            RANK=str(rank),
            WORLD_SIZE="2",
            LOCAL_RANK=str(rank),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            SLUICE_LOG="info",
            **variables,
        )
        self.process = subprocess.Popen(
            [program, "bench", "fabric-rank", json.dumps(task)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        self.lines = queue.Queue()
        self.said = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            self.lines.put(line.rstrip())

    def wait_for(self, pattern, patience):
        """Returns the first new line that matches. Fails if another rank is lost before, or if no
        such line comes."""
        end = time.monotonic() + patience
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise RuntimeError(
                    f"'{pattern}' was not said within {patience} s:\n" + "\n".join(self.said)
                ) from None
            if re.search(pattern, line):
                return line
            if line.startswith("lost "):
                raise RuntimeError(f"{line}\n" + "\n".join(self.said))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(options):
    task = {
        "case": "idle",
        "seconds": options.seconds + 60,
        "warm_up": 0.5,
        "busy": options.seconds,
        "outlives_loss": True,
    }
    port = free_port()
    variables = {
        "SLUICE_FABRIC": options.fabric,
        "SLUICE_JOB_KEY": secrets.token_hex(32),
        "SLUICE_TRUSTED_NETWORK": "on",
    }
    ranks = [Rank(options.sluice, rank, port, task, variables) for rank in range(2)]
    try:
        ranks[1].wait_for("^ready", 30)
        begun = time.monotonic()
        ranks[0].wait_for(r"rank 1 is busy: its loop has not turned for", options.seconds + SLACK)
        ranks[1].wait_for("^was-busy", options.seconds + 30)
        busy = time.monotonic() - begun
        ranks[0].wait_for("rank 1 is no longer busy", SLACK)
        time.sleep(1)  # no rank is lost afterwards either
        if any(line.startswith("lost ") for rank in ranks for line in rank.said):
            raise RuntimeError("a rank is lost:\n" + "\n".join(ranks[0].said + ranks[1].said))
        ranks[1].process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        lost = ranks[0].wait_for(r"^lost 1 ", SILENCE_LIMIT + SLACK)
        noticed = time.monotonic() - stopped
        return {
            "busy_s": round(busy, 2),
            "lost_while_busy": 0,
            "stopped_noticed_s": round(noticed, 2),
            "said": lost,
            "ok": busy > SILENCE_LIMIT and noticed > 1.0,
        }
    finally:
        for rank in ranks:
            rank.process.kill()
            rank.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sluice")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--fabric", default="tcp")
    try:
        result = run(parser.parse_args())
    except RuntimeError as error:
        print(f"busy_loop: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
