#!/usr/bin/env python3
"""Prints the arrows between the folders of sluice/ and tools/, from their includes, and fails on one
that goes up.

  scripts/folder_graph.py            all folders
  scripts/folder_graph.py --rooms    the rooms of the engine only (folders of the first level)

The order is that of sluice/CMakeLists.txt, then tools/CMakeLists.txt, from the bottom up. A folder
inside another (cli/bench) that is not listed itself stands just above its parent. Tests (*_test.cc)
count as part of the folder testing/ beside them, which holds their fixtures. Foreign headers named
in HOMES may be included in one folder only. A public header (include/sluice) counts as one of the
folder that implements it.

The engine, the tools and the papers are three houses. The engine knows nothing of the other two:
no include, no link in CMake and no import of Python points from it to them, nor from the tools to
the papers. Tests count as part of what they test.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOMES = {
    "ucp/": "sluice/transport/fabric/ucx",
    "ucs/": "sluice/transport/fabric/ucx",
    "uct/": "sluice/transport/fabric/ucx",
    "torch/": "sluice/pytorch",
    "ATen/": "sluice/pytorch",
    "c10/": "sluice/pytorch",
    "pybind11/": "sluice/pytorch",
    "CLI/": "tools/cli",
    "curl/": "sluice/join/membership/etcd",
}
# Each public header (include/sluice) belongs to the folder that implements it.
PUBLIC = {
    "status": "sluice/base",
    "model": "sluice/base",
    "device": "sluice/base",
    "observer": "sluice/base",
    "config": "sluice/session",
    "job": "sluice/session",
    "session": "sluice/session",
    "sluice": "sluice/session",
    "torch": "sluice/pytorch",
}
# The houses from the bottom up, with the paths that belong to each.
HOUSES = {
    "engine": (
        *("sluice/", "include/", "python/"),
        *("tests/python/", "tests/device/", "tests/members/", "tests/hardening/", "tests/torch/"),
    ),
    "tools": ("tools/", "fuzz/", "tests/lab/", "tests/programs/"),
    "papers": ("papers/",),
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
# A module of Python, in an import or in the command line of a program.
PAPERS = re.compile(
    r"^\s*(?:from|import)\s+sluice_papers\b|-m[\"', ]+sluice_papers\b", re.MULTILINE
)
DEFINED = re.compile(r"\b(?:sluice_folder|add_library|add_executable)\(\s*(\w+)")


def tracked(*patterns):
    """Returns the files that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    return sorted({path for path in listed if path and (ROOT / path).is_file()})


def folder_order():
    """Returns the folders of the engine and the tools, from the bottom up."""
    return [
        f"{house}/{folder}"
        for house in ("sluice", "tools")
        for folder in re.findall(
            r"^\s*add_subdirectory\(([\w/]+)\)",
            (ROOT / house / "CMakeLists.txt").read_text(),
            re.MULTILINE,
        )
    ]


def place_of(folder, order):
    """Returns (place in the list, depth below the listed folder), or None if neither the folder nor
    a parent is listed."""
    parts = folder.split("/")
    for length in range(len(parts), 0, -1):
        parent = "/".join(parts[:length])
        if parent in order:
            return order.index(parent), len(parts) - length
    return None


def room_of(folder):
    """Returns the room that a folder lies in: sluice/transport of sluice/transport/fabric/tcp."""
    return "/".join(folder.split("/")[:2])


def house_of(path):
    """Returns the house that a path belongs to, or None."""
    return next((house for house, starts in HOUSES.items() if path.startswith(starts)), None)


def above(house):
    """Returns the houses that stand on `house`."""
    houses = list(HOUSES)
    return houses[houses.index(house) + 1 :]


def read_includes(order):
    """Returns ({folder: folders that it includes}, faults)."""
    arrows, faults = {}, []
    for path in tracked("sluice/*.h", "sluice/*.cc", "tools/*.h", "tools/*.cc"):
        folder = str(Path(path).parent)
        if path.endswith("_test.cc") and not folder.endswith("testing"):
            folder += "/testing"
        arrows.setdefault(folder, set())
        text = (ROOT / path).read_text()
        for match in INCLUDE.finditer(text):
            header, where = match[1], f"{path}:{text.count(chr(10), 0, match.start(1)) + 1}"
            home = next((HOMES[prefix] for prefix in HOMES if header.startswith(prefix)), None)
            if home is not None and folder != home and not folder.startswith(home + "/"):
                faults.append(f"{where}: <{header}> belongs in {home} only")
            if not header.startswith(("sluice/", "tools/")):
                continue
            parent = str(Path(header).parent)
            target = PUBLIC[Path(header).stem] if parent == "sluice" else parent
            if target == folder:
                continue
            arrows[folder].add(target)
            here, there = place_of(folder, order), place_of(target, order)
            if here and there and there >= here:
                faults.append(
                    f"{where}: {folder} -> {target} goes up; by the order in CMakeLists.txt "
                    f"{target} stands on {folder}, not under it"
                )
    for folder in arrows:
        if place_of(folder, order) is None:
            faults.append(
                f"{folder}: not in CMakeLists.txt; add it where it stands among the folders"
            )
    return arrows, faults


def linked_targets(text):
    """Returns the targets of ours that a CMakeLists.txt names after USES, or by their whole name."""
    code = re.sub(r"#[^\n]*", "", text)
    used = re.findall(r"\bUSES\s+([a-z_\s]+)", code)
    names = {f"sluice_{name}" for name in " ".join(used).split()}
    return names | set(re.findall(r"\bsluice_\w+", code))


def wall_faults():
    """Returns the links of CMake and the imports of Python that point to a house above."""
    lists = {path: (ROOT / path).read_text() for path in tracked("*CMakeLists.txt")}
    owner = {}
    for path, text in lists.items():
        for name in DEFINED.findall(text):
            owner[f"sluice_{name.removeprefix('sluice_')}"] = house_of(path)
    faults = []
    for path, text in lists.items():
        house = house_of(path)
        for target in sorted(linked_targets(text)) if house else ():
            if owner.get(target) in above(house):
                faults.append(
                    f"{path}: {target} goes up; the {house} must not know of the {owner[target]}"
                )
    for path in tracked("*.py", "*.pyi"):
        house = house_of(path)
        if house and house != "papers" and PAPERS.search((ROOT / path).read_text()):
            faults.append(f"{path}: sluice_papers goes up; the {house} must not know of the papers")
    return faults


def main():
    order = folder_order()
    arrows, faults = read_includes(order)
    faults += wall_faults()
    if "--rooms" in sys.argv[1:]:
        rooms = {}
        for folder, targets in arrows.items():
            if folder.startswith("sluice/") and not folder.endswith("/testing"):
                room = room_of(folder)
                rooms.setdefault(room, set()).update({room_of(t) for t in targets} - {room})
        arrows = rooms
        order = list(dict.fromkeys(room_of(folder) for folder in order))
    for folder in sorted(arrows, key=lambda f: (place_of(f, order) or (len(order), 0), f)):
        print(f"{folder} -> {', '.join(sorted(arrows[folder])) or '(nothing)'}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
