"""One rank of a job that goes on without lost members: the training of training.py.

  MEMBERS_OUT=FILE   writes sluice.epochs() and the digests of every step there, as JSON, at the end
  MEMBERS_SAVE=FILE  the rank that is then 0 writes a checkpoint there

RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, SLUICE_MEMBERS and SLUICE_JOB are set as for any job.
Prints a line for each step: the time (CLOCK_MONOTONIC), a digest of parameters and optimizer, and
the number of members after it. Parameters are looked at where the next forward pass reads them, so
that layers still wait one by one; so the line of a step comes in the next step. `got` and `left`
are digests of the buffers before and after the step's forward passes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import torch
from training import (
    Digests,
    Settings,
    buffers_of,
    digest_of,
    digest_of_parameter,
    digest_of_step,
    make_model,
    make_optimizer,
    make_scaler,
    read_checkpoint,
    run_passes,
    take_step,
)
from torch import nn

import sluice


class Trainer:
    def __init__(self, settings: Settings, member: int) -> None:
        self.settings, self.member = settings, member
        self.records: list[dict[str, Any]] = []  # of the steps that were printed
        self.changes: list[dict[str, Any]] = []
        self.record: dict[str, Any] | None = None  # of the last step, not printed yet
        self.digests: Digests = {}  # of that step, of the parameters that were read since
        self.step = 0  # the one that is made now
        self.got = ""
        checkpoint = read_checkpoint(settings)
        model = make_model(settings)
        if checkpoint:
            model.load_state_dict(checkpoint["model"])
        model = model.to(settings.device)
        self.names = {parameter: name for name, parameter in model.named_parameters()}
        self.model, self.optimizer = sluice.distribute(
            model,
            lambda parameters: make_optimizer(settings, parameters),
            algorithm=settings.algorithm,
        )
        sluice.on_members_changed(self.members_changed)
        if checkpoint:
            self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.scaler = make_scaler(settings)
        for module in self.model.modules():
            if module._parameters or module._buffers:
                module.register_forward_pre_hook(self.before_module)

    def members_changed(self, change: Any) -> None:
        found = {
            "epoch": change.epoch,
            "step": self.step,
            "members": list(change.members),
            "lost": list(change.lost),
            "rank": change.rank,
        }
        self.changes.append(found)
        members, lost = (",".join(map(str, found[name])) for name in ("members", "lost"))
        say(
            f"change={change.epoch} at={time.monotonic_ns()} step={self.step} members={members} "
            f"lost={lost} rank={change.rank}"
        )

    def before_module(self, module: nn.Module, args: Any) -> None:
        """Comes after sluice's own hook: the gates of this module are open."""
        if not self.got:
            self.got = digest_of(buffers_of(self.model).values())
        if self.record is not None:
            self.look_at(module)

    def look_at(self, module: nn.Module) -> None:
        # Parameters as attributes are read through their gates.
        for parameter in module._parameters.values():
            if parameter is not None and self.names[parameter] not in self.digests:
                digest = digest_of_parameter(parameter, self.optimizer)
                self.digests[self.names[parameter]] = digest

    def print_step(self) -> None:
        """Prints the last step if every parameter was looked at."""
        record, digests = self.record, self.digests
        if record is None or len(digests) < len(self.names):
            return
        self.record, self.digests = None, {}
        record |= {"state": digest_of_step(digests), "at": time.monotonic_ns()}
        say(" ".join(f"{key}={value}" for key, value in record.items()))
        self.records.append({**record, "parameters": digests})

    def make_step(self, step: int) -> None:
        self.step, self.got = step, ""
        self.optimizer.zero_grad()
        run_passes(
            self.settings,
            self.model,
            self.scaler,
            self.member,
            step,
            self.model.no_sync,
            after_forward=self.print_step,
        )
        left = digest_of(buffers_of(self.model).values())
        if self.record is not None:  # a layer was not used
            for module in self.model.modules():
                for name, parameter in module._parameters.items():
                    if parameter is not None and self.names[parameter] not in self.digests:
                        getattr(module, name)  # its gate opens
                self.look_at(module)
            self.print_step()
        jitter = random.Random(f"{self.member} {step}").uniform(-1, 1) * self.settings.jitter
        time.sleep(self.settings.pause * (1 + jitter))
        if self.settings.model == "branches" and self.settings.clip > 0:
            # Else clipping counts a gradient that nobody has as zeros, and may round otherwise.
            self.optimizer.synchronize()
        take_step(self.settings, self.model, self.optimizer, self.scaler)
        self.record = {"step": step, "world": sluice.world_size(), "rank": sluice.rank()}
        self.record |= {"got": self.got, "left": left}
        if self.settings.mean > 0 and step % self.settings.mean == 0:
            self.record["mean"] = sluice.mean(float(self.member)).hex()

    def end(self) -> None:
        self.optimizer.synchronize()
        for module in self.model.modules():
            self.look_at(module)
        self.print_step()
        found = {
            "member": self.member,
            "settings": dataclasses.asdict(self.settings),
            "epochs": sluice.epochs(),
            "steps": self.records,
            "changes": self.changes,
        }
        if "MEMBERS_OUT" in os.environ:
            write_whole(Path(os.environ["MEMBERS_OUT"]), json.dumps(found).encode())
        if "MEMBERS_SAVE" in os.environ and sluice.rank() == 0:
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            saved = Path(os.environ["MEMBERS_SAVE"])
            torch.save(state, saved.with_suffix(".part"))
            saved.with_suffix(".part").rename(saved)
        say(f"ended at={time.monotonic_ns()}")


def say(line: str) -> None:
    """Writes a line at once: print() may write its end later, after a line of the log."""
    sys.stdout.flush()
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def write_whole(path: Path, content: bytes) -> None:
    """Leaves no half of a file behind if this process is killed."""
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.rename(path)


def main() -> None:
    torch.set_num_threads(1)
    settings, member = Settings.from_environment(), int(os.environ["RANK"])
    trainer = Trainer(settings, member)
    say(f"begun at={time.monotonic_ns()} member={member} world={sluice.world_size()}")
    for step in range(settings.steps):
        trainer.make_step(step)
    trainer.end()


if __name__ == "__main__":
    main()
