"""The page and the Markdown table of a study: one file each, correct for all that has been measured
so far."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from sluice_papers.study import figures, paper, words
from sluice_papers.study.results import Results
from sluice_papers.study.tables import Table, all_tables

_TITLE = "Seven ways to train with many workers: ours beside the paper's"
STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; font-size: 13px; margin: .6em 0 }
td, th { border: 1px solid #ccc; padding: .2em .6em; text-align: right } \
td:first-child, th { text-align: left }
figure { display: inline-block; margin: .3em } .note { color: #555; font-size: 13px } \
tr.theirs td { color: #777 }
"""


def write(folder: Path, results: Results, study: dict[str, Any], missing: int) -> None:
    """`study` is the content of study.json. `missing` is the number of runs that have not been made
    yet."""
    (folder / "study.html").write_text(page(results, study, missing))
    (folder / "study.md").write_text(markdown(results, study, missing))


def markdown(results: Results, study: dict[str, Any], missing: int) -> str:
    if not results.rows:
        return f"# {_TITLE}\n\nNothing has been measured yet.\n\n{_failures_as_markdown(results)}"
    parts = [f"# {_TITLE}", _state(results, missing)]
    parts += [
        "## What differs from the paper's setting",
        "\n".join(f"- {one}" for one in words.differences(results, study)),
    ]
    parts += ["## What came out", words.order(results), words.advice(results)]
    parts += ["## Tables", *(table.markdown() for table in all_tables(results))]
    parts.append(_failures_as_markdown(results))
    return "\n\n".join(part for part in parts if part) + "\n"


def page(results: Results, study: dict[str, Any], missing: int) -> str:
    parts = [f"<h1>{_TITLE}</h1>"]
    if results.rows:
        parts += [
            _paragraph(_state(results, missing)),
            "<h2>What differs from the paper's setting</h2><ul>",
        ]
        parts += [f"<li>{escape(one)}</li>" for one in words.differences(results, study)]
        parts += [
            "</ul><h2>What came out</h2>",
            _paragraph(words.order(results)),
            _paragraph(words.advice(results)),
        ]
        parts += ["<h2>Tables</h2>", *map(table, all_tables(results)), *_figures(results)]
    else:
        parts.append(_paragraph("Nothing has been measured yet."))
    if results.failed:
        parts.append("<h2>Runs that failed</h2><ul>")
        parts += [f"<li>{escape(_failure(row))}</li>" for row in results.failed]
        parts.append("</ul>")
    head = (
        '<!doctype html><html lang="en"><head>'
        f'<meta charset="utf-8"><title>{_TITLE}</title><style>{STYLE}</style></head>'
    )
    return f"{head}<body>{''.join(parts)}</body></html>\n"


def _figures(results: Results) -> list[str]:
    most = max(results.workers, default=0)
    drawn = [
        (
            "Figure 1: error by epoch and by time",
            paper.SAYS[1],
            [figures.by_epoch(results, most), figures.by_time(results, most)],
        ),
        ("Table III as a picture", "", [figures.losses(results), figures.their_losses(results)]),
        (
            "Figure 2: throughput by the number of workers",
            paper.SAYS[2],
            [figures.throughput(results)],
        ),
        (
            "Figure 3: where the time goes",
            paper.SAYS[3],
            [picture for n in results.workers if (picture := figures.breakdown(results, n))],
        ),
    ]
    if any(row["dgc"] for row in results.rows):
        drawn.append(
            ("Figure 4: throughput with DGC", paper.SAYS[4], [figures.compressed(results, most)])
        )
    parts = ["<h2>Figures</h2>"]
    for title, note, pictures in drawn:
        parts.append(f'<h3>{escape(title)}</h3><p class="note">{escape(note)}</p>')
        parts += [f"<figure>{picture}</figure>" for picture in pictures]
    return parts


def _state(results: Results, missing: int) -> str:
    text = f"{len(results.rows)} runs"
    if missing:
        text += f"; {missing} more are to come, so what follows may change"
    return (
        f"{text}. The paper is Ko et al., An In-Depth Analysis of Distributed Training of Deep "
        "Neural Networks."
    )


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def table(given: Table) -> str:
    """Returns a table as HTML."""
    parts = [f'<h3>{escape(given.title)}</h3><p class="note">{escape(given.note)}</p><table><tr>']
    parts += [f"<th>{escape(cell)}</th>" for cell in given.head]
    parts.append("</tr>")
    for row in given.rows:
        kind = ' class="theirs"' if row[0].endswith("theirs") else ""
        parts.append(f"<tr{kind}>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>")
    return "".join(parts) + "</table>"


def _failure(row: dict[str, Any]) -> str:
    with_dgc = " with DGC" if row["dgc"] else ""
    rate = "" if row["rate_factor"] == 1 else f", rate x {row['rate_factor']:g}"
    return (
        f"{row['algorithm']}{with_dgc}, {row['workers']} workers, seed {row['seed']}{rate}: "
        f"{row['failed']}"
    )


def _failures_as_markdown(results: Results) -> str:
    if not results.failed:
        return ""
    return "## Runs that failed\n\n" + "\n".join(f"- {_failure(row)}" for row in results.failed)
