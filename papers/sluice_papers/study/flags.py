"""The flags of `sluice study`, and the settings that they mean."""

from __future__ import annotations

import argparse
from pathlib import Path

from sluice_papers.study import algorithms, data, network
from sluice_papers.study.settings import (
    Settings,
    parse_budget,
    parse_counts,
    parse_jitter,
    parse_seeds,
    parse_straggler,
    parse_tune,
)
from sluice_papers.study.worker import OPTIONS

OUT_OF_TIME = 3  # exit code: the budget has ended before the study
_EXAMPLES = """examples:
  sluice study --data-dir DATA --workers 8,24,4,16 --seeds 5,3,5,3 --tune 8,24 --epochs 6 -o study/
  sluice study --data-dir DATA --algorithms bsp,asp,ssp:3 --workers 4 --straggler 1:3x -o straggler/
  sluice study --data-dir DATA --algorithms bsp,asp --workers 8 --lab --rate 100mbit \
-o slow-links/
  sluice study --data-dir DATA --model mlp --algorithms bsp --dgc --workers 4 --batch 8 -o dgc/
  sluice study -o study/ --report                      # only the page, from the runs that are there

DATA holds fashion-mnist/ with its four .gz files as they are downloaded. The page is \
study/study.html, the table study/study.md, and all runs are in study/runs.json.gz. The same \
command goes on where it was ended; --again KEY makes a run again."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="sluice study",
        description="Trains one model with many algorithms, numbers of workers and seeds, and "
        "writes a page that compares them, beside what a paper has found.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="where results and the page go",
    )
    made.add_argument("--data", choices=data.NAMES, default="fashion-mnist", help="[fashion-mnist]")
    made.add_argument(
        "--data-dir",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="folder that the data is in [data]",
    )
    made.add_argument("--model", choices=network.NAMES, default="cnn", help="[cnn]")
    made.add_argument(
        "--algorithms", default=algorithms.DEFAULT, metavar="LIST", help=f"[{algorithms.DEFAULT}]"
    )
    made.add_argument(
        "--workers",
        default="4,8,16",
        metavar="LIST",
        help="numbers of workers, the most telling first; 1 is one worker alone [4,8,16]",
    )
    made.add_argument(
        "--seeds",
        default="3",
        metavar="LIST",
        help="trainings of each, with other beginnings: one number, or one for each of --workers "
        "[3]",
    )
    made.add_argument("--epochs", type=int, default=4, metavar="K", help="[4]")
    made.add_argument(
        "--batch", type=int, default=32, metavar="K", help="samples of a worker in a step [32]"
    )
    made.add_argument(
        "--learning-rate",
        type=float,
        default=0.015,
        metavar="X",
        help="of a worker with 128 samples [0.015]",
    )
    made.add_argument(
        "--tune",
        default="none",
        metavar="LIST",
        help="numbers of workers for which rates are tuned with one seed: factors of the rate are "
        "tried until both neighbours of the best are worse. Others use the nearest's [none]",
    )
    made.add_argument("--samples", type=int, metavar="K", help="only the first K training images")
    made.add_argument(
        "--pace", type=float, metavar="MS", help="how long a step takes at least [measured]"
    )
    made.add_argument("--straggler", metavar="RANK:Kx", help="a rank that is slower, such as 1:3x")
    made.add_argument(
        "--jitter",
        metavar="SHARE:Kx",
        help="every worker takes longer in this share of its steps, such as 0.25:1.05x",
    )
    made.add_argument(
        "--dgc",
        action="store_true",
        help="also with deep gradient compression, where gradients are sent",
    )
    made.add_argument(
        "--lab", action="store_true", help="each worker on a host of its own (docs/lab.md)"
    )
    made.add_argument("--rate", metavar="RATE", help="with --lab: the speed of each link [1gbit]")
    for name in OPTIONS:
        made.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="X",
            help=f"as in docs/configuration.md, for {', '.join(OPTIONS[name])}",
        )
    made.add_argument(
        "--traces", action="store_true", help="split a step's time into its parts, by traces"
    )
    made.add_argument(
        "--budget",
        metavar="TIME",
        help="begin no run that would not end in this time, such as 45min; exit code "
        f"{OUT_OF_TIME} if runs are left",
    )
    made.add_argument("--again", metavar="KEY", help="forget these runs first, such as 'asp-n8-*'")
    made.add_argument(
        "--report",
        action="store_true",
        help="train nothing: write the page from the runs that are there",
    )
    made.add_argument("--json", action="store_true", help="print the results of all runs as JSON")
    return made


def settings_from(flags: argparse.Namespace) -> Settings:
    if flags.rate is not None and not flags.lab:
        raise ValueError("--rate is the speed of a lab's links; give --lab with it")
    for name, least in (("epochs", 1), ("batch", 1)):
        if getattr(flags, name) < least:
            raise ValueError(f"--{name} is {getattr(flags, name)}; give {least} or more")
    if flags.pace is not None and flags.pace <= 0:
        raise ValueError(f"--pace is {flags.pace:g}; give milliseconds above 0")
    workers = parse_counts(flags.workers, "workers", least=1)
    options = {name: getattr(flags, name) for name in OPTIONS}
    return Settings(
        algorithms=algorithms.parse_list(flags.algorithms),
        workers=workers,
        seeds=parse_seeds(flags.seeds, workers),
        epochs=flags.epochs,
        output=flags.output,
        data=flags.data,
        data_dir=flags.data_dir,
        model=flags.model,
        batch=flags.batch,
        learning_rate=flags.learning_rate,
        tune=parse_tune(flags.tune),
        samples=flags.samples,
        pace=None if flags.pace is None else flags.pace / 1e3,
        straggler=parse_straggler(flags.straggler) if flags.straggler else {},
        jitter=parse_jitter(flags.jitter) if flags.jitter else (0.0, 1.0),
        dgc=flags.dgc,
        rate=(flags.rate or "1gbit") if flags.lab else None,
        traces=flags.traces,
        options={name: value for name, value in options.items() if value is not None},
        budget=None if flags.budget is None else parse_budget(flags.budget),
    )
