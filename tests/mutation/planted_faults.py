"""Tests tests: plants one fault after another in a copy of the tree, builds, and looks which tests
fail. The programs beside it use this."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CPU_SECONDS = 60  # that the tests have to find a fault


class Fault(NamedTuple):
    file: str
    text: str  # that the file has once
    planted: str  # in its place


class Outcome(NamedTuple):
    failed: list[str]  # the names of the tests that fail, or what went wrong with all of them
    cpuSeconds: float


def copyOfTheTree(copy: Path) -> None:
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    tar = subprocess.run(
        ["tar", "-cf", "-", "--null", "-T", "-"],
        cwd=ROOT,
        check=True,
        input=files,
        capture_output=True,
    ).stdout
    subprocess.run(["tar", "-xf", "-", "-C", copy], check=True, input=tar)


def build(copy: Path, target: str) -> None:
    # Clones in different folders share the compiler's cache.
    environment = os.environ | {"CCACHE_BASEDIR": str(copy), "CCACHE_NOHASHDIR": "1"}
    command = ["cmake", "--build", "--preset", "release", "--target", target]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])


def limitCpu() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


def childrensCpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def runTests(program: Path, tests: str) -> Outcome:
    begin = childrensCpu()
    done = subprocess.run(
        [program, f"--gtest_filter={tests}"], capture_output=True, text=True, preexec_fn=limitCpu
    )
    seconds = childrensCpu() - begin
    failed = sorted(set(re.findall(r"^\[  FAILED  \] (\w\S*) \(", done.stdout, re.MULTILINE)))
    if done.returncode != 0 and not failed:
        begun = re.findall(r"^\[ RUN      \] (\S+)", done.stdout, re.MULTILINE)
        end = "did not end" if seconds > CPU_SECONDS - 1 else "crashed"
        failed = [f"{begun[-1] if begun else 'all'}, which {end}"]
    return Outcome(failed, seconds)


def findFaults(faults: dict[str, Fault], target: str, tests: str, wanted: list[str]) -> int:
    """Prints which of the target's tests find each fault, and returns the number of faults that
    none of them finds."""
    names = wanted or list(faults)
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copyOfTheTree(copy)
        subprocess.run(["cmake", "--preset", "release"], cwd=copy, check=True, capture_output=True)
        program = copy / "build/release/bin" / target
        build(copy, target)
        sound = runTests(program, tests)
        if sound.failed:
            raise SystemExit(f"without any fault these fail already: {', '.join(sound.failed)}")
        print(f"no fault: nothing fails in {sound.cpuSeconds:.1f} s of CPU", flush=True)
        for name in names:
            file, text, planted = faults[name]
            path = copy / file
            whole = path.read_text()
            if whole.count(text) != 1:
                raise SystemExit(f"{name}: {file} does not have '{text}' once; correct this script")
            path.write_text(whole.replace(text, planted))
            build(copy, target)
            failed, seconds = runTests(program, tests)
            found += bool(failed)
            print(
                f"{name}: {'found by ' + ', '.join(failed) if failed else 'NOT FOUND'} "
                f"in {seconds:.1f} s of CPU",
                flush=True,
            )
            path.write_text(whole)
    print(f"{found} of {len(names)} faults found")
    return len(names) - found
