"""Each use of DDP gives the same bits with sluice."""

from __future__ import annotations

import copy
import io
import os
import pickle
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from place import here, on_host
from ranks import Ranks, run_script
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from training import Net, assert_equal, batches, ddp, make_net, plain_loop, rank, same_as_ddp

import sluice


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), y)


# Loops: each is run with a DDP model and with a sluice model.


def accumulation(model: Any, optimizer: torch.optim.Optimizer) -> None:
    for number, (x, y) in enumerate(batches(40)):
        last = number % 4 == 3
        with nullcontext() if last else model.no_sync():
            loss_of(model, x, y).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def several_backwards(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for number, (x, y) in enumerate(batches(40)):
        loss_of(model, x, y).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()


def zeros_instead_of_none(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for number, (x, y) in enumerate(batches(40)):
        (optimizer if number % 2 else model).zero_grad(set_to_none=False)
        loss_of(model, x, y).backward()
        optimizer.step()


def model_zero_grad(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for x, y in batches(20):
        loss_of(model, x, y).backward()
        optimizer.step()
        model.zero_grad()


def clipping(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for x, y in batches(40):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


def clipping_sometimes(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for number, (x, y) in enumerate(batches(40)):
        optimizer.zero_grad(set_to_none=number % 3 == 0)
        loss_of(model, x, y).backward()
        if number % 2:
            nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()


def logged_norms(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Reads gradients without changing them. The norms go into the parameters, so that they are
    compared too."""
    for x, y in batches(20):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        norms = [p.grad.norm().item() for p in model.parameters() if p.grad is not None]
        for group in optimizer.param_groups:
            group["lr"] = 0.01 + min(sum(norms), 1.0) * 0.01
        optimizer.step()


def autocast(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for x, y in batches(20):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()


def scaled(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Rank 1 makes an infinite gradient in step 5: no rank may step then."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=7)
    for number, (x, y) in enumerate(batches(20)):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, x, y)
        if number == 5 and rank() == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        if number % 2:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()


def scheduled(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The scheduler steps before the late update is carried out, and must not reach it."""
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=41)
    for x, y in batches(40):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
        scheduler.step()


def skipped_steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for number, (x, y) in enumerate(batches(20)):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        if number % 3:
            optimizer.step()


def with_evaluation(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Reads outputs right after step(). They go into the rate, so that they are compared too."""
    for number, (x, y) in enumerate(batches(20)):
        model.train()
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
        if number % 3 == 0:
            model.eval()
            with torch.inference_mode() if number % 2 else torch.no_grad():
                seen = loss_of(model, torch.ones(4, 1, 8, 8), torch.arange(4))
            optimizer.param_groups[0]["lr"] = 0.01 + 0.001 * min(1.0, float(seen))


def with_average(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Computes an exponential moving average right after step(). The result goes into the model, so
    that it is compared."""
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    for x, y in batches(20):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
        average.update_parameters(model)
    with torch.no_grad():
        for own, mean in zip(model.parameters(), average.parameters(), strict=True):
            own.copy_(mean)


def gradient_penalty(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for x, y in batches(20):
        optimizer.zero_grad()
        x.requires_grad_()
        output = model(x)
        (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        (functional.cross_entropy(output, y) + slope.square().mean()).backward()
        optimizer.step()


LOOPS = [accumulation, several_backwards, zeros_instead_of_none, model_zero_grad, clipping,
         clipping_sometimes, logged_norms,
         autocast, scaled, scheduled, skipped_steps, with_evaluation, with_average,
         gradient_penalty]  # fmt: skip


def run_loop(name: str) -> None:
    same_as_ddp(sgd, globals()[name])


@pytest.mark.parametrize("loop", [loop.__name__ for loop in LOOPS])
def test_loops(two_ranks: Ranks, loop: str) -> None:
    two_ranks.run(run_loop, loop)


# Models.


class Tied(nn.Module):
    """Uses one matrix as embedding and, functionally, as output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 16)
        self.body = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        tokens = (x.flatten(1)[:, :6].abs() * 3).long().clamp(max=9)
        return functional.linear(
            torch.tanh(self.body(self.embedding(tokens).mean(1))), self.embedding.weight
        )


class Attention(nn.Module):
    """The out_proj never runs its own forward; the recurrent layer reads its weights from a
    list."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.recurrent = nn.LSTM(8, 8, batch_first=True)
        self.out = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.squeeze(1)
        return self.out(self.recurrent(self.attention(x, x, x)[0])[0].mean(1))


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant
        self.first = nn.Linear(64, 32)
        self.middle = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
        self.last = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(
            checkpoint(self.middle, self.first(x.flatten(1)), use_reentrant=self.use_reentrant)
        )


class Branches(nn.Module):
    """Has a layer that is first used in step 50, one that each rank uses now and then, and one that
    no rank ever uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 32)
        self.late = nn.Linear(32, 32)
        self.sometimes = nn.Linear(32, 32)
        self.never = nn.Linear(32, 32)
        self.last = nn.Linear(32, 10)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = self.first(x.flatten(1))
        if self.calls > 50:
            x = self.late(x)
        if self.calls % 3 == rank():
            x = self.sometimes(x)
        return self.last(x)


class ChannelsLast(Net):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.to(memory_format=torch.channels_last)


class DoublePrecision(Net):
    def __init__(self) -> None:
        super().__init__()
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.double())


MODELS = {
    "tied": (Tied, {}), "attention": (Attention, {}),
    "checkpointed": (lambda: Checkpointed(False), {}),
    "reentrant": (lambda: Checkpointed(True), {}),
    "branches": (Branches, {"find_unused_parameters": True}),
    "channels last": (ChannelsLast, {}), "double": (DoublePrecision, {}),
}  # fmt: skip


def run_model(name: str) -> None:
    make, ddp_options = MODELS[name]

    def seeded() -> nn.Module:
        torch.manual_seed(5 + rank())
        return make()

    same_as_ddp(
        lambda ps: torch.optim.Adam(ps, lr=1e-2, weight_decay=1e-2),
        plain_loop(60),
        seeded,
        ddp_options,
    )


@pytest.mark.parametrize("model", MODELS)
def test_models(two_ranks: Ranks, model: str) -> None:
    two_ranks.run(run_model, model)


def run_without_broadcast_of_buffers() -> None:
    """The statistics of batches stay different on every rank."""
    same_as_ddp(
        sgd, plain_loop(10), ddp_options={"broadcast_buffers": False}, broadcast_buffers=False
    )


def test_buffers_can_stay_on_their_rank(two_ranks: Ranks) -> None:
    two_ranks.run(run_without_broadcast_of_buffers)


# Optimizers.


def groups(parameters: Any) -> torch.optim.Optimizer:
    every = list(parameters)
    return torch.optim.AdamW(
        [{"params": every[:3], "lr": 1e-2}, {"params": every[3:], "weight_decay": 0.3}], lr=1e-3
    )


def run_groups() -> None:
    same_as_ddp(groups, scheduled_by_group)


def scheduled_by_group(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, [lambda n: 0.9**n, lambda n: 1 / (n + 1)]
    )
    for x, y in batches(20):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
        scheduler.step()


def test_several_groups(two_ranks: Ranks) -> None:
    two_ranks.run(run_groups)


def run_lbfgs() -> None:
    """Both ranks have the same data, so that DDP's ranks make the same decisions."""

    def loop(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        generator = torch.Generator().manual_seed(3)
        x, y = (
            torch.randn(16, 1, 8, 8, generator=generator, device="cpu").to(here()),
            torch.randint(0, 10, (16,), generator=generator, device="cpu").to(here()),
        )
        for _ in range(3):

            def closure() -> Tensor:
                optimizer.zero_grad()
                loss = loss_of(model, x, y)
                loss.backward()
                return loss

            optimizer.step(closure)

    same_as_ddp(lambda ps: torch.optim.LBFGS(ps, max_iter=5, line_search_fn="strong_wolfe"), loop)


def test_a_closure_runs_at_once(two_ranks: Ranks) -> None:
    two_ranks.run(run_lbfgs)


def run_step_hooks() -> None:
    calls = []

    def loop(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
        optimizer.register_step_post_hook(lambda *_: calls.append("after"))
        plain_loop(5)(model, optimizer)

    same_as_ddp(sgd, loop)
    assert calls == ["before", "after"] * 10


def test_step_hooks_fire_once(two_ranks: Ranks) -> None:
    two_ranks.run(run_step_hooks)


def run_existing_scheduler() -> None:
    """Optimizer and scheduler are made first, and are distributed as they are."""

    def loop(model: nn.Module, optimizer: Any, scheduler: Any) -> None:
        for x, y in batches(5):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()
            scheduler.step()

    with on_host():
        reference = make_net()
        optimizer = sgd(reference.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        loop(ddp(reference), optimizer, scheduler)
    model = make_net()
    optimizer = sgd(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    same_model, same_optimizer = sluice.distribute(model, optimizer)
    assert (
        same_model is model
        and same_optimizer is optimizer
        and isinstance(optimizer, torch.optim.SGD)
    )
    loop(model, optimizer, scheduler)
    assert_equal(model.state_dict(), reference.state_dict())


def test_an_existing_optimizer_with_its_scheduler(two_ranks: Ranks) -> None:
    two_ranks.run(run_existing_scheduler)


def run_unfreezing() -> None:
    """A layer is frozen at first and unfrozen in the middle; then another one is frozen."""

    def train(model: nn.Module, body: Net, optimizer: torch.optim.Optimizer, steps: int) -> None:
        for x, y in batches(steps):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()

    def change(body: Net, first: bool) -> None:
        body.conv.requires_grad_(not first)
        body.out.requires_grad_(first)

    with on_host():
        reference = make_net()
        change(reference, True)
        optimizer = sgd(reference.parameters())
        train(ddp(reference), reference, optimizer, 10)
        optimizer.zero_grad()
        change(reference, False)
        train(ddp(reference), reference, optimizer, 10)

    body = make_net()
    change(body, True)
    model, optimizer = sluice.distribute(body, sgd)
    train(model, body, optimizer, 10)
    optimizer.zero_grad()
    change(body, False)
    train(model, body, optimizer, 10)
    assert_equal(model.state_dict(), reference.state_dict())


def test_frozen_parameters_can_be_unfrozen(two_ranks: Ranks) -> None:
    two_ranks.run(run_unfreezing)


def run_two_models() -> None:
    """Trains two models with two optimizers as in a GAN: the gradients of one go through the
    other."""

    def play(
        generator: nn.Module, critic: nn.Module, g: torch.optim.Optimizer, c: torch.optim.Optimizer
    ) -> None:
        source = torch.Generator().manual_seed(rank())

        def noise(size: int) -> Tensor:
            return torch.randn(8, size, generator=source, device="cpu").to(here())

        for _ in range(15):
            c.zero_grad()
            made = generator(noise(4)).detach()
            (critic(noise(6)).mean() - critic(made).mean()).backward()
            c.step()
            g.zero_grad()
            critic(generator(noise(4))).mean().backward()
            g.step()

    def make() -> tuple[nn.Module, nn.Module]:
        torch.manual_seed(rank())
        layers = (
            [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6)],
            [nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)],
        )
        return nn.Sequential(*layers[0]), nn.Sequential(*layers[1])

    with on_host():
        one, two = make()
        play(ddp(one), ddp(two), sgd(one.parameters()), torch.optim.Adam(two.parameters()))
    a, b = make()
    a, g = sluice.distribute(a, sgd)
    b, c = sluice.distribute(b, torch.optim.Adam)
    play(a, b, g, c)
    assert_equal(a.state_dict(), one.state_dict())
    assert_equal(b.state_dict(), two.state_dict())


def test_two_models_in_one_process(two_ranks: Ranks) -> None:
    two_ranks.run(run_two_models)


def run_two_optimizers() -> None:

    def make(net: Net) -> list[torch.optim.Optimizer]:
        rest = [*net.norm.parameters(), *net.hidden.parameters(), *net.out.parameters()]
        return [sgd(net.conv.parameters()), torch.optim.Adam(rest)]

    def loop(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
        for x, y in batches(10):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss_of(model, x, y).backward()
            for optimizer in optimizers:
                optimizer.step()

    with on_host():
        reference = make_net()
        loop(ddp(reference), make(reference))
    model = make_net()
    model, optimizers = sluice.distribute(model, make(model))
    loop(model, optimizers)
    assert_equal(model.state_dict(), reference.state_dict())


def test_two_optimizers_of_one_model(two_ranks: Ranks) -> None:
    two_ranks.run(run_two_optimizers)


# Checkpoints.


def run_checkpoint() -> None:
    """sluice saves a checkpoint in the middle, plain PyTorch loads it and goes on, and the other
    way round."""

    def go_on(
        model: nn.Module, optimizer: torch.optim.Optimizer, data: list[tuple[Tensor, Tensor]]
    ) -> None:
        for x, y in data:
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()

    with on_host():
        straight = make_net()
        go_on(ddp(straight), torch.optim.Adam(straight.parameters()), list(batches(20)))
    every = list(batches(20))
    first, its = sluice.distribute(make_net(), torch.optim.Adam)
    go_on(first, its, every[:10])
    saved = io.BytesIO()
    torch.save({"model": first.state_dict(), "optimizer": its.state_dict()}, saved)
    saved.seek(0)
    state = torch.load(saved, weights_only=True)
    plain = make_net(99)
    plain.load_state_dict(state["model"])
    second = torch.optim.Adam(plain.parameters())
    second.load_state_dict(state["optimizer"])
    again, its = sluice.distribute(plain, second)
    go_on(again, its, every[10:])
    assert_equal(again.state_dict(), straight.state_dict())


def test_checkpoints_go_to_plain_pytorch_and_back(two_ranks: Ranks) -> None:
    two_ranks.run(run_checkpoint)


def run_rank_0_begins() -> None:
    """Rank 0 loads a checkpoint and rank 1 does not: both then have rank 0's parameters, buffers
    and optimizer state."""
    data = list(batches(8))

    def go_on(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for x, y in data:
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()

    begun, its = make_net(), None
    if rank() == 0:
        its = torch.optim.Adam(begun.parameters(), lr=1e-2)
        go_on(begun, its)
    model, optimizer = sluice.distribute(
        begun, its or torch.optim.Adam(begun.parameters(), lr=1e-2)
    )
    assert len(optimizer.state_dict()["state"]) == len(list(model.parameters()))
    go_on(model, optimizer)
    for state in optimizer.state_dict()["state"].values():
        assert state["step"] == 16
        assert torch.equal(sluice.mean(state["exp_avg"].double()), state["exp_avg"].double())
    for parameter in model.parameters():
        assert torch.equal(sluice.mean(parameter.detach().double()), parameter.detach().double())


def test_all_begin_as_rank_0(two_ranks: Ranks) -> None:
    two_ranks.run(run_rank_0_begins)


# No stale read.


def after_step() -> tuple[Any, torch.optim.Optimizer, dict[str, Tensor]]:
    """Returns a model whose gates are closed, its optimizer, and the future values of its
    parameters."""
    with on_host():
        reference = make_net()
        plain_loop(4)(ddp(reference), sgd(reference.parameters()))
    model, optimizer = sluice.distribute(make_net(), sgd)
    plain_loop(4)(model, optimizer)
    assert model._sluice.gates.is_closed
    return model, optimizer, reference.state_dict()


def parameters_only(state: Any) -> dict[str, Tensor]:
    return {
        name: tensor
        for name, tensor in dict(state).items()
        if "running" not in name and "num_" not in name
    }


READS: dict[str, Any] = {
    "state_dict": lambda model: model.state_dict(),
    "state_dict of a part": lambda model: {
        f"conv.{k}": v for k, v in model.conv.state_dict().items()
    },
    "deepcopy": lambda model: copy.deepcopy(model).state_dict(),
    "deepcopy of a part": lambda model: {
        f"out.{k}": v for k, v in copy.deepcopy(model.out).state_dict().items()
    },
    "pickle": lambda model: pickle.loads(pickle.dumps(model)).state_dict(),
    "torch.save": lambda model: _saved_and_loaded(model).state_dict(),
    "parameters": lambda model: dict(
        zip((n for n, _ in Net().named_parameters()), model.parameters(), strict=True)
    ),
    "named_parameters": lambda model: dict(model.named_parameters()),
    "parameters of a part": lambda model: {
        f"hidden.{k}": v for k, v in model.hidden.named_parameters()
    },
    "attribute": lambda model: {"hidden.weight": model.hidden.weight, "conv.bias": model.conv.bias},
}


def _saved_and_loaded(model: nn.Module) -> Any:
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    return torch.load(saved, weights_only=False)


def run_read(name: str) -> None:
    model, _, expected = after_step()
    seen = parameters_only(READS[name](model))
    assert seen
    assert_equal(seen, {name: expected[name] for name in seen})
    if name in ("deepcopy", "pickle", "torch.save"):
        assert type(copy.deepcopy(model)) is Net


@pytest.mark.parametrize("how", READS)
def test_no_stale_read(two_ranks: Ranks, how: str) -> None:
    two_ranks.run(run_read, how)


def run_eval_of_a_part() -> None:
    model, _, expected = after_step()
    with torch.no_grad():
        seen = model.hidden(torch.ones(1, 144))
    with on_host():
        ones = torch.ones(1, 144)
    assert torch.equal(
        seen.cpu(), functional.linear(ones, expected["hidden.weight"], expected["hidden.bias"])
    )


def test_a_part_that_is_called_alone(two_ranks: Ranks) -> None:
    two_ranks.run(run_eval_of_a_part)


def run_optimizer_state() -> None:
    _, optimizer, _ = after_step()
    assert all(
        torch.isfinite(state["momentum_buffer"]).all()
        for state in optimizer.state_dict()["state"].values()
    )
    model, optimizer, _ = after_step()
    optimizer.synchronize()
    assert not model._sluice.gates.is_closed


def test_optimizer_state_is_not_stale(two_ranks: Ranks) -> None:
    two_ranks.run(run_optimizer_state)


def run_layer_by_layer() -> None:
    """Every layer opens its own gate and no other; everything is open when the pass has ended."""
    model, optimizer, _ = after_step()
    names = [name for name, _ in Net().named_children()]
    closed = []

    def look(module: nn.Module, args: Any) -> None:
        slots = {
            name: model._sluice.slot_of[model._modules[name]._parameters["weight"]]
            for name in names
        }
        closed.append([name for name in names if slots[name].gate.is_closed])

    for name in names:
        model._modules[name].register_forward_pre_hook(look)
    optimizer.zero_grad()
    loss_of(model, *next(batches(1))).backward()
    assert closed == [names[1:], names[2:], names[3:], []]
    model._sluice.synchronize()


def test_gates_open_layer_by_layer(two_ranks: Ranks) -> None:
    two_ranks.run(run_layer_by_layer)


def run_hidden_read() -> str:
    """The forward pass reads a parameter by a reference that sluice cannot see."""

    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shown = nn.Linear(4, 4)
            self.secret = nn.Linear(4, 4)
            self.references: list[Tensor] = [self.secret.weight]

        def forward(self, x: Tensor, secretly: bool) -> Tensor:
            x = self.shown(x)
            return functional.linear(x, self.references[0]) if secretly else x

    model, optimizer = sluice.distribute(Hidden(), sgd)
    for step in range(4):
        optimizer.zero_grad()
        try:
            # The first step would observe the read. So it begins later, when a gradient has closed
            # every gate.
            (
                model(torch.ones(2, 4), step == 3)
                + (0 if step == 3 else model.secret(torch.ones(2, 4)))
            ).sum().backward()
        except RuntimeError as error:
            return str(error)
        optimizer.step()
    return "nothing"


def test_a_read_that_nobody_saw_is_an_error(two_ranks: Ranks) -> None:
    for text in two_ranks.run(run_hidden_read):
        assert "'secret.weight' got a gradient, but its gate was still closed" in text


def run_touched_in_flight() -> tuple[str, bool]:
    """Changes a gradient while its mean is on the way, by a reference from before backward that
    sluice cannot see."""
    model, optimizer = sluice.distribute(make_net(), sgd)
    plain_loop(3)(model, optimizer)
    optimizer.synchronize()
    held = model.out.weight.grad
    assert type(held) is Tensor
    held.zero_()
    loss_of(model, *next(batches(1))).backward()  # adds to the tensor `held`
    was_pending = type(model.out.weight.grad) is not Tensor
    held.mul_(2)
    try:
        optimizer.synchronize()
    except RuntimeError as error:
        with pytest.raises(
            RuntimeError, match=r"is no longer good: the gradient of 'out\.weight' was changed"
        ):
            model.state_dict()
        return str(error), was_pending
    return "nothing", was_pending


def test_a_gradient_changed_on_its_way_is_an_error(two_ranks: Ranks) -> None:
    for text, was_pending in two_ranks.run(run_touched_in_flight):
        assert "the gradient of 'out.weight' was changed while its mean was on the way" in text
        assert was_pending


def run_first_rounds() -> list[bool]:
    """Returns for the first two rounds if all mean gradients are in place when backward() returns.
    Also checks that a read of them is noticed."""
    model, optimizer = sluice.distribute(make_net(), sgd)
    in_place = []
    for number, (x, y) in enumerate(batches(4)):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        in_place.append(not any(slot.is_travelling for slot in model._sluice.slot_of.values()))
        if number == 3:
            assert not model._sluice.gates.was_touched
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            assert model._sluice.gates.was_touched or in_place[-1]
        optimizer.step()
    return in_place[:2]


def test_the_first_rounds_end_as_with_ddp(two_ranks: Ranks) -> None:
    assert two_ranks.run(run_first_rounds) == [[True, True]] * 2


# Small things.


def run_helpers() -> None:
    assert sluice.world_size() == 2 and sluice.rank() == rank()
    sluice.barrier()
    assert sluice.mean(float(rank())) == 0.5
    assert sluice.mean(rank() + 1) == 1.5
    assert torch.equal(sluice.mean(torch.full((2, 3), 4.0 * rank())), torch.full((2, 3), 2.0))
    with pytest.raises(
        ValueError,
        match=r"sluice.mean\(\) got \(2,\) torch.float32 on rank 0, but \(3,\) .* on rank 1",
    ):
        sluice.mean(torch.ones(2 + rank()))


def test_helpers(two_ranks: Ranks) -> None:
    two_ranks.run(run_helpers)


def run_debug() -> None:
    """With SLUICE_DEBUG=gates parameters behind a closed gate are NaN, and training gives the same
    bits."""
    with on_host():
        reference = make_net()
        plain_loop(6)(ddp(reference), sgd(reference.parameters()))
    model = make_net()
    os.environ["SLUICE_DEBUG"] = "gates"
    try:
        model, optimizer = sluice.distribute(model, sgd)
    finally:
        del os.environ["SLUICE_DEBUG"]
    held = list(model.parameters())
    plain_loop(6)(model, optimizer)
    assert all(bool(parameter.isnan().all()) for parameter in held)
    assert_equal(model.state_dict(), reference.state_dict())


def test_debugging_of_gates(two_ranks: Ranks) -> None:
    two_ranks.run(run_debug)


def run_compiled(backend: str) -> None:
    with on_host():
        reference = make_net()
        plain_loop(6)(ddp(reference), sgd(reference.parameters()))
    model, optimizer = sluice.distribute(make_net(), sgd)
    plain_loop(6)(torch.compile(model, backend=backend), optimizer)  # type: ignore[arg-type]
    assert_equal(model.state_dict(), reference.state_dict())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile(two_ranks: Ranks, backend: str) -> None:
    two_ranks.run(run_compiled, backend)


# Refusals.


def run_refusals() -> list[str]:
    texts = []
    for model in (nn.Embedding(4, 4, sparse=True), nn.Linear(4, 4, dtype=torch.complex64),
                  nn.Linear(4, 4, device="meta"),
                  nn.LazyLinear(4), nn.Linear(4, 4 + rank())):  # fmt: skip
        try:
            sluice.distribute(model, sgd)
        except ValueError as error:
            texts.append(str(error))
    once, its = sluice.distribute(nn.Linear(2, 2), sgd)
    twice: list[Any] = [
        lambda: sluice.distribute(once, sgd),
        lambda: sluice.distribute(nn.Linear(2, 2), its),
        lambda: sluice.distribute(torch.jit.script(nn.Linear(2, 2)), sgd),
        lambda: sluice.distribute(nn.Linear(2, 2), sgd, algorithm="p3"),
    ]
    for act in twice:
        try:
            act()
        except ValueError as error:
            texts.append(str(error).split(" (")[0])
    own = torch.optim.Adam if rank() else torch.optim.AdamW
    for optimizers in (lambda ps: torch.optim.SGD(ps, lr=0.1 * (rank() + 1)), own):
        try:
            sluice.distribute(nn.Linear(2, 2), optimizers)
        except ValueError as error:
            texts.append(str(error))
    try:
        sluice.distribute(nn.Linear(2, 2), torch.optim.Adam, server_optimizer=rank() == 1)
    except ValueError as error:
        texts.append(str(error))
    return texts


def test_refusals_say_what_to_do(two_ranks: Ranks) -> None:
    for texts in two_ranks.run(run_refusals):
        assert [text for text in texts if "rank" not in text] == [
            "'' makes sparse gradients, which sluice cannot average; use sparse=False",
            "'weight' is torch.complex64; sluice averages float32, float64, bfloat16 and float16",
            "'weight' is on meta, which is no accelerator that PyTorch can use here; move the "
            "model to one, or to the host with .cpu()",
            "'weight' has no shape yet; run the model once before sluice.distribute()",
            "Linear is distributed already",
            "SGD is distributed already",
            "sluice cannot see what a ScriptModule reads; distribute the model before it is "
            "scripted",
            "the job has begun with other options",
        ]
        assert [text for text in texts if "rank" in text] == [
            "the ranks do not train the same thing: on rank 1 parameter 'weight' is (5, 4) "
            "torch.float32, strides (4, 1), trained; on rank 0 parameter 'weight' is (4, 4) "
            "torch.float32, strides (4, 1), trained",
            "the ranks do not train the same thing: on rank 1 group 0 has lr=0.2; on rank 0 group "
            "0 has lr=0.1",
            "the ranks do not train the same thing: on rank 1 the optimizer is Adam; on rank 0 "
            "the optimizer is AdamW",
            "the ranks do not train the same thing: on rank 1 server_optimizer=True; on rank 0 "
            "server_optimizer=False",
        ]


class SparseWithoutAModule(nn.Module):
    """distribute() cannot see that the gradient of this module will be sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(5, 3))

    def forward(self, x: Tensor) -> Tensor:
        return functional.embedding(x, self.table, sparse=True)


def run_sparse_gradient() -> str:
    model, _ = sluice.distribute(SparseWithoutAModule(), lambda ps: torch.optim.SGD(ps, lr=0.1))
    try:
        model(torch.tensor([1, 2])).sum().backward()
    except RuntimeError as error:
        return str(error)
    return "nothing"


def test_a_sparse_gradient_is_an_error(two_ranks: Ranks) -> None:
    for text in two_ranks.run(run_sparse_gradient):
        assert (
            "'table' has a sparse gradient, which sluice cannot average; use sparse=False" in text
        )


SETTINGS = """
import os, torch, sluice
rank = int(os.environ["RANK"])
try:
    sluice.distribute(torch.nn.Linear(2, 2), lambda ps: torch.optim.SGD(ps, lr=0.1), {options})
except (ValueError, RuntimeError) as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("servers='dedicated:1'", "servers=dedicated:K does not work with PyTorch yet"),
        (
            "broadcast_buffers=rank == 0",
            "on rank 1 broadcast_buffers=False; on rank 0 broadcast_buffers=True",
        ),
        (
            "server_optimizer=rank == 0",
            "on rank 1 server_optimizer=False; on rank 0 server_optimizer=True",
        ),
    ],
)
def test_settings_that_cannot_be(options: str, text: str) -> None:
    for ended in run_script(SETTINGS.format(options=options), 2):
        assert text in ended.stdout and ended.stdout.count("\n") == 1, ended


ALGORITHM_OF_ITS_OWN = """
import os, torch, sluice
model, optimizer = sluice.distribute(torch.nn.Linear(2, 2), lambda ps: torch.optim.SGD(ps, lr=0.1),
                                     algorithm=("sluice", "p3")[int(os.environ["RANK"])])
model(torch.ones(1, 2)).sum().backward()
"""


def test_an_algorithm_of_ones_own_is_named() -> None:
    for ended in run_script(ALGORITHM_OF_ITS_OWN, 2):
        assert ended.returncode == 1
        last = ended.stderr.splitlines()[-1]
        assert "p3" in last and "sluice" in last and "rank" in last, ended.stderr


class CountsInGroup(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["count"] = group.get("count", 0) + 1
        super().step()


def run_group_state() -> str:
    model, optimizer = sluice.distribute(
        make_net(), lambda ps: CountsInGroup(ps, lr=0.1), per_tensor=True
    )
    try:
        plain_loop(3)(model, optimizer)
    except RuntimeError as error:
        return str(error)
    return "nothing"


def test_state_in_a_group_cannot_be_taken_in_parts(two_ranks: Ranks) -> None:
    for text in two_ranks.run(run_group_state):
        assert "keeps 'count' in its parameter group" in text
