"""Images in memory, from files in MNIST's own format as it is downloaded, or synthetic patterns
with noise."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

NAMES = ("fashion-mnist", "mnist", "synthetic")
_MEAN_AND_SPREAD = {"mnist": (0.1307, 0.3081), "fashion-mnist": (0.2860, 0.3530)}
_SYNTHETIC = (4096, 1000)  # numbers of training and test images


@dataclass(frozen=True)
class Data:
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def load(name: str, folder: Path, samples: int | None) -> Data:
    if name == "synthetic":
        return _synthetic(samples or _SYNTHETIC[0])
    inside = folder / name
    place = inside if inside.is_dir() else folder
    train_x, train_y = _images(place, name, "train")
    test_x, test_y = _images(place, name, "t10k")
    return Data(train_x[:samples], train_y[:samples], test_x, test_y)


def _images(folder: Path, name: str, part: str) -> tuple[Tensor, Tensor]:
    mean, spread = _MEAN_AND_SPREAD[name]
    pixels = (
        _read(folder, name, f"{part}-images-idx3-ubyte.gz", 16)
        .view(-1, 1, 28, 28)
        .float()
        .div_(255)
    )
    return pixels.sub_(mean).div_(spread), _read(
        folder, name, f"{part}-labels-idx1-ubyte.gz", 8
    ).long()


def _read(folder: Path, name: str, file: str, header: int) -> Tensor:
    path = folder / file
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {path}; give the folder that {name}/ is in as --data-dir"
        )
    with gzip.open(path) as stream:
        return torch.frombuffer(bytearray(stream.read()[header:]), dtype=torch.uint8)


def _synthetic(samples: int) -> Data:
    """Returns images of ten patterns with noise: easy to learn, but not in a few steps."""
    generator = torch.Generator().manual_seed(0)
    patterns = (
        torch.randn(10, 1, 7, 7, generator=generator)
        .repeat_interleave(4, 2)
        .repeat_interleave(4, 3)
    )

    def draw(count: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(0, 10, (count,), generator=generator)
        return patterns[y] + 1.5 * torch.randn(count, 1, 28, 28, generator=generator), y

    train_x, train_y = draw(samples)
    test_x, test_y = draw(_SYNTHETIC[1])
    return Data(train_x, train_y, test_x, test_y)
