"""Tests the backend of torch.distributed: every collective beside Gloo's, DDP with the same bits as
on Gloo, groups, endings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from collectives import COLLECTIVES, Case
from ranks import Ranks, environment, free_port, run_script
from torch import Tensor, nn
from torch.distributed import ProcessGroup, ReduceOp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from training import batches, make_net

import sluice  # noqa: F401, since importing it is what makes the backend known

CASES = 12


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    ranks = Ranks(request.param)
    yield ranks
    assert ranks.end() == [0] * request.param


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    ranks = Ranks(2)
    yield ranks
    assert ranks.end() == [0, 0]


@pytest.fixture(scope="module")
def three() -> Iterator[Ranks]:
    ranks = Ranks(3)
    yield ranks
    assert ranks.end() == [0, 0, 0]


_gloo: ProcessGroup | None = None


def groups() -> tuple[ProcessGroup, ProcessGroup]:
    """Returns our group, which is the default one, and Gloo's group of the same ranks."""
    global _gloo
    if not dist.is_initialized():
        torch.set_num_threads(1)
        dist.init_process_group("sluice")
        _gloo = dist.new_group(backend="gloo")
    assert dist.group.WORLD is not None and _gloo is not None
    return dist.group.WORLD, _gloo


def bits(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor if tensor.dtype != torch.bool else tensor.to(torch.uint8) for tensor in tensors]


def compare(number: int) -> int:
    """Compares a collective with Gloo's, and returns the number of cases that Gloo takes."""
    ours, gloo = groups()
    function, taken = COLLECTIVES[number], 0
    for seed in range(CASES):
        make = [Case(100 * number + seed, dist.get_rank(), dist.get_world_size()) for _ in range(2)]
        try:
            expected = function(make[0], gloo)
        except (RuntimeError, ValueError):
            continue
        got = function(make[1], ours)
        taken += 1
        assert len(got) == len(expected)
        for a, b in zip(bits(got), bits(expected), strict=True):
            assert a.dtype == b.dtype and torch.equal(a, b), (
                function.__name__,
                seed,
                make[0].dtype,
                make[0].reduction,
                a,
                b,
            )
    return taken


@pytest.mark.parametrize(
    "number", range(len(COLLECTIVES)), ids=[function.__name__ for function in COLLECTIVES]
)
def test_a_collective_gives_what_gloo_gives(ranks: Ranks, number: int) -> None:
    taken = ranks.run(compare, number)
    assert taken[0] >= CASES // 2 and len(set(taken)) == 1, taken


def lists_to_all() -> None:
    """Gloo has no all-to-all of lists, so the test computes what every rank sends."""
    groups()
    me, world = dist.get_rank(), dist.get_world_size()
    for seed in range(CASES):
        sent = []
        for number in range(world):
            case = Case(seed, number, world)
            sent.append([case.values([1 + case.choose(900)]) for _ in range(world)])
        received = [torch.zeros_like(sent[number][me]) for number in range(world)]
        dist.all_to_all(received, sent[me])
        for number in range(world):
            assert torch.equal(received[number], sent[number][me])


def test_all_to_all_of_lists(ranks: Ranks) -> None:
    ranks.run(lists_to_all)


def reductions() -> list[str]:
    """Tries every type and reduction. A case that Gloo takes gives the same result here, and a case
    that Gloo refuses does not pass unseen."""
    ours, gloo = groups()
    dtypes = [getattr(torch, name) for name in
              ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32",
               "int64", "bool")]  # fmt: skip
    differences = []
    for dtype in dtypes:
        for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
            answers: list[Tensor | str] = []
            for group in (gloo, ours):
                values = (
                    torch.tensor([3, 5, 1, 0]) if dist.get_rank() else torch.tensor([6, 5, 0, 0])
                )
                tensor = values.to(dtype)
                try:
                    dist.all_reduce(tensor, getattr(ReduceOp, name), group=group)
                    answers.append(tensor)
                except (RuntimeError, ValueError) as error:
                    answers.append(f"refused: {str(error).splitlines()[0][:60]}")
            theirs, mine = answers
            same = isinstance(theirs, str) == isinstance(mine, str)
            if same and isinstance(theirs, Tensor) and isinstance(mine, Tensor):
                same = torch.equal(*bits([theirs, mine]))
            if not same:
                differences.append(f"{dtype} {name}: gloo {theirs}, sluice {mine}")
    return differences


def test_types_and_reductions_are_those_of_gloo(two: Ranks) -> None:
    assert two.run(reductions) == [[], []]


def tensor_in_pieces() -> None:
    groups()
    whole = torch.arange(24.0).reshape(4, 6)
    columns = whole[:, ::2]
    dist.all_reduce(columns)
    expected = torch.arange(24.0).reshape(4, 6)
    expected[:, ::2] *= dist.get_world_size()
    assert torch.equal(whole, expected)


def test_a_tensor_need_not_lie_in_one_piece(two: Ranks) -> None:
    two.run(tensor_in_pieces)


def ddp_steps(hook: str, steps: int) -> None:
    """Trains two models side by side, one over each backend; they are equal after every step."""
    ours, gloo = groups()
    # PowerSGD reduces again when a bucket's first reduction has ended. Only with one bucket do all
    # ranks reduce in the same order.
    megabytes = 25 if hook == "powerSGD" else 0.01
    models = [make_net(), make_net()]
    models[1].load_state_dict(models[0].state_dict())
    wrapped = [
        DistributedDataParallel(model, process_group=group, bucket_cap_mb=megabytes)
        for model, group in zip(models, (ours, gloo), strict=True)
    ]
    for model, group in zip(wrapped, (ours, gloo), strict=True):
        if hook == "powerSGD":
            state = powerSGD_hook.PowerSGDState(
                group, matrix_approximation_rank=1, start_powerSGD_iter=2
            )
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        elif hook:
            model.register_comm_hook(group, getattr(default_hooks, hook))
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2) for model in models]
    for step, (x, y) in enumerate(batches(steps)):
        for model, optimizer in zip(wrapped, optimizers, strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        for name, mine in models[0].state_dict().items():
            theirs = models[1].state_dict()[name]
            assert torch.equal(mine, theirs), (
                f"step {step}: '{name}' differs by {(mine - theirs).abs().max()}"
            )


@pytest.mark.parametrize("hook", ["", "allreduce_hook", "fp16_compress_hook", "powerSGD"])
def test_ddp_is_as_on_gloo_bit_by_bit_at_every_step(two: Ranks, hook: str) -> None:
    two.run(ddp_steps, hook, 30)


def live_groups() -> None:
    """Uses three groups at once, with calls and messages under way in all of them."""
    groups()
    me = dist.get_rank()
    pairs = [[0, 2], [1, 2]]
    made = [dist.new_group(pair, backend="sluice") for pair in pairs]
    works, tensors = [], []
    for _ in range(5):
        for pair, group in zip(pairs, made, strict=True):
            if me in pair:
                tensors.append((torch.full([1000], float(me + 1)), float(sum(pair) + 2)))
                works.append(dist.all_reduce(tensors[-1][0], group=group, async_op=True))
        tensors.append((torch.full([1000], float(me + 1)), 6.0))
        works.append(dist.all_reduce(tensors[-1][0], async_op=True))
    for work in works:
        work.wait()
    for tensor, expected in tensors:
        assert torch.equal(tensor, torch.full([1000], expected))
    if me in pairs[0]:  # ranks are numbered within the group
        word = torch.tensor([me])
        dist.broadcast(word, src=2, group=made[0])
        assert word.item() == 2
    for pair, group in zip(pairs, made, strict=True):
        if me in pair:
            dist.destroy_process_group(group)
    dist.barrier()


def test_several_groups_live_at_once(three: Ranks) -> None:
    three.run(live_groups)


def from_anybody() -> list[int]:
    groups()
    me = dist.get_rank()
    if me > 0:
        dist.send(torch.tensor([10.0 * me, 1.0]), dst=0, tag=4)
        return []
    sources = []
    for _ in range(2):
        into = torch.zeros(2)
        source = dist.recv(into, tag=4)
        assert into.tolist() == [10.0 * source, 1.0]
        sources.append(source)
    return sorted(sources)


def test_receive_from_anybody(three: Ranks) -> None:
    assert three.run(from_anybody)[0] == [1, 2]


def refusals() -> list[str]:
    ours, _ = groups()
    attempts = [
        lambda: dist.all_reduce(torch.zeros(2).to_sparse()),
        lambda: dist.all_reduce(torch.zeros(2), ReduceOp.BOR),
        lambda: dist.all_reduce(torch.zeros(2, dtype=torch.int16)),
        lambda: dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(2)),
        lambda: ours.allreduce([torch.zeros(2), torch.zeros(2)]),
    ]
    said = []
    for attempt in attempts:
        try:
            attempt()
            said.append("taken")
        except (RuntimeError, ValueError) as error:
            said.append(str(error).splitlines()[0])
    dist.barrier()  # no call was begun
    return said


def test_what_cannot_be_is_refused_in_one_line(two: Ranks) -> None:
    said = two.run(refusals)[0]
    assert "dense" in said[0] and "whole numbers" in said[1] and "cannot be reduced" in said[2], (
        said
    )
    assert "must hold 2 times 2" in said[3] and "one tensor per rank" in said[4], said


ENDING = """
import datetime, os, sys, time, torch, torch.distributed as dist, sluice
rank = int(os.environ["RANK"])
dist.init_process_group("{backend}", timeout=datetime.timedelta(seconds={timeout}))
def reduce(times, bytes=4_000_000):
    tensor = torch.ones(bytes // 4)
    for number in range(times):
        dist.all_reduce(tensor)
        if number == 5:
            print("reduces", flush=True)
"""


def kill_one(backend: str) -> tuple[float, list[str]]:
    """Kills rank 1 in an all-reduce. Returns the time until the last of the others had an error,
    and the texts of the errors."""
    port = free_port()
    script = ENDING.format(backend=backend, timeout=60)
    script += (
        "try:\n    reduce(10**6)\nexcept RuntimeError as error:\n    print(time.time(), error, "
        "flush=True)\n"
    )
    ranks = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, env=environment(rank, 3, port))
        for rank in range(3)
    ]  # fmt: skip
    try:
        for each in ranks:
            assert each.stdout is not None and each.stdout.readline() == "reduces\n", (
                each.stderr and each.stderr.read()
            )
        ranks[1].send_signal(signal.SIGKILL)
        killed = time.time()
        ends = [ranks[number].communicate(timeout=90)[0].split(" ", 1) for number in (0, 2)]
        return max(float(seconds) for seconds, _ in ends) - killed, [
            text.splitlines()[0] for _, text in ends
        ]
    finally:
        for each in ranks:
            each.kill()
            each.communicate()


def test_a_killed_rank_is_named_on_all_others() -> None:
    seconds, said = kill_one("sluice")
    gloo_seconds, gloo_said = kill_one("gloo")
    print(f"\nrank 1 killed: with sluice the others knew in {seconds:.2f} s: {said}")
    print(f"with Gloo in {gloo_seconds:.2f} s: {gloo_said}")
    for line in said:
        assert "rank 1" in line, said
    assert seconds < 5  # 1 s is the promise; a busy machine gets five times that


def test_time_is_up_with_the_name_of_who_is_missing() -> None:
    script = (
        ENDING.format(backend="sluice", timeout=3)
        + "reduce(10)\nif rank == 1: time.sleep(6); os._exit(0)\nreduce(1)"
    )
    first, _, third = run_script(script, 3)
    for ended in (first, third):
        assert ended.returncode == 1
        assert "not done after 3s: nothing from rank 1" in ended.stderr, ended.stderr


def test_a_rank_that_leaves_is_named() -> None:
    script = ENDING.format(backend="sluice", timeout=60) + "reduce(10 if rank == 1 else 11)"
    first, second, third = run_script(script, 3, anew=True)
    assert second.returncode == 0 and second.stderr == ""
    for ended in (first, third):
        assert ended.returncode == 1
        assert "rank 1 has" in ended.stderr, ended.stderr


def test_other_calls_on_other_ranks_are_an_error() -> None:
    script = ENDING.format(backend="sluice", timeout=60)
    script += (
        "dist.barrier()\ndist.all_gather([torch.zeros(3), torch.zeros(3)], torch.zeros(3)) if "
        "rank else dist.barrier()"
    )
    for ended in run_script(script, 2):
        assert ended.returncode == 1
        assert "all ranks must make the same calls" in ended.stderr or "rank" in ended.stderr, (
            ended.stderr
        )


def complaints(errors: str) -> list[str]:
    """Returns the lines besides that in which rank 0 names the module that fits this Torch."""
    return [line for line in errors.splitlines() if "the module for Torch" not in line]


@pytest.mark.parametrize("destroy", [True, False])
def test_a_normal_end_is_silent(destroy: bool) -> None:
    script = (
        ENDING.format(backend="sluice", timeout=60)
        + "reduce(10)\n"
        + ("dist.destroy_process_group()" if destroy else "")
    )
    for ended in run_script(script, 2, anew=True):
        assert (ended.returncode, complaints(ended.stderr)) == (0, [])


def test_two_threads_may_close_a_group_at_once() -> None:
    """Calls that wait for the other rank end meanwhile, and their callbacks run."""
    script = (
        ENDING.format(backend="sluice", timeout=60)
        + """
import threading
for _ in range(20):
    group = dist.new_group(backend="sluice")
    backend = group._get_backend(torch.device("cpu"))
    # Rank 1 takes no part.
    works = [dist.all_reduce(torch.ones(1000), group=group, async_op=True)
             for _ in range(20 * (1 - rank))]
    ended = [work.get_future().then(lambda future: time.sleep(0.001)) for work in works]
    threads = [threading.Thread(target=backend.shutdown) for _ in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert all(one.done() for one in ended)
"""
    )
    for ended in run_script(script, 2, anew=True):
        assert (ended.returncode, complaints(ended.stderr)) == (0, []), ended.stderr


def test_one_process_is_a_group_too() -> None:
    script = (
        ENDING.format(backend="sluice", timeout=60)
        + "reduce(10); dist.barrier(); print(dist.get_world_size())"
    )
    (ended,) = run_script(script, 1, anew=True)
    assert (ended.returncode, ended.stdout) == (0, "reduces\n1\n")
    assert complaints(ended.stderr) == []


def test_beside_distribute() -> None:
    script = (
        ENDING.format(backend="sluice", timeout=60)
        + """
from training import make_net, plain_loop
model, optimizer = sluice.distribute(make_net(), lambda ps: torch.optim.SGD(ps, lr=0.05))
plain_loop(5)(model, optimizer)
reduce(10)
print(sluice.world_size())
"""
    )
    for ended in run_script(script, 2):
        assert (ended.returncode, ended.stdout) == (0, "reduces\n2\n"), ended.stderr


def test_without_the_key_nobody_gets_in(tmp_path: object) -> None:
    """Rank 1 has another key than rank 0."""
    script = ENDING.format(backend="sluice", timeout=8).replace(
        "rank = int(",
        "os.environ['SLUICE_JOB_KEY_FILE'] = os.environ['KEYS'] + os.environ['RANK']\nrank = int(",
    )
    for number in range(2):
        path = f"{tmp_path}/key{number}"
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"{number + 1:064x}\n")
    first, second = run_script(script, 2, KEYS=f"{tmp_path}/key")
    assert first.returncode == 1 and second.returncode == 1
    assert "not written with this job's key" in second.stderr, second.stderr
