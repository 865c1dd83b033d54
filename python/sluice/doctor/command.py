"""The flags, the progress and the errors of `sluice doctor`."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from pathlib import Path

from sluice._tensor.accelerator import current_accelerator
from sluice.doctor import device as device_topic
from sluice.doctor.report import text

_EXAMPLES = """Examples:
  sluice doctor device                       # the accelerator of this machine, about a minute
  sluice doctor device --output doctor.json  # a file to attach to a report
  sluice doctor device --json                # the same on standard output"""


def main() -> None:
    # End by an exception, so that the ranks end first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    flags = _parser().parse_args()
    try:
        sys.exit(_device(flags))
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, ValueError, RuntimeError) as error:
        print(f"sluice doctor: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)


def _device(flags: argparse.Namespace) -> int:
    for module in flags.imports:
        importlib.import_module(module)
    accelerator = current_accelerator()
    if accelerator is None:
        raise OSError(
            "PyTorch finds no accelerator here; sluice trains in the host's memory, and there is "
            "nothing to look at"
        )
    findings = device_topic.look(accelerator, flags.imports, flags.seconds, _say)
    if flags.output is not None:
        flags.output.write_text(json.dumps(findings, indent=2) + "\n")
        _say(f"wrote {flags.output}")
    print(json.dumps(findings, indent=2) if flags.json else text(findings))
    return 0 if findings["correct"] else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice doctor",
        description="Looks at this machine, and says whether sluice works on it and how well.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    topics = parser.add_subparsers(dest="topic", required=True, metavar="TOPIC")
    device = topics.add_parser(
        "device",
        help="the accelerator: copies, overlap, same numbers as PyTorch, time of a step",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    device.add_argument("--json", action="store_true", help="print the findings as JSON")
    device.add_argument("--output", type=Path, metavar="FILE", help="write the findings as JSON")
    device.add_argument(
        "--seconds", type=float, default=20.0, metavar="S", help="time for the measurements [20]"
    )
    device.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="import this first: it makes a device known that is not part of PyTorch",
    )
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
