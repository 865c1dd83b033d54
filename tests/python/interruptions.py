"""Trains while exceptions end waits at random, catches them and goes on as docs/pytorch.md says.
Every parameter must have the bits of a run without exceptions, or a later call must have said that
the model is no longer good."""

from __future__ import annotations

import contextlib
import hashlib
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from sluice._job.job import current
from torch import Tensor, nn
from training import rank

import sluice

STEPS = 12
CAUGHT = (KeyboardInterrupt, TimeoutError)


class EndedError(Exception):
    """A model is no longer good, and this rank or another one has said so."""


class LostError(Exception):
    """backward() has to be run again."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 8)
        self.unused = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            # The same value if the pass is run again, unlike a running mean.
            self.seen.copy_(x.mean(0))
        x = torch.relu(self.first(x))
        return self.third(torch.relu(self.second(x)))  # type: ignore[no-any-return]


class Waits:
    """Wraps a session, and ends some of its waits with an exception, before or after them."""

    def __init__(self, session: Any, chance: Callable[[], bool], counts: Counter[str]) -> None:
        self._session, self._chance, self._counts = session, chance, counts

    def _maybe(self) -> None:
        if self._chance():
            self._counts["interrupted"] += 1
            raise random.choice(CAUGHT)("injected")

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._session, name)
        if name not in ("wait", "broadcast_numbered"):
            return value

        def wait(*args: Any) -> Any:
            self._maybe()
            result = value(*args)
            self._maybe()
            return result

        return wait


def digest(model: nn.Module, optimizer: Any) -> str:
    tensors = [*model.state_dict().values()]
    if not current().is_on("dgc") and optimizer.state:
        tensors += [
            value
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, Tensor)
        ]
    return hashlib.sha256(
        b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)
    ).hexdigest()


class Trial:
    """Trains one model from its start to its end."""

    def __init__(
        self, how: str, kind: str, on_servers: bool, seed: int, counts: Counter[str]
    ) -> None:
        self.how, self.counts = how, counts
        self.armed = False
        self.random = random.Random(f"{seed} {rank()}")
        self.digests: dict[int, str] = {}
        torch.manual_seed(seed)
        torch.set_grad_enabled(True)  # a signal may have come inside torch.no_grad()
        make: Any = {
            "sgd": lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9),
            "adam": torch.optim.Adam,
        }[kind]
        # Each pass sends buffers, and with signals the trial cannot tell whether a pass has ended.
        buffers = how != "signals"
        self.model, self.optimizer = sluice.distribute(
            Net(), make, server_optimizer=on_servers, broadcast_buffers=buffers
        )
        self.engine = self.optimizer._late.engine
        self.seed = seed

    def run(self) -> dict[int, str]:
        generator = torch.Generator().manual_seed(10 * self.seed + rank())
        with self.interrupting():
            for step in range(STEPS):
                x = torch.randn(4, 8, generator=generator)
                while not self.step(x):
                    pass
                if step % 3 == 2 or step + 1 == STEPS:
                    if step + 1 == STEPS:
                        self.again(self.optimizer.drain)
                    self.again(self.model.state_dict)
                    self.digests[step] = digest(self.model, self.optimizer)
        return self.digests

    def step(self, x: Tensor) -> bool:
        """Returns false if backward() was interrupted before it had sent anything, so that the
        whole step has to be made again."""
        before = self.engine.round
        self.again(self.optimizer.zero_grad)
        loss = self.again(lambda: self.model(x)).square().sum()
        self.backward(loss)
        if self.engine.round == before:
            return False
        try:
            self.again(self.optimizer.step)
        except LostError:
            return False
        return True

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        if self.how == "none":
            yield
            return
        if self.how == "signals":
            signal.signal(signal.SIGALRM, self.alarm)
            signal.setitimer(signal.ITIMER_REAL, 0.002, 0.0037)
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            return
        job = current()
        words = job._words
        job._words = Waits(words, self.chance, self.counts)
        try:
            yield
        finally:
            job._words = words

    def alarm(self, *_: Any) -> None:
        if self.armed and self.random.random() < 0.3:
            self.armed = False
            self.counts["interrupted"] += 1
            raise KeyboardInterrupt

    def chance(self) -> bool:
        return self.armed and self.random.random() < 0.1

    def may_interrupt(self) -> bool:
        """Returns false while the ranks agree on a plan: a signal would then end the job for all
        models."""
        return self.how == "waits" or (self.how == "signals" and self.engine.rounds > 0)

    def arm(self) -> None:
        session = self.engine.training.session
        if self.how == "waits" and session is not None and not isinstance(session, Waits):
            self.engine.training.session = Waits(session, self.chance, self.counts)

    def attempt(self, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Makes the call once, with interruptions. The first value is true iff it has ended
        well."""
        self.arm()
        try:
            self.armed = self.may_interrupt()
            result = call()
            self.armed = False
            return True, result
        except CAUGHT:
            self.armed = False
            self.counts["again"] += 1
        except RuntimeError as error:
            self.armed = False
            self.end(error)
        return False, None

    def again(self, call: Callable[[], Any]) -> Any:
        """Makes the same call until it ends well, as users do."""
        while True:
            has_ended, result = self.attempt(call)
            if has_ended:
                return result

    def backward(self, loss: Tensor) -> None:
        """Calls backward() once: step() comes next, and ends the work that backward() has begun."""
        self.attempt(loss.backward)

    def end(self, error: RuntimeError) -> None:
        if "run this step again" in str(error):
            raise LostError from error
        is_named = any(text in str(error) for text in ("no longer good", "was interrupted by"))
        assert is_named or isinstance(error, sluice.PeerLostError), error
        self.counts["named"] += is_named
        session = self.engine.training.session
        if isinstance(session, Waits):
            self.engine.training.session = session._session
        # Tell the other ranks at once, not at the end of this process.
        self.engine.abandon(str(error))
        raise EndedError from error


def main(how: str, kind: str, on_servers: bool, waits: int, **options: str) -> None:
    """Trains until `waits` waits were interrupted on all ranks together."""
    torch.set_num_threads(1)
    job = current(**options)
    counts: Counter[str] = Counter()
    seed = 0
    while sluice.mean(float(counts["interrupted"])) * job.world_size < waits:
        seed += 1
        expected = Trial("none", kind, on_servers, seed, counts).run()
        trial = Trial(how, kind, on_servers, seed, counts)
        try:
            trial.run()
            counts["ended well"] += 1
        except EndedError:
            pass
        wrong = [step for step, value in trial.digests.items() if value != expected[step]]
        assert not wrong, f"other bits after step {wrong[0]} of model {seed}, and no error"
    print("counts", dict(counts), file=sys.stdout, flush=True)
