#!/usr/bin/env python3
"""Writes the profiles of convolutional networks (profiles/) from their layer tables.

    papers/figures/make_profiles.py            # writes them
    papers/figures/make_profiles.py --check    # only says which differ from those in profiles/

Sizes are exact: each network's number of parameters is checked. Times are not measured: a tensor's
share of one forward and backward pass is proportional to its multiply-adds, with 20 for each
element that a batch norm scales, and backward takes twice as long as forward.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "profiles"
NORM_COST = 20  # multiply-adds for each element that a batch norm scales


class Network:
    """Tensors in forward order, each with its parameters and the multiply-adds of its layer."""

    def __init__(self, model: str, note: str, parameters: int) -> None:
        self.model = model
        self.note = note
        self.parameters = parameters
        self.tensors: list[tuple[str, int, int]] = []

    def weights(self, name: str, count: int, places: int = 1) -> None:
        """The weights of a layer, which each output place multiplies once."""
        self.tensors.append((f"{name}_w", count, count * places))

    def biased(self, name: str, inputs: int, outputs: int, kernel: int = 1, size: int = 1) -> None:
        self.weights(name, inputs * outputs * kernel * kernel, size * size)
        self.tensors.append((f"{name}_b", outputs, 0))

    def normed(self, name: str, inputs: int, outputs: int, kernel: int, size: int) -> None:
        self.weights(name, inputs * outputs * kernel * kernel, size * size)
        self.tensors.append((f"{name}_g", outputs, NORM_COST * outputs * size * size))
        self.tensors.append((f"{name}_b", outputs, 0))

    def text(self) -> str:
        sizes = sum(size for _, size, _ in self.tensors)
        if sizes != self.parameters:
            raise SystemExit(
                f"{self.model} has {sizes} parameters here, and {self.parameters} there"
            )
        whole = 3 * sum(cost for _, _, cost in self.tensors)
        rows = [
            json.dumps(
                {
                    "name": name,
                    "parameters": size,
                    "forward": round(cost / whole, 9),
                    "backward": round(2 * cost / whole, 9),
                }
            )
            for name, size, cost in self.tensors
        ]
        head = [("model", self.model), ("note", self.note)]
        head.append(("unit", "fraction of one forward+backward"))
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head]
        return "\n".join(
            ["{", *lines, '  "tensors": [', "    " + ",\n    ".join(rows), "  ]", "}", ""]
        )


def vgg(model: str, depths: tuple[int, ...], parameters: int) -> Network:
    network = Network(model, f"{sum(depths)} convolutions, 3 fully connected", parameters)
    inputs = 3
    for outputs, size, depth in zip(
        (64, 128, 256, 512, 512), (224, 112, 56, 28, 14), depths, strict=True
    ):
        for number in range(depth):
            network.biased(f"c{outputs}_{size}_{number}", inputs, outputs, 3, size)
            inputs = outputs
    for number, (inputs, outputs) in enumerate(((25088, 4096), (4096, 4096), (4096, 1000))):
        network.biased(f"fc{number}", inputs, outputs)
    return network


def resnet50() -> Network:
    network = Network("ResNet-50", "conv + batch norm; fc 2048x1000", 25_557_032)
    network.normed("c1", 3, 64, 7, 112)
    inputs = 64
    for stage, (width, size, depth) in enumerate(
        ((64, 56, 3), (128, 28, 4), (256, 14, 6), (512, 7, 3))
    ):
        for block in range(depth):
            name = f"s{stage}b{block}"
            network.normed(f"{name}a", inputs, width, 1, size)
            network.normed(f"{name}b", width, width, 3, size)
            network.normed(f"{name}c", width, 4 * width, 1, size)
            if block == 0:
                network.normed(f"{name}d", inputs, 4 * width, 1, size)
            inputs = 4 * width
    network.biased("fc", 2048, 1000)
    return network


def resnet18() -> Network:
    network = Network("ResNet-18", "conv + batch norm; fc 512x1000", 11_689_512)
    network.normed("c1", 3, 64, 7, 112)
    inputs = 64
    for stage, (width, size) in enumerate(((64, 56), (128, 28), (256, 14), (512, 7))):
        for block in range(2):
            network.normed(f"s{stage}b{block}a", inputs, width, 3, size)
            network.normed(f"s{stage}b{block}b", width, width, 3, size)
            if inputs != width:
                network.normed(f"s{stage}b{block}d", inputs, width, 1, size)
            inputs = width
    network.biased("fc", 512, 1000)
    return network


def resnet110() -> Network:
    note = "for CIFAR-10, shortcuts without parameters; conv + batch norm; fc 64x10"
    network = Network("ResNet-110", note, 1_727_962)
    network.normed("c1", 3, 16, 3, 32)
    inputs = 16
    for stage, (width, size) in enumerate(((16, 32), (32, 16), (64, 8))):
        for block in range(18):
            network.normed(f"s{stage}b{block}a", inputs, width, 3, size)
            network.normed(f"s{stage}b{block}b", width, width, 3, size)
            inputs = width
    network.biased("fc", 64, 10)
    return network


def alexnet() -> Network:
    note = "5 convolutions, 3 fully connected, as first published: two groups in c2, c4 and c5"
    network = Network("AlexNet", note, 60_965_224)
    # Inputs are those of one group.
    for number, (inputs, outputs, kernel, size) in enumerate(
        ((3, 96, 11, 55), (48, 256, 5, 27), (256, 384, 3, 13), (192, 384, 3, 13), (192, 256, 3, 13))
    ):
        network.biased(f"c{number + 1}", inputs, outputs, kernel, size)
    for number, (inputs, outputs) in enumerate(((9216, 4096), (4096, 4096), (4096, 1000))):
        network.biased(f"fc{number + 6}", inputs, outputs)
    return network


def googlenet() -> Network:
    note = (
        "22 layers and the two classifiers that help training, as in Caffe; biases, no batch norm"
    )
    network = Network("GoogLeNet", note, 13_378_280)
    network.biased("c1", 3, 64, 7, 112)
    network.biased("c2r", 64, 64, 1, 56)
    network.biased("c2", 64, 192, 3, 56)
    inputs = 192
    # 1x1, 3x3 after its reduction, 5x5 after its reduction, 1x1 after the pool
    modules = {
        "3a": (28, 64, 96, 128, 16, 32, 32),
        "3b": (28, 128, 128, 192, 32, 96, 64),
        "4a": (14, 192, 96, 208, 16, 48, 64),
        "4b": (14, 160, 112, 224, 24, 64, 64),
        "4c": (14, 128, 128, 256, 24, 64, 64),
        "4d": (14, 112, 144, 288, 32, 64, 64),
        "4e": (14, 256, 160, 320, 32, 128, 128),
        "5a": (7, 256, 160, 320, 32, 128, 128),
        "5b": (7, 384, 192, 384, 48, 128, 128),
    }
    for name, (size, one, reduce3, three, reduce5, five, pool) in modules.items():
        network.biased(f"i{name}_1", inputs, one, 1, size)
        network.biased(f"i{name}_3r", inputs, reduce3, 1, size)
        network.biased(f"i{name}_3", reduce3, three, 3, size)
        network.biased(f"i{name}_5r", inputs, reduce5, 1, size)
        network.biased(f"i{name}_5", reduce5, five, 5, size)
        network.biased(f"i{name}_p", inputs, pool, 1, size)
        inputs = one + three + five + pool
        if name in ("4a", "4d"):
            network.biased(f"aux{name}_c", inputs, 128, 1, 4)
            network.biased(f"aux{name}_fc1", 2048, 1024)
            network.biased(f"aux{name}_fc2", 1024, 1000)
    network.biased("fc", 1024, 1000)
    return network


NETWORKS = {
    "alexnet": alexnet,
    "googlenet": googlenet,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "resnet110": resnet110,
    "vgg16": lambda: vgg("VGG-16", (2, 2, 3, 3, 3), 138_357_544),
    "vgg19": lambda: vgg("VGG-19", (2, 2, 4, 4, 4), 143_667_240),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    differing = []
    for name, make in NETWORKS.items():
        path = FOLDER / f"{name}.json"
        text = make().text()
        if path.exists() and path.read_text() == text:
            continue
        differing.append(name)
        if not check:
            path.write_text(text)
    print(f"{'differ' if check else 'written'}: {', '.join(differing) or 'none'}")
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
