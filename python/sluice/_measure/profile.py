"""Measures how a model spends its time, tensor by tensor: the profile that `sluice bench replay`
and the bounds take."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sluice._measure.clocks import clock_of
from sluice._tensor.doors import accelerator_of
from sluice._tensor.observe import Observer


class Profile:
    """Measures a plain model in training, in one process.

        profile = sluice.Profile(model)
        for x, y in loader:
            criterion(model(x), y).backward(); optimizer.step()
            profile.step()
        profile.save("model.json")

    A tensor's forward time lasts from its first read to that of the next one; its backward time
    from the last gradient before its own to its own. On an accelerator, its events measure both.
    """

    def __init__(self, model: nn.Module, warm_up: int = 2) -> None:
        self._name = type(model).__name__
        self._names: dict[Tensor, str] = {
            parameter: name
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        self._warm_up = warm_up
        device = accelerator_of(model.named_parameters())
        clock = clock_of(device)
        if clock is None:
            raise RuntimeError(
                f"the events of {device} have no times, so its layers cannot be measured; profile "
                "the model in host memory"
            )
        self._clock = clock
        self._observer = Observer(model, set(self._names), now=clock.now)
        self._forwards: list[dict[Tensor, float]] = []
        self._backwards: list[dict[Tensor, float]] = []
        # Time in neither pass: the optimizer, and the rest of the loop.
        self._others: list[float] = []
        self._gradients: list[tuple[Tensor, Any]] = []
        self._ended = clock.now()
        self._hooks: list[Any] = [
            parameter.register_post_accumulate_grad_hook(
                lambda p: self._gradients.append((p, clock.now()))
            )
            for parameter in self._names
        ]
        self._hooks.append(model.register_forward_hook(self._forward_ends))
        self._forward_ended = self._ended

    def _forward_ends(self, model: nn.Module, args: Any, output: Any) -> None:
        self._forward_ended = self._clock.now()

    def step(self) -> None:
        """Marks the end of one iteration."""
        now, between = self._clock.now(), self._clock.between
        self._clock.wait(now)
        begins = list(self._observer.take_times().items())
        ends = [begun for _, begun in begins[1:]] + [self._forward_ended]
        forward = {
            parameter: between(begun, end)
            for (parameter, begun), end in zip(begins, ends, strict=True)
        }
        backward, last = {}, self._forward_ended
        for parameter, at in self._gradients:
            backward[parameter] = between(last, at)
            last = at
        self._forwards.append(forward)
        self._backwards.append(backward)
        before = between(self._ended, begins[0][1]) if begins else 0.0
        self._others.append(before + between(last, now))
        self._gradients = []
        self._ended = now

    def tensors(self) -> list[dict[str, Any]]:
        """Returns the tensors in the order of the forward pass: name, parameters, and the medians
        of both times in seconds."""

        def median(times: list[dict[Tensor, float]], parameter: Tensor) -> float:
            return statistics.median(one.get(parameter, 0.0) for one in times[self._warm_up :])

        return [
            {
                "name": self._names[parameter],
                "parameters": parameter.numel(),
                "forward": median(self._forwards, parameter),
                "backward": median(self._backwards, parameter),
            }
            for parameter in self._observer.reads.order
        ]

    @property
    def seconds_elsewhere(self) -> float:
        """Returns the seconds of an iteration outside both passes: in the optimizer, in loading
        data."""
        return statistics.median(self._others[self._warm_up :])

    def save(self, path: str | Path) -> None:
        """Saves the profile as JSON, with the times as shares that add up to 1."""
        for hook in self._hooks:
            hook.remove()
        self._observer.stop()
        tensors = self.tensors()
        whole = sum(tensor["forward"] + tensor["backward"] for tensor in tensors)
        for tensor in tensors:
            tensor["forward"] /= whole
            tensor["backward"] /= whole
        note = (
            f"measured: {whole * 1e3:.1f} ms of forward and backward, "
            f"{self.seconds_elsewhere * 1e3:.1f} ms elsewhere"
        )
        document = {
            "model": self._name,
            "note": note,
            "compute_s": whole,
            "other_s": self.seconds_elsewhere,
        }
        document["unit"] = "fraction of one forward+backward"
        Path(path).write_text(json.dumps({**document, "tensors": tensors}, indent=1))
