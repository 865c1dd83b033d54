#!/usr/bin/env python3
"""Runs clang-tidy-19 (.clang-tidy, with clang's own warnings and -Wthread-safety) on our source
files.

  scripts/tidy.py [--build build/dev] [--tests] [FOLDER...]      e.g. scripts/tidy.py sluice/base

Tests take as long as all other files, so they are checked only with --tests.

Most of the time of one file is spent on the headers it includes. So neighbouring files are checked
together, as one file that includes them all, except files that use a name of another. Only "no
findings" is final for such a group: otherwise its halves are checked, down to single files.

A group that passed is not checked again until one of its files, a header of ours that they include,
their compile command or .clang-tidy changes. The proof is a file in build/tidy (or
$SLUICE_TIDY_CACHE), named by a hash of all these.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIDY, CLANG = "clang-tidy-19", "clang++-19"
# Files in a group: enough to share the cost of the headers, few enough to keep all CPUs busy.
MOST = 75
# Shallow: the analyzer follows no call into its callee. -Wno-unknown-warning-option: the commands
# are gcc's.
EXTRA = [
    "-Wthread-safety",
    "-Wno-unknown-warning-option",
    "-Xclang",
    "-analyzer-config",
    "-Xclang",
    "mode=shallow",
]


def flagsOf(entry):
    """Returns the part of gcc's compile command that clang needs, without the precompiled header
    and the options for generating code."""
    command = shlex.split(entry["command"])
    following = [
        f"{flag}{value}" for flag, value in zip(command, command[1:]) if flag == "-isystem"
    ]
    return tuple(
        f for f in command if f.startswith(("-I", "-D", "-std", "-W")) and f != "-Winvalid-pch"
    ) + tuple(following)


def isTest(file):
    return file.endswith("_test.cc") or file.startswith(f"{ROOT}/tests/")


class Checker:
    def __init__(self, cache):
        self.cache = cache
        version = subprocess.run([TIDY, "--version"], check=True, capture_output=True).stdout
        self.common = version + (ROOT / ".clang-tidy").read_bytes() + " ".join(EXTRA).encode()

    def read(self, flags, files, unit):
        """Returns (the hash of all input of the verdict, the files with errors when read
        together)."""
        with tempfile.NamedTemporaryFile("r") as includes:
            ran = subprocess.run(
                [
                    CLANG,
                    *flags,
                    "-Wno-unknown-warning-option",
                    "-fsyntax-only",
                    "-MMD",
                    "-MF",
                    includes.name,
                    unit,
                ],
                capture_output=True,
                text=True,
            )
            if ran.returncode != 0:
                named = set(
                    re.findall(r"^(.+?):\d+:\d+: (?:fatal )?error: ", ran.stderr, re.MULTILINE)
                )
                return None, [file for file in files if file in named]
            listed = includes.read().split(":", 1)[1].replace("\\\n", " ").split()
        digest = hashlib.sha256(self.common + " ".join(flags).replace(str(ROOT), "").encode())
        for path in sorted(listed):
            if path != unit:
                digest.update(Path(path).read_bytes())
        return digest.hexdigest(), []

    def findings(self, flags, files):
        """Returns {file: text of clang-tidy}, only for files with findings."""
        with tempfile.NamedTemporaryFile("w", suffix=".cc") as unit:
            unit.writelines(f'#include "{file}"\n' for file in files)
            unit.flush()
            key, apart = self.read(flags, files, unit.name)
            if key and (self.cache / key).exists():
                return {}
            # Some files use the same name for different things, so they cannot be in one unit.
            if apart and len(apart) < len(files):
                return self.findings(
                    flags, [file for file in files if file not in apart]
                ) | self.findings(flags, apart)
            looked_at = files[0] if len(files) == 1 else unit.name
            ran = subprocess.run(
                [
                    TIDY,
                    f"--config-file={ROOT}/.clang-tidy",
                    "--quiet",
                    looked_at,
                    "--",
                    *flags,
                    *EXTRA,
                ],
                capture_output=True,
                text=True,
            )
        if ran.returncode == 0:
            if key:
                (self.cache / key).touch()
            return {}
        if len(files) == 1:
            return {files[0]: ran.stdout or ran.stderr}
        half = len(files) // 2
        return self.findings(flags, files[:half]) | self.findings(flags, files[half:])


def groups(entries):
    """Yields (flags, files): neighbouring files with the flags of them all. Tests, and files
    with foreign headers of their own, are apart."""
    together = {}
    for entry in entries:
        foreign = tuple(flag for flag in flagsOf(entry) if flag.startswith("-isystem"))
        together.setdefault((isTest(entry["file"]), foreign), []).append(entry)
    for found in together.values():
        flags = tuple(dict.fromkeys(flag for entry in found for flag in flagsOf(entry)))
        files = sorted(
            (entry["file"] for entry in found),
            key=lambda file: (not file.startswith(f"{ROOT}/sluice/"), file),
        )
        size = -(-len(files) // -(-len(files) // MOST))
        for first in range(0, len(files), size):
            yield flags, files[first : first + size]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--build", default="build/dev", help="build directory with compile_commands.json"
    )
    parser.add_argument(
        "--tests", action="store_true", help="also *_test.cc and what else is in tests/"
    )
    parser.add_argument("folders", nargs="*", help="only files below these")
    args = parser.parse_args()
    build = (ROOT / args.build).resolve()
    cache = Path(os.environ.get("SLUICE_TIDY_CACHE", ROOT / "build/tidy"))
    cache.mkdir(parents=True, exist_ok=True)
    checker = Checker(cache)
    only = tuple(str((ROOT / f).resolve()) + "/" for f in args.folders) or (str(ROOT) + "/",)
    entries = {
        e["file"]: e
        for e in json.loads((build / "compile_commands.json").read_text())
        if e["file"].startswith(only)
        and not e["file"].startswith(str(build))
        and (args.tests or not isTest(e["file"]))
    }
    faulty = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda group: checker.findings(*group), groups(entries.values())):
            faulty |= found
            for said in found.values():
                print(said, flush=True)
    print(
        f"tidy: {len(entries)} files, {len(faulty)} with findings"
        + "".join(f"\n  {os.path.relpath(file, ROOT)}" for file in faulty)
    )
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
