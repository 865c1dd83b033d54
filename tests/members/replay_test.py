"""Tests replay.py with made-up jobs: it takes what members may do, and finds every fault.

replay_test.py
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from root import SKIPPED

if importlib.util.find_spec("torch") is None:
    print("skipped: there is no Torch")
    sys.exit(SKIPPED)

import numpy as np
import torch
from replay import replay
from training import (
    Settings,
    buffers_of,
    digest_of,
    digest_of_parameter,
    digest_of_step,
    make_model,
    make_optimizer,
    make_scaler,
    run_passes,
    take_step,
)

MEMBERS, STEPS, SLICE = 4, 8, 700
PLAIN = Settings(model="mlp", width=24, steps=STEPS)
CASES = {
    "mlp": PLAIN,
    "cnn with batch norm, clipped": dataclasses.replace(PLAIN, model="cnn", clip=0.5),
    "branches, accumulated": dataclasses.replace(PLAIN, model="branches", accumulate=2),
    "adam, scaled, clipped": dataclasses.replace(PLAIN, optimizer="adam", scale=1024.0, clip=0.5),
}


class Member:
    """Does what rank.py does, with gradients that are handed to it."""

    def __init__(self, settings: Settings, number: int) -> None:
        self.settings, self.number = settings, number
        self.model = make_model(settings)
        self.optimizer = make_optimizer(settings, self.model.parameters())
        self.scaler = make_scaler(settings)
        self.records: list[dict[str, Any]] = []

    def gradients(self, step: int) -> dict[str, np.ndarray]:
        self.got = digest_of(buffers_of(self.model).values())
        self.optimizer.zero_grad()
        run_passes(self.settings, self.model, self.scaler, self.number, step)
        return {
            name: parameter.grad.numpy().reshape(-1).copy()
            for name, parameter in self.model.named_parameters()
            if parameter.grad is not None
        }

    def apply(self, step: int, means: dict[str, np.ndarray], members: list[int]) -> None:
        left = digest_of(buffers_of(self.model).values())
        for name, parameter in self.model.named_parameters():
            parameter.grad = None
            if name in means:
                parameter.grad = torch.from_numpy(means[name].copy()).view_as(parameter)
        take_step(self.settings, self.model, self.optimizer, self.scaler)
        digests = {
            name: digest_of_parameter(parameter, self.optimizer)
            for name, parameter in self.model.named_parameters()
        }
        record = {"step": step, "world": len(members), "rank": members.index(self.number)}
        record |= {"got": self.got, "left": left, "state": digest_of_step(digests)}
        self.records.append({**record, "parameters": digests})


def mean_of(parts: list[np.ndarray | None], count: int) -> np.ndarray:
    scale = np.float32(1 / len(parts))
    total = None
    for part in parts:
        scaled = (np.zeros(count, np.float32) if part is None else part) * scale
        total = scaled if total is None else total + scaled
    assert total is not None
    return total


def make_means(
    slices: list[tuple[str, int, int]],
    gradients: dict[int, dict[str, np.ndarray]],
    members_of: Callable[[int], list[int]],
) -> dict[str, np.ndarray]:
    sizes: dict[str, int] = {}
    for name, first, count in slices:
        sizes[name] = max(sizes.get(name, 0), first + count)
    means: dict[str, np.ndarray] = {}
    for number, (name, first, count) in enumerate(slices):
        parts = [gradients[member].get(name) for member in members_of(number)]
        if all(part is None for part in parts):
            continue
        mean = means.setdefault(name, np.zeros(sizes[name], np.float32))
        cut = [None if part is None else part[first : first + count] for part in parts]
        mean[first : first + count] = mean_of(cut, count)
    return means


def make_job(settings: Settings, folder: Path) -> None:
    """Loses member 2 in step 2, with some slices that count it, and member 0 in step 4. Member 2
    alone has all results of its last step. The others are told of both two steps later."""
    sizes = {name: p.numel() for name, p in make_model(settings).named_parameters()}
    slices = [
        (name, first, min(SLICE, size - first))
        for name, size in sizes.items()
        for first in range(0, size, SLICE)
    ]
    epochs: list[dict[str, Any]] = [
        {"number": 0, "members": [0, 1, 2, 3], "first_steps": [0] * len(slices)},
        {"number": 1, "members": [0, 1, 3], "first_steps": [2 + n % 2 for n in range(len(slices))]},
        {
            "number": 3,
            "members": [1, 3],
            "first_steps": [4 + n % 3 // 2 for n in range(len(slices))],
        },
    ]

    def members_of(step: int, last: int) -> Callable[[int], list[int]]:
        known = [e for e in epochs if e["number"] <= last]
        return lambda n: [e for e in known if e["first_steps"][n] <= step][-1]["members"]

    members = [Member(settings, number) for number in range(MEMBERS)]
    alive = [0, 1, 2, 3]
    for step in range(STEPS):
        if step > 0:  # the first of the living hands out its buffers
            root = buffers_of(members[alive[0]].model)
            for number in alive[1:]:
                for name, buffer in buffers_of(members[number].model).items():
                    buffer.copy_(root[name])
        gradients = {number: members[number].gradients(step) for number in alive}
        means = make_means(slices, gradients, members_of(step, last=3))
        if step == 2:
            own = make_means(slices, gradients, members_of(step, last=0))
            members[2].apply(step, own, [0, 1, 2, 3])
        alive = {2: [0, 1, 3], 4: [1, 3]}.get(step, alive)
        known = [0, 1, 2, 3] if step < 4 else [0, 1, 3] if step < 6 else [1, 3]
        for number in alive:
            members[number].apply(step, means, known)
    changes = {
        number: [
            {"epoch": 1, "step": 4, "members": [0, 1, 3], "lost": [2], "rank": rank},
            {"epoch": 3, "step": 6, "members": [1, 3], "lost": [0], "rank": rank - 1},
        ]
        for rank, number in ((1, 1), (2, 3))
    }
    for member in members:
        lines = [
            " ".join(f"{key}={value}" for key, value in record.items() if key != "parameters")
            for record in member.records
        ]
        text = "\n".join(["begun", *lines])
        Path(folder, f"rank{member.number}.log").write_text(f"{text}\nstep=9 cut off in the mid")
        if member.number in changes:
            found = {
                "member": member.number,
                "settings": dataclasses.asdict(settings),
                "epochs": {"slices": slices, "epochs": epochs},
                "steps": member.records,
                "changes": changes[member.number],
            }
            Path(folder, f"rank{member.number}.json").write_text(json.dumps(found))


# Faults, planted into the files of a job that is in order.


def change_json(folder: Path, member: int, change: Callable[[dict[str, Any]], None]) -> None:
    path = Path(folder, f"rank{member}.json")
    found = json.loads(path.read_text())
    before = copy.deepcopy(found)
    change(found)
    assert found != before
    path.write_text(json.dumps(found))


def change_all(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    for member in (1, 3):
        change_json(folder, member, change)


def change_line(folder: Path, member: int, step: int, key: str, value: str) -> None:
    path = Path(folder, f"rank{member}.log")
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines):
        if line.startswith(f"step={step} "):
            words = [f"{key}={value}" if w.startswith(f"{key}=") else w for w in line.split(" ")]
            lines[number] = " ".join(words)
    path.write_text("\n".join(lines))


def begin_later(found: dict[str, Any]) -> None:
    found["epochs"]["epochs"][1]["first_steps"][0] += 1


def begin_earlier(found: dict[str, Any]) -> None:
    found["epochs"]["epochs"][2]["first_steps"] = [4] * len(found["epochs"]["slices"])


def tell_later(found: dict[str, Any]) -> None:
    found["changes"][0]["step"] += 1


def swap_members(found: dict[str, Any]) -> None:
    for epoch in found["epochs"]["epochs"]:
        epoch["members"].reverse()


def leave_hole(found: dict[str, Any]) -> None:
    found["epochs"]["slices"].pop()
    for epoch in found["epochs"]["epochs"]:
        epoch["first_steps"].pop()


def drop_line(folder: Path) -> None:
    path = Path(folder, "rank3.log")
    lines = path.read_text().split("\n")
    path.write_text("\n".join(line for line in lines if not line.startswith("step=3 ")))


def end_early(folder: Path) -> None:
    Path(folder, "rank1.json").unlink()
    path = Path(folder, "rank1.log")
    path.write_text(path.read_text().split("step=4 ")[0])


FAULTS: dict[str, Callable[[Path], None]] = {
    "a member has other bits": lambda folder: change_line(folder, 3, 3, "state", "0" * 16),
    "a lost member had other bits": lambda folder: change_line(folder, 0, 3, "state", "0" * 16),
    "a lost member's last step": lambda folder: change_line(folder, 2, 2, "state", "0" * 16),
    "a lost member's step before that": lambda folder: change_line(folder, 2, 1, "state", "0" * 16),
    "a member had a rank of its own": lambda folder: change_line(folder, 3, 3, "rank", "0"),
    "the world has grown": lambda folder: change_line(folder, 3, 7, "world", "3"),
    "a change is seen a step later": lambda folder: change_json(folder, 3, tell_later),
    "a step is missing": drop_line,
    "an epoch begins later": lambda folder: change_all(folder, begin_later),
    "an epoch begins earlier": lambda folder: change_all(folder, begin_earlier),
    "logs differ": lambda folder: change_json(folder, 3, begin_later),
    "another order of members": lambda folder: change_all(folder, swap_members),
    "a slice is missing": lambda folder: change_all(folder, leave_hole),
    "a callback did not come": lambda folder: change_json(folder, 1, lambda f: f["changes"].pop()),
    "no callback came": lambda folder: change_all(folder, lambda f: f["changes"].pop()),
    "nobody is left": lambda folder: [Path(folder, f"rank{m}.json").unlink() for m in (1, 3)],
    "one is left too few": end_early,
}


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name, settings in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            make_job(settings, Path(folder))
            result = replay(Path(folder))
            assert not result["problems"], (name, result)
            assert result["compared"] == 2 * STEPS + 4 + 3, result
            assert result["notes"] == ["lost member 2 alone had results of step 2"], result
    for name, plant in FAULTS.items():
        with tempfile.TemporaryDirectory() as folder:
            make_job(PLAIN, Path(folder))
            plant(Path(folder))
            result = replay(Path(folder))
            assert result["problems"], f"not found: {name}"
            print(f"{name}: {result['problems'][0]}")
    with tempfile.TemporaryDirectory() as folder:
        make_job(CASES["cnn with batch norm, clipped"], Path(folder))
        change_line(Path(folder), 3, 3, "got", "0" * 16)
        result = replay(Path(folder))
        assert "begin step 3 with other buffers" in result["problems"][0], result
    print(f"{len(CASES)} jobs repeated, {len(FAULTS) + 1} faults found")


if __name__ == "__main__":
    main()
