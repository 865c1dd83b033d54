"""The demo: its link is as slow as it says, its bits are DDP's, its errors are one line."""

import os
import socket
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sluice.demo import command, experiment, plot, processes, report
from sluice.demo.figures import Figures, Profile
from sluice.demo.pacing import pace_connections
from sluice.demo.processes import Start
from sluice.demo.settings import Settings

SMALL = Settings(width=64, layers=2, batch=2, rounds=1)
FIGURES = Figures(
    rate=5e8,
    link="lab",
    plain=[0.30, 0.29, 0.31],
    ddp=[0.6, 0.6, 0.6],
    sluice=[0.4, 0.4, 0.4],
    bound=[0.36, 0.36, 0.36],
    wire_s=0.3,
    steps=21,
    digests=["ab"] * 4,
)


def test_paced_connections_are_slow() -> None:
    rate = 4_000_000
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
        with near, far:
            assert pace_connections(rate) >= 2
            for one in (near, far):
                assert struct.unpack("@L", one.getsockopt(socket.SOL_SOCKET, 47, 8)) == (rate,)
            begun = time.monotonic()
            received, data = 0, bytes(100_000)
            while received < 2_000_000:
                near.sendall(data)
                part = len(data)
                while part > 0:
                    part -= len(far.recv(part))
                received += len(data)
            assert time.monotonic() - begun > 0.2  # 0.5 s but for what goes out at once


@pytest.mark.parametrize("link", ["lab", "pacing"])
def test_both_train_over_a_link_of_this_rate(link: str) -> None:
    try:
        figures = experiment.run(SMALL, link, rate=8e6, seconds=1, say=print)
    except OSError as error:
        if link == "lab" and os.geteuid() != 0:
            pytest.skip(f"no lab here: {error}")
        raise
    assert figures.link == link
    assert figures.has_same_bits
    assert figures.wire_s > 0.3
    # A part of a gradient may be on its way before the clock starts.
    assert min(figures.ddp) > 0.8 * figures.wire_s
    assert min(figures.sluice) > 0.8 * figures.wire_s
    assert figures.bound[0] > figures.wire_s


def test_the_rate_makes_wire_and_compute_equal() -> None:
    tensor = {"name": "w", "parameters": 1_000_000, "forward": 0.4, "backward": 0.6}
    profile = Profile({"compute_s": 0.3, "other_s": 0.1, "tensors": [tensor]}, step_s=0.2)
    assert profile.passes_s == pytest.approx(0.15)
    assert profile.wire_s(profile.balanced_rate()) == pytest.approx(0.15)
    # One tensor: nothing overlaps.
    assert profile.bound_s(profile.balanced_rate()) == pytest.approx(0.35)


def test_the_text_says_what_was_found() -> None:
    text = report.text(FIGURES)
    assert "1.50 times as fast as DDP (1.50 to 1.50 in the rounds)" in text
    assert "after 21 steps" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"plain": [0.3, 0.5, 0.3]}, "the machine was busy"),
        ({"wire_s": 0.05}, "the link is fast"),
        ({"wire_s": 1.5}, "the link is slow"),
        ({}, "of the bound"),
    ],
)
def test_a_reason_is_given_if_sluice_is_slower(change: dict, words: str) -> None:
    slower = replace(FIGURES, sluice=[0.7, 0.7, 0.7], **change)
    assert words in report.reason(slower)
    assert "sluice is not faster here" in report.text(slower)


def test_different_bits_are_told() -> None:
    differing = replace(FIGURES, digests=["ab", "cd", "ab", "cd"])
    assert not differing.has_same_bits
    assert "The bits differ after 21 steps" in report.text(differing)


def test_a_picture_or_a_line_about_it(tmp_path: Path) -> None:
    said = plot.draw(FIGURES, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").is_file() or "matplotlib is missing" in said


def test_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo"])
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(SystemExit) as end:
        command.main()
    assert end.value.code == 1
    assert capsys.readouterr().err.startswith("sluice demo: RANK is set")
    monkeypatch.delenv("RANK")
    monkeypatch.setattr(command.dist, "is_gloo_available", lambda: False)
    with pytest.raises(SystemExit):
        command.main()
    error = capsys.readouterr().err
    assert "has no Gloo" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("owners", "is_refused"),
    [
        ([], False),
        (["torch-sluice"], False),
        (["sluice"], False),  # this package is a build tree, which pip cannot overwrite
        (["sluice", "torch-sluice"], True),
    ],
)
def test_another_owner_of_the_name_is_told_in_one_line(
    owners: list[str],
    is_refused: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sluice._job.ownership.packages_distributions", lambda: {"sluice": owners})
    monkeypatch.setattr("sluice._job.ownership.version", lambda _: "0.3.1")
    monkeypatch.setattr(command, "_demo", lambda _: 0)
    monkeypatch.setattr(sys, "argv", ["demo"])
    with pytest.raises(SystemExit) as end:
        command.main()
    error = capsys.readouterr().err
    assert end.value.code == (1 if is_refused else 0)
    assert error.count("\n") == (1 if is_refused else 0)
    if is_refused:
        assert "named sluice (sluice 0.3.1): run 'pip uninstall sluice torch-sluice'" in error


def sleeper() -> Start:
    return Start([sys.executable, "-c", "import time; time.sleep(60)"], dict(os.environ))


def test_ranks_that_are_late_are_ended_and_named_late(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(OSError, match="have not ended after 1 s"):
        processes.run([sleeper(), sleeper()], 1, tmp_path / "errors", print)
    assert time.monotonic() - begun < 30


def test_a_rank_that_cannot_be_started_leaves_no_other_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def start(*words: Any, **options: Any) -> "subprocess.Popen[str]":
        started.append(original(*words, **options))
        return started[-1]

    original = processes._start
    monkeypatch.setattr(processes, "_start", start)
    with pytest.raises(OSError, match="no-such-program"):
        processes.run([sleeper(), Start(["/no-such-program"], {})], 30, tmp_path / "errors", print)
    assert [process.returncode for process in started] == [-9]


def test_a_bad_rate_is_refused() -> None:
    words = [sys.executable, "-m", "sluice.demo", "--rate", "fast"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 2
    assert "use 200mbit or 1gbit" in ran.stderr


def test_a_job_on_loopback_has_one_key() -> None:
    user = {"SLUICE_JOB_KEY_FILE": "job.key", "HOME": "/home/user"}
    for start in processes.on_loopback(["program"], user):
        assert "SLUICE_JOB_KEY_FILE" not in start.variables
        assert len(start.variables["SLUICE_JOB_KEY"]) == 64 and start.variables["HOME"]
