#!/usr/bin/env python3
"""Prints counts of the tree for a commit, beside the bounds that they are held to.

  scripts/count.py                     the work tree
  scripts/count.py 2c6d720 HEAD .      a column each; "." is the work tree
  scripts/count.py --json REV...       the same as one object
  scripts/count.py --list types REV    the counted things of one row, by its name in --json
  scripts/count.py --comments 7 REV    60 comments of the engine, drawn by a seed, to be judged

The script knows two layouts: tools in folders of sluice/ and papers in the Python package, or
tools/ and papers/. The words of the table:

- Product: files without *_test.cc, testing/ and tests/. A code line is neither blank nor a
  whole-line comment; docstrings are code. Product code is C++, Python and shell, without CMake.
- Engine: sluice/ without tools. A public header (include/sluice) is no line of it; as the end of an
  arrow it belongs to the folder that implements it (PUBLIC).
- Room: a folder of sluice/ at the first level. Arrow: product files of one room or folder include
  headers of another. Floors: rooms on the longest chain of arrows.
- Headers that tools include: distinct ones of the engine; tests of tools count as tools.
- Python in the wheel: lines of the packages in pyproject.toml, without generated files.
- Unit: a header with its .cc, in sluice/ and tools/, by all of their lines.
- Type in two rooms: a name at namespace scope, outside unnamed namespaces, that two namespaces
  directly under sluice:: define, in tests and tools too. The glossary has it in backquotes or not.
- Comments: whole-line comments among all lines of the engine's .cc files in the product.
- Words: as `wc -w` counts them, without pages that programs write (GENERATED_PAGES), and in docs/
  without docs/site.
- Wall: includes and imports that point from one house to another that it must not know.
"""

import argparse
import graphlib
import io
import itertools
import json
import random
import re
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

from folder_graph import INCLUDE

ROOT = Path(__file__).resolve().parent.parent
TOOLS = re.compile(r"tools/|sluice/(?:bench|cli|doctor|lab|planner|probe|sim)/")
NEW_PAPERS = re.compile("(?:tests/)?papers/")
OLD_PAPERS = re.compile(
    r"python/sluice(?:/study|/reproduce|_plot)/|tests/(?:python/test_(?:study|reproduce|time_parts)"
    r"|reproduce_test\.py)"
)
PAPERS_IMPORT = re.compile(
    r"^\s*(?:from|import)\s+((?:sluice(?:\.|\s+import\s+)(?:study|reproduce)"
    r"|sluice_plot|sluice_papers)\b[\w.]*)",
    re.MULTILINE,
)
FORBIDDEN = {"engine": ("tools", "papers"), "tools": ("papers",), "papers": ("tools",)}
# The last part of the folder that implements each public header.
PUBLIC = {"status": "base", "torch": "pytorch"}
PUBLIC |= dict.fromkeys(("model", "device", "observer"), "types|base")
PUBLIC |= dict.fromkeys(("config", "job", "session", "sluice"), "session")
# The mark of a comment, by the suffix of a file of code.
COMMENT_MARKS = {".h": "//", ".cc": "//", ".py": "#", ".pyi": "#", ".sh": "#"}
GENERATED_PAGES = ("s/commands.md", "plan/check.md", "n/reproduction.md", "study/study.md")
GENERATED = re.compile(r"\A(?:.*\n){0,4}.*\b(?:Written|Generated) by\b")
# The code is formatted: a definition at namespace scope begins in the first column.
NAMESPACE = re.compile(r"namespace ([\w:]*) ?\{$")
TYPE = re.compile(
    r"(?:class|struct|union|enum(?: class| struct)?) (?:\[\[\w+\]\] )?"
    r"(?:SLUICE_\w+(?:\([^)]*\))? )*(\w+)(?!\w|::)(?: final)?(?: ?:[^;]*)?(?: \{.*)?$"
)


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def read_files(rev):
    """Returns the text of each file of a revision by its path. New files are in the work tree."""
    if rev == ".":
        names = git("ls-files", "-coz", "--exclude-standard").decode().split("\0")
        return {n: (ROOT / n).read_text(errors="replace") for n in names if (ROOT / n).is_file()}
    with tarfile.open(fileobj=io.BytesIO(git("archive", rev))) as tar:
        files = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        return {path: file.read().decode(errors="replace") for path, file in files.items()}


def is_product(path):
    return not (path.endswith("_test.cc") or {"testing", "tests"} & set(path.split("/")[:-1]))


def kinds_of_lines(text, mark="//"):
    """Returns "code", "comment" or "blank" for each line."""
    kinds, in_block = [], False
    for line in map(str.strip, text.splitlines()):
        in_block |= mark == "//" and line.startswith("/*")
        is_comment = in_block or line.startswith(mark)
        in_block &= "*/" not in line
        kinds.append("comment" if is_comment else "code" if line else "blank")
    return kinds


def types_of(text):
    """Yields (namespace, name) for every type at namespace scope, outside unnamed namespaces."""
    inside = []
    for line in text.split("\n"):
        if match := NAMESPACE.match(line):
            inside.append(match[1])
        elif line.startswith("}  // namespace"):
            del inside[-1:]
        elif (match := TYPE.match(line)) and "" not in inside:
            yield "::".join(inside), match[1]


class Tree:
    """The files of one revision, and the counted things in them. Each method that counts returns
    pairs: a thing, and its number or its place."""

    def __init__(self, rev):
        self.texts = read_files(rev)
        is_new = any(path.startswith("papers/") for path in self.texts)
        self.papers = NEW_PAPERS if is_new else OLD_PAPERS
        self.product = [path for path in self.texts if is_product(path)]
        sources = [path for path in self.texts if path.endswith((".h", ".cc"))]
        self.folders = {path.rpartition("/")[0] for path in sources}
        self.both = [path for path in sources if self.house(path) in ("engine", "tools")]
        self.built = [path for path in self.both if is_product(path)]
        self.engine = [path for path in self.built if self.house(path) == "engine"]
        # (path, line, header, the header's folder) of each include of a header of ours.
        self.includes = [
            (path, self.texts[path].count("\n", 0, match.start(1)) + 1, match[1], folder)
            for path in sources
            for match in INCLUDE.finditer(self.texts[path])
            if (folder := self.folder_of(match[1]))
        ]

    def house(self, path):
        """Returns "engine" (sluice/ without tools), "tools", "papers" or None."""
        if self.papers.match(path):
            return "papers"
        return "tools" if TOOLS.match(path) else "engine" if path.startswith("sluice/") else None

    def folder_of(self, header):
        """Returns the folder that an included header belongs to; None for foreign headers."""
        folder, _, name = header.rpartition("/")
        if folder == "sluice":
            home = re.compile(f"sluice/(.*/)?({PUBLIC.get(name.removesuffix('.h'))})")
            homes = sorted(filter(home.fullmatch, self.folders), key=len)
            return homes[-1] if homes else sys.exit(f"PUBLIC names no folder for <{header}>")
        return folder if folder.split("/")[0] in ("sluice", "tools", "papers") else None

    def rooms(self, paths):
        return Counter(path.split("/")[1] for path in paths if path.startswith("sluice/")).items()

    def arrows(self, paths, depth=1):
        """Returns the arrows (from, to) between the folders of sluice/, cut at `depth` names."""
        among = {path for path in paths if path.startswith("sluice/")}
        inside = [(path, folder) for path, _, _, folder in self.includes if path in among]
        ends = {
            ("/".join(path.split("/")[1:-1][:depth]), "/".join(folder.split("/")[1:][:depth]))
            for path, folder in inside
        }
        return [(room, other) for room, other in ends if room != other]

    def headers_of_tools(self):
        from_tools = [one for one in self.includes if self.house(one[0]) == "tools"]
        return {
            h: path for path, _, h, to in from_tools if self.house(f"{to}/") == "engine"
        }.items()

    def code_lines(self, paths):
        """A file without a suffix is a script if its first line says so."""
        found = []
        for path in paths:
            text, suffix = self.texts[path], Path(path).suffix
            mark = COMMENT_MARKS.get(suffix or (text.startswith("#!") and ".sh"))
            found += [(path, kinds_of_lines(text, mark).count("code"))] if mark else []
        return found

    def wheel(self):
        build = tomllib.loads(self.texts["pyproject.toml"])["tool"]["scikit-build"]
        packages = tuple(f"{package}/" for package in build["wheel"]["packages"])
        return [
            (path, text.count("\n"))
            for path, text in self.texts.items()
            if path.startswith(packages) and re.search(r"\.pyi?$", path)
            if not GENERATED.match(text)
        ]

    def files(self):
        return [(path, self.texts[path].count("\n")) for path in self.built]

    def units(self):
        lines = Counter()
        for path, count in self.files():
            lines[path.rsplit(".", 1)[0]] += count
        return lines.items()

    def types(self):
        """Returns each type that two namespaces under sluice:: define, with its files."""
        spaces, files = defaultdict(set), defaultdict(set)
        for path in self.both:
            # A file without_x.cc is compiled instead of x.
            for namespace, name in types_of(self.texts[path]) if "/without_" not in path else ():
                spaces[name].add("::".join(namespace.split("::")[:2]))
                files[name].add(path)
        return [(name, " ".join(sorted(files[name]))) for name in spaces if len(spaces[name]) > 1]

    def undefined_types(self):
        glossary = self.texts.get("docs/glossary.md", "")
        return [each for each in self.types() if not re.search(rf"`(\w+::)*{each[0]}`", glossary)]

    def kinds(self):
        """Returns (path, kind) of each line of the engine's .cc files."""
        paths = [path for path in self.engine if path.endswith(".cc")]
        return [(path, kind) for path in paths for kind in kinds_of_lines(self.texts[path])]

    def comments(self):
        """Returns (path:line, text) of each block of whole-line comments in the engine."""
        blocks = []
        for path in self.engine:
            lines = enumerate(self.texts[path].splitlines(), 1)
            kinds = iter(kinds_of_lines(self.texts[path]))
            for kind, block in itertools.groupby(lines, key=lambda _, kinds=kinds: next(kinds)):
                numbers, texts = zip(*block, strict=True)
                blocks += [(f"{path}:{numbers[0]}", "\n".join(texts))] if kind == "comment" else []
        return blocks

    def words(self, of=""):
        pages = [path for path in self.texts if path.endswith(".md") and re.match(of, path)]
        by_hand = [path for path in pages if not path.endswith(GENERATED_PAGES)]
        return [(path, len(self.texts[path].split())) for path in by_hand]

    def scripts(self):
        return [(path, "") for path in self.texts if path.startswith(("scripts/", ".ci/"))]

    def wall(self):
        """Returns each include and import that the wall forbids."""
        found = []
        for path, line, header, folder in self.includes:
            house = "engine" if path.startswith("include/") else self.house(path)
            if self.house(f"{folder}/") in FORBIDDEN.get(house, ()):
                found.append((f"{path}:{line}", header))
        for path, text in self.texts.items():
            is_below = re.match(r"(python|tests|examples|tools)/.*\.py$", path)
            if is_below and self.house(path) != "papers":
                for match in PAPERS_IMPORT.finditer(text):
                    line = text.count("\n", 0, match.start(1)) + 1
                    found.append((f"{path}:{line}", match[1]))
        return found


def total(pairs):
    return sum(number for _, number in pairs)


def share(holds):
    """Returns a function that says of how many pairs, in per cent, the second part holds."""
    return lambda pairs: round(100 * sum(holds(second) for _, second in pairs) / len(pairs), 1)


def floors(arrows):
    """Returns the number of rooms on the longest chain of arrows, or "circle"."""
    below, height = defaultdict(set), defaultdict(int)
    for room, other in arrows:
        below[room].add(other)
    try:
        for room in graphlib.TopologicalSorter(below).static_order():
            height[room] = 1 + max((height[other] for other in below[room]), default=0)
    except graphlib.CycleError:
        return "circle"
    return max(height.values(), default=1)


# Name, words, must, aim, the counted things of a tree, and their count.
ROWS = [
    ("wall", "ways through the wall", "0", "", Tree.wall, len),
    ("rooms", "rooms of sluice/", "<= 10", "9", lambda t: t.rooms(t.built), len),
    ("floors", "  floors", "<= 8", "7", lambda t: t.arrows(t.built), floors),
    ("arrows", "  arrows", "<= 36", "27", lambda t: t.arrows(t.built), len),
    ("engine_rooms", "rooms without tools", "", "", lambda t: t.rooms(t.engine), len),
    ("engine_floors", "  floors", "", "", lambda t: t.arrows(t.engine), floors),
    ("engine_arrows", "  arrows", "", "", lambda t: t.arrows(t.engine), len),
    ("folder_arrows", "arrows among all folders of the engine", "<= 189", "<= 160",
     lambda t: t.arrows(t.engine, 99), len),
    ("headers", "engine headers that tools include", "<= 71", "<= 50", Tree.headers_of_tools, len),
    ("engine_code", "code lines of the engine", "<= 36,000", "<= 34,500",
     lambda t: t.code_lines(t.engine), total),
    ("code", "code lines of the product", "<= 72,000", "<= 69,500",
     lambda t: t.code_lines(t.product), total),
    ("wheel", "Python lines in the wheel", "<= 6,600", "<= 6,200", Tree.wheel, total),
    ("units", "product units under 40 lines, %", "<= 10", "<= 7", Tree.units,
     share(lambda lines: lines < 40)),
    ("files", "longest file, lines", "<= 500", "", Tree.files,
     lambda pairs: max(number for _, number in pairs)),
    ("types", "type names in two rooms", "<= 15", "<= 8", Tree.types, len),
    ("undefined", "  without a line in the glossary", "0", "", Tree.undefined_types, len),
    ("comments", "comments in the engine's .cc, % of lines", ">= 5", "7", Tree.kinds,
     share(lambda kind: kind == "comment")),
    ("docs", "words by hand in docs/", "<= 45,000", "<= 36,000",
     lambda t: t.words("docs/(?!site/)"), total),
    ("words", "words by hand in all .md", "<= 66,000", "<= 55,000", Tree.words, total),
    ("scripts", "files in scripts/ and .ci/", "<= 18", "<= 14", Tree.scripts, len),
]  # fmt: skip


def print_table(counts):
    head = ("", *("work tree" if rev == "." else rev for rev in counts), "must", "aim")
    rows = [head]
    for name, words, must, aim, *_ in ROWS:
        rows.append((words, *(str(of_rev[name]) for of_rev in counts.values()), must, aim))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *padded]).rstrip())


def main():
    items_of = {row[0]: row[4] for row in ROWS}
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("revs", nargs="*", metavar="REV", default=["."])
    parser.add_argument("--json", action="store_true", help="print an object by revision and name")
    parser.add_argument("--list", choices=items_of, metavar="NAME", help="print what a row counts")
    parser.add_argument("--comments", type=int, metavar="SEED", help="draw 60 comments")
    asked = parser.parse_args()
    try:
        trees = {rev: Tree(rev) for rev in asked.revs}
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # Git has said what is wrong.
    last = trees[asked.revs[-1]]
    if asked.list:
        for thing, number in sorted(items_of[asked.list](last)):
            print(thing, number, sep="  ")
        return
    if asked.comments is not None:
        for place, text in random.Random(asked.comments).sample(last.comments(), 60):
            print(f"{place}\n{text}\n")
        return
    counts = {rev: {row[0]: row[5](row[4](tree)) for row in ROWS} for rev, tree in trees.items()}
    if asked.json:
        print(json.dumps(counts, indent=2))
    else:
        print_table(counts)


if __name__ == "__main__":
    main()
