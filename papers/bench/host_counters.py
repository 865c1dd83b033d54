"""Counts the bytes of a rank's host on the wire, and the processor time of the rank's processes."""

from __future__ import annotations

import os
from pathlib import Path


def bytes_on_wire(interface: str = "eth0") -> tuple[int, int]:
    """Returns the bytes that this network namespace has sent and received, with all headers."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == interface:
            fields = counters.split()
            return int(fields[8]), int(fields[0])
    return 0, 0


class SessionTime:
    """Processor time of all processes of this session, which the driver has made for the rank."""

    def __init__(self) -> None:
        self.files = [
            path / "stat"
            for path in Path("/proc").iterdir()
            if path.name.isdigit() and _fields(path / "stat")[3:4] == [str(os.getsid(0))]
        ]

    def seconds(self) -> float:
        """Returns the time of the processes that were there at the beginning."""
        ticks = sum(int(field) for file in self.files for field in _fields(file)[11:13])
        return ticks / os.sysconf("SC_CLK_TCK")


def _fields(stat: Path) -> list[str]:
    """Returns the fields of /proc/PID/stat after the name; none, if the process has ended."""
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:
        return []
