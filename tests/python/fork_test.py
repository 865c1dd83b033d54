"""Tests programs that fork while they train (DataLoader workers and os.fork()), and SIGTERM to a
rank."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from endings_test import GONE, HEARTBEAT, TELLS, TRAINING, errors_at_its_end, wait_for
from ranks import environment, free_port, run_script, running

FORKED = (
    "this process was forked from rank {} of a sluice job and is not a member of it; make the call "
    "in the parent"
)

# The program has workers in both epochs: the workers of the first are forked before the first step,
# and inherit less.
LOADER = (
    TELLS
    + """
import torch, sluice
from torch.utils.data import DataLoader
rank = int(os.environ["RANK"])
class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.full((8,), float(i))
model, optimizer = sluice.distribute(torch.nn.Linear(8, 8), lambda ps: torch.optim.SGD(ps, lr=1e-6))
def epoch(loader):
    for x in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
first = DataLoader(Numbers(), batch_size=8, num_workers=2, persistent_workers=True)
epoch(first)
time.sleep(0.5)  # every lane is connected, the heartbeats' too
second = DataLoader(Numbers(), batch_size=8, num_workers=2, persistent_workers=True)
epoch(second)
workers = [w.pid for loader in (first, second) for w in loader._iterator._workers]
print("trains", *workers, flush=True)
"""
)


def descriptors(pid: int) -> set[str]:
    """Returns the sockets, event and epoll descriptors of a process."""
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return {link for link in links if link.startswith(("socket:", "anon_inode:[event"))}


def test_data_loader_workers_hold_no_connection_and_a_kill_is_known_soon() -> None:
    with running(LOADER + "while True: epoch(second)", 3, anew=True, **HEARTBEAT) as ranks:
        workers = [[int(pid) for pid in wait_for(rank, "trains").split()] for rank in ranks]
        for rank, own in zip(ranks, workers, strict=True):
            sockets = {link for link in descriptors(rank.pid) if link.startswith("socket:")}
            assert len(sockets) > 4, "the rank has connections"
            for worker in own:
                assert not descriptors(worker) & sockets
        begun = time.monotonic()
        ranks[1].kill()
        for number in (0, 2):
            errors = errors_at_its_end(ranks[number], begun)
            assert "PeerLostError" in errors and "rank 1" in errors.splitlines()[-1]
        told = time.monotonic() - begun
        for pid in workers[1]:  # workers outlive their rank by seconds and hold its pipes
            if os.path.exists(f"/proc/{pid}"):
                os.kill(pid, signal.SIGKILL)
        assert told < GONE


def test_data_loader_workers_to_a_normal_end_and_a_second_job_on_the_same_port() -> None:
    port = free_port()
    for _ in range(2):
        processes = [
            subprocess.Popen([sys.executable, "-c", LOADER], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, env=environment(rank, 2, port))
            for rank in range(2)
        ]  # fmt: skip
        try:
            for process in processes:
                _, errors = process.communicate(timeout=120)
                assert (process.returncode, errors) == (0, "")
        finally:
            for process in processes:
                process.kill()
                process.communicate()


def test_a_forked_child_ends_and_is_told() -> None:
    """The child ends in the ordinary way, with the connections of both the job and a process group,
    and the job goes on."""
    script = (
        TRAINING
        + """
import torch.distributed as dist
dist.init_process_group("sluice", init_method=f"file://{os.environ['MEETING']}", rank=rank, \
world_size=2)
train(5)
work = dist.all_reduce(torch.ones(3), async_op=True)
child = os.fork()
if child == 0:
    calls = [sluice.barrier, lambda: sluice.mean(1.0), lambda: train(1), model.state_dict, \
optimizer.synchronize,
             lambda: dist.all_reduce(torch.ones(1)),
             lambda: sluice.distribute(torch.nn.Linear(1, 1), lambda ps: torch.optim.SGD(ps, lr=1))]
    for call in calls:
        try:
            call()
        except RuntimeError as error:
            print("child", error, flush=True)
    sys.exit(7)
work.wait()
print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
train(5)
dist.barrier()
print("mean", sluice.mean(float(rank)), flush=True)
"""
    )
    meeting = f"/tmp/sluice-{os.getpid()}-{time.monotonic_ns()}"
    try:
        for rank, ended in enumerate(run_script(script, 2, anew=True, MEETING=meeting)):
            assert ended.returncode == 0, ended.stderr
            lines = ended.stdout.splitlines()
            told = [
                line.removeprefix("child ").removeprefix("sluice: ")
                for line in lines
                if line.startswith("child")
            ]
            assert told and set(told) == {FORKED.format(rank)}, lines
            assert "ended 7" in lines and "mean 0.5" in lines
    finally:
        if os.path.exists(meeting):
            os.unlink(meeting)


def test_a_process_forked_before_joining_can_train() -> None:
    script = (
        "import os, sys, sluice\nchild = os.fork()\nif child: sys.exit(os.waitpid(child, 0)[1])\n"
    )
    for ended in run_script(script + "print(sluice.mean(float(sluice.rank())))", 2, anew=True):
        assert (ended.returncode, ended.stdout) == (0, "0.5\n"), ended.stderr


def test_the_metrics_port_is_not_kept_by_a_child() -> None:
    script = (
        "import os, sys, time, sluice\nsluice.rank()\nchild = os.fork()\nif child == 0: "
        "time.sleep(20); os._exit(0)\n"
    )
    port = free_port()
    variables = {
        name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")
    }
    variables |= {"SLUICE_METRICS_PORT": str(port), "SLUICE_LOG": "warn"}
    process = subprocess.Popen([sys.executable, "-c",
                                script + "print('child', child, flush=True); time.sleep(20)"],
                               stdout=subprocess.PIPE, text=True, env=variables)  # fmt: skip
    try:
        child = int(wait_for(process, "child"))
        process.kill()
        process.wait()
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))
            again.listen()
        os.kill(child, signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()


def test_threads_of_sluice_block_signals() -> None:
    """Checks all threads of the process except Python's own."""
    script = TRAINING + "train(5)\nprint('trains', flush=True)\ntime.sleep(60)"
    with running(script, 2, anew=True, SLUICE_METRICS_PORT="0") as ranks:
        for rank in ranks:
            wait_for(rank, "trains")
            blocked = {}
            for task in os.listdir(f"/proc/{rank.pid}/task"):
                with open(f"/proc/{rank.pid}/task/{task}/status") as status:
                    lines = dict(line.rstrip("\n").split(":\t", 1) for line in status)
                if int(task) != rank.pid:
                    blocked[f"{lines['Name']} {task}"] = int(lines["SigBlk"], 16)
            term = 1 << (signal.SIGTERM - 1)
            assert any(name.startswith("sluice") for name in blocked)
            assert all(mask & term for mask in blocked.values()), blocked


LEAVING = TRAINING + "print('pid', os.getpid(), flush=True)\ntrain(1000000)\nprint('never')"


def test_leave_on_term_leaves_after_the_step() -> None:
    with running(LEAVING, 3, anew=True, SLUICE_LEAVE_ON_TERM="on", **HEARTBEAT) as ranks:
        for rank in ranks:
            wait_for(rank, "trains")
        begun = time.monotonic()
        ranks[1].send_signal(signal.SIGTERM)
        for number in (0, 2):
            last = errors_at_its_end(ranks[number], begun).splitlines()[-1]
            assert (
                "PeerLostError" in last
                and "rank 1 was told to end (SIGTERM) and has left after" in last
            ), last
        out, errors = ranks[1].communicate(timeout=30)
        assert (ranks[1].returncode, errors) == (128 + signal.SIGTERM, "") and "never" not in out


@pytest.mark.parametrize("option", ["on", "off"])
def test_a_handler_of_the_program_stays(option: str) -> None:
    script = (
        "import signal, time, sluice\nsignal.signal(signal.SIGTERM, lambda *_: print('mine', "
        "flush=True))\n"
    )
    script += "sluice.rank()\nprint('joined', flush=True)\ntime.sleep(60)"
    variables = {"SLUICE_LEAVE_ON_TERM": option, "SLUICE_LOG": "warn"}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True,
                               env={**os.environ, **variables})  # fmt: skip
    try:
        wait_for(process, "joined")
        process.send_signal(signal.SIGTERM)
        wait_for(process, "mine")
        process.kill()
        errors = process.communicate()[1]
        assert ("leave-on-term does nothing: SIGTERM has a handler already" in errors) == (
            option == "on"
        )
    finally:
        process.kill()
        process.communicate()
