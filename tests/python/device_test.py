"""Tests models on a device (place.py): all that is different there from the host's memory. The
other tests of training run there too, by tests.python.on_device."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import place
import pytest
import torch
import torch.distributed as dist
from place import here, let_ddp_copy, on_host
from ranks import Ranks, running
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from training import Net, assert_equal, batches, ddp, make_net, plain_loop, rank, same_as_ddp

import sluice

pytestmark = pytest.mark.skipif(not place.IS_DEVICE, reason="SLUICE_TEST_DEVICE is not set")
MODES = ["eager", "random", "adversary"]


def delay(mode: str, seed: int = 1) -> None:
    """Is patient: the machine may be busy."""
    import sluice_test_device

    sluice_test_device.set_mode(mode, seed=1000 * seed + rank(), patience=0.02)


def begin() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # comes first: it and sluice would listen on the same port


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    ranks = Ranks(2)
    ranks.run(begin)
    yield ranks
    assert ranks.end() == [0, 0]


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def text_of(function: Any) -> str:
    try:
        function()
    except (RuntimeError, ValueError) as error:
        return str(error)
    return "nothing"


def run_refusals() -> list[str]:
    apart = nn.Sequential(
        nn.Linear(2, 2, device=f"{place.DEVICE}:0"), nn.Linear(2, 2, device=f"{place.DEVICE}:1")
    )
    models = [apart, nn.Linear(2, 2, device="meta")]
    return [text_of(lambda model=model: sluice.distribute(model, sgd)) for model in models]


def test_refusals(ranks: Ranks) -> None:
    for texts in ranks.run(run_refusals):
        assert texts == [
            f"'0.weight' is on {place.DEVICE}:0 and '1.weight' on {place.DEVICE}:1; sluice trains "
            "a model on one accelerator per process",
            "'weight' is on meta, which is no accelerator that PyTorch can use here; move the "
            "model to one, or to the host with .cpu()",
        ]


class Counting(nn.Module):
    """Has a buffer that every rank changes in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("seen", torch.full((5,), float(rank())))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.before = (self.seen.clone(), self.calls.clone())
        self.seen += 1 + rank()
        self.calls += 1
        return self.layer(x)


def run_buffers() -> None:
    delay("adversary")
    model, optimizer = sluice.distribute(Counting(), sgd)
    for step in range(5):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        seen, calls = (buffer.cpu() for buffer in model.before)
        assert model.seen.device.type == place.DEVICE
        assert seen.tolist() == [float(step)] * 5 and int(calls) == step


def test_buffers_are_those_of_rank_0(ranks: Ranks) -> None:
    ranks.run(run_buffers)


def run_mean() -> None:
    delay("adversary")
    value = torch.arange(6.0).reshape(2, 3).t() * (1 + rank())
    mean = sluice.mean(value)
    assert mean.device == value.device and mean.device.type == place.DEVICE
    assert mean.cpu().tolist() == [[0.0, 4.5], [1.5, 6.0], [3.0, 7.5]]
    assert sluice.mean(float(rank())) == 0.5


def test_mean(ranks: Ranks) -> None:
    ranks.run(run_mean)


class InTwoPlaces(nn.Module):
    """Has layers in the host's memory and, unless it is a reference, on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 32, device="cpu")
        self.middle = nn.Linear(32, 32)
        self.last = nn.Linear(32, 10, device="cpu")

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x.flatten(1).cpu())).to(here())
        return self.last(torch.relu(self.middle(x)).cpu()).to(here())


def make_in_two_places() -> nn.Module:
    torch.manual_seed(5 + rank())
    return InTwoPlaces()


def run_two_places(mode: str, server_optimizer: bool) -> None:
    delay(mode)
    if not server_optimizer:
        same_as_ddp(sgd, plain_loop(20), make_in_two_places)
        return
    results = []
    for where in (on_host(), nullcontext()):
        with where:
            model, optimizer = sluice.distribute(make_in_two_places(), sgd, server_optimizer=True)
            plain_loop(20)(model, optimizer)
            results.append(model.state_dict())
    assert_equal(results[1], results[0])


@pytest.mark.parametrize("server_optimizer", [False, True])
@pytest.mark.parametrize("mode", ["random", "adversary"])
def test_parameters_in_two_places(ranks: Ranks, mode: str, server_optimizer: bool) -> None:
    ranks.run(run_two_places, mode, server_optimizer)


def trained(server_optimizer: bool) -> tuple[Any, Any]:
    model, optimizer = sluice.distribute(make_net(), sgd, server_optimizer=server_optimizer)
    plain_loop(4)(model, optimizer)
    return model, optimizer


READS: dict[str, Any] = {
    "attribute": lambda model: {
        "out.weight": model.out.weight.detach().clone(),
        "conv.bias": model.conv.bias.detach().clone(),
    },
    "parameters": lambda model: {
        name: parameter.detach().clone() for name, parameter in model.named_parameters()
    },
    "state_dict": lambda model: {
        name: value.clone() for name, value in model.state_dict().items() if "norm" not in name
    },
    "forward": lambda model: {"output": model.eval()(torch.ones(4, 1, 8, 8)).detach().clone()},
}


def run_other_stream(how: str, server_optimizer: bool) -> None:
    """Reads under a stream of its own right after step(), and once more when another stream has
    made the update."""
    with on_host():
        expected = READS[how](trained(server_optimizer)[0])
    delay("adversary")
    for is_open in (False, True):
        model, optimizer = trained(server_optimizer)
        torch.accelerator.synchronize()
        if is_open:
            optimizer.synchronize()
        stream = torch.Stream(torch.device(place.DEVICE))
        with stream:
            seen = READS[how](model)
        stream.synchronize()
        assert_equal(seen, expected)


@pytest.mark.parametrize("server_optimizer", [False, True])
@pytest.mark.parametrize("how", READS)
def test_an_update_is_seen_by_other_streams(ranks: Ranks, how: str, server_optimizer: bool) -> None:
    ranks.run(run_other_stream, how, server_optimizer)


def several_backwards(model: Any, optimizer: torch.optim.Optimizer) -> None:
    for number, (x, y) in enumerate(batches(24)):
        with model.no_sync() if number % 4 == 2 else nullcontext():
            functional.cross_entropy(model(x), y).backward()
        if number % 4 == 3:
            if number % 12 == 7:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad(set_to_none=number % 8 == 3)


def own_part_last(model: Any, optimizer: torch.optim.Optimizer) -> None:
    """A gradient of this rank alone is added to a mean that may still be on its way. Each rank then
    has parameters of its own."""
    for number, (x, y) in enumerate(batches(24)):
        with model.no_sync() if number % 2 else nullcontext():
            functional.cross_entropy(model(x), y).backward()
        if number % 6 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        if number % 8 == 7:
            optimizer.zero_grad()  # drops a sum that nobody has seen
        elif number % 2:
            optimizer.step()
            optimizer.zero_grad()


def clipping(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for number, (x, y) in enumerate(batches(12)):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        if number % 3:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


def scaled(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Rank 1 makes an infinite gradient in step 5: no rank may step then."""
    scaler = torch.amp.GradScaler(here().type, init_scale=2.0**10, growth_interval=7)
    for number, (x, y) in enumerate(batches(16)):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        if number == 5 and rank() == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        if number % 2:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()


LOOPS: dict[str, Any] = {
    "several backwards": several_backwards,
    "clipping": clipping,
    "scaled": scaled,
}


def run_loop(loop: Any, mode: str) -> None:
    delay(mode)
    same_as_ddp(sgd, loop)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loop", LOOPS)
def test_loops(ranks: Ranks, loop: str, mode: str) -> None:
    ranks.run(run_loop, LOOPS[loop], mode)


def test_a_loop_in_which_ranks_differ() -> None:
    differing = Ranks(2, SLUICE_COMPARE_RANKS="off")
    differing.run(begin)
    for mode in MODES:
        differing.run(run_loop, own_part_last, mode)
    assert differing.end() == [0, 0]


class Branches(nn.Module):
    """Has a layer that only rank 1 uses."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Linear(64, 16)
        self.side = nn.Linear(16, 16)
        self.exit = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.entry(x.flatten(1)))
        if rank() == 1:
            x = torch.relu(self.side(x))
        return self.exit(x)


def make_branches() -> nn.Module:
    torch.manual_seed(5)
    return Branches()


def unscaled(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    scaler = torch.amp.GradScaler(here().type, init_scale=2.0**10, growth_interval=1000)
    for x, y in batches(16):
        optimizer.zero_grad()
        scaler.scale(functional.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()


def clipped(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for x, y in batches(16):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


# Only the other rank may have a gradient: its mean is unscaled and clipped here, too.
def run_branches(change: str, mode: str) -> None:
    delay(mode)
    same_as_ddp(
        sgd,
        {"unscaled": unscaled, "clipped": clipped}[change],
        make_branches,
        {"find_unused_parameters": True},
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("change", ["unscaled", "clipped"])
def test_layer_of_another_rank(ranks: Ranks, change: str, mode: str) -> None:
    ranks.run(run_branches, change, mode)


# No mean comes before all ranks have handed over all gradients.
def test_layer_of_another_rank_in_one_group() -> None:
    ranks = Ranks(2, SLUICE_ALGORITHM="allreduce")
    ranks.run(begin)
    for change in ("unscaled", "clipped"):
        ranks.run(run_branches, change, "random")
    assert ranks.end() == [0, 0]


def two_backwards_of_servers(model: Any, optimizer: torch.optim.Optimizer) -> None:
    for number, (x, y) in enumerate(batches(18)):
        with model.no_sync() if number % 6 == 1 else nullcontext():
            functional.cross_entropy(model(x), y).backward()
        if number % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()


def run_sums_at_servers(mode: str) -> None:
    results = []
    for where in (on_host(), nullcontext()):
        delay(mode)
        with where:
            model, optimizer = sluice.distribute(make_net(), sgd, server_optimizer=True)
            two_backwards_of_servers(model, optimizer)
            results.append(model.state_dict())
    assert_equal(results[1], results[0])


@pytest.mark.parametrize("mode", MODES)
def test_servers_get_the_sum_of_several_backwards(ranks: Ranks, mode: str) -> None:
    ranks.run(run_sums_at_servers, mode)


def run_resume(server_optimizer: bool) -> None:
    """Goes on from a checkpoint on the device, with the bits of a run in the host's memory."""

    def go_on(model: nn.Module, optimizer: Any, first: int, last: int) -> None:
        for x, y in itertools.islice(batches(last), first, None):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    options = {"server_optimizer": server_optimizer}
    with on_host():
        expected, optimizer = sluice.distribute(make_net(), sgd, **options)
        go_on(expected, optimizer, 0, 12)
    delay("adversary")
    model, optimizer = sluice.distribute(make_net(), sgd, **options)
    go_on(model, optimizer, 0, 5)
    saved = model.state_dict(), optimizer.state_dict()
    kept = [{name: value.clone() for name, value in saved[0].items()}, saved[1]]
    for state in kept[1]["state"].values():
        state.update({key: value.clone() for key, value in state.items()})
    again, optimizer = sluice.distribute(make_net(99), sgd, **options)
    again.load_state_dict(kept[0])
    optimizer.load_state_dict(kept[1])
    go_on(again, optimizer, 5, 12)
    assert_equal(again.state_dict(), expected.state_dict())


@pytest.mark.parametrize("server_optimizer", [False, True])
def test_training_goes_on_from_a_checkpoint(ranks: Ranks, server_optimizer: bool) -> None:
    ranks.run(run_resume, server_optimizer)


# The second rank stops in the fourth step; the first waits for it in step(), which has a hook.
INTERRUPTED = """
import os, time, torch, sluice
model, optimizer = sluice.distribute(torch.nn.Linear(3, 3), lambda ps: torch.optim.SGD(ps, lr=0.1))
optimizer.register_step_post_hook(lambda *_: None)
for step in range(4):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 3)).sum()
    if step == 3 and os.environ["RANK"] == "1":
        time.sleep(120)
    loss.backward()
    if step == 3:
        print("waits", flush=True)
    optimizer.step()
"""


def test_control_c_ends_a_wait_in_step() -> None:
    with running(INTERRUPTED, 2) as (first, _):
        assert first.stdout is not None and first.stdout.readline() == "waits\n"
        time.sleep(0.5)
        first.send_signal(signal.SIGINT)
        begun = time.monotonic()
        errors = first.communicate(timeout=30)[1]
        assert time.monotonic() - begun < 10
        assert "KeyboardInterrupt" in errors, errors


# DDP on the backend.


def losses_of(model: nn.Module, net: Net, steps: int = 8) -> list[float]:
    optimizer = sgd(net.parameters())
    losses = []
    for x, y in batches(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def join_group() -> None:
    torch.set_num_threads(1)
    if not dist.is_initialized():
        dist.init_process_group(os.environ["TEST_BACKEND"])


def run_ddp(mode: str) -> None:
    join_group()
    delay(mode)
    with on_host():
        reference = make_net()
        gloo = dist.new_group(backend="gloo")
        expected = losses_of(ddp(reference, process_group=gloo), reference)
    net = make_net()
    let_ddp_copy()
    wrapped = DistributedDataParallel(net)
    assert losses_of(wrapped, net) == expected
    assert_equal(net.state_dict(), reference.state_dict())


@pytest.fixture(scope="module", params=["sluice", f"cpu:gloo,{place.DEVICE}:sluice"])
def backend_ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    ranks = Ranks(2, TEST_BACKEND=request.param)
    yield ranks
    assert ranks.end() == [0, 0]


@pytest.mark.parametrize("mode", MODES)
def test_ddp_on_the_backend(backend_ranks: Ranks, mode: str) -> None:
    backend_ranks.run(run_ddp, mode)


def run_together_in_two_places() -> None:
    """One call takes tensors in host memory and on the device."""
    join_group()
    delay("adversary")
    tensors = [torch.full((3,), 1.0 + rank(), device=where) for where in ("cpu", here(), "cpu")]
    tensors.append(torch.arange(40_000.0) + rank())
    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device(place.DEVICE))
    group.allreduce_coalesced(tensors).wait()
    for tensor in tensors[:3]:
        assert tensor.cpu().tolist() == [3.0] * 3
    assert torch.equal(tensors[3].cpu(), 2 * torch.arange(40_000.0, device="cpu") + 1)


def test_one_call_takes_tensors_in_two_places(backend_ranks: Ranks) -> None:
    backend_ranks.run(run_together_in_two_places)


def run_mesh_of_a_bound_device() -> list[float]:
    """Device meshes split the default group if it is bound to a device."""
    dist.init_process_group("sluice", device_id=torch.device(place.DEVICE, 0))
    mesh = init_device_mesh(place.DEVICE, (2, 1), mesh_dim_names=("pair", "alone"))
    sums = []
    for name in ("pair", "alone"):
        tensor = torch.tensor(1.0 + rank(), device=here())
        dist.all_reduce(tensor, group=mesh.get_group(name))
        sums.append(tensor.item())
    return sums


def test_a_mesh_of_a_bound_device() -> None:
    ranks = Ranks(2)
    assert ranks.run(run_mesh_of_a_bound_device) == [[3.0, 1.0], [3.0, 2.0]]
    assert ranks.end() == [0, 0]


def run_little_pinned_memory() -> str:
    dist.init_process_group("sluice")
    return text_of(lambda: dist.all_reduce(torch.ones(3)))


def test_the_backend_refuses_too_little_pinned_memory() -> None:
    ranks = Ranks(2, SLUICE_STAGING_BYTES="1")
    for text in ranks.run(run_little_pinned_memory):
        assert text == f"sluice: staging-bytes is 1; {place.DEVICE}:0 needs at least 65536"
    ranks.end()


class Slow(nn.Module):
    """Two layers, of which the second makes twenty times as many kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.quick, self.slow = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.quick(x)
        for _ in range(20):
            x = self.slow(x)
        return x


def run_layer_times() -> tuple[float, float, str]:
    import sluice_test_device

    sluice_test_device.set_mode("random", seed=1, longest_delay=0.001)
    model, optimizer = sluice.distribute(Slow(), sgd)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    torch.accelerator.synchronize()
    engine = model._sluice
    forward, rounds = engine.training.spent.times.forward, engine.training.spent.planned_rounds
    quick, slow = (
        forward[engine.slot_of[layer._parameters["weight"]].gate] / rounds
        for layer in (model.quick, model.slow)
    )
    return quick, slow, sluice.report()


def test_the_device_measures_its_layers(ranks: Ranks) -> None:
    for quick, slow, text in ranks.run(run_layer_times):
        assert slow > 0.005, "20 kernels with delays of half a millisecond on average"
        assert quick < slow / 3
        assert "P3's bound" in text and "not known" not in text


def run_profile() -> dict[str, float]:
    import sluice_test_device

    sluice_test_device.set_mode("random", seed=1, longest_delay=0.001)
    model = Slow()
    profile, optimizer = sluice.Profile(model), sgd(model.parameters())
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        profile.step()
    return {tensor["name"]: tensor["forward"] for tensor in profile.tensors()}


def test_a_profile_has_the_times_of_the_device(ranks: Ranks) -> None:
    for times in ranks.run(run_profile):
        slow = times["slow.weight"] + times["slow.bias"]
        assert slow > 0.005
        assert times["quick.weight"] + times["quick.bias"] < slow / 3
