#!/usr/bin/env python3
"""Plants mistakes that programs with streams make, and counts how often the device finds them.

  PYTHONPATH=build/release/tests/device tests/device/hazards_test.py [--trials 30]

Every hazard is a small program with and without the mistake. A mistake is found if the program
computes something wrong. Fails unless the adversary finds every mistake every time, and the right
programs are always right."""

import argparse
import ctypes
import os
import signal
import sys
from collections.abc import Callable

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}; scripts/install_deps.sh --with-torch installs it")
    sys.exit(77)

import sluice_test_device as knobs

COUNT = 4096
# Longer than the machine that runs the tests may hold up a thread. Work that is waited for does not
# take longer.
PATIENCE = 0.1


class Room:
    """Streams, a parameter and pinned memory, which all the programs share. Made once, since there
    are not many streams."""

    def __init__(self) -> None:
        self.main = torch.accelerator.current_stream()
        self.side = torch.Stream("pretend:0")
        self.third = torch.Stream("pretend:0")
        self.parameter = torch.zeros(COUNT, device="pretend")
        self.staged = torch.zeros(COUNT, pin_memory=True)
        self.result = torch.zeros(COUNT, pin_memory=True)

    def tidy(self) -> None:
        torch.accelerator.synchronize()
        self.parameter.zero_()
        self.staged.zero_()
        self.result.zero_()
        torch.accelerator.synchronize()


def differs(tensor: torch.Tensor, value: float) -> bool:
    return bool((tensor != value).any())


def producer(room: Room, is_right: bool) -> bool:
    room.parameter.add_(1)
    if is_right:
        room.side.wait_stream(room.main)
    with room.side:
        room.staged.copy_(room.parameter, non_blocking=True)
    room.side.synchronize()
    return differs(room.staged, 1)


def use(room: Room, is_right: bool) -> bool:
    room.staged.fill_(1)
    with room.side:
        room.parameter.copy_(room.staged, non_blocking=True)
    if is_right:
        room.main.wait_stream(room.side)
    return differs((room.parameter * 2).cpu(), 2)


def second_reader(room: Room, is_right: bool) -> bool:
    room.staged.fill_(1)
    with room.side:
        room.parameter.copy_(room.staged, non_blocking=True)
    updated = room.side.record_event()
    room.main.wait_event(updated)
    room.parameter.mul(2)
    if is_right:
        room.third.wait_event(updated)
    with room.third:
        room.result.copy_(room.parameter, non_blocking=True)
    room.third.synchronize()
    return differs(room.result, 1)


def overwritten(room: Room, is_right: bool) -> bool:
    room.staged.fill_(1)
    read = room.parameter + 5
    if is_right:
        room.side.wait_stream(room.main)
    with room.side:
        room.parameter.copy_(room.staged, non_blocking=True)
    return differs(read.cpu(), 5)


def record_stream(room: Room, is_right: bool) -> bool:
    gradient = room.parameter + 1
    room.side.wait_stream(room.main)
    with room.side:
        room.staged.copy_(gradient, non_blocking=True)
    if is_right:
        gradient.record_stream(room.side)
    del gradient
    room.parameter + 2  # may get the memory of the gradient
    room.side.synchronize()
    return differs(room.staged, 1)


def pinned_reused(room: Room, is_right: bool) -> bool:
    room.staged.fill_(1)
    with room.side:
        room.parameter.copy_(room.staged, non_blocking=True)
    copied = room.side.record_event()
    if is_right:
        copied.synchronize()
    room.staged.fill_(2)
    room.side.synchronize()
    return differs(room.parameter.cpu(), 1)


def early_look(room: Room, is_right: bool) -> bool:
    room.parameter.add_(1)
    room.staged.copy_(room.parameter, non_blocking=True)
    if is_right:
        room.main.synchronize()
    return differs(room.staged, 1)


def host_access(room: Room, is_right: bool) -> bool:
    if is_right:
        return differs(room.parameter.cpu(), 0)
    child = os.fork()
    if child == 0:
        ctypes.string_at(room.parameter.data_ptr(), 4)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV


HAZARDS: dict[str, Callable[[Room, bool], bool]] = {
    "no wait for the producer": producer,
    "no wait before use": use,
    "second reader does not wait": second_reader,
    "overwritten before it is read": overwritten,
    "no record_stream": record_stream,
    "pinned buffer reused too early": pinned_reused,
    "host looks before the copy ended": early_look,
    "host access to device memory": host_access,
}


def count_wrong(
    room: Room, hazard: Callable[[Room, bool], bool], is_right: bool, mode: str, trials: int
) -> int:
    wrong = 0
    for seed in range(trials):
        knobs.set_mode("eager")
        room.tidy()
        knobs.set_mode(mode, seed=seed, patience=PATIENCE)
        wrong += hazard(room, is_right)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=30)
    trials = parser.parse_args().trials
    torch.set_num_threads(1)
    room = Room()
    print(f"{'':34}found by      found by        right program")
    print(f"{'mistake':34}adversary     random delays   is wrong")
    is_good = True
    for name, hazard in HAZARDS.items():
        found = {
            mode: count_wrong(room, hazard, False, mode, trials) for mode in ("adversary", "random")
        }
        wrong = sum(
            count_wrong(room, hazard, True, mode, trials) for mode in ("adversary", "random")
        )
        print(
            f"{name:34}{found['adversary']:2} of {trials}      {found['random']:2} of {trials}"
            f"        {wrong} of {2 * trials}",
            flush=True,
        )
        is_good = is_good and found["adversary"] == trials and wrong == 0
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
