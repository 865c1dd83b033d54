"""Tests gradients that come in several parts in one backward(), and parameters that are given other
memory."""

from __future__ import annotations

import pytest
import torch
from ranks import Ranks
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from training import rank

import sluice


class Twice(nn.Module):
    """One module in two checkpointed segments."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.shared, self.reentrant = nn.Linear(8, 8), nn.Linear(8, 8), reentrant
        self.is_used_twice = True

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.shared, self.first(x), use_reentrant=self.reentrant)
        return (
            checkpoint(self.shared, x.relu(), use_reentrant=self.reentrant)
            if self.is_used_twice
            else x
        )


def train_twice(reentrant: bool, on_servers: bool) -> dict[str, Tensor]:
    torch.manual_seed(3)
    net = Twice(reentrant)
    model, optimizer = sluice.distribute(
        net, lambda ps: torch.optim.SGD(ps, lr=0.01), server_optimizer=on_servers
    )
    for step in range(6):
        # The second use is first seen after the plan was made, and not on all ranks.
        net.is_used_twice = step != 0 and not (step == 3 and rank() == 0)
        optimizer.zero_grad()
        if step == 4:
            with model.no_sync():
                model(torch.full((2, 8), 0.5 + rank())).sum().backward()
        model(torch.full((2, 8), 1.0 + rank())).sum().backward()
        optimizer.step()
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def run_parts(on_servers: bool) -> list[str]:
    expected, trained = train_twice(False, on_servers), train_twice(True, on_servers)
    return [name for name, tensor in expected.items() if not torch.equal(tensor, trained[name])]


@pytest.mark.parametrize("on_servers", [False, True])
def test_a_module_in_two_reentrant_checkpoints(two_ranks: Ranks, on_servers: bool) -> None:
    assert two_ranks.run(run_parts, on_servers) == [[], []]


def run_other_memory(on_servers: bool) -> list[str]:
    net = nn.Linear(64, 64)
    model, optimizer = sluice.distribute(
        net, lambda ps: torch.optim.SGD(ps, lr=0.01), server_optimizer=on_servers
    )
    parameters = list(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 64)).sum().backward()
        optimizer.step()
    parameters[0].data = parameters[0].data.clone()
    texts = []
    for call in (lambda: model(torch.ones(1, 64)), model.state_dict):
        try:
            call()
        except RuntimeError as error:
            texts.append(str(error))
    with pytest.raises(ValueError, match="replaces the parameters that are trained"):
        model.load_state_dict({}, assign=True)
    return texts


@pytest.mark.parametrize("on_servers", [False, True])
def test_other_memory_before_the_update_is_an_error(two_ranks: Ranks, on_servers: bool) -> None:
    for texts in two_ranks.run(run_other_memory, on_servers):
        assert len(texts) == 2
        assert all(
            "is no longer good: 'weight' was changed or given other memory between step()" in text
            for text in texts
        )
