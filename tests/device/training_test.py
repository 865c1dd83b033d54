"""Training on the device gives the CPU's bits, in every mode."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sluice_test_device as knobs
import torch
from torch import nn
from torch.nn import functional

MODES = ["eager", "random", "adversary"]
STEPS = 4


@pytest.fixture(autouse=True)
def _same_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    knobs.set_mode("eager")
    torch.set_num_threads(before)


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, bias=False),
        nn.GroupNorm(2, 8),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 32),
        nn.LayerNorm(32),
        nn.Tanh(),
        nn.Dropout(0.2),
        nn.Linear(32, 10),
    )


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, foreach=False)


def sgd_foreach(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def adam_fused(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01, fused=True)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01, foreach=True)


Maker = Callable[[Any], torch.optim.Optimizer]


def train(
    make_model: Callable[[], nn.Module],
    make_optimizer: Maker,
    device: str,
    prepare: Callable[[nn.Module], Callable[[], None]] | None = None,
) -> dict[str, torch.Tensor]:
    """Returns the losses, and the state of the model and of the optimizer."""
    torch.manual_seed(3)
    model = make_model().to(device)
    optimizer = make_optimizer(model.parameters())
    synchronize = prepare(model) if prepare else lambda: None
    data = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(STEPS):
        images = torch.randn(8, 1, 8, 8, generator=data).to(device)
        labels = torch.randint(10, (8,), generator=data).to(device)
        loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    result = {"losses": torch.stack(losses).cpu()}
    result.update({f"model {name}": value.cpu() for name, value in model.state_dict().items()})
    for number, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                result[f"optimizer {number} {name}"] = value.cpu()
    return result


def expect_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    different = [name for name in one if not torch.equal(one[name], other[name])]
    assert not different


@pytest.mark.parametrize("make_optimizer", [sgd, sgd_foreach, adam, adam_fused, adamw])
@pytest.mark.parametrize("make_model", [cnn, mlp])
def test_same_bits_as_on_the_cpu(
    make_model: Callable[[], nn.Module], make_optimizer: Maker
) -> None:
    reference = train(make_model, make_optimizer, "cpu")
    for mode in MODES:
        knobs.set_mode(mode, seed=1)
        expect_same(train(make_model, make_optimizer, "pretend"), reference)


class Staging:
    """Takes each gradient to the host and back on a stream of its own, as a distributed program
    does with the network in between."""

    def __init__(self, model: nn.Module) -> None:
        self.stream = torch.Stream()
        self.pending: list[tuple[torch.Tensor, torch.Tensor, torch.Event]] = []
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self.take)

    def take(self, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        assert gradient is not None
        self.stream.wait_stream(torch.accelerator.current_stream())
        staged = torch.empty(gradient.shape, pin_memory=True)
        with self.stream:
            staged.copy_(gradient, non_blocking=True)
        gradient.record_stream(self.stream)
        self.pending.append((gradient, staged, self.stream.record_event()))

    def synchronize(self) -> None:
        for gradient, staged, event in self.pending:
            event.synchronize()
            staged.mul_(0.5)
            with self.stream:
                gradient.copy_(staged, non_blocking=True)
        self.pending.clear()
        torch.accelerator.current_stream().wait_stream(self.stream)


def test_staged_gradients_have_the_same_bits() -> None:
    def halve(model: nn.Module) -> Callable[[], None]:
        def synchronize() -> None:
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.mul_(0.5)

        return synchronize

    reference = train(cnn, sgd, "cpu", halve)
    for mode in MODES:
        knobs.set_mode(mode, seed=2)
        knobs.reset_statistics()
        result = train(cnn, sgd, "pretend", lambda model: Staging(model).synchronize)
        expect_same(result, reference)
        assert knobs.statistics()["changed_sources"] == 0


def test_forgotten_wait_is_found() -> None:
    class NoWaitForProducer(Staging):
        def take(self, parameter: torch.Tensor) -> None:
            gradient = parameter.grad
            assert gradient is not None
            staged = torch.empty(gradient.shape, pin_memory=True)
            with self.stream:
                staged.copy_(gradient, non_blocking=True)
            gradient.record_stream(self.stream)
            self.pending.append((gradient, staged, self.stream.record_event()))

    reference = train(cnn, sgd, "pretend", lambda model: Staging(model).synchronize)
    knobs.set_mode("adversary", patience=0.1)
    wrong = train(cnn, sgd, "pretend", lambda model: NoWaitForProducer(model).synchronize)
    assert not torch.equal(wrong["losses"], reference["losses"])
