"""The properties of an algorithm that a study needs: the scaling of its rate, the model that is
scored, and the data it sends."""

from __future__ import annotations

from dataclasses import dataclass

_ALIASES = {"sluice": "bsp", "allreduce": "arsgd"}
_TITLES = {
    "bsp": "BSP",
    "asp": "ASP",
    "ssp": "SSP",
    "easgd": "EASGD",
    "arsgd": "AR-SGD",
    "wfbp": "AR-SGD, wait-free",
    "gosgd": "GoSGD",
    "adpsgd": "AD-PSGD",
}
_ARGUMENTS = {"ssp": ("s", "staleness"), "easgd": ("τ", "tau"), "gosgd": ("p", "probability")}
_EXAMPLES = {"ssp": "ssp:3", "easgd": "easgd:4", "gosgd": "gosgd:.1"}

DEFAULT = "bsp,asp,ssp:3,ssp:10,easgd:4,easgd:8,arsgd,gosgd:1,gosgd:.1,gosgd:.01,adpsgd"


@dataclass(frozen=True)
class Algorithm:
    name: str
    argument: float | None = None  # s, tau or p

    @property
    def text(self) -> str:
        """The algorithm in the form that --algorithm takes."""
        return self.name if self.argument is None else f"{self.name}:{self.argument:g}"

    @property
    def title(self) -> str:
        if self.argument is None:
            return _TITLES[self.name]
        return f"{_TITLES[self.name]} {_ARGUMENTS[self.name][0]} = {self.argument:g}"

    @property
    def reduces(self) -> bool:
        """True iff ranks all-reduce: arsgd once, after backward; wfbp each tensor, during it."""
        return self.name in ("arsgd", "wfbp")

    @property
    def keeps_step(self) -> bool:
        return self.name == "bsp" or self.reduces

    @property
    def waits_for_others(self) -> bool:
        return self.name == "ssp" or self.keeps_step

    @property
    def has_servers(self) -> bool:
        return self.name in ("bsp", "asp", "ssp", "easgd")

    @property
    def sums_gradients(self) -> bool:
        """True iff the server applies each worker's gradient in full. With all other algorithms the
        scored model moves by the mean."""
        return self.name in ("asp", "ssp")

    @property
    def sends_gradients(self) -> bool:
        """True iff deep gradient compression has something to compress."""
        return self.name in ("bsp", "asp", "ssp") or self.reduces

    @property
    def is_gossip(self) -> bool:
        return self.name in ("gosgd", "adpsgd")

    @property
    def has_own_models(self) -> bool:
        """True iff every worker trains a model of its own, so that one may be worse than the scored
        model."""
        return self.is_gossip or self.name == "easgd"

    @property
    def scored(self) -> str:
        if self.is_gossip:
            return "the mean of all workers' models"
        if self.reduces:
            return "the model that all workers have"
        return "the centre" if self.name == "easgd" else "the server's model"

    def models_sent(self, workers: int) -> float:
        """Returns how many models a worker and the server beside it send in a step, by the paper's
        formulae. A rank's own share does not travel."""
        value = self.argument or 0.0
        whole = {
            "bsp": 2.0,
            "asp": 2.0,
            "ssp": 1 + 1 / (value + 1),
            "easgd": 2 / max(value, 1.0),
            "arsgd": 2.0,
            "wfbp": 2.0,
            "gosgd": value,
            "adpsgd": 1.0,
        }[self.name]
        return whole if self.is_gossip else whole * (workers - 1) / workers


def parse(text: str) -> Algorithm:
    name, colon, argument = text.strip().partition(":")
    name = _ALIASES.get(name, name)
    if name not in _TITLES:
        raise ValueError(f"there is no algorithm '{name}' in a study; use {', '.join(_TITLES)}")
    if name not in _ARGUMENTS:
        if colon:
            raise ValueError(f"{name} takes nothing after a colon, but '{text}' was given")
        return Algorithm(name)
    what = _ARGUMENTS[name][1]
    try:
        value = float(argument)
    except ValueError:
        raise ValueError(f"'{text}' does not say its {what}; write {_EXAMPLES[name]}") from None
    is_good = (
        0 < value <= 1
        if name == "gosgd"
        else value == int(value) and value >= (1 if name == "easgd" else 0)
    )
    if not is_good:
        raise ValueError(f"'{text}' has no {what} that can be used; write {_EXAMPLES[name]}")
    return Algorithm(name, value)


def parse_list(text: str) -> tuple[Algorithm, ...]:
    return tuple(dict.fromkeys(parse(one) for one in text.split(",") if one.strip()))
