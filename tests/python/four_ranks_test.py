"""With four ranks DDP sums in another order, so the loss equals DDP's up to rounding. All ranks
always have the same bits, with every optimizer, algorithm and size of slices."""

from __future__ import annotations

import hashlib
import os
import statistics
from collections.abc import Iterator

import pytest
import torch
from place import IS_DEVICE, on_host
from ranks import Ranks, free_port
from same_training_test import optimizer_of
from sluice._job import job
from torch import nn
from training import batches, ddp, make_net, plain_loop

import sluice

STEPS = 30 if IS_DEVICE else 200
ALGORITHMS = ["sluice", "p3", "kvstore", "slicing", "allreduce", "wfbp", "mgwfbp"]


def digest(model: nn.Module) -> str:
    """Returns a digest of the parameters only: the statistics of the last batch differ between
    ranks."""
    return hashlib.sha256(
        b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())
    ).hexdigest()


def losses_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    losses = []
    for x, y in batches(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_both(name: str) -> tuple[list[float], list[float], str]:
    torch.set_num_threads(1)
    kind, settings = optimizer_of(name)
    with on_host():
        reference = make_net()
        theirs = losses_of(ddp(reference), kind(reference.parameters(), **settings))
    model, optimizer = sluice.distribute(make_net(), lambda ps: kind(ps, **settings))
    return losses_of(model, optimizer), theirs, digest(model)


@pytest.fixture(scope="module")
def four_ranks() -> Iterator[Ranks]:
    ranks = Ranks(4)
    yield ranks
    assert ranks.end() == [0] * 4


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop", "adagrad", "own"])
def test_the_loss_is_that_of_ddp(four_ranks: Ranks, name: str) -> None:
    ours, theirs, digests = zip(*four_ranks.run(train_both, name), strict=True)
    assert len(set(digests)) == 1
    both = [
        [statistics.fmean(ranks) for ranks in zip(*losses, strict=True)]
        for losses in (ours, theirs)
    ]
    for a, b in zip(both[0][:20], both[1][:20], strict=True):
        assert a == pytest.approx(b, rel=1e-3)
    assert statistics.fmean(both[0][-20:]) == pytest.approx(
        statistics.fmean(both[1][-20:]), rel=0.01
    )


def train_in_a_new_job(algorithm: str, slice_elements: int, port: int) -> tuple[str, str]:
    """Trains in a new job in this process, which saves the start of another process."""
    torch.set_num_threads(1)
    job._end()
    os.environ["MASTER_PORT"] = str(port)
    options = {"algorithm": algorithm, "slice_elements": slice_elements}
    model, optimizer = sluice.distribute(
        make_net(), lambda ps: torch.optim.AdamW(ps, lr=1e-3), **options
    )
    first = digest(model)
    plain_loop(8 if IS_DEVICE else 30)(model, optimizer)
    return first, digest(model)


@pytest.fixture(scope="module")
def four_ranks_without_ddp() -> Iterator[Ranks]:
    ranks = Ranks(4)
    yield ranks
    assert ranks.end() == [0] * 4


def test_all_algorithms_and_slice_sizes_have_the_same_bits(four_ranks_without_ddp: Ranks) -> None:
    found = {}
    for algorithm in ALGORITHMS:
        for slice_elements in (0, 1000, 77):
            digests = four_ranks_without_ddp.run(
                train_in_a_new_job, algorithm, slice_elements, free_port()
            )
            assert len(set(digests)) == 1, (algorithm, slice_elements)
            found[algorithm, slice_elements] = digests[0]
    assert len(set(found.values())) == 1, found
    first, last = found["sluice", 0]
    assert first != last
