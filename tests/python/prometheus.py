"""A Prometheus of Debian on loopback that reads the metrics of a job, and its HTTP interface."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dashboard import DEPLOY
from ranks import free_port

# Debian's packages are there, whatever the PATH of a virtual environment.
PROGRAM = shutil.which("prometheus", path=os.environ.get("PATH", "") + ":/usr/bin")
EXAMPLE = {  # what a test replaces in deploy/prometheus/prometheus.yml
    "scrape_interval: 5s": "scrape_interval: 200ms\n  scrape_timeout: 200ms",
    "evaluation_interval: 15s": "evaluation_interval: 500ms",
}


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def _get(self, path: str, **parameters: str) -> str:
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self._url}{path}?{query}", timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            raise ValueError(error.read().decode()) from error  # this says what it did not take

    def _data(self, path: str, **parameters: str) -> Any:
        return json.loads(self._get(path, **parameters))["data"]

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Returns the series of an expression at this time. Raises a ValueError if it is none."""
        result = self._data("/api/v1/query", query=expression)["result"]
        assert isinstance(result, list)
        return result

    def label_values(self, metric: str, label: str) -> list[str]:
        found = self._data(f"/api/v1/label/{label}/values", **{"match[]": metric})
        assert isinstance(found, list)
        return found

    def alerts(self) -> dict[str, dict[str, Any]]:
        groups = self._data("/api/v1/rules")["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def is_ready(self) -> bool:
        try:
            return "Ready" in self._get("/-/ready")
        except (OSError, ValueError):
            return False


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"not so after {seconds:.0f} s: {what}"
        time.sleep(0.05)


@contextlib.contextmanager
def prometheus_of(ports: list[int], folder: Path) -> Iterator[Prometheus]:
    """Runs Prometheus with the configuration of deploy/prometheus, for ranks on these ports."""
    assert PROGRAM is not None
    text = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    addresses = {f"127.0.0.1:{9400 + rank}": f"127.0.0.1:{port}" for rank, port in enumerate(ports)}
    for old, new in {**EXAMPLE, **addresses}.items():
        assert text.count(f" {old}\n") == 1, old
        text = text.replace(f" {old}\n", f" {new}\n")
    configuration, port = folder / "prometheus.yml", free_port()
    configuration.write_text(text)
    shutil.copy(DEPLOY / "prometheus" / "alerts.yml", folder)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [PROGRAM, f"--config.file={configuration}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        prometheus = Prometheus(port)
        wait_until(prometheus.is_ready, f"Prometheus is ready; its log is {folder}/log")
        yield prometheus
    finally:
        process.kill()
        process.wait()
