"""The model of the demo and its three ways of training. The data is made up as it is needed."""

from __future__ import annotations

import hashlib
import itertools
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn

import sluice
from sluice.demo.settings import Settings

_VOCABULARY, _CONTEXT, _HEADS = 64, 32, 4
WAYS = ("plain", "ddp", "sluice")


class Transformer(nn.Module):
    """A small transformer. Its parameters are spread evenly over its layers."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, width)
        self.places = nn.Embedding(_CONTEXT, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, _HEADS, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, _VOCABULARY)
        mask = nn.Transformer.generate_square_subsequent_mask(_CONTEXT)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.tokens(x) + self.places(torch.arange(_CONTEXT))
        for layer in self.layers:
            hidden = layer(hidden, src_mask=self.mask, is_causal=True)
        output: Tensor = self.head(hidden)
        return output


def make(settings: Settings) -> Transformer:
    """Returns a model with the same parameters in every call."""
    torch.manual_seed(1)
    return Transformer(settings.width, settings.layers)


class Training:
    """One way of training: without a network, by DDP, or by sluice."""

    def __init__(self, way: str, settings: Settings, rank: int) -> None:
        self._settings, self._rank = settings, rank
        self.model = make(settings)
        self.steps = 0
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self._trained: nn.Module = self.model
        self._optimizer: torch.optim.Optimizer = optimizer
        self._gated = None
        if way == "ddp":
            self._trained = nn.parallel.DistributedDataParallel(
                self.model, bucket_cap_mb=settings.bucket_mb
            )
        if way == "sluice":
            _, self._gated = sluice.distribute(self.model, optimizer)
            self._optimizer = self._gated

    def train(self, steps: int) -> list[float]:
        """Returns the seconds of each step. Nothing is on its way before or after."""
        if dist.is_initialized():
            dist.barrier()
        times = [time.perf_counter()]
        for _ in range(steps):
            self._step()
            times.append(time.perf_counter())
        if self._gated is not None:
            self._gated.synchronize()
        return [after - before for before, after in itertools.pairwise(times)]

    def _step(self) -> None:
        generator = torch.Generator().manual_seed(2 * self.steps + self._rank)
        text = torch.randint(_VOCABULARY, (self._settings.batch, _CONTEXT + 1), generator=generator)
        self._optimizer.zero_grad()
        output = self._trained(text[:, :-1])
        loss = nn.functional.cross_entropy(output.flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        self._optimizer.step()
        self.steps += 1

    def digest(self) -> str:
        """Returns the SHA-256 of all parameters."""
        found = hashlib.sha256()
        for name, parameter in sorted(self.model.named_parameters()):
            found.update(name.encode())
            found.update(parameter.detach().contiguous().numpy().tobytes())
        return found.hexdigest()
