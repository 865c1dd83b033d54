#!/usr/bin/env python3
"""Prints the folders of C++ that differ from main, by the names of their CMake targets.

  scripts/changed.py [--above] [BASE]

BASE is $PR_BASE by default, or else origin/main, or main. The merge base with it is compared with
the files as they are now; on main itself, the last merge is the change. --above adds the folders
that include a changed one, also by way of others. A folder is named as in sluice_folder(NAME).
"""

import argparse
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
CPP = ("*.h", "*.cc", "*CMakeLists.txt")


def git(*words):
    """Returns the words that git prints; nothing if it fails."""
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return ran.stdout.split()


def changed_files(base):
    """Returns the C++ files that differ from the merge base, also those that are gone."""
    bases = [base] if base else ["origin/main", "main"]
    common = next(found[0] for name in bases if (found := git("merge-base", "HEAD", name)))
    if common == git("rev-parse", "HEAD")[0]:
        common = "HEAD^"
    new = git("ls-files", "-o", "--exclude-standard", "--", *CPP)
    return git("diff", "--name-only", common, "--", *CPP) + new


def folder_of(header):
    """Returns the folder that <header> lies in; public headers lie in include/."""
    return str(Path("include" if (ROOT / "include" / header).exists() else "", header).parent)


def users():
    """Returns {folder: the folders that include one of its headers}."""
    found = {}
    for path in git("ls-files", "-co", "--exclude-standard", "--", "*.h", "*.cc"):
        if (ROOT / path).exists():
            for header in INCLUDE.findall((ROOT / path).read_text()):
                found.setdefault(folder_of(header), set()).add(str(Path(path).parent))
    return found


def targets_of(folder):
    """Returns the names of a folder's targets. Some folders belong to that above them."""
    if folder == "include/sluice":
        return ["library"]
    for place in (ROOT / folder, *(ROOT / folder).parents):
        listed = place / "CMakeLists.txt"
        if listed.exists() and (names := re.findall(r"sluice_folder\((\w+)", listed.read_text())):
            return names
        if place == ROOT:
            break
    return []


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", nargs="?", default=os.environ.get("PR_BASE"))
    parser.add_argument("--above", action="store_true")
    args = parser.parse_args()
    folders = list(dict.fromkeys(str(Path(name).parent) for name in changed_files(args.base)))
    if args.above:
        above = users()
        for folder in folders:
            folders += sorted(above.get(folder, set()) - set(folders))
    names = dict.fromkeys(name for folder in folders for name in targets_of(folder))
    print(*names)


if __name__ == "__main__":
    main()
