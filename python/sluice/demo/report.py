"""The text and the JSON document of the demo's figures."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict

from sluice.demo.figures import Figures

_NEXT = """Next:
  in your program  model, optimizer = sluice.distribute(model, optimizer)
  start it         torchrun --nproc-per-node 2 train.py
  read             docs/start.md, and docs/pytorch.md: also with DDP's buckets tuned by hand"""


def text(figures: Figures) -> str:
    rows = {
        "without network": figures.plain,
        "bound": figures.bound,
        "sluice": figures.sluice,
        "DDP on Gloo": figures.ddp,
    }
    lines = [f"{'ms a step':>24}   rounds", *(_row(name, row) for name, row in rows.items()), ""]
    lines += [_verdict(figures), _bits(figures), "", _NEXT]
    return "\n".join(lines)


def as_json(figures: Figures) -> str:
    more = {"speedup": figures.speedup, "over_bound": figures.over_bound}
    return json.dumps({**asdict(figures), **more, "same_bits": figures.has_same_bits}, indent=1)


def _row(name: str, rounds: list[float]) -> str:
    median = f"{1e3 * statistics.median(rounds):.0f}"
    return f"{name:16}{median:>8}   {' '.join(f'{1e3 * one:.0f}' for one in rounds)}"


def _verdict(figures: Figures) -> str:
    low, high = min(figures.speedups), max(figures.speedups)
    spread = f"({low:.2f} to {high:.2f} in the rounds)"
    bound = (
        "The bound is an estimate of the shortest step that any order of sending can have; "
        f"sluice takes {figures.over_bound:.2f} of it."
    )
    if figures.speedup > 1:
        return f"sluice is {figures.speedup:.2f} times as fast as DDP {spread}.\n{bound}"
    return (
        f"sluice is not faster here: {figures.speedup:.2f} times as fast as DDP {spread}.\n"
        f"{bound}\nReason: {reason(figures)}."
    )


def reason(figures: Figures) -> str:
    """Returns the likely reason why sluice is not faster."""
    compute, wire = statistics.median(figures.plain), figures.wire_s
    unrest = max(figures.plain) / min(figures.plain)
    if unrest > 1.3:
        return (
            f"the machine was busy: the same step without a network took "
            f"{1e3 * min(figures.plain):.0f} to {1e3 * max(figures.plain):.0f} ms; try again"
        )
    if wire < 0.5 * compute:
        return (
            f"the link is fast: gradients travel for {1e3 * wire:.0f} ms and a step computes for "
            f"{1e3 * compute:.0f} ms, so that there is little to hide"
        )
    if wire > 3 * compute:
        return (
            f"the link is slow: gradients travel for {1e3 * wire:.0f} ms and a step computes for "
            f"{1e3 * compute:.0f} ms, so that there is little to hide them behind"
        )
    return (
        f"gradients should be hidden here, but sluice takes {figures.over_bound:.2f} of the bound: "
        "its thread needs a part of the core that computes"
    )


def _bits(figures: Figures) -> str:
    if figures.has_same_bits:
        return (
            f"The bits are the same: after {figures.steps} steps all parameters have the SHA-256 "
            f"{figures.digests[0][:16]}...\nwith DDP and with sluice, on both ranks."
        )
    return f"The bits differ after {figures.steps} steps: {', '.join(figures.digests)}."
