#!/usr/bin/env python3
"""Runs clang-tidy-19 (.clang-tidy, with clang's own warnings and -Wthread-safety) on our source files.

  scripts/tidy.py [--build build/dev] [FOLDER...]      e.g. scripts/tidy.py sluice/base

A file that passed is not looked at again until it, a header of ours that it includes, its compile command or
.clang-tidy changes: the proof is a file in build/tidy (or $SLUICE_TIDY_CACHE), named by a hash of all these.
"""
import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIDY, CLANG = "clang-tidy-19", "clang++-19"
# Shallow: the analyzer follows no call into its callee. -Wno-unknown-warning-option: the commands are gcc's.
EXTRA = ["-Wthread-safety", "-Wno-unknown-warning-option", "-Xclang", "-analyzer-config", "-Xclang", "mode=shallow"]


def keyOf(entry, common):
    """The hash of all that the verdict on a file depends on, or None if its includes cannot be listed."""
    command = shlex.split(entry["command"])
    flags = [f for f in command if f.startswith(("-I", "-D", "-std", "-isystem"))]
    listed = subprocess.run([CLANG, *flags, "-MM", entry["file"]], cwd=entry["directory"], capture_output=True, text=True)
    if listed.returncode != 0:
        return None
    digest = hashlib.sha256(common)
    digest.update(entry["command"].replace(str(ROOT), "").encode())
    for path in sorted(listed.stdout.split(":", 1)[1].replace("\\\n", " ").split()):
        digest.update(Path(entry["directory"], path).read_bytes())
    return digest.hexdigest()


def check(entry, build, cache, common):
    """(relative path, what clang-tidy says: empty if nothing)."""
    name = os.path.relpath(entry["file"], ROOT)
    key = keyOf(entry, common)
    if key and (cache / key).exists():
        return name, ""
    ran = subprocess.run([TIDY, "-p", str(build), "--quiet", *(f"--extra-arg={e}" for e in EXTRA), entry["file"]],
                         capture_output=True, text=True)
    if ran.returncode == 0 and key:
        (cache / key).touch()
    return name, "" if ran.returncode == 0 else ran.stdout or ran.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/dev", help="build directory with compile_commands.json")
    parser.add_argument("folders", nargs="*", help="only files below these")
    args = parser.parse_args()
    build = (ROOT / args.build).resolve()
    cache = Path(os.environ.get("SLUICE_TIDY_CACHE", ROOT / "build/tidy"))
    cache.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([TIDY, "--version"], check=True, capture_output=True).stdout
    common = version + (ROOT / ".clang-tidy").read_bytes() + " ".join(EXTRA).encode()
    only = tuple(str((ROOT / f).resolve()) + "/" for f in args.folders) or (str(ROOT) + "/",)
    entries = {e["file"]: e for e in json.loads((build / "compile_commands.json").read_text())
               if e["file"].startswith(only) and not e["file"].startswith(str(build))}
    faulty = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, said in pool.map(lambda e: check(e, build, cache, common), entries.values()):
            if said:
                faulty.append(name)
                print(said, flush=True)
    print(f"tidy: {len(entries)} files, {len(faulty)} with findings" + "".join(f"\n  {name}" for name in faulty))
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
