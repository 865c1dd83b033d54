"""sluice.release(): from a model in training back to a plain one."""

from __future__ import annotations

from torch import nn

from sluice._engine.engine import Engine
from sluice._front import model as _model
from sluice._front import optimizer as _optimizer
from sluice._front.server import ServerStep


def release(model: nn.Module) -> None:
    """Ends what distribute() began. The model and its optimizers are plain objects of PyTorch
    again, with the values, gradients and state they have, and the connections and memory of their
    training are free. Every rank calls it, with the same model, between two steps.

    If another rank has failed, it raises as every call does, and the model is plain all the same.
    """
    engine = _engine_of(model)
    engine.refuse_release()
    optimizers = list(engine.optimizers)

    def give_back() -> None:
        if isinstance(engine.training.server, ServerStep):
            engine.training.server.give_back()

    try:
        engine.release(give_back)
    finally:
        for optimizer in optimizers:
            _optimizer.undress(optimizer)
        _model.undress(model)


def _engine_of(model: nn.Module) -> Engine:
    name = type(model).__name__
    if isinstance(model, _model.GatedRoot):
        return model._sluice
    if isinstance(model, _model.GatedModule):
        raise ValueError(f"{name} is a part of a distributed model; release the whole model")
    raise ValueError(f"{name} is not distributed, or was released already")
