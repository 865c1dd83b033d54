"""A small convolutional network on MNIST, or on Fashion-MNIST, which has the same format.

torchrun --nproc-per-node 2 examples/mnist_cnn.py --data DATA
torchrun --nproc-per-node 2 examples/mnist_cnn.py --data DATA --dataset fashion-mnist
"""

import torch
from common import accuracy, argument_parser, images, rank_and_world, shuffled, train
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
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    batches = shuffled(*images(args.data / args.dataset, "train"), args)
    model = train(
        args,
        make_model(),
        lambda ps: torch.optim.AdamW(ps, lr=args.lr),
        batches,
        nn.functional.cross_entropy,
    )
    if not args.test:
        return
    found = accuracy(model, *images(args.data / args.dataset, "t10k"))
    if rank_and_world(args)[0] == 0:
        print(f"accuracy on the test images: {100 * found:.2f} %")


if __name__ == "__main__":
    main()
