"""The report: one page that needs nothing else, and the same as Markdown with pictures beside it.
Verdicts come from result files only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from html import escape
from pathlib import Path

from sluice_papers.reproduce import pictures, verdicts
from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.manifest import PAPERS, ROWS
from sluice_papers.reproduce.rows import Claim, Measured, Part, Row
from sluice_papers.reproduce.verdicts import Verdict
from sluice_papers.study.progress import minutes
from sluice_papers.study.report import STYLE, table
from sluice_papers.study.tables import Table

_TITLE = "Every figure and table of four papers, ours beside theirs"
_SENTENCES = (
    "Each tile is one figure or table, and its colour says how our result stands to the paper's.",
    "A claim is an inequality, and its verdict is computed from the files in results.",
    "The command below each table repeats it.",
)
_MORE_STYLE = "code { font-size: 12px; background: #f4f4f4; padding: .1em .3em; \
white-space: pre-wrap } td { vertical-align: top } .verdict { font-weight: bold }"
Needs = Callable[[Part], str | None]


def write(kept: Kept, needs: Needs) -> tuple[Path, Path]:
    """Writes page and Markdown, and returns their paths."""
    page, text = kept.folder / "reproduction.html", kept.folder / "reproduction.md"
    kept.folder.mkdir(parents=True, exist_ok=True)
    page.write_text(_page(kept, needs))
    text.write_text(_markdown(kept, needs))
    return page, text


def opening(kept: Kept) -> str:
    """Returns the first picture."""
    return pictures.tiles(
        [
            (title, [(row.key, verdicts.of_row(row, kept)) for row in ROWS_OF[paper]])
            for paper, title in PAPERS.items()
        ]
    )


ROWS_OF = {paper: [row for row in ROWS if row.paper == paper] for paper in PAPERS}


def summary(kept: Kept) -> Table:
    found = Table("Verdicts", "Figures and tables by verdict.", ["paper", *Verdict, "all"])
    for paper, title in PAPERS.items():
        counts = Counter(verdicts.of_row(row, kept) for row in ROWS_OF[paper])
        found.rows.append(
            [title, *(str(counts[verdict]) for verdict in Verdict), str(len(ROWS_OF[paper]))]
        )
    sums = [sum(int(row[place]) for row in found.rows) for place in range(1, len(found.head))]
    found.rows.append(["all", *map(str, sums)])
    return found


def claims(row: Row, kept: Kept) -> Table:
    found = Table(
        f"{PAPERS[row.paper].split(' (')[0]}, {row.title}: {row.shows}",
        f"Verdict: {_verdict(row, kept)}.",
        ["claim", "paper", "ours", "holds if", "verdict"],
    )
    for claim in row.claims:
        judged = verdicts.judge(claim, kept)
        found.rows.append(
            [
                claim.text,
                _with_unit(claim.printed, claim),
                _ours(judged.ours, claim),
                claim.inequality or "-",
                judged.verdict or "-",
            ]
        )
    return found


def _verdict(row: Row, kept: Kept) -> str:
    verdict = verdicts.of_row(row, kept)
    if verdict in (Verdict.NOT_HERE, Verdict.NO_CONTENT):
        return f"{verdict} because {row.reason}"
    return str(verdict)


def _ours(measured: Measured | None, claim: Claim) -> str:
    if measured is None:
        return "-"
    text = f"{measured.value:.4g}"
    if math.isinf(measured.margin):
        return f"{_with_unit(text, claim)} (one run)"
    if measured.margin > 0:
        text += f" ± {measured.margin:.2g}"
    return _with_unit(text, claim)


def _with_unit(text: str, claim: Claim) -> str:
    return f"{text} {claim.unit}" if claim.unit and text and text[0] in "-+.0123456789" else text


def commands(row: Row, kept: Kept, needs: Needs) -> list[tuple[str, str]]:
    """Returns each part's command, and its state."""
    return [(command_of(row, part), _state(part, kept, needs)) for part in row.parts]


def command_of(row: Row, part: Part) -> str:
    """Returns the command that repeats a part, as a user can type it."""
    if not part.command:
        return f"sluice reproduce {row.key}"
    places = {"out": f"{part.name}.json", "folder": part.name, "inputs": "inputs", "data": "DATA"}
    return part.command.format(**places)


def _state(part: Part, kept: Kept, needs: Needs) -> str:
    if kept.is_made(part):
        entry = kept.entry(part) or {}
        return f"tier {part.tier}; made {entry['made']} on {entry['machine']}"
    if kept.is_partial(part):
        runs = len(kept.data(part) or [])
        return f"tier {part.tier}; {runs} runs are made, and the same command makes the others"
    if (failure := kept.failure(part)) is not None:
        return f"tier {part.tier}; failed: {failure}"
    return (
        f"tier {part.tier}; {needs(part) or f'not made yet, takes about {minutes(part.seconds)}'}"
    )


def _page(kept: Kept, needs: Needs) -> str:
    parts = [f"<h1>{_TITLE}</h1><figure>{opening(kept)}</figure>"]
    parts += [f"<p>{escape(' '.join(_SENTENCES))}</p>", table(summary(kept))]
    for paper, title in PAPERS.items():
        parts.append(f"<h2>{escape(title)}</h2>")
        for row in ROWS_OF[paper]:
            parts += [f'<section id="{row.key}">', table(claims(row, kept))]
            parts += [f"<figure>{one}</figure>" for one in _drawn(row, kept)]
            if row.substitute:
                parts.append(f'<p class="note">{escape(row.substitute)} {escape(row.honest)}</p>')
            parts += [
                f'<p class="note"><code>{escape(command)}</code> {escape(state)}</p>'
                for command, state in commands(row, kept, needs)
            ]
            parts.append("</section>")
    head = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_TITLE}</title>'
        f"<style>{STYLE}{_MORE_STYLE}</style></head>"
    )
    return f"{head}<body>{''.join(parts)}</body></html>\n"


def _drawn(row: Row, kept: Kept) -> list[str]:
    return row.draw(kept) if row.draw is not None else []


def _markdown(kept: Kept, needs: Needs) -> str:
    folder = kept.folder / "pictures"
    folder.mkdir(exist_ok=True)
    (folder / "all.svg").write_text(opening(kept))
    parts = [f"# {_TITLE}", "![Verdicts](pictures/all.svg)", " ".join(_SENTENCES)]
    parts.append(summary(kept).markdown().rstrip())
    for paper, title in PAPERS.items():
        parts.append(f"## {title}")
        for row in ROWS_OF[paper]:
            found = claims(row, kept)
            text = found.markdown() if found.rows else f"### {found.title}\n\n{found.note}\n"
            parts.append(text.rstrip())
            for place, picture in enumerate(_drawn(row, kept), start=1):
                name = f"{row.key.replace('/', '-')}-{place}.svg"
                (folder / name).write_text(picture)
                parts.append(f"![{row.shows}](pictures/{name})")
            if row.substitute:
                parts.append(f"{row.substitute} {row.honest}")
            for command, state in commands(row, kept, needs):
                parts.append(f"```bash\n{command}\n```\n\n{state}")
    return "\n\n".join(parts) + "\n"
