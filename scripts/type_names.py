#!/usr/bin/env python3
"""Fails if two types of one folder of sluice/, or two in the namespace sluice itself, have one
name.

  scripts/type_names.py

One word means one thing. Types are classes, structs and enums at namespace scope, also in anonymous
namespaces; a type inside a class has that class as its surname. The code is formatted, so that a
definition at namespace scope begins in the first column.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TYPE = re.compile(
    r"^(?:class|struct|union|enum(?: class| struct)?) (?:\[\[\w+\]\] )?"
    r"(?:SLUICE_\w+(?:\([^)]*\))? )*(\w+)(?!\w|::)"
    r"(?: final)?(?: ?:[^;]*)?(?: \{.*)?$"
)
NAMESPACE = re.compile(r"^namespace (sluice[\w:]*) \{$")


def typesOf(path):
    """Yields (namespace, name) for every type that a file defines at namespace scope."""
    namespace = ""
    for line in (ROOT / path).read_text().split("\n"):
        if match := NAMESPACE.match(line):
            namespace = match[1]
        elif match := TYPE.match(line):
            yield namespace, match[1]


def main():
    known = [
        "git",
        "ls-files",
        "-co",
        "--exclude-standard",
        "sluice/*.h",
        "sluice/*.cc",
        "tools/*.h",
        "tools/*.cc",
    ]
    listed = subprocess.run(
        [*known, "include/sluice/*.h"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    of_folder, of_sluice = defaultdict(set), defaultdict(set)
    for path in listed:
        # A file without_x.cc is compiled instead of x.
        if not (ROOT / path).exists() or "/without_" in path:
            continue
        for namespace, name in typesOf(path):
            of_folder[str(Path(path).parent), name].add(path)
            if namespace == "sluice":
                of_sluice[name].add(path)
    twice = [(name, where) for (_, name), where in of_folder.items()]
    twice += [(f"sluice::{name}", where) for name, where in of_sluice.items()]
    faults = [(name, where) for name, where in twice if len(where) > 1]
    for name, where in sorted(faults):
        print(f"{name} is a type in {', '.join(sorted(where))}")
    print(f"{len(of_folder)} types, {len(faults)} names with two meanings")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
