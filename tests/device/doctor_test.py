"""`sluice doctor device` on the pretend device."""

import json
import subprocess
import sys
from pathlib import Path


def doctor(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sluice.doctor", "device", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_the_doctor_finds_the_device_in_order(tmp_path: Path) -> None:
    file = tmp_path / "doctor.json"
    done = doctor("--import", "sluice_test_device", "--seconds", "1", "--output", str(file))
    assert done.returncode == 0, done.stderr
    assert "same bits as PyTorch alone" in done.stdout
    assert "sluice works on this device" in done.stdout
    findings = json.loads(file.read_text())
    assert findings["correct"] and findings["training"]["tensors_that_differ"] == 0
    assert findings["copies"]["to_host_bytes_per_second"] > 0
    assert 0 <= findings["copies"]["overlap_with_computing"] <= 1
    assert findings["training"]["sluice_step_seconds"] > 0


def test_without_an_accelerator_one_line_says_so() -> None:
    done = doctor()
    assert done.returncode == 1
    assert done.stderr.startswith("sluice doctor: PyTorch finds no accelerator here")
    assert len(done.stderr.splitlines()) == 1
