"""Tests the commands that texts of the engine, the tools and the pages recommend: each is a command
of the program, has the flags that the text gives it, and takes the arguments. Those that only print
or make a key are run as they are written.

  recommended_test.py PATH_OF_SLUICE PATH_OF_SOURCE
"""

import ast
import functools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PROGRAM, SOURCE = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2])
HARMLESS = ("key", "config", "algorithms")
# A quote tells where a command ends. Without one it ends where prose begins.
COMMAND = re.compile(
    r"(?P<quote>['`])sluice (?P<quoted>[a-z][^'`\n]*)['`]"
    r"|(?<![\w/.'`-])sluice (?P<bare>[a-z][^'`\"\n;,)]*)"
)
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def sluice(*words: str, folder: str | None = None) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    return subprocess.run(
        [PROGRAM, *words], env=clean, cwd=folder, capture_output=True, text=True, timeout=60
    )


@functools.cache
def help_of(*words: str) -> str:
    return sluice(*words, "--help").stdout


def names_in(section: str, text: str) -> set[str]:
    listed = text.split(section, 1)[1].split("\n\n")[0] if section in text else ""
    return set(re.findall(r"^  (\S+)", listed, re.MULTILINE))


def texts_of(file: Path) -> Iterator[str]:
    """Yields what a file says to people."""
    text = file.read_text()
    if file.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
                yield "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
    elif file.suffix in (".cc", ".h"):
        code = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
        whole = re.sub(r'(?<!\\)"\s*\n\s*"', "", code)  # one text in several lines
        for literal in LITERAL.findall(whole):
            yield literal.replace("\\n", "\n").replace('\\"', '"')
    else:
        yield text


def faults_of(given: str, is_quoted: bool) -> list[str]:
    """Returns what is wrong with a command, which is given without its first word."""
    words = re.split(r" [>|#&]", given.replace("\\", " "))[0].split()
    if words[0] not in names_in("Subcommands:\n", help_of()):
        outside = names_in("Programs sluice-NAME found here:\n", help_of())
        is_known = not is_quoted or not outside or words[0] in (*outside, "demo")
        return [] if is_known else [f"there is no command '{words[0]}'"]
    path: tuple[str, ...] = ()
    help_ = help_of()
    # `doctor device` is of the Python package, and takes seconds to start.
    while words and words[0] in names_in("Subcommands:\n", help_) and path != ("doctor",):
        path += (words.pop(0),)
        help_ = help_of(*path)
    if path[0] in ("plan", "doctor"):  # a script and its arguments; a topic
        words = words[: next((i for i, w in enumerate(words) if w[0] != "-"), len(words))]
    is_bare = all(re.fullmatch(r"[a-z0-9./-]+", word) for word in words)
    if is_quoted and is_bare and path[0] in HARMLESS and "[SUBCOMMAND]" not in help_:
        with tempfile.TemporaryDirectory() as folder:
            ran = sluice(*path, *words, folder=folder)
            if ran.returncode != 0:
                return [f"fails: {ran.stderr.strip()}"]
    usage = next((line for line in help_.splitlines() if line.startswith("Usage:")), "")
    takes_arguments = bool(usage.split("[OPTIONS]")[-1].replace("[SUBCOMMAND]", "").strip())
    found = []
    while words:
        word = words.pop(0).rstrip(".,:")
        if word == "--":
            break
        if word.startswith("-"):
            flag = word.split("=")[0]
            known = re.search(rf"^  (?:\S+,)?{re.escape(flag)}(?:,\S+)?(?P<type> \S)?", help_, re.M)
            if known is None:
                found.append(f"'sluice {' '.join(path)}' has no flag {flag}")
            elif known["type"] and "=" not in word and words:
                words.pop(0)
        elif not is_quoted and not re.search(r"[A-Z{./]", word):
            break  # prose
        elif word and not takes_arguments:
            found.append(f"'sluice {' '.join(path)}' takes no argument '{word}'")
    return found


files = [
    *(f for room in ("sluice", "tools", "python/sluice") for f in (SOURCE / room).rglob("*")),
    *(f for room in ("docs", "deploy", "examples") for f in (SOURCE / room).rglob("*")),
    *SOURCE.glob("*.md"),
]
count, faults = 0, []
for file in sorted(files):
    if file.suffix not in (".cc", ".h", ".py", ".md", ".yaml", ".sh", ".sbatch"):
        continue
    if "testing" in file.parts or file.stem.endswith("_test") or file.name == "CHANGELOG.md":
        continue
    for text in texts_of(file):
        for match in COMMAND.finditer(text):
            given = match["quoted"] or match["bare"]
            count += 1
            for fault in faults_of(given, match["quoted"] is not None):
                faults.append(f"{file.relative_to(SOURCE)}: 'sluice {given.strip()}': {fault}")
assert count > 100, f"only {count} commands were found"
# The test sees what it looks for.
assert faults_of("key new FILE", True) and faults_of("key news", True) and faults_of("kay", True)
assert faults_of("key new --out x", True) and not faults_of("key new -o job.key", True)
print(f"{count} commands of texts")
if faults:
    sys.exit("\n".join(faults))
