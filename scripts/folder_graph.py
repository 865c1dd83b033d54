#!/usr/bin/env python3
"""Prints the arrows between the folders of sluice/, from their includes, and fails on an arrow that
goes up.

The order is the list of add_subdirectory(sluice/...) in the root CMakeLists.txt, from the bottom
up. A folder inside another (cli/bench) that is not listed itself stands just above its parent.
Tests (*_test.cc) count as part of the folder testing/ beside them, which holds their fixtures.
Foreign headers named in ROOMS may be included in one folder only. A public header (include/sluice)
counts as one of the folder that implements it.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOMS = {
    "ucp/": "fabric/ucx",
    "ucs/": "fabric/ucx",
    "uct/": "fabric/ucx",
    "torch/": "pytorch",
    "ATen/": "pytorch",
    "c10/": "pytorch",
    "pybind11/": "pytorch",
    "CLI/": "cli",
    "curl/": "membership/etcd",
}
# Each public header (include/sluice) belongs to the folder that implements it.
PUBLIC = {
    "status": "base",
    "model": "types",
    "device": "types",
    "observer": "types",
    "config": "session",
    "job": "session",
    "session": "session",
    "sluice": "session",
    "torch": "pytorch",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def placeOf(folder, order):
    """Returns (place in the list, depth below the listed folder), or None if neither the folder nor
    a parent is listed."""
    parts = folder.split("/")
    for length in range(len(parts), 0, -1):
        parent = "/".join(parts[:length])
        if parent in order:
            return order.index(parent), len(parts) - length
    return None


def main():
    root = Path(__file__).resolve().parent.parent
    order = re.findall(
        r"^\s*add_subdirectory\(sluice/([\w/]+)\)",
        (root / "CMakeLists.txt").read_text(),
        re.MULTILINE,
    )
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "sluice/*.h", "sluice/*.cc"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    arrows, faults = {}, []
    for path in filter(lambda p: (root / p).exists(), listed):
        folder = str(Path(path).parent.relative_to("sluice"))
        if path.endswith("_test.cc") and not folder.endswith("testing"):
            folder += "/testing"
        arrows.setdefault(folder, set())
        text = (root / path).read_text()
        for match in INCLUDE.finditer(text):
            header, where = match[1], f"{path}:{text.count(chr(10), 0, match.start(1)) + 1}"
            room = next((ROOMS[prefix] for prefix in ROOMS if header.startswith(prefix)), None)
            if room is not None and folder != room and not folder.startswith(room + "/"):
                faults.append(f"{where}: <{header}> belongs in sluice/{room} only")
            if not header.startswith("sluice/"):
                continue
            name = Path(header).relative_to("sluice")
            target = PUBLIC[name.stem] if len(name.parts) == 1 else str(name.parent)
            if target == folder:
                continue
            arrows[folder].add(target)
            here, there = placeOf(folder, order), placeOf(target, order)
            if here and there and there >= here:
                faults.append(
                    f"{where}: {folder} -> {target} goes up; by the order in CMakeLists.txt "
                    f"{target} stands on {folder}, not under it"
                )
    for folder in arrows:
        if placeOf(folder, order) is None:
            faults.append(
                f"sluice/{folder}: not in CMakeLists.txt; add it where it stands among the folders"
            )
    for folder in sorted(arrows, key=lambda f: (placeOf(f, order) or (len(order), 0), f)):
        print(f"{folder} -> {', '.join(sorted(arrows[folder])) or '(nothing)'}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
