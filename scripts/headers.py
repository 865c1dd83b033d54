#!/usr/bin/env python3
"""Compiles each header alone, with clang.

  scripts/headers.py [--build build/lint] [FOLDER...]      e.g. scripts/headers.py sluice/base

Most of the time of a header is spent on its includes. So a header is compiled on top of the largest
precompiled header among those that it includes anyway, and sees nothing that it would not see
alone. A header is precompiled if several others can use it. (Precompiled headers do not use each
other: clang 19 then loses macros whose name is also used as another name.)
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLANG = "clang++-19"
LEAST = 4  # users of a precompiled header that make it worth its time
INCLUDE = re.compile(r"^\s*#\s*include\s*[<\"]([^>\"]+)[>\"]", re.MULTILINE)


def flagsOfHeaders(build):
    """Returns {header: flags} of the files that CMake makes to verify header sets; each includes
    one header."""
    flags = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if "_verify_interface_header_sets/" in entry["file"]:
            command = shlex.split(entry["command"])
            header = entry["file"].split("_verify_interface_header_sets/")[1].removesuffix(".cxx")
            following = [
                f"{flag}{value}" for flag, value in zip(command, command[1:]) if flag == "-isystem"
            ]
            flags[header] = [f for f in command if f.startswith(("-I", "-D", "-std"))] + following
    # A precompiled header fits only the macros that it was made with, and nearly all headers use
    # public ones.
    for header in flags:
        if header.count("/") == 1:
            flags[header] = flags["sluice/base/status.h"]
    return flags


def pathOf(header):
    """Returns the path of a header. Public headers are in include/."""
    return ROOT / "include" / header if header.count("/") == 1 else ROOT / header


class Includes:
    """The includes of each header, also those by way of other headers."""

    def __init__(self, headers):
        self._direct = {header: INCLUDE.findall(pathOf(header).read_text()) for header in headers}
        self._all = {}

    def all(self, header):
        if header not in self._all:
            self._all[header] = set()  # for headers that include each other
            ours = [name for name in self._direct[header] if name in self._direct]
            self._all[header] = set(self._direct[header]).union(*map(self.all, ours))
        return self._all[header]

    def bases(self):
        """Returns {header: its precompiled base}, without the headers that have no base. Every base
        is among these."""
        kept = set(self._direct)
        while True:
            bases = {
                header: max(
                    kept & self.all(header), key=lambda name: len(self.all(name)), default=None
                )
                for header in self._direct
            }
            users = Counter(bases.values())
            fewest = min((users[name] for name in kept), default=LEAST)
            if fewest >= LEAST:
                return {
                    header: base for header, base in bases.items() if base and header not in kept
                }
            kept = {name for name in kept if users[name] > fewest}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--build", default="build/lint", help="build directory with compile_commands.json"
    )
    parser.add_argument("folders", nargs="*", help="only headers below these")
    args = parser.parse_args()
    build = (ROOT / args.build).resolve()
    flags = flagsOfHeaders(build)
    bases = Includes(flags).bases()
    only = tuple(f"{folder}/" for folder in args.folders) or ("",)
    wanted = [header for header in flags if header.startswith(only)]
    stoodOn = {bases[header] for header in wanted if header in bases}
    headers = [*stoodOn, *(header for header in wanted if header not in stoodOn)]
    running, faulty = {}, 0

    def compileAlone(header, kept):
        """Returns (its precompiled header, or None; exit code; what clang says)."""
        precompiled = running[bases[header]].result()[0] if header in bases else None
        standsOn = ["-include-pch", precompiled] if precompiled else []
        output = ["-o", kept] if header in stoodOn else ["-fsyntax-only"]
        ran = subprocess.run(
            [CLANG, *flags[header], *standsOn, "-x", "c++-header", str(pathOf(header)), *output],
            capture_output=True,
            text=True,
        )
        return (
            (kept if header in stoodOn and ran.returncode == 0 else None),
            ran.returncode,
            ran.stderr,
        )

    with tempfile.TemporaryDirectory(dir=build) as room, ThreadPoolExecutor(os.cpu_count()) as pool:
        # A base is always started before the headers that wait for it.
        for number, header in enumerate(headers):
            running[header] = pool.submit(compileAlone, header, f"{room}/{number}.pch")
        for header in headers:
            _, code, said = running[header].result()
            faulty += code != 0
            print(said, end="", flush=True)
    print(f"headers: {len(headers)}, of which {faulty} do not compile alone")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
