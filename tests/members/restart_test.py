"""A job of two members is killed and started again at once, under the same name, in an etcd that
lets only users in. The second job waits until the leases of the first have ended. Then a job with a
wrong password is refused, and no text shows a password. Skips (77) if etcd is not installed.

restart_test.py PATH_OF_SLUICE FOLDER_OF_PACKAGE [--second]

--second also starts a job while the first one runs: it is refused, after half a minute.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

SKIPPED = 77
PROGRAM, PACKAGE = sys.argv[1:3]
PASSWORD = "the-right-password"
RANK = """
import sys, time, torch, sluice
torch.set_num_threads(1)
model, optimizer = sluice.distribute(
    torch.nn.Linear(4, 4), lambda parameters: torch.optim.SGD(parameters, lr=0.1))
print("begun", flush=True)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
print("done", flush=True)
"""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def post(port: int, path: str, body: dict[str, object]) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v3/{path}", data=json.dumps(body).encode()
    )
    urllib.request.urlopen(request, timeout=10).read()


@contextlib.contextmanager
def etcd(folder: Path) -> Iterator[int]:
    """Runs a server that has the users root and trainer; gives its port."""
    port, peer = free_ports(2)
    urls = {
        "listen-client-urls": port,
        "advertise-client-urls": port,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
    }
    flags = [word for flag, at in urls.items() for word in (f"--{flag}", f"http://127.0.0.1:{at}")]
    cluster = ("--initial-cluster", f"default=http://127.0.0.1:{peer}")
    with subprocess.Popen(
        ["etcd", "--data-dir", folder / "etcd", *flags, *cluster, "--bcrypt-cost", "4"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            for _ in range(200):
                with contextlib.suppress(urllib.error.URLError):
                    post(port, "kv/range", {"key": "YQ=="})
                    break
                time.sleep(0.1)
            for user in ("root", "trainer"):
                post(port, "auth/user/add", {"name": user, "password": PASSWORD})
                post(port, "auth/role/add", {"name": user})
                post(port, "auth/user/grant", {"user": user, "role": user})
            first, end = (base64.b64encode(key).decode() for key in (b"/sluice/", b"/sluice0"))
            keys = {"permType": "READWRITE", "key": first, "range_end": end}
            post(port, "auth/role/grant", {"name": "trainer", "perm": keys})
            post(port, "auth/enable", {})
            yield port
        finally:
            server.kill()


def start(steps: int, variables: dict[str, str]) -> list[subprocess.Popen[str]]:
    clean = {name: text for name, text in os.environ.items() if not name.startswith("SLUICE_")}
    (port,) = free_ports(1)
    return [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(steps)],
            env={
                **clean,
                **variables,
                "PYTHONPATH": PACKAGE,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def finish(ranks: list[subprocess.Popen[str]]) -> tuple[list[int], str]:
    """Waits for the ends; returns the exit codes, and what both have printed."""
    texts = [rank.communicate(timeout=100) for rank in ranks]
    return [rank.returncode for rank in ranks], "".join(out + err for out, err in texts)


def members(variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "members"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name, etcd(Path(name)) as port:
        password, key, wrong = (Path(name) / file for file in ("password", "key", "wrong"))
        for path, text in {password: PASSWORD, key: "17" * 32, wrong: "another-password"}.items():
            path.touch(mode=0o600)
            path.write_text(text + "\n")
        variables = {
            "SLUICE_MEMBERS": f"etcd://127.0.0.1:{port}",
            "SLUICE_MEMBERS_USER": "trainer",
            "SLUICE_MEMBERS_PASSWORD_FILE": str(password),
            "SLUICE_JOB": "restarted",
            "SLUICE_JOB_KEY_FILE": str(key),
        }
        first = start(10_000, variables)
        for rank in first:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "begun\n", finish(first)
        time.sleep(1)  # both are announced
        shown = members(variables)
        assert shown.returncode == 0, shown.stderr
        assert "epoch 0 of 2 members" in shown.stdout, shown.stdout
        if "--second" in sys.argv:
            codes, text = finish(start(5, variables))
            assert codes == [1, 1] and "is running, with a member on" in text, (codes, text)
        for rank in first:
            rank.kill()
        begin = time.monotonic()
        second = start(5, variables)
        for rank in first:
            rank.communicate()
        codes, text = finish(second)
        assert codes == [0, 0], (codes, text)
        # On a busy machine the leases have ended before the ranks are up.
        assert "for the end of its lease" in text or "of an earlier job" in text, text
        print(f"went on {time.monotonic() - begin:.1f} s after the kill")

        variables["SLUICE_MEMBERS_PASSWORD_FILE"] = str(wrong)
        codes, text = finish(start(5, variables))
        assert codes == [1, 1], (codes, text)
        shown = members(variables)
        assert shown.returncode != 0
        for said in (text, shown.stderr):
            assert "authentication failed" in said, said
            assert "another-password" not in said, said
            assert PASSWORD not in said, said


if __name__ == "__main__":
    if shutil.which("etcd") is None:
        print("skipped: etcd is not installed")
        sys.exit(SKIPPED)
    main()
