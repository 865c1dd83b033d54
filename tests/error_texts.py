#!/usr/bin/env python3
"""Fails if users can meet an error text that nobody has explained, or if an explanation is stale.

The script reads the sources and collects the texts of errors and warnings: in C++ those of a
Status, of an exception and of log().warn(), in Python those of raise and of a command's exit. An
ellipsis stands for what is filled in when the program runs. Each text must stand in one of two
files, in exactly these words:

  docs/troubleshooting.md     as an entry: **`the text`**, its meaning, and a remedy
  tests/self_explanatory.txt  if a newcomer needs no more than the text; one text on a line

  tests/error_texts.py          checks this tree, and before that the check itself
  tests/error_texts.py --list   prints every text with its place
"""

import re
import sys
import tempfile
from pathlib import Path

from error_sources import clean, textsOf

ROOT = Path(__file__).resolve().parent.parent
ENTRIES = "docs/troubleshooting.md"
SELF_EXPLANATORY = "tests/self_explanatory.txt"


def entriesOf(root):
    """Returns the texts that the page explains, section by section."""
    page = (root / ENTRIES).read_text()
    sections = re.split(r"^## .*$", page, flags=re.MULTILINE)
    entry = re.compile(r"^\*\*`(.+?)`\*\*$", re.MULTILINE | re.DOTALL)
    return [[clean(text) for text in entry.findall(section)] for section in sections]


def letters(text):
    return re.sub(r"[^a-z0-9 ]", "", text.lower()).split()


def faultsOf(root):
    """Returns one line for each fault of a tree."""
    texts, sections = textsOf(root), entriesOf(root)
    explained = [text for section in sections for text in section]
    plain = (root / SELF_EXPLANATORY).read_text().splitlines()
    known = explained + plain
    faults = [
        f"{places[0]}: no entry in {ENTRIES} explains '{text}'; write one, or add the text to "
        f"{SELF_EXPLANATORY} if it explains itself"
        for text, places in texts.items()
        if text not in known
    ]
    faults += [
        f"'{text}' is explained, but no source has it" for text in known if text not in texts
    ]
    faults += [f"'{text}' is listed twice" for text in set(known) if known.count(text) > 1]
    faults += [f"{SELF_EXPLANATORY} must be sorted"] if plain != sorted(plain) else []
    faults += [
        f"{ENTRIES}: '{text}' is out of order in its section"
        for section in sections
        for before, text in zip(section, section[1:], strict=False)
        if letters(before) > letters(text)
    ]
    return faults


# A tree for the test of the check itself: its sources, the page and the list.
TREE = {
    "sluice/a.cc": """Status a() { return {Code::kTimeout, fmt::format("rank {} is "
        "late by {:.1f} s", rank)}; }  // Status(Code::kTimeout, "a comment is no text")
        Status b() { return base::fromErrno("cannot open " + path); }
        void c() { throw std::runtime_error(isOpen ? "the door is open" : "the door is shut"); }
        void d() { log("door").warn("rank {} knocks", rank); log("door").info("all is well"); }""",
    "python/a.py": "raise ValueError(f'there is no {name}; choose another')",
    ENTRIES: "## Doors\n\n**`cannot open …: …`**\n\n**`rank … is\nlate by … s`**\n",
    SELF_EXPLANATORY: "rank … knocks\nthe door is open\nthe door is shut\n"
    "there is no …; choose another\n",
}


def checkItself():
    """Plants faults in a small tree, and fails if one of them is not found."""
    planted = {
        "nothing": ({}, None),
        "a new Status": (
            {"sluice/b.cc": 'Status(Code::kRefused, "the door is gone");'},
            "is gone'",
        ),
        "a new raise": ({"python/b.py": "raise OSError('the key is lost')"}, "key is lost'"),
        "a new warning": ({"sluice/b.h": 'log("door").warn("a hinge broke");'}, "hinge broke'"),
        "a text that is gone": ({"python/a.py": ""}, "no source has it"),
        "an entry out of order": (
            {ENTRIES: "**`rank … is late by … s`**\n\n**`cannot open …: …`**\n"},
            "out of order",
        ),
        "a list out of order": (
            {SELF_EXPLANATORY: "\n".join(reversed(TREE[SELF_EXPLANATORY].splitlines()))},
            "must be sorted",
        ),
        "a text in both files": (
            {SELF_EXPLANATORY: "cannot open …: …\n" + TREE[SELF_EXPLANATORY]},
            "listed twice",
        ),
    }
    for name, (changes, expected) in planted.items():
        with tempfile.TemporaryDirectory() as folder:
            for path, content in {**TREE, **changes}.items():
                (Path(folder) / path).parent.mkdir(exist_ok=True)
                (Path(folder) / path).write_text(content)
            faults = faultsOf(Path(folder))
        if len(faults) != (expected is not None) or (faults and expected not in faults[0]):
            sys.exit(f"the check itself is broken: with {name} planted it finds {faults}")


def main():
    if sys.argv[1:] == ["--list"]:
        for text, places in textsOf(ROOT).items():
            print(f"{places[0]}: {text}")
        return 0
    checkItself()
    faults = faultsOf(ROOT)
    print("\n".join(faults) or f"all {len(textsOf(ROOT))} error texts are explained")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
