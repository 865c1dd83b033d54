"""Tests tools/sim/calibrate_hosts.py with made-up measurements, whose costs are known."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "sim" / "calibrate_hosts.py"
spec = importlib.util.spec_from_file_location("calibrate_hosts", SCRIPT)
assert spec is not None and spec.loader is not None
calibrate_hosts = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = calibrate_hosts  # dataclasses look for it there
spec.loader.exec_module(calibrate_hosts)

MODEL = 102e6
SENT = 2 * MODEL * 3 / 4


def made_up(messages: float, noise: float = 1) -> object:
    """A rank of four that takes 7 us for a message and 1.8 ns for a byte, at both ends."""
    other = MODEL * (calibrate_hosts.SUMMED_NS + calibrate_hosts.UPDATED_NS / 4)
    nanoseconds = messages * 7000 + SENT * 1.8 + other
    return calibrate_hosts.Measured(messages, SENT, MODEL, 4, noise * nanoseconds * 1e-9)


def refusal(*rows: object) -> str:
    try:
        calibrate_hosts.fit(list(rows))
    except ValueError as error:
        return str(error)
    return ""


exact = calibrate_hosts.fit([made_up(1000), made_up(12_000)])
assert abs(exact["message_sent_ns"] - 3500) < 1, exact
assert abs(exact["message_received_ns"] - 3500) < 1, exact
assert abs(exact["byte_sent_ns"] + exact["byte_received_ns"] - 1.8) < 0.001, exact

noisy = calibrate_hosts.fit([made_up(m, noise) for m in (1000, 12_000) for noise in (0.98, 1.02)])
assert abs(noisy["message_sent_ns"] - 3500) < 350, noisy

assert "two sizes" in refusal(made_up(1000), made_up(1000, 1.02))
assert "cannot be" in refusal(made_up(1000), made_up(12_000, 0.5))
