#!/usr/bin/env python3
"""Measures the CPU time that sluice's own Python takes per training step, on a device and in host
memory, on the threads that train: the caller's and those of autograd.

    PYTHONPATH=build/release/python:build/dev/tests/device python3 bench/training_thread.py
    PYTHONPATH=build/release/python python3 bench/training_thread.py --device cuda --import ""

Two ranks train a model of many small layers on loopback, in turn on the device and in host memory.
A clock of the thread runs inside the hooks and methods by which a training script calls sluice. It
stops while the wrapped optimizer works, since that is PyTorch's own time, and with --python-only
also in calls of sluice's C++ modules. The figure is the median of the pairs' ratios, device over
host, with the least and the greatest.

The pretend device computes on threads of its own, which share the caches and cores of the machine
with the training thread: the same Python function takes longer beside them."""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LAYERS = 24


class Clock:
    """Sums the CPU time of the calling thread inside some functions, without what they call
    outside sluice."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()
        self._here = threading.local()

    def inside(self, function: Callable[..., Any], sign: int = 1) -> Callable[..., Any]:
        """Returns the function with its time counted; with sign -1, not counted."""

        @functools.wraps(function)
        def timed(*args: Any, **named: Any) -> Any:
            outer = getattr(self._here, "sign", -1)
            if outer == sign:
                return function(*args, **named)
            self._here.sign = sign
            begun = time.thread_time()
            try:
                return function(*args, **named)
            finally:
                spent = time.thread_time() - begun
                with self._lock:
                    self.seconds += sign * spent
                self._here.sign = outer

        return timed


def count(clock: Clock, python_only: bool) -> None:
    from sluice._engine.backward import Backward
    from sluice._engine.forward import Forward
    from sluice._front.optimizer import GatedOptimizer, LateStep

    from sluice import _c10d, _core

    for owner, names in {
        Forward: ["_before_model", "_before_module", "_model_ends", "_after_model"],
        Backward: ["begin", "before_accumulation", "after_accumulation", "_end"],
        GatedOptimizer: ["step", "zero_grad"],
    }.items():
        for name in names:
            setattr(owner, name, clock.inside(getattr(owner, name)))
    if python_only:
        for native in (_core.Session, _c10d.Device):
            for name, method in list(vars(native).items()):
                if callable(method) and not name.startswith("_"):
                    setattr(native, name, clock.inside(method, sign=-1))
    LateStep._step = clock.inside(LateStep._step, sign=-1)  # type: ignore[method-assign]


def train(options: argparse.Namespace) -> None:
    for module in filter(None, [options.import_]):
        importlib.import_module(module)
    import torch

    import sluice

    torch.set_num_threads(1)
    clock = Clock()
    count(clock, options.python_only)
    results: dict[str, list[float]] = {"host": [], "device": []}
    for pair in range(options.pairs):
        for where in ("host", "device") if pair % 2 else ("device", "host"):
            place = options.device if where == "device" else "cpu"
            results[where].append(measure(torch, sluice, clock, place, options.steps))
    if os.environ["RANK"] == "0":
        print(json.dumps(results), flush=True)


def measure(torch: Any, sluice: Any, clock: Clock, place: str, steps: int) -> float:
    layers = [torch.nn.Linear(32, 32, device=place) for _ in range(LAYERS)]
    model, optimizer = sluice.distribute(
        torch.nn.Sequential(*layers), lambda ps: torch.optim.SGD(ps, lr=0.01)
    )
    x = torch.ones(4, 32, device=place)
    for step in range(5 + steps):
        if step == 5:
            clock.seconds = 0.0
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    return clock.seconds / steps


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="pretend")
    parser.add_argument("--import", dest="import_", default="sluice_test_device")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--python-only", action="store_true", help="leave out C++ modules")
    options = parser.parse_args()
    if "RANK" in os.environ:
        train(options)
        return
    from sluice.demo import processes

    starts = processes.on_loopback([sys.executable, __file__, *sys.argv[1:]], dict(os.environ))
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        processes.run(starts, 600, Path(folder, "errors"), said.append)
    results = json.loads(said[-1])
    pairs = list(zip(results["device"], results["host"], strict=True))
    ratios = sorted(device / host for device, host in pairs)
    for where in ("host", "device"):
        print(f"{where:8} {1e3 * statistics.median(results[where]):8.3f} ms of CPU time per step")
    print(
        f"device over host {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), "
        f"{len(pairs)} pairs, {2 * LAYERS} parameters"
    )


if __name__ == "__main__":
    main()
