"""A small convolutional network on MNIST, or on Fashion-MNIST, which has the same format.

python examples/mnist_cnn.py
torchrun --nproc-per-node 2 examples/mnist_cnn.py
torchrun --nproc-per-node 2 examples/mnist_cnn.py --data DATA --dataset fashion-mnist
"""

import torch
from common import argument_parser, classify_images, prepare
from torch import nn


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 5 * 5, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def main() -> None:
    parser = argument_parser(__doc__ or "", "mnist", steps=400, batch=64, lr=1e-3)
    parser.add_argument(
        "--dataset",
        choices=["mnist", "fashion-mnist"],
        default="mnist",
        help="folder in that of --data",
    )
    args = parser.parse_args()
    prepare(args)
    classify_images(
        args,
        args.dataset,
        make_model(),
        lambda ps: torch.optim.AdamW(ps, lr=args.lr),
        test_images=10_000,
    )


if __name__ == "__main__":
    main()
