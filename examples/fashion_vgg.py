"""A VGG-style network on Fashion-MNIST: few parameters in its convolutions, most of 10.6 million in
the first of its wide fully connected layers, which backward makes first and forward needs last.

    torchrun --nproc-per-node 2 examples/fashion_vgg.py --data DATA
"""

import torch
from common import accuracy, arguments, images, rank_and_world, shuffled, train
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
    args = arguments(__doc__ or "", "fashion-mnist", steps=300, batch=32, lr=0.02)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    batches = shuffled(*images(args.data / "fashion-mnist", "train"), args)
    model = train(
        args,
        make_model(),
        lambda ps: torch.optim.SGD(ps, lr=args.lr, momentum=0.9),
        batches,
        nn.functional.cross_entropy,
    )
    if not args.test:
        return
    found = accuracy(
        model, *(tensor[:2000] for tensor in images(args.data / "fashion-mnist", "t10k"))
    )
    if rank_and_world(args)[0] == 0:
        print(f"accuracy on 2000 test images: {100 * found:.2f} %")


if __name__ == "__main__":
    main()
