"""Makes the measurement pages of the site from kept results: one page for each experiment.

docs/site/experiments.json lists the experiments with command, machine, date and picture, and
draw_figures.py draws the pictures. Numbers come from the result files themselves. A page
that a program has written already (kinds plan and study) gets the same around its own text. The
figures of the papers come from the page in papers/results/reproduction, which `sluice reproduce` writes
with all of these in it: each figure that has a result becomes a page.
"""

import gzip
import json
import re
import sys
from pathlib import Path
from statistics import mean, median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "papers/bench"))

from plan_check import judge  # noqa: E402
from study_runs import accuracies  # noqa: E402

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


def accuracy_rows(rows):
    """Returns the accuracy of trainings that keep or lose ranks, and how far the seeds differ."""
    out = [("", "steps of a rank", "accuracy on the test images", "spread")]
    for row in rows:
        percents = row["percents"]
        spread = f"{min(percents):.2f} to {max(percents):.2f}"
        out.append((row["way"], row["steps"], f"{mean(percents):.2f} %", spread))
    return out


def losses_rows(rows):
    """Returns what kills have cost, beside a run without any."""
    out = [("", "pause, median", "longest", "steps thrown away", "steps over undisturbed")]
    for run in rows:
        pauses = run["with_kills"]["pauses_s"]
        times = (f"{median(pauses):.2f} s", f"{max(pauses):.2f} s")
        out.append((run["name"], *times, run["with_kills"]["thrown_away"], f"{run['share']:.2f}"))
    return out


ROWS = {
    "training": training_rows,
    "replay": replay_rows,
    "bandwidth": bandwidth_rows,
    "accuracy": accuracy_rows,
    "losses": losses_rows,
}


def rows_of(pattern):
    """Yields the rows of result files; some have settings beside their runs."""
    for path in sorted(ROOT.glob(pattern)):
        data = path.read_bytes()
        kept = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        yield from kept if isinstance(kept, list) else kept.get("runs", [kept])


def replay_facts(rows):
    return {
        "over": {row["algorithm"]: row["over_bound"] for row in rows},
        "share": {row["algorithm"]: row["compute_s"] / row["iteration_s"] for row in rows},
    }


def plan_facts(rows):
    """Returns how far the predictions of plans were off, in all."""
    errors = [abs(each) for row in rows for each in judge(row)["errors"].values()]
    return {"count": len(errors), "median": median(errors), "worst": max(errors)}


def study_facts(rows):
    """Returns the mean final accuracy, in per cent, of each algorithm and number of workers."""
    found = {
        f"{algorithm.replace(':', '-')} {workers}": 100 * mean(values)
        for algorithm, by_workers in accuracies(rows).items()
        for workers, values in by_workers.items()
    }
    return {"accuracy": found}


# The values that the number of an experiment may name, by its kind.
FACTS = {
    "training": lambda rows: {"rows": rows},
    "replay": replay_facts,
    "bandwidth": lambda rows: {
        "at": {f"{row['rate_mbit']}-{row['algorithm']}": row["over_bound"] for row in rows}
    },
    "accuracy": lambda rows: {"ways": {row["way"]: mean(row["percents"]) for row in rows}},
    "losses": lambda rows: {
        "pauses": {row["name"]: median(row["with_kills"]["pauses_s"]) for row in rows}
    },
    "plan": plan_facts,
    "study": study_facts,
}


def written_page(path, experiment, number, repeat):
    """Returns a page that a program has written, with the picture and the number in front."""
    title, _, text = path.read_text().partition("\n")
    picture = f"![{experiment['title']}](../figures/{experiment['picture']})"
    return "\n\n".join([title, f"**{number}**", picture, text.strip(), *repeat]) + "\n"


def repetition(experiment):
    """Returns the parts of a page that say how its measurement is made again."""
    about = [
        ("", ""),
        ("machine", experiment["machine"]),
        ("results kept on", experiment["date"]),
        ("kept results", ", ".join(f"`{name}`" for name in experiment["files"])),
        ("picture", "`papers/figures/draw_figures.py`"),
    ]
    return ["## Repeat it", "```bash\n" + experiment["command"] + "\n```", table(about)]


def experiment_page(experiment, path):
    """Returns the page of one experiment of experiments.json, which goes to `path`."""
    rows = [row for pattern in experiment["files"] for row in rows_of(pattern)]
    number = experiment["number"].format(**FACTS[experiment["kind"]](rows))
    repeat = repetition(experiment)
    if experiment["kind"] not in ROWS:
        return written_page(path, experiment, number, repeat)
    parts = [
        f"# {experiment['title']}",
        experiment["task"],
        f"**{number}**",
        f"![{experiment['title']}](../figures/{experiment['picture']})",
        table(ROWS[experiment["kind"]](rows)),
        experiment["note"],
        *repeat,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def reproduced():
    """Yields (name, title, text) for each figure of a paper that has a result."""
    text = (ROOT / "papers/results/reproduction/reproduction.md").read_text()
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
        path = place / f"{experiment['name']}.md"
        path.write_text(experiment_page(experiment, path))
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
