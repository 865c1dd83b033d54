"""Trains sharded models on the backend, with the same bits as on Gloo (sharded.py), and splits
groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sharded
import torch
import torch.distributed as dist
from ranks import Ranks
from sharded import ROUNDED, WITH_FOUR, WITH_TWO, Training
from torch import Tensor
from torch.distributed import ProcessGroup

import sluice  # noqa: F401, since importing it is what makes the backend known


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    ranks = Ranks(2)
    yield ranks
    assert ranks.end() == [0, 0]


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    ranks = Ranks(4)
    yield ranks
    assert ranks.end() == [0] * 4


def names(trainings: list[Training]) -> list[str]:
    return [training.__name__ for training in trainings]


def begin() -> None:
    if not dist.is_initialized():
        torch.set_num_threads(1)
        dist.init_process_group("sluice")


def on_both(name: str) -> Iterator[tuple[Tensor, Tensor]]:
    begin()
    training = getattr(sharded, name)
    return zip(training("sluice"), training("gloo"), strict=True)


def compare_bits(name: str) -> int:
    """Returns the number of tensors of this rank. All have the bits that they have with Gloo."""
    compared = 0
    for number, (ours, gloo) in enumerate(on_both(name)):
        assert ours.dtype == gloo.dtype and torch.equal(ours, gloo), (
            f"tensor {number} differs by {(ours - gloo).abs().max()}"
        )
        compared += 1
    return compared


def compare_numbers(name: str) -> None:
    for ours, gloo in on_both(name):
        torch.testing.assert_close(ours, gloo, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", names(WITH_TWO))
def test_two_ranks_have_the_bits_of_gloo(two: Ranks, name: str) -> None:
    assert min(two.run(compare_bits, name)) > 10


@pytest.mark.parametrize("name", names(WITH_FOUR))
def test_four_ranks_in_a_square_have_the_bits_of_gloo(four: Ranks, name: str) -> None:
    assert min(four.run(compare_bits, name)) > 8


@pytest.mark.parametrize("name", names(ROUNDED))
def test_four_ranks_in_a_line_have_the_numbers_of_gloo(four: Ranks, name: str) -> None:
    four.run(compare_numbers, name)


def other_data() -> bool:
    begin()
    runs = [sharded.fsdp2("sluice", seed) for seed in (0, 0, 9)]
    assert all(map(torch.equal, runs[0], runs[1]))
    return any(map(torch.equal, runs[0][: sharded.STEPS], runs[2]))


def test_other_data_have_other_bits(two: Ranks) -> None:
    assert two.run(other_data) == [False, False]


def sum_of_ranks(group: ProcessGroup) -> float:
    tensor = torch.tensor(float(dist.get_rank()))
    dist.all_reduce(tensor, group=group)
    return tensor.item()


def splits() -> tuple[float, float | None, list[str]]:
    begin()
    pairs = dist.split_group(split_ranks=[[0, 3], [1, 2]], group_desc="pairs")
    assert pairs is not None and dist.get_backend(pairs) == "sluice" and pairs.size() == 2
    some = dist.split_group(dist.group.WORLD, [[0, 2, 3]])
    said = []
    for parent, parts in ((pairs, [[0], [1]]), (None, [])):
        try:
            dist.split_group(parent, parts)
        except (RuntimeError, ValueError) as error:
            said.append(str(error))
    gloo = dist.new_group(backend="gloo")
    try:
        dist.split_group(gloo, [[0, 1]])
    except RuntimeError as error:
        said.append(str(error))
    return sum_of_ranks(pairs), None if some is None else sum_of_ranks(some), said


def test_the_default_group_can_be_split(four: Ranks) -> None:
    pairs, some, said = zip(*four.run(splits), strict=True)
    assert pairs == (3, 3, 3, 3)
    assert some == (5, None, 5, 5)
    only_default, no_parts, torchs = said[0]
    assert only_default.startswith(
        "sluice: split_group() can only split the default group; use new_"
    )
    assert no_parts.startswith("sluice: split_group() needs split_ranks")
    assert "sluice" not in torchs  # Gloo's groups are Torch's to refuse
