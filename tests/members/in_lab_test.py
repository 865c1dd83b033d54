"""Trains in a lab with three etcd servers while members are lost, and checks that the others go on.

  in_lab_test.py SLUICE PYTHONPATH                              one job, whose members are killed
  in_lab_test.py SLUICE PYTHONPATH --jobs 20 --seed 7
  in_lab_test.py SLUICE PYTHONPATH --what partition --jobs 6    every kind of partition
  in_lab_test.py SLUICE PYTHONPATH --what all --json
  in_lab_test.py SLUICE PYTHONPATH --jobs 100 --results r.jsonl --page page.md    can be resumed
  in_lab_test.py SLUICE PYTHONPATH --set algorithm=allreduce --set model=cnn

Every job has five members (partition: four, dwindle: eight) that train as rank.py does.
The members that are left must make all steps, with the same bits, which one process gets from the
log of epochs (replay.py). Their checkpoint must then begin a new job. The seed decides all
but the moments within a step. Prints a row for each job, and the pauses of the members that were
left: seconds of the longest step after a loss, beyond a normal step. Exit code 1 if a job is not as
it must be, 77 if there can be no lab.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from root import SKIPPED, skip_without_lab

RATE = "200mbit"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sluice", help="the program")
    parser.add_argument("pythonpath", help="the folder with the Python package")
    parser.add_argument(
        "--what", default="kills", help="kind of fault, several with commas, or all"
    )
    parser.add_argument("--jobs", type=int, default=1, help="of each kind")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first job; the next has the next"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="a setting of training.py that is not drawn")  # fmt: skip
    parser.add_argument("--away", type=float, default=30, help="seconds of etcd-away")
    parser.add_argument("--every", type=float, default=30, help="seconds between dwindle's kills")
    parser.add_argument("--rate", default=RATE, help="of each host's link")
    parser.add_argument("--keep", type=Path, help="keep the files of all jobs in this folder")
    parser.add_argument("--results", type=Path, help="add a line of JSON for each job to this "
                        "file, and leave out the jobs that it has")  # fmt: skip
    parser.add_argument("--page", type=Path, help="write a page from all that is in --results")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser.parse_args()


def fixed_settings(words: list[str]) -> dict[str, Any]:
    from training import Settings

    types = {field.name: type(field.default) for field in dataclasses.fields(Settings)}
    pairs = [word.split("=", 1) for word in words]
    return {name: types[name](value) for name, value in pairs}


def run_job(lab: Any, folder: Path, what: str, seed: int, options: argparse.Namespace) -> Any:
    """Returns the row of one job."""
    import faults

    luck = random.Random(f"{what} {seed}")
    fixed = fixed_settings(options.set)
    settings = faults.choose_settings(luck, what, fixed)
    more: dict[str, Any] = {}
    if what == "etcd-away":
        steps = int(options.away / 0.1) + 60
        settings = dataclasses.replace(settings, **({"steps": steps, "pause": 0.1} | fixed))
        more = {"seconds": options.away}
    if what == "dwindle":
        steps = int(options.every * 6.5 / 0.26)
        calm = {"model": "mlp", "width": 64, "accumulate": 1, "jitter": 0.0, "pause": 0.25}
        settings = dataclasses.replace(settings, **({"steps": steps} | calm | fixed))
        more = {"every": options.every}
    if what == "partition":
        more = {"number": seed - options.seed}
    trial = faults.Trial(
        lab,
        folder,
        luck,
        settings,
        world=faults.WORLDS.get(what, 5),
        **faults.variables_for(what),
    )
    with trial.ranks:
        try:
            faults.WHAT[what](trial, **more)
        except AssertionError as wrong:
            trial.problems.append(str(wrong))
        if trial.problems:
            print(trial.describe(), file=sys.stderr, flush=True)
    lab.repair()
    if not trial.problems and what not in ("too-few", "deleted", "wipe"):
        try:
            trial.go_on_from_checkpoint()
        except AssertionError as wrong:
            trial.problems.append(str(wrong))
    return {"what": what, "seed": seed, **trial.row()}


def summary_of(rows: list[Any]) -> dict[str, Any]:
    """Returns the pauses by kind of fault."""
    found = {}
    for what in dict.fromkeys(row["what"] for row in rows):
        mine = [row for row in rows if row["what"] == what]
        pauses = [pause for row in mine for pause in row["pauses_s"]]
        found[what] = {
            "jobs": len(mine),
            "wrong": sum(bool(row["problems"]) for row in mine),
            "compared_steps": sum(row["compared"] for row in mine),
            "pauses": len(pauses),
            "median_s": round(statistics.median(pauses), 3) if pauses else None,
            "longest_s": round(max(pauses), 3) if pauses else None,
        }
    return found


def print_row(row: Any) -> None:
    settings = row["settings"]
    drawn = [settings["algorithm"], settings["model"], settings["optimizer"]]
    for name in ("accumulate", "clip", "scale"):
        if settings[name] > (1 if name == "accumulate" else 0):
            drawn.append(f"{name} {settings[name]:g}")
    pause = f"{max(row['pauses_s']):.2f} s" if row["pauses_s"] else "-"
    verdict = "; ".join(row["problems"]) or "ok"
    print(
        f"{row['what']:10} {row['seed']:5}  {row['left']} of {row['members']}  {row['steps']:4} "
        f"steps of {row['normal_s'] * 1000:.0f} ms, pause {pause}, {row['seconds']:.0f} s  "
        f"[{', '.join(drawn)}]  {'; '.join(row['faults'])}  {' '.join(row['notes'])}  => {verdict}",
        flush=True,
    )


def print_summary(found: dict[str, Any]) -> None:
    names = ("jobs", "wrong", "compared_steps", "pauses", "median_s", "longest_s")
    print(f"\n{'':12}" + "".join(f"{name.replace('_', ' '):>16}" for name in names))
    for what, figures in found.items():
        cells = ["-" if figures[name] is None else str(figures[name]) for name in names]
        print(f"{what:12}" + "".join(f"{cell:>16}" for cell in cells))


NOTED = ("dwindle", "etcd-away", "forger", "rerun")  # kinds whose notes are on the page
PAGE = """# Members that are lost, in a lab

`tests/members/in_lab_test.py` trains with five members (partitions: four, dwindle: eight) on one
machine, and writes this page. `tests/members/faults.py` describes the kinds of faults.

A job is right if all this holds:

- The members that are left make all steps.
- Every step of every member has the bits of one process.
- Members that were stopped or cut off end with an error that says so.
- A new job begins from the checkpoint.

The pause is the longest step of each member after a loss, beyond a normal step. Cuts, stops and
partitions count as a loss after `silence-limit` (1.9 s), which is part of the pause.
"""


def write_page(rows: list[Any], path: Path) -> None:
    import job

    lines = [
        "| fault | jobs | wrong | steps compared | pauses | median | longest |",
        "|---|---|---|---|---|---|---|",
    ]
    for what, figures in summary_of(rows).items():
        cells = [figures[name] for name in ("jobs", "wrong", "compared_steps", "pauses")]
        pauses = [figures[name] for name in ("median_s", "longest_s")]
        cells += ["-" if pause is None else f"{pause:.2f} s" for pause in pauses]
        lines.append(f"| {what} | {' | '.join(map(str, cells))} |")
    noted = [row for row in rows if row["what"] in NOTED and row["notes"]]
    lines += ["", "| job | noted |", "|---|---|"] if noted else []
    lines += [f"| {row['what']} {row['seed']} | {job.cell(row['notes'])} |" for row in noted]
    builds = ", ".join(dict.fromkeys(row["build"] for row in rows))
    lines += ["", f"Builds, by a digest of program and module: {builds}."]
    path.write_text("\n".join([PAGE, *lines, *job.wrong_jobs(rows)]) + "\n")


def main(options: argparse.Namespace) -> int:
    import faults
    import job

    kinds = list(faults.WHAT) if options.what == "all" else options.what.split(",")
    for kind in kinds:
        if kind not in faults.WHAT:
            sys.exit(f"--what {kind} is none of {', '.join(faults.WHAT)}")
    job.prepare()
    results = job.Results(options.results)
    done = {(row["what"], row["seed"]) for row in results.rows}
    build = job.build_of(options.sluice)
    rows: list[Any] = []
    kept = options.keep
    folder = Path(tempfile.mkdtemp(prefix="members-")) if kept is None else kept.resolve()
    try:
        hosts = max(faults.WORLDS.get(kind, 5) for kind in kinds)
        with job.MembersLab(options.sluice, max(5, hosts), options.rate) as lab:
            for kind in kinds:
                for seed in range(options.seed, options.seed + options.jobs):
                    if (kind, seed) in done:
                        continue
                    place = folder / f"{kind}-{seed}"
                    rows.append({"build": build, **run_job(lab, place, kind, seed, options)})
                    results.add(rows[-1])
                    if options.page is not None:
                        write_page(results.rows, options.page)
                    if not options.json:
                        print_row(rows[-1])
                    if kept is None:
                        shutil.rmtree(place, ignore_errors=True)
    finally:
        if kept is None:
            shutil.rmtree(folder, ignore_errors=True)
    found = summary_of(results.rows)
    if options.json:
        print(json.dumps({"jobs": rows, "summary": found}))
    else:
        print_summary(found)
    return 1 if any(row["problems"] for row in rows) else 0


if __name__ == "__main__":
    options = parse()
    if importlib.util.find_spec("torch") is None:
        print("skipped: there is no Torch")
        sys.exit(SKIPPED)
    skip_without_lab()
    if shutil.which("etcd") is None:
        print("skipped: etcd is not installed")
        sys.exit(SKIPPED)
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path.insert(0, options.pythonpath)
    sys.exit(main(options))
