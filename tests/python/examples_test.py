"""Every example starts without data, in each way, and says how fast it is."""

from pathlib import Path

import pytest
import torch
from ranks import run_script

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "mnist_cnn": ["--batch", "8"],
    "fashion_resnet": ["--batch", "2"],
    "fashion_vgg": ["--batch", "2"],
    "char_transformer": ["--batch", "1", "--length", "8"],
}
RUN = """
import runpy, sys
sys.path.insert(0, {folder!r})
sys.argv = {words!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(example: str, world: int, *more: str) -> list[str]:
    """Returns the standard output of each rank."""
    words = [str(EXAMPLES / f"{example}.py"), *SMALL[example], "--steps", "3", "--no-test", *more]
    ranks = run_script(RUN.format(folder=str(EXAMPLES), words=words), world)
    assert [rank.returncode for rank in ranks] == [0] * world, ranks
    return [rank.stdout for rank in ranks]


@pytest.mark.parametrize("how", ["plain", "ddp", "sluice"])
@pytest.mark.parametrize("example", SMALL)
def test_one_rank(example: str, how: str) -> None:
    (said,) = run(example, 1, "--how", how)
    assert said.startswith(f"{how} on 1 rank: ")
    assert "samples/s" in said


@pytest.mark.parametrize("example", SMALL)
def test_two_ranks_have_the_bits_of_ddp(example: str, tmp_path: Path) -> None:
    saved = []
    for how in ("ddp", "sluice"):
        file = tmp_path / f"{how}.pt"  # both ranks write the same
        said = run(example, 2, "--how", how, "--save", str(file))
        assert said[0].startswith(f"{how} on 2 ranks: ")
        assert said[1] == ""
        saved.append(torch.load(file, weights_only=True))
    theirs, ours = saved
    for name, tensor in theirs.items():
        if not name.endswith(("running_mean", "running_var")):  # of each rank's own batch
            assert torch.equal(ours[name], tensor), name


def test_made_up_images_are_learned() -> None:
    words = [str(EXAMPLES / "mnist_cnn.py"), "--how", "plain", "--steps", "120"]
    (rank,) = run_script(RUN.format(folder=str(EXAMPLES), words=words), 1)
    accuracy = float(rank.stdout.split("test images: ")[1].split()[0])
    assert accuracy > 90


def test_a_folder_without_data_is_an_error_of_one_line(tmp_path: Path) -> None:
    for example in ("mnist_cnn", "char_transformer"):
        words = [str(EXAMPLES / f"{example}.py"), "--how", "plain", "--data", str(tmp_path)]
        (rank,) = run_script(RUN.format(folder=str(EXAMPLES), words=words), 1, anew=True)
        assert rank.returncode == 1
        assert rank.stderr.startswith("there is no "), rank.stderr
        assert rank.stderr.count("\n") == 1
