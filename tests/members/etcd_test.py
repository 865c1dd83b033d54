"""Starts etcd servers in a lab, asks them with `sluice members`, cuts two of three off, and takes
the lab down. Skips (77) if no lab can be made here or etcd is not installed.

etcd_test.py PATH_OF_SLUICE PATH_OF_MEMBERS_STORY
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from root import SKIPPED, skip_without_lab

PROGRAM, STORY = map(os.path.abspath, sys.argv[1:])
NAME = f"etcd{os.getpid()}"
MEMBERS = "etcd://10.77.0.3,10.77.0.4,10.77.0.5"


def lab(command, *words, **variables):
    return subprocess.run(
        [PROGRAM, "lab", command, "--name", NAME, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **variables},
    )


def members(job, *words, **variables):
    host = ("--host", 1, "--", PROGRAM, "members", job, "--members", MEMBERS)
    return lab("exec", *host, *words, **variables)


def is_alive(pid):
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def tell_a_story():
    """A job of three members loses one; its first member stays announced meanwhile."""
    with subprocess.Popen(
        [PROGRAM, "lab", "exec", "--name", NAME, "--host", "0", "--", STORY, MEMBERS, "story"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as story:
        assert story.stdout.readline() == "told\n"
        shown, table = members("story", "--json"), members("story")
        story.stdin.close()
        assert story.wait(20) == 0
    assert shown.returncode == 0, shown.stderr
    job = json.loads(shown.stdout)
    assert (job["epoch"], job["first_step"]) == (1, 120)
    seen = [(m["rank"], m["host"], m["announced"]) for m in job["members"]]
    assert seen == [(0, "host0", True), (1, "host2", False)], seen
    assert [epoch["epoch"] for epoch in job["history"]] == [0, 1]
    assert job["history"][1]["lost"][0]["address"] == "10.0.0.1:4000"
    for text in ("epoch 1 of 2 members", "host1 (10.0.0.1:4000)", "rank 1 is lost: nothing"):
        assert text in table.stdout, table.stdout
    print(table.stdout)
    stranger = members("story", SLUICE_JOB_KEY="17" * 32)
    assert "is this its key?" in stranger.stderr, stranger.stderr


def main():
    made = lab("up", "--hosts", 2, "--etcd", 3)
    assert made.returncode == 0, made.stderr
    assert f"SLUICE_MEMBERS={MEMBERS}" in made.stdout, made.stdout
    hosts = json.loads(lab("status", "--json").stdout)
    assert [bool(host["processes"]) for host in hosts] == [False, False, True, True, True]
    # `lab run` leaves the hosts of etcd out.
    assert lab("run", "--", "sh", "-c", "echo $WORLD_SIZE").stdout.count("] 2\n") == 2
    asked = members("nobody")
    assert asked.returncode == 1, asked.stderr
    assert "the store has no epoch of job nobody" in asked.stderr, asked.stderr
    tell_a_story()
    # Without two of three servers nothing is agreed.
    for host in (2, 3):
        assert lab("cut", "--host", host).returncode == 0
    asked = members("story")
    assert asked.returncode == 4, asked.stderr
    assert "none of the etcd servers" in asked.stderr, asked.stderr
    assert lab("down").returncode == 0
    assert not any(is_alive(host["processes"].split()[0]) for host in hosts[2:])


if __name__ == "__main__":
    skip_without_lab()
    if shutil.which("etcd") is None:
        print("skipped: etcd is not installed")
        sys.exit(SKIPPED)
    try:
        main()
    finally:
        lab("down")
