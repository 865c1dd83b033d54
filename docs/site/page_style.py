#!/usr/bin/env python3
"""Fails if a page of the site is too dense to be read in a hurry.

  docs/site/page_style.py                    all pages of the site
  docs/site/page_style.py --list docs/a.md   every fault of these pages, exceptions or not
  docs/site/page_style.py --count            the number of faults of each page

A paragraph or list item has at most five lines of 100 characters. A sentence has at most 30 words;
a piece of code in backquotes is one word. A cell of a table has at most 120 characters, without the
targets of links. Code, headings and comments do not count. EXCEPTIONS lists the pages that are not
in line yet, each with the number of its faults: it must not rise.
"""

import argparse
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES, WIDTH, MOST_WORDS, MOST_IN_CELL = 5, 100, 30, 120
# The pages of the site beside those of docs/ and docs/site.
MORE_PAGES = ("CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "examples/README.md")
EXCEPTIONS = {
    "docs/configuration.md": 10,
}
# Names with which a sentence may begin in lower case.
NAMES = "sluice|wfbp|mgwfbp|mgp3|gosgd|adpsgd|easgd|asp|ssp|int8|torchrun"
SENTENCE_END = re.compile(rf"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_]*(?:\[|[A-Z0-9`]|(?:{NAMES})\b))")


def site_pages():
    """Returns the pages that people write; generated ones have no author to be asked."""
    found = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/site/*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found) + list(MORE_PAGES)


def plain(text):
    """Returns the text as a reader sees it: links without targets, code as it is."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"<(https?://[^>]*)>", r"\1", text)


def words_of(sentence):
    """Counts words; a piece of code is one."""
    return len(re.sub(r"`[^`]*`", "code", plain(sentence)).split())


def blocks(text):
    """Yields (line, kind, text) for each paragraph, list item ("text") and table row ("row")."""
    text = re.sub(r"<!--.*?-->", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    fence, pending, begun, in_front = None, [], 0, False

    def end():
        nonlocal pending
        if pending:
            yield begun, "text", " ".join(pending)
        pending = []

    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if number == 1 and stripped == "---":
            in_front = True
            continue
        if in_front:
            in_front = stripped != "---"
            continue
        if match := re.match(r"(`{3,}|~{3,}|:{3,})", stripped):
            if fence is None:
                yield from end()
                fence = match[1]
                if fence.startswith(":"):
                    fence = None  # its content is prose
                continue
            if stripped.startswith(fence) and set(stripped) == {fence[0]}:
                fence = None
                continue
        if fence is not None:
            continue
        if not stripped or stripped.startswith("#") or re.fullmatch(r"[-*_=]{3,}", stripped):
            yield from end()
        elif stripped.startswith("|"):
            yield from end()
            yield number, "row", stripped
        elif re.match(r"(:\w+:|\(\w[\w-]*\)=)", stripped):
            yield from end()
        else:
            if re.match(r"([-*+]|\d+\.)\s", stripped):
                yield from end()
            if not pending:
                begun = number
            pending.append(stripped)
    yield from end()


def faults_of(page):
    """Returns (line, what) for each fault of a page."""
    found = []
    for line, kind, text in blocks((ROOT / page).read_text()):
        if kind == "row":
            cells = re.split(r"(?<!\\)\|", text)[1:-1]
            for cell in cells:
                length = len(plain(cell.strip()))
                if length > MOST_IN_CELL:
                    found.append((line, f"a cell of {length} characters: {cell.strip()[:60]}..."))
            continue
        text = re.sub(r"^([-*+]|\d+\.)\s+", "", text)
        wrapped = len(textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False))
        if wrapped > MOST_LINES:
            found.append((line, f"a paragraph of {wrapped} lines: {text[:60]}..."))
        for sentence in SENTENCE_END.split(text):
            if words_of(sentence) > MOST_WORDS:
                found.append(
                    (line, f"a sentence of {words_of(sentence)} words: {sentence[:70]}...")
                )
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", help="from the root; default: all of the site")
    parser.add_argument("--list", action="store_true", help="show faults of exceptions, too")
    parser.add_argument("--count", action="store_true", help="only the number of each page")
    arguments = parser.parse_args()
    bad = 0
    pages = arguments.pages or site_pages()
    for page in pages:
        found = faults_of(page)
        allowed = 0 if arguments.list else EXCEPTIONS.get(page, 0)
        if arguments.count:
            if found:
                print(f"{len(found):5} {page}")
            continue
        if len(found) > allowed:
            bad += 1
            for line, what in found:
                print(f"{page}:{line}: {what}")
            if allowed:
                print(f"{page}: {len(found)} faults, and its exception has {allowed}")
        elif len(found) < allowed:
            print(f"{page}: {len(found)} faults: lower its exception, which has {allowed}")
    if not arguments.count:
        print(f"{len(pages)} pages, {len(EXCEPTIONS)} not in line yet, {bad} with new faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
