#!/usr/bin/env python3
"""Imports of Python keep to the houses: the package sluice does not know the papers, the papers use
its public names only, and an arrow between two rooms of the package goes down.

  wall_test.py

It also plants an import of each forbidden kind, and must find it.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# From the top down. Modules outside of rooms are above all of them; _core and _c10d are below.
ROOMS = ("_front", "_engine", "_backend", "_job", "_measure", "_tensor")
BELOW = ("_core", "_c10d")


def imports(text):
    """Yields the names that a file imports, each with its module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def fault_of(path, name):
    """Returns what is wrong with an import in a file, or nothing."""
    words = name.split(".")
    if path.startswith("papers/"):
        hidden = words[0] == "sluice" and any(word[:1] == "_" for word in words)
        return "papers use public names only" if hidden and words[1] != "__version__" else None
    if words[0] == "sluice_papers":
        return "only papers know papers"
    room, other = path.split("/")[2], words[1] if words[0] == "sluice" and len(words) > 1 else ""
    if room not in ROOMS or other in BELOW or not other:
        return None
    is_down = other in ROOMS and ROOMS.index(room) <= ROOMS.index(other)
    return None if is_down else "an import of a room goes down"


def faults_in(texts):
    found = ((path, name, fault_of(path, name)) for path in texts for name in imports(texts[path]))
    return [f"{path}: {name}: {fault}" for path, name, fault in found if fault is not None]


PLANTED = (
    ("papers/sluice_papers/study/x.py", "from sluice._engine.engine import Engine"),
    ("papers/bench/x.py", "from sluice import _core"),
    ("python/sluice/demo/x.py", "import sluice_papers.study.ranks"),
    ("python/sluice/_tensor/x.py", "from sluice._engine import gates"),
    ("python/sluice/_job/x.py", "from sluice.processes import free_port"),
)


def main():
    for path, text in PLANTED:
        assert len(faults_in({path: text})) == 1, f"not found when planted: {path}: {text}"
    folders = ("python/sluice", "papers/sluice_papers", "papers/bench", "papers/figures")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    found = faults_in({str(path.relative_to(ROOT)): path.read_text() for path in files})
    print("\n".join(found) or f"{len(files)} files keep to their houses and rooms")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
