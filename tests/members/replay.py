"""Repeats in one process a job that has lost members, and compares every step of every member bit
for bit.

  replay.py FOLDER [--json]

FOLDER has rank0.log, rank1.log, ... with the lines of rank.py, and rankN.json of each
member that has made all steps. The log of epochs in these says for each slice and step which
members were counted. A lost member is compared as far as it came. Its last step may be one that
nobody else has: it then has the results of the last epoch that it was in. Algorithms that do not
sum in rank order are compared between members, and with this process to rounding only.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import torch
from training import (
    Digests,
    Settings,
    buffers_of,
    digest_of,
    digest_of_parameter,
    digest_of_step,
    make_model,
    make_optimizer,
    make_scaler,
    read_checkpoint,
    run_passes,
    take_step,
)
from torch import Tensor

Record = dict[str, Any]  # a line of a step
MOST_PROBLEMS = 12  # that are listed


class EpochLog:
    """sluice.epochs(): the members that were counted in each slice and step."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.slices = [
            (str(name), int(first), int(count)) for name, first, count in found["slices"]
        ]
        self.epochs: list[dict[str, Any]] = found["epochs"]

    def counted(self, number: int, step: int) -> list[int]:
        """Returns the members whose gradients are in the result of a slice, in rank order."""
        epochs = [e for e in self.epochs if e["first_steps"][number] <= max(step, 0)]
        return list(epochs[-1]["members"])

    def until(self, member: int) -> EpochLog:
        """Returns the log as a member knew it that was lost later."""
        known = [epoch for epoch in self.epochs if member in epoch["members"]]
        return EpochLog({"slices": self.slices, "epochs": known})

    def problems(self, sizes: dict[str, int]) -> list[str]:
        """Says what cannot be in the log of a model with parameters of these sizes."""
        found = []
        covered = dict.fromkeys(sizes, 0)
        for name, first, count in sorted(self.slices):
            if covered.get(name) != first:
                found.append(f"the slices of '{name}' overlap or leave a hole at {first}")
            covered[name] = first + count
        if covered != sizes:
            found.append(f"the slices cover {covered}, not {sizes}")
        if not self.epochs or set(self.epochs[0]["first_steps"]) != {0}:
            found.append("the first epoch does not begin with step 0")
        for before, after in zip(self.epochs, self.epochs[1:]):
            what = f"epoch {after['number']}"
            if after["number"] <= before["number"]:
                found.append(f"{what} follows epoch {before['number']}")
            kept = [member for member in before["members"] if member in after["members"]]
            if kept != after["members"] or len(kept) == len(before["members"]):
                found.append(f"{what} has members {after['members']} after {before['members']}")
            steps = after["first_steps"]
            if any(a < b for a, b in zip(steps, before["first_steps"], strict=True)):
                found.append(f"a slice of {what} begins before it began in the epoch before")
            if max(steps) - min(steps) > 1:
                found.append(f"{what} begins between steps {min(steps)} and {max(steps)}")
        return found


class OneProcess:
    """The whole job in this process."""

    def __init__(self, settings: Settings, log: EpochLog) -> None:
        self.settings, self.log = settings, log
        self.model = make_model(settings)
        checkpoint = read_checkpoint(settings)
        if checkpoint:
            self.model.load_state_dict(checkpoint["model"])
        self.optimizer = make_optimizer(settings, self.model.parameters())
        if checkpoint:
            self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.scaler = make_scaler(settings)
        self.parameters = dict(self.model.named_parameters())
        # The buffers that the step's forward passes begin with, and those that they leave behind on
        # each member.
        self.got = self._buffers()
        self.left: dict[int, dict[str, Tensor]] = {}

    def _buffers(self) -> dict[str, Tensor]:
        return {name: buffer.clone() for name, buffer in buffers_of(self.model).items()}

    def make_step(self, step: int) -> Digests:
        slices = self.log.slices
        counted = [self.log.counted(number, step) for number in range(len(slices))]
        # A member that is counted no longer may still have handed out its buffers.
        members = {m for number in range(len(slices)) for m in self.log.counted(number, step - 1)}
        self.left = {}
        gradients = {member: self._gradients(member, step) for member in sorted(members)}
        self.optimizer.zero_grad()
        for (name, first, count), members in zip(slices, counted, strict=True):
            parameter = self.parameters[name]
            parts = [gradients[member].get(name) for member in members]
            if all(part is None for part in parts):
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            where = slice(first, first + count)
            zeros = torch.zeros(count)
            scaled = [
                (zeros if part is None else part.reshape(-1)[where]) * (1 / len(members))
                for part in parts
            ]
            total = scaled[0]
            for part in scaled[1:]:
                total = total + part
            parameter.grad.view(-1)[where] = total
        take_step(self.settings, self.model, self.optimizer, self.scaler)
        return {n: digest_of_parameter(p, self.optimizer) for n, p in self.parameters.items()}

    def _gradients(self, member: int, step: int) -> dict[str, Tensor]:
        for name, buffer in buffers_of(self.model).items():
            buffer.copy_(self.got[name])
        self.optimizer.zero_grad()
        run_passes(self.settings, self.model, self.scaler, member, step)
        self.left[member] = self._buffers()
        return {n: p.grad.clone() for n, p in self.parameters.items() if p.grad is not None}


class Replay:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.compared = 0  # steps of members
        self.lines = {int(path.stem[4:]): read_lines(path) for path in folder.glob("rank*.log")}
        self.found = {
            int(path.stem[4:]): json.loads(path.read_text()) for path in folder.glob("rank*.json")
        }
        self.steps = {
            member: {int(line["step"]): line for line in lines if "state" in line}
            for member, lines in self.lines.items()
        }
        # By step: digests of each parameter, of a member that is left.
        self.names: dict[int, Digests] = {}

    def complain(self, text: str) -> None:
        self.problems.append(text)

    def run(self) -> None:
        if not self.found:
            return self.complain("no member has made all steps")
        survivor, first = next(iter(sorted(self.found.items())))
        settings = dataclasses.replace(Settings(**first["settings"]), device="cpu")
        log = EpochLog(first["epochs"])
        for member, found in self.found.items():
            if found["epochs"] != first["epochs"]:
                self.complain(f"members {survivor} and {member} have different logs of epochs")
            missing = set(range(settings.steps)) - set(self.steps[member])
            if missing:
                self.complain(f"member {member} has not made step {min(missing)}")
        last = log.epochs[-1]["members"]
        # A member that is lost after its last gradient was summed may be missed by nobody.
        early = [m for m in last if max(self.steps.get(m, {}), default=0) < settings.steps - 3]
        if early or not set(self.found) <= set(last):
            self.complain(
                f"members {sorted(self.found)} have made all steps, but the last epoch has {last}"
            )
        sizes = {n: p.numel() for n, p in make_model(settings).named_parameters()}
        self.problems += log.problems(sizes)
        self._check_changes(log, settings.steps)
        self._check_means(log)
        if self.problems:
            return None
        self.names = {record["step"]: record["parameters"] for record in first["steps"]}
        return self._compare(settings, log)

    def _compare(self, settings: Settings, log: EpochLog) -> None:
        wrong: dict[int, list[int]] = {}  # steps of members that have other bits
        one, expected = OneProcess(settings, log), {}
        for step in range(settings.steps):
            digests = one.make_step(step)
            here = {m: steps[step] for m, steps in self.steps.items() if step in steps}
            if settings.sums_in_rank_order:
                expected[step] = digests
            else:
                expected[step] = self.names[step]
            state = digest_of_step(expected[step])
            for member, record in here.items():
                self.compared += 1
                if record["state"] != state:
                    wrong.setdefault(member, []).append(step)
            if settings.sums_in_rank_order:
                self._follow_buffers(one, log, step)
        for member, steps in wrong.items():
            if member in self.found:
                self.complain(self._describe_difference(member, steps[0], expected[steps[0]]))
            else:
                self._check_lost(settings, log.until(member), member)
        if not settings.sums_in_rank_order:
            self._compare_roughly(one)

    def _check_lost(self, settings: Settings, log: EpochLog, member: int) -> None:
        """Compares a lost member with a process that knows only the epochs it was in."""
        one, steps = OneProcess(settings, log), self.steps[member]
        for step in range(max(steps) + 1):
            state = digest_of_step(one.make_step(step))
            if step in steps and steps[step]["state"] != state:
                return self.complain(f"lost member {member} has other bits in step {step}")
        return self.notes.append(f"lost member {member} alone had results of step {max(steps)}")

    def _describe_difference(self, member: int, step: int, expected: Digests) -> str:
        records = {record["step"]: record["parameters"] for record in self.found[member]["steps"]}
        names = [name for name in expected if records[step][name] != expected[name]]
        return (
            f"member {member} has other bits than one process from step {step} on: in "
            f"{', '.join(names)}"
        )

    def _follow_buffers(self, one: OneProcess, log: EpochLog, step: int) -> None:
        """Checks that all members begin the next step with the buffers of one of them."""
        got, digests = digest_of(one.got.values()), {}
        for member, buffers in one.left.items():
            digests[member] = digest_of(buffers.values())
            record = self.steps[member].get(step)
            if record is not None and (record["got"], record["left"]) != (got, digests[member]):
                self.complain(f"member {member} has other buffers in step {step}")
        following = {
            member: steps[step + 1]["got"]
            for member, steps in self.steps.items()
            if step + 1 in steps
        }
        roots = [member for member in digests if digests[member] in following.values()]
        firsts = {epoch["members"][0] for epoch in log.epochs}
        if following and (len(set(following.values())) != 1 or not firsts & set(roots)):
            self.complain(f"members begin step {step + 1} with other buffers: {following}")
        root = next((member for member in roots if member in firsts), min(digests))
        one.got = one.left[root]

    def _check_changes(self, log: EpochLog, steps: int) -> None:
        """Checks the callbacks, and the ranks that members saw. All must see a change in the same
        step: a program may change its settings then."""
        lists = {epoch["number"]: epoch["members"] for epoch in log.epochs}
        told: dict[int, list[Any]] = {}
        for member, found in self.found.items():
            told[member] = [
                [change[key] for key in ("epoch", "step", "members", "lost")]
                for change in found["changes"]
            ]
            for change in found["changes"]:
                here = lists.get(change["epoch"], [])
                if here != change["members"] or here[change["rank"]] != member:
                    self.complain(f"member {member} was told {change}, but the log has {here}")
            sizes = [int(self.steps[member][step]["world"]) for step in sorted(self.steps[member])]
            if sizes != sorted(sizes, reverse=True):
                self.complain(f"member {member} has seen a world that grows: {sizes}")
        first, *others = sorted(told)
        for member in others:
            if told[member] != told[first]:
                self.complain(
                    f"member {first} was told {told[first]}, and member {member} {told[member]} "
                    "(epoch, step, members, lost)"
                )
        lost = sorted(member for change in told[first] for member in change[3])
        late = [epoch for epoch in log.epochs if max(epoch["first_steps"]) + 3 <= steps]
        due, most = (
            sorted(set(log.epochs[0]["members"]) - set(members))
            for members in (late[-1]["members"], log.epochs[-1]["members"])
        )
        if not set(due) <= set(lost) <= set(most) or len(set(lost)) < len(lost):
            self.complain(f"members were told that {lost} are lost; lost are {most}")
        for member, records in self.steps.items():
            for step, record in records.items():
                world, rank = int(record["world"]), int(record["rank"])
                epochs = [each for each in lists.values() if len(each) == world]
                if not epochs or rank >= world or epochs[0][rank] != member:
                    self.complain(f"member {member} was rank {rank} of {world} in step {step}")
                    break

    def _check_means(self, log: EpochLog) -> None:
        lists = [epoch["members"] for epoch in log.epochs]
        possible = {float(sum(members) / len(members)).hex() for members in lists}
        means: dict[int, set[str]] = {}
        for member in self.found:
            for step, record in self.steps[member].items():
                if "mean" in record:
                    means.setdefault(step, set()).add(record["mean"])
        for step, values in means.items():
            if len(values) > 1 or not values <= possible:
                self.complain(f"sluice.mean() gave {sorted(values)} in step {step}")

    def _compare_roughly(self, one: OneProcess) -> None:
        saved = self.folder / "checkpoint.pt"
        if not saved.exists():
            return
        model = torch.load(saved, map_location="cpu")["model"]
        for name, parameter in one.parameters.items():
            if not torch.allclose(parameter, model[name], rtol=1e-2, atol=1e-3):
                self.complain(f"'{name}' is far from what one process gets")

    def result(self) -> dict[str, Any]:
        return {
            "members": len(self.lines),
            "left": len(self.found),
            "steps": max((len(steps) for steps in self.steps.values()), default=0),
            "compared": self.compared,
            "notes": self.notes,
            "problems": self.problems[:MOST_PROBLEMS],
        }


def parse_line(line: str) -> Record | None:
    """Returns the values of a line that rank.py prints for a step or a change."""
    words = line.split(" ")
    if words[0].startswith(("step=", "change=")) and all("=" in word for word in words):
        return dict(word.split("=", 1) for word in words)
    return None


def read_lines(path: Path) -> list[Record]:
    """Leaves out a line that was cut short by the member's end."""
    text = path.read_text(errors="replace")
    whole = text[: text.rfind("\n") + 1].splitlines()
    return [record for line in whole if (record := parse_line(line)) is not None]


def replay(folder: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    one = Replay(folder)
    one.run()
    return one.result()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    result = replay(options.folder)
    if options.json:
        print(json.dumps(result))
    else:
        for text in result["problems"] + result["notes"]:
            print(text)
        print(
            f"{result['left']} of {result['members']} members left, {result['steps']} steps, "
            f"{result['compared']} compared: "
            f"{'the bits of one process' if not result['problems'] else 'NOT the same bits'}"
        )
    sys.exit(1 if result["problems"] else 0)


if __name__ == "__main__":
    main()
