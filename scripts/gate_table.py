#!/usr/bin/env python3
"""Shows where the time of the gate goes: wall time, CPU time and the time that a core was idle.

  scripts/gate_table.py watch PID   looks at the processes below PID until it ends
  scripts/gate_table.py             the steps, and the 20 longest targets and tests, of the last run
  scripts/gate_table.py steps       the steps only

A step is a process `.ci/run --inner STEP`; a target or a test is a process that ninja or ctest has
started. A look every second misses at most that much of each. CPU counts the processes below
and those that they have waited for. Idle sums the cores, and counts what runs beside a test too.
"""

import json
import os
import re
import sys
import time
from collections import defaultdict
from pathlib import Path

KEPT = Path("build/ci/times.json")
TICK = os.sysconf("SC_CLK_TCK")


def read(path):
    """Returns the text of a file in /proc; nothing if its process has ended."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def processes():
    """Returns {pid: (parent, program, CPU seconds with waited-for children)} of all processes."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if match := re.match(r"\d+ \((.*)\) (.*)", read(f"/proc/{pid}/stat"), re.DOTALL):
            words = match[2].split()
            found[int(pid)] = int(words[1]), match[1], sum(map(int, words[11:15])) / TICK
    return found


def idle_seconds():
    words = read("/proc/stat").split()
    return (int(words[4]) + int(words[5])) / TICK


def name_of(pid, program):
    """Returns kind and name of a process below one of ninja, ctest or the gate; None if neither."""
    words = read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    if program == "ninja":
        target = re.search(r" -o (\S+)", words)
        return {"kind": "target", "name": target[1] if target else words[-80:]}
    if program == "ctest":
        return {"kind": "test", "name": " ".join(map(os.path.basename, words.split()))[-80:]}
    step = re.search(r"\.ci/run --inner (.+)", words)
    return {"kind": "step", "name": step[1]} if step else None


def tree_of(pid, children):
    return [pid, *(one for child in children[pid] for one in tree_of(child, children))]


def watch(top):
    """Records the processes below `top` until it ends."""
    begun = time.time(), idle_seconds()
    known = {top: {"kind": "step", "name": "all", "begun": begun, "cpu": 0.0}}
    while top in (seen := processes()):
        now, idle = time.time(), idle_seconds()
        children = defaultdict(list)
        for pid, (parent, _, _) in seen.items():
            children[parent].append(pid)
        for pid in set(tree_of(top, children)) - {os.getpid()}:
            if pid not in known:
                parent = seen.get(seen[pid][0], (0, "", 0))[1]
                named = name_of(pid, parent)
                known[pid] = named and {**named, "begun": (now, idle), "cpu": 0.0}
            if row := known[pid]:
                used = sum(seen[one][2] for one in tree_of(pid, children))
                row |= {"wall": now - row["begun"][0], "idle": idle - row["begun"][1]}
                row["cpu"] = max(row["cpu"], used)
        whole, *rows = filter(None, known.values())
        KEPT.with_suffix(".new").write_text(json.dumps([*rows, whole]))
        KEPT.with_suffix(".new").replace(KEPT)
        time.sleep(1)


def show(title, rows):
    print(f"{title:64} wall s  CPU s  idle s")
    for row in rows:
        print(f"{row['name'][-63:]:63} {row['wall']:7.0f} {row['cpu']:6.0f} {row['idle']:7.0f}")


def main():
    if sys.argv[1:2] == ["watch"]:
        watch(int(sys.argv[2]))
        return
    rows = json.loads(KEPT.read_text())
    # Processes of a step that have its words come after the first, which is there longest.
    steps = {row["name"]: row for row in reversed(rows) if row["kind"] == "step"}
    show("step", reversed(steps.values()))
    if sys.argv[1:] != ["steps"]:
        for kind in ("target", "test"):
            found = [row for row in rows if row["kind"] == kind]
            print()
            show(kind, sorted(found, key=lambda row: -row["wall"])[:20])


if __name__ == "__main__":
    main()
