"""Asks `sluice members` with a server in etcd's place that answers anything: it stays small, ends
in time, and shows no secret. Words on a command line are not repeated where they may be secrets.

hostile_store_test.py PATH_OF_SLUICE IS_SANITIZED
"""

from __future__ import annotations

import http.server
import os
import resource
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

PROGRAM, IS_SANITIZED = sys.argv[1], sys.argv[2] == "1"
MOST_MEGABYTES = 64
MOST_CPU_SECONDS = 0.05  # for one answer, which the loop reads in one task
KEY = "17" * 32
ENTRY = b'{"key":"YQ==","value":"YWFhYWFhYWFh","mod_revision":"1","create_revision":"1"},'


def answer(piece: bytes, times: int, first: bytes = b"", last: bytes = b"") -> list[bytes]:
    return [first, *[piece] * times, last]


ANSWERS = {
    "60 MB of brackets": answer(b"[" * 1_000_000, 60),
    "objects in each other": answer(b'{"a":' * 100_000, 100),
    "a line without an end": answer(b"A" * 1_000_000, 60, b'{"result":{"a":"'),
    "a long text": answer(b"A" * 1024, 1000, b'{"kvs":[{"key":"YQ==","value":"', b'"}]}'),
    "many entries": answer(ENTRY, 9000, b'{"kvs":[', ENTRY[:-1] + b"]}"),
    "as many values as there may be": answer(ENTRY, 1900, b'{"kvs":[', ENTRY[:-1] + b"]}"),
    "wrong types": answer(b"0," * 1000, 1000, b'{"header":[],"kvs":{},"result":[', b"0]}"),
}


def server_with(
    pieces: list[bytes], requests: list[str] | None = None
) -> http.server.ThreadingHTTPServer:
    requests = [] if requests is None else requests

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.end_headers()
            try:
                for piece in pieces:
                    self.wfile.write(piece)
            except OSError:
                pass  # the client has had enough

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def ask(*words: str) -> tuple[str, int, float]:
    """Returns what the program says, its exit code, and the most memory it had, in MB."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("SLUICE_")}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [PROGRAM, *words], env={**clean, "SLUICE_JOB_KEY": KEY}, stdout=said, stderr=said
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return said.read(), process.returncode, used.ru_maxrss / 1024


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class HostileStore(unittest.TestCase):
    def test_memory_and_time_have_limits(self) -> None:
        # A port that nobody listens on: what the program needs by itself.
        with server_with([]) as nobody:
            port = nobody.server_port
            nobody.shutdown()
        begin = cpu_seconds()
        _, _, least = ask("members", "job", "--members", f"etcd://127.0.0.1:{port}")
        start = cpu_seconds() - begin
        for name, pieces in ANSWERS.items():
            requests: list[str] = []
            with self.subTest(name), server_with(pieces, requests) as server:
                address = f"etcd://127.0.0.1:{server.server_port}"
                begin = cpu_seconds()
                said, code, most = ask("members", "job", "--members", address)
                each = max(0, cpu_seconds() - begin - start) / max(1, len(requests))
                server.shutdown()
                print(
                    f"{name}: {most - least:.1f} MB more, {1e3 * each:.1f} ms for each of "
                    f"{len(requests)} answers; {said.strip()[:150]}"
                )
                assert code in (1, 4), said
                assert said.count("\n") <= 2, said  # a warning of a forged value, and the end
                if not IS_SANITIZED:
                    assert most - least < MOST_MEGABYTES
                    assert each < MOST_CPU_SECONDS

    def test_a_password_in_an_address_is_not_repeated(self) -> None:
        for words in (
            ("members", "job", "--members", "etcd://root:hunter2@a"),
            ("config", "show", "--members", "etcd://root:hunter2@a"),
        ):
            said, code, _ = ask(*words)
            assert code == 2, said
            assert "hunter2" not in said

    def test_words_behind_an_unknown_flag_are_not_repeated(self) -> None:
        for words in (
            ("rendezvous", "check", "--job-key", KEY),
            ("rendezvous", "check", f"--job-key={KEY}"),
            ("members", "j", "--members-pasword", KEY),
            ("members", "j", f"-k{KEY}"),
        ):
            said, code, _ = ask(*words)
            assert code == 2, said
            assert KEY[:8] not in said
        said, code, _ = ask("members", "j", "second", "--no-such-flag", "value")
        assert "not expected here: second --no-such-flag;" in said

    def test_a_private_file_holds_the_password(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "password"
            path.write_text("hunter2\n")
            path.chmod(0o644)
            login = ("--members-user", "a", "--members-password-file", str(path))
            said, code, _ = ask("members", "j", "--members", "etcd://127.0.0.1:1", *login)
            assert code == 3, said
            assert "holds a password but others may open it (mode 0644)" in said
            assert "hunter2" not in said


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
