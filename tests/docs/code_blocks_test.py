#!/usr/bin/env python3
"""Runs the code blocks of the guides as they are printed.

  code_blocks_test.py check                        every block says what is done with it
  code_blocks_test.py run --bin BUILD/bin --python BUILD/python     checks, and runs the blocks
  code_blocks_test.py script PAGE... [--marks run,hour,lab]         prints them as one bash script

A fence says it after the language, where readers of the rendered page do not see it:

  run    this test and tests/docs/first_hour.sh run it
  hour   only tests/docs/first_hour.sh runs it: it installs something or takes long
  lab    both run it, if a lab can be made there (sluice lab)
  shown  nobody runs it: something to read, output, or commands for a cluster

`file=NAME` beside `run` writes the block to a file. A diff with `file=NAME` changes the file that
an earlier block has written: its old lines must stand there exactly once. The blocks of one page
run in one shell and one folder, from top to bottom; a page that goes on where another ends runs
after it.
"""

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SKIPPED = 77  # the SKIP_RETURN_CODE in CMakeLists.txt
ROOT = Path(__file__).resolve().parents[2]
# Pages of one tuple belong together.
GUIDES = (
    ("README.md", "docs/start.md", "docs/cluster.md"),
    ("docs/choose.md",),
    ("docs/troubleshooting.md",),
    ("docs/lab.md",),
    ("docs/reproduction.md",),
    ("docs/cpp.md",),
    ("docs/pytorch.md",),
    ("docs/backend.md",),
    ("docs/plugs.md",),
    ("docs/metrics.md",),
    ("docs/trace.md",),
    ("examples/README.md",),
    ("CONTRIBUTING.md",),
)
MARKS = ("run", "hour", "lab", "shown")
SHELLS = ("bash", "sh")
SECONDS = 240  # for the blocks of one tuple of pages

# Each block begins with `step`, which writes down how long the block before it took.
PRELUDE = r"""
set -e
step() {
  [[ -z ${step_name:-} || -z ${STEPS:-} ]] ||
    printf '%s\t%d\n' "$step_name" $(((${EPOCHREALTIME/./} - step_begun) / 1000)) >>"$STEPS"
  step_name=$1 step_begun=${EPOCHREALTIME/./}
  [[ -z $1 ]] || echo "== $1"
}
lab_works() {
  if [[ -z ${lab_answer:-} ]]; then
    lab_answer=no
    if sluice lab up --name "probe-$$" --hosts 1 >/dev/null && sluice lab down --name "probe-$$"; then
      lab_answer=yes
    fi
  fi
  [[ $lab_answer == yes ]] || echo "skipped: no lab can be made here"
  [[ $lab_answer == yes ]]
}
trap 'echo "code_blocks: failed at: $step_name" >&2' ERR
"""


@dataclass
class Block:
    page: str
    line: int
    heading: str
    language: str
    mark: str
    file: str
    text: str

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def blocks_of(page):
    """Returns the fenced blocks of a page; raises if a fence does not end."""
    found, heading, begun, words, lines = [], "", 0, [], []
    for number, line in enumerate((ROOT / page).read_text().split("\n"), 1):
        fence = re.match(r"\s*```(.*)$", line)
        if begun and fence:
            files = [word[5:] for word in words[1:] if word.startswith("file=")]
            marks = [word for word in words[1:] if not word.startswith("file=")]
            language = words[0] if words else ""
            mark = marks[0] if len(marks) == 1 and marks[0] in MARKS else ""
            text = "\n".join(lines) + "\n"
            found.append(Block(page, begun, heading, language, mark, "".join(files), text))
            begun, lines = 0, []
        elif begun:
            lines.append(line)
        elif fence:
            begun, words = number, fence[1].split()
        elif line.startswith("#"):
            heading = line.lstrip("# ")
    if begun:
        raise SystemExit(f"{page}:{begun}: the block does not end")
    return found


def indented_blocks(page):
    """Returns the lines at which code begins by indentation: such a block cannot be marked."""
    lines = re.sub(
        r"^\s*```.*?^\s*```", lambda m: "x" + "\n" * m[0].count("\n"), (ROOT / page).read_text(),
        flags=re.DOTALL | re.MULTILINE,
    ).split("\n")  # fmt: skip
    found, in_list = [], False
    for number, line in enumerate(lines, 1):
        if re.match(r"(- |\d+\. )", line):
            in_list = True
        elif line and not line.startswith(" "):
            in_list = False
        if line.startswith("    ") and not in_list and not lines[number - 2]:
            found.append(number)
    return found


def check(pages):
    """Returns one line for each block that is not marked, or marked in a way that cannot be."""
    faults = []
    for page in pages:
        for line in indented_blocks(page):
            faults.append(f"{page}:{line}: indented code cannot be marked; use a fence")
        for block in blocks_of(page):
            if not block.mark:
                faults.append(f"{block.place}: the block needs one mark of {', '.join(MARKS)}")
            elif block.mark != "shown" and block.language not in SHELLS and not block.file:
                if block.language != "python":
                    faults.append(f"{block.place}: {block.language} can only be shown")
    return faults


def changed(old, diff, place):
    """Returns the text after the change that a diff shows."""
    lines = [line for line in diff.split("\n") if line]
    before = "".join(line[1:] + "\n" for line in lines if line[0] in " -")
    after = "".join(line[1:] + "\n" for line in lines if line[0] in " +")
    removed = [line[1:] for line in lines if line[0] == "-"]
    added = [line[1:] for line in lines if line[0] == "+"]
    if old.count(before) == 1:
        return old.replace(before, after)
    if len(removed) != len(added) or any(old.count(line + "\n") != 1 for line in removed):
        raise SystemExit(f"{place}: the lines that the diff removes are not in the file, once each")
    for line, new in zip(removed, added, strict=True):
        old = old.replace(line + "\n", new + "\n")
    return old


def script_of(pages, marks):
    """Returns the marked blocks of the pages as one bash script, and their number."""
    script, files, count = [PRELUDE], {}, 0
    for block in (block for page in pages for block in blocks_of(page)):
        if block.mark not in marks or block.mark == "shown":
            continue
        count += 1
        script.append(f"step {shlex.quote(f'{block.page}: {block.heading}')}")
        if block.file:
            text = block.text
            if block.language == "diff":
                text = changed(files.get(block.file, ""), text, block.place)
            files[block.file] = text
            code = f"cat >{shlex.quote(block.file)} <<'END-OF-BLOCK'\n{text}END-OF-BLOCK\n"
        elif block.language == "python":
            code = f"python3 - <<'END-OF-BLOCK'\n{block.text}END-OF-BLOCK\n"
        else:
            code = block.text
        script.append(f"if lab_works; then\n{code}fi" if block.mark == "lab" else code)
    return "\n".join([*script, "step ''", ""]), count


def environment(room, program, python):
    """Returns variables with which `sluice`, `python` and `torchrun` are those of this build."""
    tools = room / "tools"
    tools.mkdir()
    for name in ("python", "python3"):
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tools / "torchrun").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n'
    )
    for tool in tools.iterdir():
        tool.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    path = f"{tools}:{Path(program).resolve()}:{kept['PATH']}"
    mpi = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    python = Path(python).resolve()
    return kept | mpi | {"PATH": path, "PYTHONPATH": str(python), "OMP_NUM_THREADS": "1"}


def run_script(command, folder, variables):
    """Returns the output, and true iff the command succeeded. Ends all its processes if it is not
    done in time."""
    process = subprocess.Popen(
        command, cwd=folder, env=variables, text=True, errors="replace", start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=SECONDS)
        return output, process.returncode == 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            output, _ = process.communicate(timeout=20)  # a launcher ends its ranks first
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        return f"{output}\nnot done after {SECONDS} s", False


def run_pages(pages, arguments):
    """Runs the blocks of some pages in a folder of their own; returns true iff all succeeded."""
    script, count = script_of(pages, ("run", "lab"))
    if count == 0:
        return True
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        variables = environment(room, arguments.bin, arguments.python)
        shutil.copytree(ROOT / "examples", room / "work/examples")
        (room / "script.sh").write_text(script)
        command = ["bash", str(room / "script.sh")]
        if os.geteuid() == 0:  # labs of the same name, of other programs, are not seen
            hide = "mkdir -p /run/netns /run/sluice && mount -t tmpfs none /run/sluice"
            hide += ' && mount -t tmpfs none /run/netns && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", hide, "sh", *command]
        output, good = run_script(command, room / "work", variables)
    took = time.monotonic() - begun
    result = "ok" if good else "FAILED"
    print(f"{output}\n{' '.join(pages)}: {count} blocks {result} in {took:.1f} s", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["check", "run", "script"])
    parser.add_argument("pages", nargs="*", help="from the root; default: all guides")
    parser.add_argument("--marks", default="run,hour,lab", help="of the blocks in the script")
    parser.add_argument("--bin", help="folder of the program sluice")
    parser.add_argument("--python", help="folder of the package sluice")
    arguments = parser.parse_args()
    if arguments.what == "script":
        print(script_of(arguments.pages, arguments.marks.split(","))[0])
        return 0
    wanted = [tuple(arguments.pages)] if arguments.pages else GUIDES
    together = [tuple(page for page in pages if (ROOT / page).exists()) for pages in wanted]
    faults = check([page for pages in together for page in pages])
    print("\n".join(faults), end="\n" if faults else "")
    if faults or arguments.what == "check":
        return 1 if faults else 0
    if importlib.util.find_spec("torch") is None:
        print("skipped: there is no torch; scripts/install_deps.sh --with-torch installs it")
        return SKIPPED
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda pages: run_pages(pages, arguments), together))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
