#!/usr/bin/env python3
"""The comparison with other libraries has evidence in every cell, and ours is in the tree.

  comparison_test.py

Reads docs/comparison.md. Each need has a table with a row for each library: an answer that begins
with yes, partly, no or "not found", and evidence. The evidence of a peer is a link to a file or a
thread of its own, or to a page of ours that says what was seen. Ours is a page, a file, or a test
as `FILE::TEST`, and all of them must be there. The table of all needs must repeat the answers. The
test also plants faults in a copy of the page, and must find each of them.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/comparison.md"
LIBRARIES = ("sluice", "DDP", "FSDP2", "torchft", "Horovod", "BytePS", "hivemind", "PCCL")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
ANSWER = re.compile(r"(yes|partly|no|not found)(?::? |$)")
# A file or a tree at a commit or a tag, a commit, or a thread.
THEIRS = re.compile(
    r"https://github\.com/[\w.-]+/[\w.-]+/(?:(?:blob|tree)/[\w.]+|commit/[0-9a-f]{7,40}"
    r"|(?:issues|pull)/\d+)(?:[/#]\S*)?"
)


def cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def anchor_of(heading):
    return re.sub(r"[^\w -]", "", LINK.sub(r"\1", heading).lower()).strip().replace(" ", "-")


def anchors(text):
    return {anchor_of(title) for title in re.findall(r"(?m)^#+ (.*)$", text)}


def overview(text):
    """Returns the table of all needs as {anchor: {library: answer}}."""
    found = {}
    for line in text.splitlines():
        row = cells(line)
        if len(row) == len(LIBRARIES) + 1 and (link := LINK.match(row[0])):
            found[link[2].removeprefix("#")] = dict(zip(LIBRARIES, row[1:]))
    return found


def needs(text):
    """Yields (title, rows) of each need; a row is (library, answer, evidence)."""
    for section in re.split(r"(?m)^#{2,3} ", text)[1:]:
        if "| library | answer | evidence |" in section:
            rows = [cells(line) for line in section.splitlines() if line.startswith("| ")]
            yield section.partition("\n")[0], [tuple(row) for row in rows[1:]]


def fault_of_ours(label, target, text):
    """Returns what is wrong with a link into our tree, or nothing."""
    path, _, anchor = target.partition("#")
    file = (PAGE.parent / path).resolve() if path else PAGE
    if not file.is_file() or ROOT not in file.parents:
        return f"{target} is not in the tree"
    if anchor and anchor not in anchors(file.read_text() if path else text):
        return f"{target} has no such heading"
    named, _, test = label.strip("`").partition("::")
    if test and not re.search(rf"\b{re.escape(test)}\b", file.read_text()):
        return f"{named} has no test {test}"
    return None


def faults_of_row(library, answer, evidence, text):
    if not ANSWER.match(answer):
        yield f"the answer '{answer}' is none"
    links = LINK.findall(evidence)
    if not links:
        yield "no evidence"
    for label, target in links:
        if "://" not in target:
            if fault := fault_of_ours(label, target, text):
                yield fault
        elif library == "sluice" or not THEIRS.fullmatch(target):
            yield f"{target} is no file or thread of {library}"


def faults_in(text):
    """Returns the faults of a comparison, each as a line."""
    found = []
    short = overview(text)
    seen = set()
    for title, rows in needs(text):
        seen.add(anchor_of(title))
        if tuple(row[0] for row in rows) != LIBRARIES:
            found.append(f"{title}: the rows are not the libraries, in their order")
        for library, answer, evidence in rows:
            told = short.get(anchor_of(title), {}).get(library)
            match = ANSWER.match(answer)
            if match and told != match[1]:
                found.append(f"{title}, {library}: '{told}' in the table of all needs")
            found += [
                f"{title}, {library}: {each}"
                for each in faults_of_row(library, answer, evidence, text)
            ]
    found += [f"{need} has no table" for need in short.keys() - seen]
    for label, target in LINK.findall(text):
        if "://" not in target and (fault := fault_of_ours(label, target, text)):
            found.append(f"[{label}]: {fault}")
    return found


# Faults to plant: what is replaced, by what, and a part of the line that must tell of it.
PLANTED = (
    ("../tests/lab/fabric_test.py)", "../tests/lab/fabric_tests.py)", "is not in the tree"),
    ("::test_gradients_leave_during_backward", "::test_gradients_leave_early", "has no test"),
    ("pytorch.md#the-optimizer-on-the-servers", "pytorch.md#the-optimizer", "no such heading"),
    ("| hivemind | yes: no master", "| hivemind | no: no master", "in the table of all needs"),
    ("| PCCL | yes: on all peers", "| PCCL | perhaps: on all peers", "is none"),
    ("| torchft | no: the lighthouse | ", "| torchft | no: the lighthouse | see there ", "no evid"),
    ("https://github.com/horovod/horovod/issues/1548", "https://example.org/1548", "no file or"),
    ("| BytePS | no: one scheduler", "| Bagua | no: one scheduler", "rows are not the libraries"),
    ("### Use RDMA and InfiniBand", "### Use RDMA", "has no table"),
)


def main():
    text = PAGE.read_text()
    for old, new, telling in PLANTED:
        assert old in text, f"there is no place to plant a fault: {old}"
        planted = text.replace(old, new, 1)
        if telling == "no evid":
            planted = "\n".join(
                LINK.sub("", line) if new in line else line for line in planted.splitlines()
            )
        told = faults_in(planted)
        assert any(telling in each for each in told), f"not found when planted: {new}: {told}"
    found = faults_in(text)
    rows = [row for _, rows in needs(text) for row in rows]
    summary = f"{len(rows)} answers with evidence, {len(PLANTED)} planted faults found"
    print("\n".join(found) or summary)
    return 1 if found or len(rows) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
