"""The flags, the progress and the errors of `python -m sluice.demo`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

import torch.distributed as dist

from sluice._job import ownership
from sluice.demo import experiment, plot, report
from sluice.demo.link import KINDS
from sluice.demo.settings import Settings

_EXAMPLES = """examples:
  python -m sluice.demo                      # less than a minute
  python -m sluice.demo --plot demo.png      # and a picture
  python -m sluice.demo --rate 200mbit       # a slower link
  python -m sluice.demo --bucket-mb 1        # DDP with smaller buckets
  python -m sluice.demo --json > demo.json"""


def main() -> None:
    # End by an exception, so that the ranks and the lab end first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    flags = _parser().parse_args()
    try:
        _refuse()
        sys.exit(_demo(flags))
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, ValueError) as error:
        print(f"sluice demo: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)


def _demo(flags: argparse.Namespace) -> int:
    _say("sluice demo: two processes train the same model over a slow link, by DDP and by sluice")
    _say_if_busy()
    settings = Settings(bucket_mb=flags.bucket_mb)
    figures = experiment.run(settings, flags.link, flags.rate, flags.seconds, _say)
    print(report.as_json(figures) if flags.json else f"\n{report.text(figures)}")
    if flags.plot is not None:
        _say(plot.draw(figures, flags.plot))
    return 0 if figures.has_same_bits else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sluice.demo",
        description="Trains a small transformer in two processes over a slow link, by DDP on Gloo "
        "and by sluice, and compares\nthe time of a step. It needs no data and no root.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--link",
        choices=KINDS,
        default="auto",
        help="what makes the link slow [auto: a lab, or pacing where a lab is not allowed]",
    )
    parser.add_argument(
        "--rate",
        type=_rate,
        help="speed of the link [chosen so that gradients travel as long as a step computes]",
    )
    parser.add_argument(
        "--bucket-mb", type=float, default=25.0, metavar="MB", help="DDP's bucket_cap_mb [25]"
    )
    parser.add_argument(
        "--seconds", type=float, default=24.0, metavar="S", help="time for all rounds [24]"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw a picture")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser


def _rate(text: str) -> float:
    """Returns bits per second."""
    factor = {"mbit": 1e6, "gbit": 1e9}.get(text[-4:], 0.0)
    try:
        rate = factor * float(text[:-4])
    except ValueError:
        rate = 0.0
    if rate < 1e6:
        raise argparse.ArgumentTypeError(f"invalid rate '{text}'; use 200mbit or 1gbit")
    return rate


def _refuse() -> None:
    """Reports in one line what cannot work. Every check of the installation belongs here."""
    if complaint := ownership.complaint():
        raise OSError(complaint)
    if not (dist.is_available() and dist.is_gloo_available()):
        raise OSError("this PyTorch has no Gloo, which DDP needs; install another build of it")
    if "RANK" in os.environ:
        raise OSError("RANK is set, but the demo starts its own ranks; run it without a launcher")


def _say_if_busy() -> None:
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if cores < 2:
        _say("note: there is one core for two ranks, so the figures will be poor")
    elif load > cores / 2:
        _say(f"note: the load of this machine is {load:.1f}, so the figures will be unsteady")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
