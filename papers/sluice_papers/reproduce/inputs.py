"""Small models that rows give to the program as profiles."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any


def toy(name: str, layers: Sequence[tuple[float, float, int]]) -> dict[str, Any]:
    """Returns the profile of a model whose layers take (forward, backward) time units and have so
    many parameters. Shares of a profile add up to 1: give the sum of all units as the compute
    time."""
    units = total_units(layers)
    return {
        "model": name,
        "note": "a worked example of a paper",
        "unit": "fraction of one forward+backward",
        "tensors": [
            {
                "name": f"layer{place}",
                "parameters": parameters,
                "forward": forward / units,
                "backward": backward / units,
            }
            for place, (forward, backward, parameters) in enumerate(layers, start=1)
        ],
    }


def total_units(layers: Sequence[tuple[float, float, int]]) -> float:
    return sum(forward + backward for forward, backward, _ in layers)


def perceptron(name: str, widths: Sequence[int]) -> dict[str, Any]:
    """Returns the profile of a perceptron. A layer's time goes by its multiply-adds, and backward
    takes twice as long as forward."""
    weights = [one * other for one, other in itertools.pairwise(widths)]
    tensors = []
    for place, weight in enumerate(weights, start=1):
        share = weight / sum(weights) / 3
        tensors.append(
            {"name": f"fc{place}_w", "parameters": weight, "forward": share, "backward": 2 * share}
        )
        tensors.append(
            {"name": f"fc{place}_b", "parameters": widths[place], "forward": 0.0, "backward": 0.0}
        )
    return {
        "model": name,
        "note": "fully connected layers " + "-".join(map(str, widths)),
        "unit": "fraction of one forward+backward",
        "tensors": tensors,
    }


def parameters(profile: dict[str, Any]) -> int:
    return sum(tensor["parameters"] for tensor in profile["tensors"])
