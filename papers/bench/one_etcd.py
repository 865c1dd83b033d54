"""One etcd server for a measurement, beside its job."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


class OneEtcd:
    """Runs until stop(). `enter` is a command that runs the server elsewhere, as in a namespace."""

    def __init__(
        self, folder: str, address: str, ports: tuple[int, int], enter: Sequence[str] = ()
    ) -> None:
        if shutil.which("etcd") is None:
            sys.exit("etcd is not installed; run scripts/install_deps.sh")
        client, peer = (f"http://{address}:{port}" for port in ports)
        self.members = f"etcd://{address}:{ports[0]}"  # for SLUICE_MEMBERS
        command = [*enter, "etcd", "--data-dir", f"{folder}/etcd",
                   "--listen-client-urls", client, "--advertise-client-urls", client,
                   "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                   "--initial-cluster", f"default={peer}"]  # fmt: skip
        with Path(folder, "etcd.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True
            )

    def stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
