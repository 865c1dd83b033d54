#!/usr/bin/env python3
"""Runs the doctests of the site's pages, and compares the page of all commands with the program.

  scripts/site_doctests.py SOURCE SLUICE     SOURCE is the folder of the staged pages

Both need Torch, whose import takes longer than either, so they share a process. The doctests of one
page share their names, as one session would.
"""

import doctest
import re
import sys
from pathlib import Path

import command_page

BLOCK = re.compile(r"^```\{doctest\}\n(.*?)^```", re.DOTALL | re.MULTILINE)


def main():
    source, program = Path(sys.argv[1]), sys.argv[2]
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    pages = 0
    for page in sorted(source.rglob("*.md")):
        text = page.read_text()
        # Lines outside of the examples become empty, so that a failure has its line in the page.
        kept = re.sub(r"[^\n]", "", text)
        blocks = [(match.start(1), match[1]) for match in BLOCK.finditer(text)]
        if not blocks:
            continue
        pages += 1
        lines = kept.split("\n")
        for start, block in blocks:
            first = text.count("\n", 0, start)
            for offset, line in enumerate(block.rstrip("\n").split("\n")):
                lines[first + offset] = line
        name = str(page.relative_to(source))
        test = doctest.DocTestParser().get_doctest("\n".join(lines), {}, name, name, 0)
        runner.run(test)
    failed, tried = runner.summarize(verbose=False)
    print(f"{tried} doctests of {pages} pages, {failed} failed", flush=True)
    sys.argv = ["command_page.py", program, "--check"]
    return 1 if failed or not tried else command_page.main()


if __name__ == "__main__":
    sys.exit(main())
