#!/usr/bin/env python3
"""Prints the page of all commands and flags from the program's own help.

  docs/site/commands.py SLUICE      scripts/build_site.sh calls this

SLUICE is the program. The programs sluice-NAME in Python are asked in this process, which needs
Torch and the folder of the package in PYTHONPATH, since each would import Torch for itself.
"""

import contextlib
import importlib
import io
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 92
PROGRAMS = {
    "doctor device": "sluice.doctor.command",
    "profile": "sluice._measure.profile_command",
    "reproduce": "sluice_papers.reproduce.command",
    "study": "sluice_papers.study.command",
}
HEAD = """# All commands and flags

Look here for a flag, or ask the program: `sluice COMMAND --help` prints the same text.
[command-line.md](../../docs/command-line.md) has what all commands share: output, errors and exit codes.
"""
PROGRAMS_HEAD = """
## Programs in Python

These come with the Python package or lie beside the program. `sluice NAME` finds them.
"""


def wrapped(text):
    """Returns the lines of a help text, long ones broken under their own column."""
    lines = []
    for line in text.rstrip().split("\n"):
        column = re.match(r"\s*\S.*?\s{2,}(?=\S)", line)
        own = len(line) - len(line.lstrip())
        indent = " " * min(len(column[0]) if column else own, 34)
        lines += textwrap.wrap(
            line.rstrip(), WIDTH, subsequent_indent=indent, drop_whitespace=True,
            replace_whitespace=False, break_long_words=False, break_on_hyphens=False,
        ) or [""]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)


def help_of(program, command):
    said = subprocess.run(
        [program, *command, "--help"], check=True, capture_output=True, text=True,
        env={"PATH": "/nowhere"},
    ).stdout  # fmt: skip
    # Programs beside this one depend on the folder.
    return re.sub(r"\nPrograms sluice-NAME found here:\n(?:  .*\n)+", "", said)


def commands(program, command=()):
    """Yields (command, help) for a command and all below it."""
    text = help_of(program, command)
    yield command, text
    listed = re.search(r"\nSubcommands:\n((?:  .*\n)+)", text)
    for line in listed[1].splitlines() if listed else []:
        match = re.match(r"  (\S+)", line)
        if match and " ".join((*command, match[1])) not in PROGRAMS:
            yield from commands(program, (*command, match[1]))


def section(command, text):
    name = " ".join(["sluice", *command])
    level = "##" if len(command) < 2 else "###"
    summary, _, rest = text.strip().partition("\n")
    summary = summary.strip().replace("*", "\\*").replace("<", "&lt;")
    stop = "" if summary.endswith(".") else "."
    body = "\n".join(textwrap.wrap(summary + stop, 100))
    return f"\n{level} {name}\n\n{body}\n\n```text shown\n{wrapped(rest.strip())}\n```\n"


def python_sections(program):
    """Yields the sections of the programs in Python."""
    os.environ["COLUMNS"] = str(WIDTH)
    for name, module in PROGRAMS.items():
        said = io.StringIO()
        arguments = [*name.split()[1:], "--help"]
        saved = sys.argv
        sys.argv = ["sluice " + name.split()[0], *arguments]
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            importlib.import_module(module).main()
        sys.argv = saved
        yield f"\n### sluice {name}\n\n```text shown\n{wrapped(said.getvalue())}\n```\n"
    plot = Path(program).with_name("sluice-plot")  # matplotlib is in another Python
    said = subprocess.run(
        [plot, "--help"], check=True, capture_output=True, text=True
    ).stdout  # fmt: skip
    yield f"\n### sluice plot\n\n```text shown\n{wrapped(said)}\n```\n"


def main():
    program = sys.argv[1]
    page = HEAD + "".join(section(*each) for each in commands(program))
    print(page + PROGRAMS_HEAD + "".join(python_sections(program)), end="")


if __name__ == "__main__":
    main()
