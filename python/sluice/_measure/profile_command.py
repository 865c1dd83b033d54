"""`sluice profile train.py ARGS...`: runs a training script in one process, unchanged, and measures
where its model's time goes, tensor by tensor. `sluice bench replay --profile` takes the result."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from sluice._measure.profile import Profile

_LAUNCHED_BY = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


class _Enough(BaseException):
    """Ends the script. It is no Exception, so that no handler of the script takes it for a
    failure."""


class _Watch:
    """The first module that is called in training is the model; an iteration ends with its
    optimizer's step."""

    def __init__(self, steps: int, path: Path) -> None:
        self._steps_left = steps + 2  # two more warm up
        self._path = path
        self._model: nn.Module | None = None
        self._profile: Profile | None = None
        self.is_done = False
        register_module_forward_pre_hook(self._before_module)
        register_optimizer_step_post_hook(self._after_step)

    def _before_module(self, module: nn.Module, args: Any) -> None:
        if (
            self._model is None
            and module.training
            and torch.is_grad_enabled()
            and any(True for _ in module.parameters())
        ):
            self._model = module

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._model is None:
            return
        if self._profile is None:  # create it now: hooks cannot be added to a call that has begun
            self._profile = Profile(self._model)
            return
        self._profile.step()
        self._steps_left -= 1
        if self._steps_left == 0:
            self._profile.save(self._path)
            self.is_done = True
            raise _Enough


def main() -> None:
    parser = argparse.ArgumentParser(prog="sluice profile", description=__doc__)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("profile.json"),
        help="where the profile goes [profile.json]",
    )
    parser.add_argument("--steps", type=int, default=20, help="iterations to measure [20]")
    parser.add_argument("script", type=Path, help="the training script")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args()
    launched = [name for name in _LAUNCHED_BY if name in os.environ]
    if launched:
        parser.exit(
            2,
            f"sluice profile: measures one process, but {launched[0]} is set; start it without a "
            "launcher\n",
        )
    if not options.script.is_file():
        parser.exit(2, f"sluice profile: there is no script {options.script}\n")
    watch = _Watch(options.steps, options.out)
    sys.argv = [str(options.script), *options.args]
    sys.path.insert(0, str(options.script.resolve().parent))
    try:
        runpy.run_path(str(options.script), run_name="__main__")
    except _Enough:
        print(
            f"{options.out}: {options.steps} iterations; try 'sluice bench replay --profile "
            f"{options.out} --lab'"
        )
    if not watch.is_done:
        parser.exit(
            1,
            f"sluice profile: {options.script} has made fewer than {options.steps + 3} steps; "
            "give it more, or --steps\n",
        )


if __name__ == "__main__":
    main()
