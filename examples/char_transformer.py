"""A small GPT, which learns a text character by character: 12.7 million parameters, spread evenly
over its layers.

torchrun --nproc-per-node 2 examples/char_transformer.py
torchrun --nproc-per-node 2 examples/char_transformer.py --data DATA  # tinyshakespeare
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import torch
from common import SYNTHETIC, Batches, argument_parser, prepare, rank_and_world, train
from torch import Tensor, nn

WIDTH, HEADS, LAYERS, CONTEXT = 512, 8, 4, 64


class CharTransformer(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(
            layer, LAYERS, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False
        )
        self.head = nn.Linear(WIDTH, vocabulary)
        self.register_buffer(
            "mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False
        )

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.characters(x) + self.places(torch.arange(x.shape[1]))
        mask = self.mask[: x.shape[1], : x.shape[1]]
        return self.head(self.body(hidden, mask=mask, is_causal=True))


def read_text(data: str) -> str:
    if data == SYNTHETIC:
        words = ["the", "gate", "opens", "when", "water", "comes", "and", "a", "boat", "goes", "up"]
        return " ".join(random.Random(1).choices(words, k=50_000))
    file = Path(data) / "tinyshakespeare" / "input.txt"
    if not file.is_file():
        sys.exit(
            f"there is no {file}; give the folder that tinyshakespeare/ is in as --data, or leave "
            "--data out"
        )
    return file.read_text()


def samples(text: Tensor, args: argparse.Namespace) -> Batches:
    rank, _ = rank_and_world(args)
    generator = torch.Generator().manual_seed(1000 * args.seed + rank)
    while True:
        begins = torch.randint(len(text) - args.length - 1, (args.batch,), generator=generator)
        rows = torch.stack([text[begin : begin + args.length + 1] for begin in begins.tolist()])
        yield rows[:, :-1], rows[:, 1:]


def main() -> None:
    parser = argument_parser(__doc__ or "", "tinyshakespeare", steps=300, batch=4, lr=3e-4)
    parser.add_argument("--length", type=int, choices=range(1, CONTEXT + 1),
                        metavar=f"1..{CONTEXT}", default=CONTEXT,
                        help="characters in a sample")  # fmt: skip
    args = parser.parse_args()
    prepare(args)
    characters = read_text(args.data)
    vocabulary = sorted(set(characters))
    number = {character: place for place, character in enumerate(vocabulary)}
    text = torch.tensor([number[character] for character in characters])
    train(
        args,
        CharTransformer(len(vocabulary)),
        lambda ps: torch.optim.AdamW(ps, lr=args.lr),
        samples(text, args),
        lambda output, y: nn.functional.cross_entropy(output.flatten(0, 1), y.flatten()),
    )


if __name__ == "__main__":
    main()
