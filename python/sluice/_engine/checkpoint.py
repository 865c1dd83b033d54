"""All that a checkpoint needs besides parameters and optimizers: delayed gradients, and what a
codec owes on this rank; with asp and ssp, the servers' model too."""

from __future__ import annotations

import torch

from sluice._engine.training import Training


class Checkpoint:
    """The session's part of a checkpoint, saved and put back between two steps."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._loaded = b""  # before there was a session

    def save(self) -> bytes:
        """Returns the state, empty where there is none. REQUIRES: without a server's optimizer, the
        round has been finished."""
        training = self._training
        if training.session is None:
            return self._loaded
        if training.server is None:
            return training.session.state()
        if not training.server.saves_with_session:
            return b""
        self._refuse_other_memory()
        # Servers are asked for their part, and cannot be asked twice.
        with training.health.whole("state_dict()"):
            state = training.session.state()
            self._parameters_are_new()
        return state

    def load(self, state: bytes) -> None:
        """Puts back what save() gave, now or as soon as there is a session."""
        server = self._training.server
        if self._training.session is None:
            self._loaded = state
        elif server is None or server.saves_with_session:
            self._restore(state)

    def session_is_open(self) -> None:
        """Puts back what was loaded before."""
        loaded, self._loaded = self._loaded, b""
        if loaded:
            self._restore(loaded)

    def put_back_at_servers(self, state: bytes) -> None:
        """Gives the servers this rank's part of the optimizer's state, and the parameters as they
        are here now."""
        training = self._training
        assert training.session is not None
        self._refuse_other_memory()
        with training.health.whole("load_state_dict()", but=(ValueError,)):
            self._show_to_servers()
            training.session.restore(state)
            for slot in training.slots:
                slot.know()

    def _restore(self, state: bytes) -> None:
        training = self._training
        assert training.session is not None
        self._refuse_other_memory()
        with training.health.whole("load_state_dict()", but=(ValueError,)):
            self._show_to_servers()
            training.session.restore(state)
            if training.server is not None:
                self._parameters_are_new()

    def _refuse_other_memory(self) -> None:
        """Guards calls that read or write parameters where the session knows them to be."""
        for slot in self._training.slots:
            if slot.result is not None and slot.result.data_ptr() != slot.parameter.data_ptr():
                raise RuntimeError(
                    f"'{slot.name}' lies in other memory than in the last step, so the servers "
                    "cannot go on with it; with "
                    "server_optimizer=True copy new values into the parameter instead of replacing "
                    "its data"
                )

    def _parameters_are_new(self) -> None:
        """Tells autograd. With asp and ssp a checkpoint is the servers' model, and this rank has it
        from now on."""
        for slot in self._training.slots:
            if slot.mirror is not None:
                slot.parameter.detach().copy_(slot.mirror)
            torch.autograd.graph.increment_version(slot.parameter)
            slot.know()

    def _show_to_servers(self) -> None:
        """Puts the values of parameters on a device where the session reads them."""
        for slot in self._training.slots:
            if slot.mirror is not None:
                slot.mirror.copy_(slot.parameter.detach())
