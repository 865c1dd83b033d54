"""Makes the measurement pages of the site from kept results: one page for each experiment.

docs/site/experiments.json lists the experiments with command, machine, date and picture, and
scripts/draw_figures.py draws the pictures. Numbers come from the result files themselves. The
figures of the papers come from docs/reproduction/reproduction.md, which `sluice reproduce` writes
with all of these in it: each figure that has a result becomes a page.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_MADE = ("nothing to reproduce", "not made yet", "not reproducible here")


def table(rows):
    """Returns rows as a Markdown table; the first one is its head."""
    lines = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


TRAINING = {
    "bound_ms": "bound",
    "sluice_ms": "sluice",
    "ddp_ms": "DDP as it comes",
    "ddp_best_bucket_ms": "DDP with its best buckets",
    "over_bound": "sluice over the bound",
    "over_ddp": "speed over DDP as it comes",
    "over_best_bucket": "speed over DDP's best buckets",
}


def training_rows(rows):
    """Returns the times of real trainings beside DDP's, and their ratios; a column for each."""
    out = [("", *(row["title"] for row in rows)), ("setting", *(row["setting"] for row in rows))]
    for key, words in TRAINING.items():
        unit = " ms" if key.endswith("_ms") else ""
        out.append((words, *(f"{row[key]}{unit}" for row in rows)))
    return out


def replay_rows(rows):
    """Returns what `sluice bench replay` has measured, the fastest first."""
    out = [("algorithm", "iteration", "spread", "over the bound", "bytes on the wire")]
    for row in sorted(rows, key=lambda row: row["iteration_s"]):
        over = row["over_bound"]
        out.append(
            (
                f"`{row['algorithm']}`",
                f"{row['iteration_s']:.3f} s",
                f"{row['spread_s']:.3f} s",
                "-" if over is None else f"{over:.2f}",
                f"{row['bytes_on_wire'] / 1e6:.0f} MB",
            )
        )
    return out


def bandwidth_rows(rows):
    """Returns iterations by the rate of the links, a column for each algorithm."""
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    out = [("rate", "bound", *(f"`{name}`" for name in names))]
    for rate in dict.fromkeys(row["rate_mbit"] for row in rows):
        at = {row["algorithm"]: row for row in rows if row["rate_mbit"] == rate}
        bound = next(iter(at.values()))["bound_s"]
        times = (f"{at[name]['iteration_s']:.2f} s" if name in at else "-" for name in names)
        out.append((f"{rate} Mbit/s", f"{bound:.2f} s", *times))
    return out


ROWS = {"training": training_rows, "replay": replay_rows, "bandwidth": bandwidth_rows}


def experiment_page(experiment):
    """Returns the page of one experiment of experiments.json."""
    rows = [row for name in experiment["files"] for row in json.loads((ROOT / name).read_text())]
    over = {row["algorithm"]: row["over_bound"] for row in rows if "algorithm" in row}
    share = {
        row["algorithm"]: row["compute_s"] / row["iteration_s"] for row in rows if "runs_s" in row
    }
    at = {
        f"{row['rate_mbit']}-{row['algorithm']}": row["over_bound"]
        for row in rows
        if "rate_mbit" in row
    }
    number = experiment["number"].format(rows=rows, over=over, share=share, at=at)
    parts = [
        f"# {experiment['title']}",
        experiment["task"],
        f"**{number}**",
        f"![{experiment['title']}](../figures/{experiment['picture']})",
        table(ROWS[experiment["kind"]](rows)),
        experiment["note"],
        "## Repeat it",
        "```bash\n" + experiment["command"] + "\n```",
        table(
            [
                ("", ""),
                ("machine", experiment["machine"]),
                ("results kept on", experiment["date"]),
                ("kept results", ", ".join(f"`{name}`" for name in experiment["files"])),
                ("picture", "`scripts/draw_figures.py`"),
            ]
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def reproduced():
    """Yields (name, title, text) for each figure of a paper that has a result."""
    text = (ROOT / "docs/reproduction/reproduction.md").read_text()
    for section in re.split(r"(?m)^### ", text)[1:]:
        title, _, body = section.partition("\n")
        body = re.split(r"(?m)^## ", body)[0].strip()
        verdict = re.search(r"Verdict: ([^.]*)\.", body)
        if verdict is None or verdict[1].startswith(NOT_MADE) or "made 20" not in body:
            continue
        name = re.sub(r"[^a-z0-9]+", "-", title.partition(":")[0].lower()).strip("-")
        yield name, title, body.replace("](pictures/", "](../pictures/")


def write(folder):
    """Writes all pages below a folder, and returns their number."""
    place = Path(folder) / "measurements"
    place.mkdir(exist_ok=True)
    experiments = json.loads((ROOT / "docs/site/experiments.json").read_text())
    for experiment in experiments:
        (place / f"{experiment['name']}.md").write_text(experiment_page(experiment))
    papers = []
    for name, title, body in reproduced():
        papers.append(f"- [{title}]({name}.md)")
        # They are too many for the list beside every page; the page of the papers leads to them.
        (place / f"{name}.md").write_text(f"---\norphan: true\n---\n\n# {title}\n\n{body}\n")
    page = place / "reproduction.md"
    text = page.read_text()
    head = text.partition("\n## ")[0].replace("\n### ", "\n## ")
    listed = "\n".join(papers)
    page.write_text(f"{head}\n\n## Figures and tables with a result\n\n{listed}\n")
    return len(experiments) + len(papers)
