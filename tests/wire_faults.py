#!/usr/bin/env python3
"""Tests the tests of what kvstore, slicing, p3 and sluice put on the wire: plants one fault after
another in a copy of the tree, builds, and checks that WireOrder (sluice/strategy/testing/
wire_order_test.cc) fails. Prints the number of faults that were found.

    tests/wire_faults.py [NAME...]      # takes a few minutes; only these faults
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("sluice/strategy")
TARGET = "sluice_strategy_testing_test"

# Each fault: the file, the text that is replaced, and the text in its place.
FAULTS = {
    "kvstore-pulls-at-a-parts-notice": (
        "algorithms/kvstore.cc",
        "makeNotifying(context, Answer::kNotifyAndPull)",
        "makeNotifying(context, Answer::kNotifyAndPullParts)",
    ),
    "kvstore-sends-by-priority": (
        "algorithms/kvstore.cc",
        "{.order = queue::Order::kFifo}",
        "{.order = queue::Order::kPriority, .window = 1}",
    ),
    "p3-waits-for-a-pull": (
        "algorithms/p3.cc",
        "makeCollecting(context, {.egress",
        "makeCollecting(context, {.answer = Answer::kNotifyAndPullParts, .egress",
    ),
    "p3-publishes-after-all-slices-of-a-tensor": (
        "server/collecting_server.cc",
        "  for (const Rank worker : parts_.roles().workers) {\n"
        "    if (parts_.style.answer != Answer::kBroadcast",
        "  static std::map<std::pair<const void*, TensorId>, size_t> finished;\n"
        "  size_t here = 0;\n"
        "  for (const Slice& each : parts_.plan().slicesOf(slice.tensor))\n"
        "    here += each.server == parts_.self ? 1 : 0;\n"
        "  if (++finished[{this, slice.tensor}] % here != 0) return;\n"
        "  for (const Slice& each : parts_.plan().slicesOf(slice.tensor)) {\n"
        "    if (each.server != parts_.self || each.id == slice.id) continue;\n"
        "    for (const Rank worker : parts_.roles().workers) publish(each, step, worker);\n"
        "  }\n"
        "  for (const Rank worker : parts_.roles().workers) {\n"
        "    if (parts_.style.answer != Answer::kBroadcast",
    ),
    "p3s-window-is-unbounded": (
        "algorithms/p3.cc",
        "kWindowSlices * sliceBytes",
        "queue::kUnlimited + 0 * kWindowSlices * sliceBytes",
    ),
    "slicing-sends-by-priority": (
        "algorithms/slicing.cc",
        "{.order = queue::Order::kFifo}",
        "{.order = queue::Order::kPriority, .window = 1}",
    ),
}


def copy_of_the_tree(copy: Path) -> None:
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


def build(copy: Path) -> None:
    # Clones in different folders share the compiler's cache.
    environment = os.environ | {"CCACHE_BASEDIR": str(copy), "CCACHE_NOHASHDIR": "1"}
    command = ["cmake", "--build", "--preset", "release", "--target", TARGET]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])


def failures(copy: Path) -> list[str]:
    """Returns the names of the tests that fail."""
    command = [copy / "build/release/bin" / TARGET, "--gtest_filter=WireOrder.*"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    failed = {line.split()[3] for line in lines if line.startswith("[  FAILED  ] WireOrder.")}
    return sorted(failed) or (["it crashed"] if done.returncode != 0 else [])


def main(wanted: list[str]) -> int:
    found = 0
    names = wanted or list(FAULTS)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_of_the_tree(copy)
        subprocess.run(["cmake", "--preset", "release"], cwd=copy, check=True, capture_output=True)
        build(copy)
        if broken := failures(copy):
            raise SystemExit(f"without any fault these fail already: {', '.join(broken)}")
        for name in names:
            file, text, planted = FAULTS[name]
            path = copy / FOLDER / file
            whole = path.read_text()
            if whole.count(text) != 1:
                raise SystemExit(f"{name}: {file} does not have '{text}' once; correct this script")
            path.write_text(whole.replace(text, planted))
            build(copy)
            failed = failures(copy)
            found += bool(failed)
            print(
                f"{name}: {'found by ' + ', '.join(failed) if failed else 'NOT FOUND'}", flush=True
            )
            path.write_text(whole)
    print(f"{found} of {len(names)} faults found")
    return 0 if found == len(names) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
