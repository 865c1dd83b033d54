#!/usr/bin/env python3
"""A look at what has changed, in at most three minutes: `.ci/run quick`.

  scripts/quick.py [--base REV] [--seconds 180]

Looks at the files that differ from REV (by default HEAD; without such files, those of the last
commit): format, spelling, and the rules between folders. Then builds and runs the tests of the
changed folders and of the folders that include them, nearest first, in the dev build. Stops when
the time is over, and prints what it left out. The gate itself is .ci/run.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/dev"


class Clock:
    """Runs commands until the time is over."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds
        self.begun = time.monotonic()

    def run(self, what, command):
        """Returns true iff the command has succeeded; None if there was no time for it."""
        left = self.end - time.monotonic()
        if left <= 0:
            return None
        begun = time.monotonic()
        try:
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            return None
        took = time.monotonic() - begun
        if ended.returncode == 0:
            print(f"{what:32} ok  {took:5.1f} s", flush=True)
            return True
        print(f"{what:32} failed after {took:.1f} s\n{ended.stdout[-4000:]}{ended.stderr[-4000:]}")
        return False


def changed_files(base):
    """Returns the names of changed files, also of those that are gone."""

    def ask(*command):
        ran = subprocess.run(
            ["git", *command], cwd=ROOT, check=True, capture_output=True, text=True
        )
        return ran.stdout.split()

    files = ask("diff", "--name-only", base) + ask("ls-files", "-o", "--exclude-standard")
    return files or ask("diff", "--name-only", "HEAD~1")


def room_of(folder):
    """Returns the folder whose target a file belongs to: fixtures may have none of their own."""
    has_target = (ROOT / "sluice" / folder / "CMakeLists.txt").exists()
    return folder if has_target else folder.removesuffix("/testing")


def arrows():
    """Returns {folder: folders that it includes}, from scripts/folder_graph.py."""
    command = [sys.executable, "scripts/folder_graph.py"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    graph = {}
    for line in printed.splitlines():
        folder, _, targets = line.partition(" -> ")
        graph.setdefault(room_of(folder), set()).update(targets.split(", "))
    return graph


def nearest_first(changed):
    """Returns the folders of sluice/ whose tests can notice the change, nearest first."""
    graph = arrows()
    found = list(dict.fromkeys(changed))
    for folder in found:
        found += [f for f in graph if folder in graph[f] and f not in found]
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", default="HEAD")
    parser.add_argument("--seconds", type=float, default=180)
    args = parser.parse_args()
    clock, changed = Clock(args.seconds), changed_files(args.base)
    files = [name for name in changed if (ROOT / name).is_file()]
    cpp = [name for name in files if name.endswith((".h", ".cc"))]
    python = [name for name in files if name.endswith(".py")]
    steps = [("spelling", ["codespell", *files])] if files else []
    if cpp:
        steps.append(("format", ["clang-format-19", "--dry-run", "-Werror", *cpp]))
    if python:
        steps.append(("python", [sys.executable, "-m", "ruff", "check", *python]))
    for script in ("folder_graph", "checks", "type_names"):
        steps.append((script, [sys.executable, f"scripts/{script}.py"]))
    steps.append(("configure", ["bash", ".ci/run", "--inner", "configureDev"]))
    for what, command in steps:
        good = clock.run(what, command)
        if not good:
            print(f"no time for {what}" if good is None else f"{what} failed")
            return 1
    places = [re.match(r"sluice/(.+)/[^/]+$", name) for name in changed]
    folders = [room_of(place[1]) for place in places if place]
    listed = ["ninja", "-C", str(BUILD), "-t", "targets", "all"]
    known = subprocess.run(listed, capture_output=True, text=True).stdout
    left_out = []
    for folder in nearest_first(folders):
        name = folder.replace("/", "_")
        if f"sluice_{name}_test:" not in known:
            continue
        build = ["cmake", "--build", str(BUILD), "--target", f"sluice_{name}_test"]
        test = [
            "ctest",
            "--test-dir",
            str(BUILD),
            "-j2",
            "-R",
            f"^{name}\\.",
            "--output-on-failure",
        ]
        for what, command in ((f"build {folder}", build), (f"test {folder}", test)):
            good = clock.run(what, command) if folder not in left_out else None
            if good is None:
                left_out.append(folder)
                break
            if not good:
                return 1
    print(f"all in {time.monotonic() - clock.begun:.0f} s")
    if left_out:
        print(f"left out, for want of time: {', '.join(left_out)}")
    print("not looked at: release, sanitizers, tidy, headers, labs, Python (.ci/run)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
