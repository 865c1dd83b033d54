"""A VGG-style network on Fashion-MNIST: few parameters in its convolutions, most of 10.6 million in
the first of its wide fully connected layers, which backward makes first and forward needs last.

    torchrun --nproc-per-node 2 examples/fashion_vgg.py
"""

import torch
from common import argument_parser, classify_images, prepare
from torch import nn


def make_model() -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(1, 32), *block(32, 32), nn.MaxPool2d(2),
        *block(32, 64), *block(64, 64), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * 7 * 7, 2560), nn.ReLU(), nn.Linear(2560, 960), nn.ReLU(), nn.Linear(960, 10),
    )  # fmt: skip


def main() -> None:
    args = argument_parser(
        __doc__ or "", "fashion-mnist", steps=300, batch=32, lr=0.02
    ).parse_args()
    prepare(args)
    classify_images(
        args,
        "fashion-mnist",
        make_model(),
        lambda ps: torch.optim.SGD(ps, lr=args.lr, momentum=0.9),
    )


if __name__ == "__main__":
    main()
