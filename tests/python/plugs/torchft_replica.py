"""One replica group of torchft_job.py: a process that trains with torchft's own
DistributedDataParallel.

torchft_replica.py gloo|sluice FOLDER PART RANK LIGHTHOUSE

  same       both replicas take part in every step; the results are for compare.py
  survives   trains on while the other replica is killed, and until it has returned for some steps
  dies       kills itself inside backward, after some steps together with the other
  returns    takes the state of the survivor, and ends together with it
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import common
import torch
import torchft
from torch import Tensor, nn
from torch.distributed import TCPStore
from torch.nn import functional
from torchft.checkpointing.pg_transport import PGTransport

how, folder = common.arguments()
part, rank, lighthouse = sys.argv[3], int(sys.argv[4]), sys.argv[5]
EPOCHS = 2
BUCKET_MB = 0.2  # so that a killed replica has reduced some gradients of its last step
TOGETHER = 10  # steps
# In the first step of a quorum, a replica that has come back adds zeros to the gradients, and gets
# the model and two moments of AdamW.
MORE_MODELS = 4
MOST = 100_000  # steps


def new_group() -> Any:
    timeout = timedelta(seconds=60)
    if how == "gloo":
        return torchft.ProcessGroupGloo(timeout=timeout)
    from sluice.torchft import ProcessGroupSluice

    return ProcessGroupSluice(timeout=timeout)


class Replica:
    def __init__(self, least: int) -> None:
        self.store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.group, self.model = new_group(), common.net()
        # Its default sends the state by HTTP, and not by the group.
        transport = PGTransport(self.group, timedelta(seconds=60), torch.device("cpu"))
        self.manager = torchft.Manager(
            pg=self.group,
            load_state_dict=self.load,
            state_dict=self.state,
            min_replica_size=least,
            timeout=timedelta(seconds=60),
            rank=0,
            world_size=1,
            store_addr="127.0.0.1",
            store_port=self.store.port,
            lighthouse_addr=lighthouse,
            replica_id=f"replica{rank}",
            hostname="127.0.0.1",
            checkpoint_transport=transport,
            init_sync=False,  # all begin with the same parameters
        )
        self.trained = torchft.DistributedDataParallel(
            self.manager, self.model, bucket_cap_mb=BUCKET_MB
        )
        self.optimizer = torchft.Optimizer(
            self.manager, torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        )
        samples = common.samples()[rank::2]
        self.batches = [
            [torch.stack(part) for part in zip(*samples[at : at + common.BATCH], strict=True)]
            for at in range(0, len(samples), common.BATCH)
        ]

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def step(self, number: int) -> tuple[float, bool]:
        """Returns the loss of this rank, and whether the step was taken."""
        x, y = self.batches[number % len(self.batches)]
        self.optimizer.zero_grad()  # begins the quorum
        loss = functional.cross_entropy(self.trained(x), y)
        loss.backward()
        before = self.manager.current_step()
        self.optimizer.step()
        return float(loss.detach()), self.manager.current_step() > before

    def backend(self) -> str:
        """Returns the name of the backend that carries the present quorum, as Torch has it."""
        return str(self.group.parent._get_backend(torch.device("cpu")).name())

    def parameters(self) -> str:
        """Returns a digest without the buffers, which each replica has of its own."""
        return common.sha256(nn.ParameterList(self.model.parameters()))

    def end(self) -> None:
        self.manager.shutdown(wait=False)
        self.group.shutdown()


def same() -> None:
    result, replica = common.Result(how, folder), Replica(2)
    losses, steps = [], 0
    for number in range(EPOCHS * len(replica.batches)):
        loss, is_taken = replica.step(number)
        losses.append(loss)
        steps += is_taken
        assert replica.manager.num_participants() == 2, "the replicas are to train together"
    sent = None if how == "gloo" else common.sent_by_backend(replica.backend())
    result.note("two replica groups", replica.model, losses, steps, sent)
    result.write(rank)
    replica.end()


def train_until_killed() -> None:
    """Kills this process when the gradient of the first layer is computed: those of other layers
    are reduced or under way by then."""

    def die(_: Tensor) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    replica, together = Replica(1), 0
    for number in range(MOST):
        _, is_taken = replica.step(number)
        together += is_taken and replica.manager.num_participants() == 2
        if together == TOGETHER:
            next(iter(replica.model.parameters())).register_hook(die)
    raise AssertionError("this replica was to be killed")


def train_together_again() -> None:
    replica, together = Replica(1), 0
    for number in range(MOST):
        _, is_taken = replica.step(number)
        together += is_taken and replica.manager.num_participants() == 2
        if together == TOGETHER:
            break
    (folder / "returned.json").write_text(json.dumps(replica.parameters()))
    replica.end()


def survive() -> None:
    """Trains while the other is killed, and until it has come back for some steps."""
    replica, history, losses = (
        Replica(1),
        "",
        [],
    )  # the number of participants by step; -: not taken
    backends, threads = set(), []
    for number in range(MOST):
        loss, is_taken = replica.step(number)
        losses.append(loss)
        world = replica.manager.num_participants()
        history += str(world) if is_taken else "-"
        if is_taken:
            backends.add(replica.backend())
        if re.search("2-+1$", history):
            threads = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
        if re.search(f"21+2{{{TOGETHER}}}$", history.replace("-", "")):
            break
    shown = re.sub(r"(.)\1*", lambda run: f" {len(run[0])}x{run[1]}", history)
    models = 1e6 * common.sent_by_backend(replica.backend()) / size_of(replica.model)
    checks = {
        f"participants by step:{shown}": re.search("2-+1+2", history) is not None,
        f"killed in backward: {history.count('-')} step not taken, and on": "2-" in history,
        "every quorum on sluice": backends == {"sluice"},
        "nothing is left of the lost quorum": threads.count("sluice\n") == 1
        and "sluice-pulse\n" not in threads,
        f"sent {models:.1f} models in {TOGETHER} steps and what comes before": 0.9
        <= models / (TOGETHER + MORE_MODELS)
        <= 1.1,
        "finite losses": all(map(math.isfinite, losses)),
    }
    (folder / "survivor.json").write_text(
        json.dumps({"checks": checks, "parameters": replica.parameters()})
    )
    replica.end()


def size_of(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


parts = {
    "same": same,
    "survives": survive,
    "dies": train_until_killed,
    "returns": train_together_again,
}
parts[part]()
