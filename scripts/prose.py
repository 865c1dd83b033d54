#!/usr/bin/env python3
"""Counts comment sentences that begin with a question word, and draws comments to read.

  scripts/prose.py                          the share in this tree
  scripts/prose.py --list sluice/base       the sentences of a folder, with their places
  scripts/prose.py --draw 20 --seed 7       twenty comments at random
  scripts/prose.py --root ../leveldb        another tree

The sentence "What travels is a slice" makes a reader wait for the subject; "A slice travels" does
not. Consecutive lines of // or # comments with the same indentation are one text, and a comment
after code is a text of its own. Docstrings of Python are texts, too. A text is cut after each full
stop, exclamation or question mark that a blank follows, and at empty lines. Lines that are indented
by two or more blanks inside a comment (diagrams, code), licences and lines without letters do not
count. The script never fails: it shows the sentences, and people judge.
"""

import argparse
import ast
import random
import re
import subprocess
import sys
from pathlib import Path

QUESTION = re.compile(r"(what|who|whom|whose|which|where|how|whether|why)\b", re.IGNORECASE)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
CPP = (".h", ".cc", ".cpp", ".cxx", ".hpp", ".cu")
HASH = (".py", ".sh", ".cmake")


def listed(root):
    """Returns the files of a tree: those that git knows, or all."""
    known = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True
    )
    names = known.stdout.split("\n") if known.returncode == 0 else None
    paths = [root / name for name in names if name] if names else root.rglob("*")
    for path in sorted(paths):
        is_hash = path.suffix in HASH or path.name == "CMakeLists.txt"
        if path.is_file() and (path.suffix in CPP or is_hash):
            yield path, "//" if path.suffix in CPP else "#"


def comments(path, mark):
    """Yields (line, text) for every comment of a file."""
    lines = path.read_text(errors="replace").split("\n")
    whole = re.compile(rf"^(\s*){mark}+(?!!)(.*)$")
    after = re.compile(rf"\S.*?\s{mark}\s(.*)$")
    begun, indent, texts = 0, None, []

    def end():
        nonlocal texts
        if texts:
            yield begun, "\n".join(texts)
        texts = []

    for number, line in enumerate(lines, 1):
        match = whole.match(line)
        if match:
            if indent != match[1]:
                yield from end()
            if not texts:
                begun, indent = number, match[1]
            texts.append(match[2])
            continue
        yield from end()
        indent = None
        match = after.search(line)
        if match and line.count('"') % 2 == 0 and "http:" not in line and "https:" not in line:
            yield number, " " + match[1]
    yield from end()
    if path.suffix == ".py":
        yield from docstrings(path)


def docstrings(path):
    try:
        tree = ast.parse(path.read_text())
    except SyntaxError:
        return
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield (
                node.body[0].lineno,
                "\n".join(" " + line if line else "" for line in text.split("\n")),
            )


def sentences(text):
    """Yields the sentences of a comment; indented lines and lines of signs end one."""
    paragraph = []
    for line in [*text.split("\n"), ""]:
        if re.match(r"^ ?\S", line) and re.search(r"[A-Za-z]{2}", line) and "opyright" not in line:
            paragraph.append(line.strip())
            continue
        for sentence in SENTENCE_END.split(" ".join(paragraph)):
            if re.match(r"[\W_]*[A-Za-z]", sentence):
                yield sentence
        paragraph = []


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", help="only these, from the root")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--list", action="store_true", help="print the sentences that are counted")
    parser.add_argument("--draw", type=int, metavar="N", help="print N comments at random")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    total, found, drawn = 0, [], []
    for path, mark in listed(args.root):
        place = path.relative_to(args.root)
        if args.folders and not any(str(place).startswith(folder) for folder in args.folders):
            continue
        for line, text in comments(path, mark):
            drawn.append((place, line, text))
            for sentence in sentences(text):
                total += 1
                if QUESTION.match(sentence.lstrip("`*\"'( -")):
                    found.append((place, line, sentence))
    if args.draw:
        for place, line, text in random.Random(args.seed).sample(drawn, min(args.draw, len(drawn))):
            print(f"{place}:{line}\n{text}\n")
        return
    if args.list:
        for place, line, sentence in found:
            print(f"{place}:{line}: {sentence}")
    share = 100 * len(found) / max(total, 1)
    print(f"{len(found)} of {total} comment sentences begin with a question word: {share:.1f} %")


if __name__ == "__main__":
    sys.exit(main())
