#!/usr/bin/env python3
"""Every path and every name of the code in pages that lead through the code is there.

  pages_test.py

Looks at the backquoted words of docs/follow-a-slice.md and docs/add-an-algorithm.md. A word with a
file's ending must be a file, from the root, from sluice/ or from a room of it. `A::b` must be a
member b that a file which defines A has. Other words that look like names of the code (camelCase,
CamelCase, kConstants) must stand in it.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/follow-a-slice.md", "docs/add-an-algorithm.md")
ROOMS = [str(room.relative_to(ROOT)) for room in (ROOT / "sluice").iterdir() if room.is_dir()]
FOLDERS = ("", "sluice", *ROOMS, "sluice/algorithms/catalogue", "docs", "include")
# Names that a page makes up.
INVENTED = {"layers.cc", "chooseLayers", "makeLayers", "kLayers"}


def read_code():
    listed = [
        "git",
        "ls-files",
        "-co",
        "--exclude-standard",
        "sluice/*.h",
        "sluice/*.cc",
        "include/*.h",
    ]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in names.split()]
    return {path: path.read_text() for path in paths if path.exists()}


def is_there(word, code, whole):
    if word in INVENTED:
        return True
    if re.fullmatch(r"[\w./-]+\.(h|cc|py|md|txt)", word):
        return any((ROOT / folder / word).exists() for folder in FOLDERS)
    if match := re.fullmatch(r"(?:\w+::)*(\w+)::(\w+)(?:\(\))?", word):
        owner = re.compile(rf"\b(?:class|struct|namespace)\b[^;{{]*\b{match[1]}\b[^;]*\{{")
        files = [text for text in code.values() if owner.search(text)]
        member = re.compile(rf"\b{match[2]}\b")
        return any(member.search(text) for text in files)
    if re.fullmatch(r"k?[A-Za-z][a-z0-9]+(?:[A-Z][a-z0-9]*)+(?:\(\))?", word):
        return re.search(rf"\b{word.removesuffix('()')}\b", whole) is not None
    return True


def main():
    code = read_code()
    whole = "\n".join(code.values())
    seen, missing = 0, []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
        for word in re.findall(r"`([^`\n]+)`", text):
            seen += 1
            if not is_there(word.strip(), code, whole):
                missing.append(f"{page}: `{word}` is not in the tree")
    print("\n".join([*missing, f"{seen} words, {len(missing)} of them not in the tree"]))
    return 1 if missing or seen < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
