"""All rows of the manifest, and those that a user asks for."""

from __future__ import annotations

from sluice_papers.reproduce import analysis, mgwfbp, p3_examples, p3_measured, pipesgd
from sluice_papers.reproduce.rows import Row

PAPERS = {
    "p3": "P3 (Jayarajan et al.)",
    "mgwfbp": "MG-WFBP (Shi et al.)",
    "pipesgd": "Pipe-SGD (Li et al.)",
    "analysis": "Analysis (Ko et al.)",
}
ROWS: tuple[Row, ...] = (
    *(*p3_examples.ROWS, *p3_measured.ROWS),
    *(*mgwfbp.ROWS, *pipesgd.ROWS, *analysis.ROWS),
)


def select(what: str) -> list[Row]:
    """Returns the rows of a figure (p3/f7), of a paper (p3), or all."""
    if what == "all":
        return list(ROWS)
    if what in PAPERS:
        return [row for row in ROWS if row.paper == what]
    found = [row for row in ROWS if row.key == what.lower()]
    if not found:
        raise ValueError(
            f"there is no figure or paper '{what}'; 'sluice reproduce --list' prints them all"
        )
    return found
