#!/usr/bin/env python3
"""Fails if a SLUICE_CHECK or SLUICE_DCHECK of sluice/ is not in docs/checks.md, or if the document
lists one that is gone.

A failed check ends the process. So the document gives a reason for each check why another rank's
bytes, the environment, time or user code cannot make it fail. A check is known by its file and its
condition, so that the list survives edits. Tests, and the fixtures that tests and fuzzers share,
are left out. Missing rows are printed in the form of the document; a person must add the reason.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/checks.md"
CALL = re.compile(r"\bSLUICE_D?CHECK\(")
ROW = re.compile(r"^\| `((?:sluice|tools)/[^`]+)` \| `(.+)` \| (.*) \|$")


def isTest(path):
    """Returns true for tests, and for the fixtures that tests and fuzzers share."""
    return "test" in path.name or path.name.startswith("mad_") or path.stem.endswith("_world")


def firstArgument(text, start):
    """Returns the text from `start` to the comma or bracket that ends the first argument of a
    call."""
    depth, at = 0, start
    while at < len(text):
        character = text[at]
        # The quote in 200'000 belongs to a number.
        if character == '"' or (character == "'" and not text[at - 1].isalnum()):
            at += 1
            while text[at] != character:
                at += 2 if text[at] == "\\" else 1
        elif character in "([{":
            depth += 1
        elif character in ")]}" or (character == "," and depth == 0):
            if depth == 0:
                break
            depth -= 1
        at += 1
    return " ".join(text[start:at].split())


def sites():
    """Returns (file, condition) of every check, each once, in the order of the files."""
    found = {}
    for path in sorted([*(ROOT / "sluice").rglob("*"), *(ROOT / "tools").rglob("*")]):
        if path.suffix not in (".h", ".cc") or isTest(path) or path.name == "check.h":
            continue
        text = re.sub(r"//[^\n]*", "", path.read_text())
        for call in CALL.finditer(text):
            found[(str(path.relative_to(ROOT)), firstArgument(text, call.end()))] = None
    return list(found)


def listed():
    rows = {}
    for line in DOCUMENT.read_text().splitlines() if DOCUMENT.exists() else []:
        if row := ROW.match(line):
            rows[(row[1], row[2].replace("\\|", "|"))] = row[3].strip()
    return rows


def main():
    present, rows = sites(), listed()
    missing = [site for site in present if not rows.get(site)]
    stale = [site for site in rows if site not in present]
    for file, condition in missing:
        shown = condition.replace("|", "\\|")
        print(f"| `{file}` | `{shown}` | |")
    for file, condition in stale:
        print(f"{file}: {condition}: docs/checks.md lists a check that is no longer there")
    if missing:
        print(
            f"{len(missing)} checks are not in docs/checks.md: say there why each cannot be "
            "reached, or return a Status"
        )
    if not missing and not stale:
        print(f"{len(present)} checks, each with its reason in docs/checks.md")
    return 1 if missing or stale else 0


if __name__ == "__main__":
    sys.exit(main())
