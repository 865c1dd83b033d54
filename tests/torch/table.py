#!/usr/bin/env python3
"""Writes the table of Torch's releases in docs/compatibility.md from results.jsonl, which
scripts/every_torch.sh makes.

  python3 tests/torch/table.py          writes the table
  python3 tests/torch/table.py --check  ends with 1 if the page has another one
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "compatibility.md"
BEGIN, END = "<!-- releases: begin -->\n", "<!-- releases: end -->\n"


def row(found: dict) -> str:
    cells = [
        found.get("torch") or found["release"],
        "yes" if found.get("bits") == 1 and found.get("torch") else "**no**",
        ", ".join(found.get("calls") or []) or "**none**",
        "named" if "rank 1" in found.get("lost rank", "") else "**not named**",
        str(len(found.get("refused") or [])),
        "; ".join(found["faults"]) or "none",
    ]
    return f"| {' | '.join(cells)} |"


def table() -> str:
    results = [json.loads(line) for line in (HERE / "results.jsonl").read_text().splitlines()]
    last = {found["release"]: found for found in results}
    order = sorted(last, key=lambda release: [int(part) for part in release.split(".")])
    return "\n".join(
        [
            "| Torch, CUDA build | `distribute()`, DDP on `sluice`, DDP on Gloo: the same bits on both ranks "
            "| calls of the backend | a lost rank | other releases' modules refused | faults |",
            "|---|---|---|---|---|---|",
            *(row(last[release]) for release in order),
            "",
        ]
    )


def main() -> int:
    page = PAGE.read_text()
    head, rest = page.split(BEGIN)
    old, tail = rest.split(END)
    new = table()
    if sys.argv[1:] == ["--check"]:
        if old != new:
            print("table: docs/compatibility.md is not as results.jsonl; run tests/torch/table.py")
        return int(old != new)
    PAGE.write_text(head + BEGIN + new + END + tail)
    return 0


if __name__ == "__main__":
    sys.exit(main())
