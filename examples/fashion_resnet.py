"""A residual network on Fashion-MNIST: 2.8 million parameters, most of them in its last blocks.

torchrun --nproc-per-node 2 examples/fashion_resnet.py
"""

import torch
from common import argument_parser, classify_images, prepare
from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.around = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.body(x) + self.around(x))


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        Block(32, 32, 1), Block(32, 64, 2), Block(64, 128, 2), Block(128, 256, 2),
        Block(256, 256, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


def main() -> None:
    args = argument_parser(
        __doc__ or "", "fashion-mnist", steps=200, batch=32, lr=0.05
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
