"""Tests habits of programs and environments: what users do, and what hosts look like. Lawful ones
train to the bits of one process or to equal bits on all ranks; others end soon, in one line."""

from __future__ import annotations

import http.server
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ranks import Ranks, environment, free_port, run_script

BEGIN = """
import hashlib, os, resource, signal, sys, threading
import torch, sluice
from torch import nn
from torch.nn import functional as F
rank = int(os.environ["RANK"])
torch.manual_seed(rank)
def net(): return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
def sgd(model, lr=0.3): return torch.optim.SGD(model.parameters(), lr=lr)
def loss(model): return F.cross_entropy(model(torch.randn(8, 16)), torch.randint(0, 4, (8,)))
def step(model, optimizer):
    optimizer.zero_grad()
    loss(model).backward()
    optimizer.step()
def show(model):
    values = [v.detach().contiguous() for v in model.state_dict().values()]
    print("bits", hashlib.sha256(b"".join(v.view(-1).view(torch.uint8).numpy().tobytes()
                                          for v in values)).hexdigest()[:12], flush=True)
"""
TRAIN = """
model, optimizer = sluice.distribute(net(), sgd)
for _ in range(6): step(model, optimizer)
show(model)
""".replace("(net(), sgd)", "(net(), lambda ps: torch.optim.SGD(ps, lr=0.1))")

# Each trains with equal batches on all ranks: the bits of one process are wanted.
AS_ONE_PROCESS = {
    "two optimizers in turn": (
        "[torch.optim.SGD(model[0].parameters(), lr=0.3), "
        "torch.optim.Adam(model[-1].parameters(), lr=0.1)]",
        "for each in o: each.zero_grad()\nloss(m).backward(); o[i % 2].step()",
    ),
    "two optimizers in turn, gradients left": (
        "[torch.optim.SGD(model[0].parameters(), lr=0.3), "
        "torch.optim.Adam(model[-1].parameters(), lr=0.1)]",
        "loss(m).backward(); o[i % 2].step(); o[i % 2].zero_grad()",
    ),
    "L2 over the parameters": (
        "sgd(model)",
        "o.zero_grad(); (loss(m) + 0.01 * sum(p.pow(2).sum() for p in m.parameters())).backward(); "
        "o.step()",
    ),
    "detect_anomaly and two backward calls": (
        "sgd(model)",
        "torch.autograd.set_detect_anomaly(True); o.zero_grad(); out = m(torch.randn(8, 16)); "
        "out.mean().backward(retain_graph=True); (out**2).mean().backward(); o.step(); "
        "torch.autograd.set_detect_anomaly(False)",
    ),
    "functional_call": (
        "sgd(model)",
        "o.zero_grad(); F.cross_entropy(torch.func.functional_call(m, dict(m.named_parameters()), "
        "(torch.randn(8, 16),)), torch.randint(0, 4, (8,))).backward(); o.step()",
    ),
    "AveragedModel": (
        "sgd(model)",
        "m.ema = getattr(m, 'ema', None) or [torch.optim.swa_utils.AveragedModel(m)]; step(m, o); "
        "m.ema[0].update_parameters(m)",
    ),
    "clamping in no_grad after synchronize": (
        "sgd(model)",
        "step(m, o)\ngetattr(o, 'synchronize', int)()\n"
        "with torch.no_grad():\n    for p in m.parameters(): p.clamp_(-0.1, 0.1)",
    ),
    "weight_norm and spectral_norm": (
        "sgd(model)",
        "step(m, o)",
    ),
}


def train_as_one_process(optimizer: str, body: str, is_normed: bool) -> list[bool]:
    """Runs on every rank."""
    space: dict[str, object] = {}
    exec(BEGIN, space)
    exec("import copy", space)
    results = []
    for distributed in (False, True):
        program = f"""
torch.manual_seed(0)
model = net()
if {is_normed}:
    model[0] = nn.utils.parametrizations.weight_norm(model[0])
    model[2] = nn.utils.parametrizations.spectral_norm(model[2])
o = {optimizer}
m = model
if {distributed}: m, o = sluice.distribute(model, o)
for i in range(8):
    torch.manual_seed(100 + i)
""" + "".join(f"    {line}\n" for line in body.split("\n"))
        exec(program, space)
        results.append([p.detach().clone() for p in space["m"].parameters()])  # type: ignore[attr-defined]
    return [bool((a == b).all()) for a, b in zip(*results, strict=True)]


@pytest.mark.parametrize("habit", AS_ONE_PROCESS)
def test_a_habit_has_the_bits_of_one_process(two_ranks: Ranks, habit: str) -> None:
    optimizer, body = AS_ONE_PROCESS[habit]
    for equal in two_ranks.run(train_as_one_process, optimizer, body, "norm" in habit):
        assert all(equal), equal


# Every rank ends well, with equal bits.
EQUAL = {
    "IPv6": ('os.environ["MASTER_ADDR"] = "::1"', TRAIN),
    "no home and no folder for temporary files": (
        'os.environ.update(HOME="/nonexistent", TMPDIR="/nonexistent")',
        TRAIN,
    ),
    "SIGPIPE at its default": ("signal.signal(signal.SIGPIPE, signal.SIG_DFL)", TRAIN),
    "doubles": ("torch.set_default_dtype(torch.float64)", TRAIN),
    "warnings are errors": ("import warnings; warnings.simplefilter('error')", TRAIN),
    "pruning midway": (
        "from torch.nn.utils import prune",
        TRAIN
        + 'prune.l1_unstructured(model[0], "weight", amount=0.5)\n'
        + "for _ in range(4): step(model, optimizer)\nshow(model)\n",
    ),
    "the loop in another thread": (
        "",
        """
model, optimizer = sluice.distribute(net(), lambda ps: torch.optim.SGD(ps, lr=0.1))
def loop():
    for _ in range(4): step(model, optimizer)
for _ in range(2):
    thread = threading.Thread(target=loop); thread.start(); thread.join()
show(model)
""",
    ),
    "two models in two threads": (
        "",
        """
pairs = [sluice.distribute(net(), lambda ps: torch.optim.SGD(ps, lr=0.1)) for _ in range(2)]
def loop(model, optimizer):
    for _ in range(6): step(model, optimizer)
threads = [threading.Thread(target=loop, args=pair) for pair in pairs]
for thread in threads: thread.start()
for thread in threads: thread.join()
for model, _ in pairs: show(model)
""",
    ),
    "one Parameter in two models": (
        "",
        """
a, b = net(), net()
b[0].weight = a[0].weight
a, first = sluice.distribute(a, lambda ps: torch.optim.SGD(ps, lr=0.1))
rest = [p for p in b.parameters() if p is not a[0].weight]
b, second = sluice.distribute(b, torch.optim.SGD(rest, lr=0.1))
for _ in range(4):
    first.zero_grad(); second.zero_grad()
    (loss(a) + loss(b)).backward()
    first.step(); second.step()
show(a); show(b)
""",
    ),
    "a hostile name, a trace and another locale": (
        "import tempfile; os.environ.update(LC_ALL='C', SLUICE_TRACE=tempfile.mkdtemp())",
        """
kind = type("../../evil/\\u0421\\u0435\\u0442\\u044c", (nn.Sequential,), {})
model = kind(*net())
model, optimizer = sluice.distribute(model, lambda ps: torch.optim.SGD(ps, lr=0.1))
for _ in range(3): step(model, optimizer)
show(model)
""",
    ),
    "odd buffers": (
        "",
        """
model = net()
model.register_buffer("complex", torch.randn(3, dtype=torch.complex64))
model.register_buffer("bool", torch.rand(3) > 0.5)
model.register_buffer("empty", torch.empty(0))
model.register_buffer("scalar", torch.tensor(3))
model.register_buffer("strided", torch.randn(5)[::2])
model, optimizer = sluice.distribute(model, lambda ps: torch.optim.SGD(ps, lr=0.1))
for _ in range(3): step(model, optimizer)
show(model)
""",
    ),
}


@pytest.mark.parametrize("habit", EQUAL)
def test_a_habit_ends_well_with_equal_bits(habit: str) -> None:
    before, program = EQUAL[habit]
    ended = run_script(f"{BEGIN}\n{before}\n{program}", 2)
    assert all(one.returncode == 0 for one in ended), ended
    assert ended[0].stdout == ended[1].stdout != "", ended


# At least one rank ends with a text like this, and all of them end soon.
REFUSED = {
    "a misspelt option": ("", "slice_element=4", "slice-element"),
    "a rank beyond the world": ('os.environ["RANK"] = "7" if rank else "0"', "", "RANK"),
    "two rank 0": ('os.environ["RANK"] = "0"', "", "rank 0|RANK"),
    "a world of a thousand million": ('os.environ["WORLD_SIZE"] = "1000000000"', "", "WORLD_SIZE"),
    "a port beyond all": ('os.environ["MASTER_PORT"] = "99999"', "", "MASTER_PORT"),
    "few descriptors": (
        "resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14))",
        "",
        "open .*files|descriptor",
    ),
    "few descriptors on rank 1": (
        'n = len(os.listdir("/proc/self/fd")) + 10 if rank else 1024\n'
        "resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))",
        "",
        "open .*files|descriptor",
    ),
    "a trace of a million gigabytes": (
        "import tempfile; os.environ['SLUICE_TRACE'] = tempfile.mkdtemp()",
        "trace_events=10**15",
        "trace-events|MemoryError",
    ),
    "a complex parameter": ("", "", "complex64"),
}  # fmt: skip


@pytest.mark.parametrize("habit", REFUSED)
def test_what_cannot_be_is_refused_soon_in_one_line(habit: str) -> None:
    before, options, text = REFUSED[habit]
    train = TRAIN.replace("lr=0.1))", f"lr=0.1), {options})")
    if "complex" in habit:
        train = train.replace("net(),", "nn.Linear(2, 2, dtype=torch.complex64),")
    ended = run_script(f"{BEGIN}\n{before}\n{train}", 2, timeout=30, SLUICE_RENDEZVOUS_TIMEOUT="3s")
    said = "\n".join(one.stdout + one.stderr for one in ended)
    assert re.search(text, said), said


def test_a_web_server_on_the_port_is_no_rank_0() -> None:
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = f'os.environ["MASTER_PORT"] = "{server.server_port}"'
        ended = run_script(f"{BEGIN}\n{port}\n{TRAIN}", 2, SLUICE_RENDEZVOUS_TIMEOUT="3s")
        server.shutdown()
    assert all(one.returncode != 0 for one in ended), ended
    assert free_port() != server.server_port


def test_memory_that_runs_out_on_one_rank_is_named_on_the_other() -> None:
    program = """
model, optimizer = sluice.distribute(nn.Linear(4096, 2048), lambda ps: torch.optim.SGD(ps, lr=0.1))
if rank == 1:
    size = int(open("/proc/self/statm").read().split()[0]) * 4096 + (60 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(2, 4096)).sum().backward()
    optimizer.step()
"""
    first, second = run_script(BEGIN + program, 2)
    assert second.returncode != 0 and first.returncode != 0, (first, second)
    assert "rank 1" in first.stderr, first.stderr


def test_a_batch_that_is_skipped_after_an_exception() -> None:
    program = """
model, optimizer = sluice.distribute(net(), lambda ps: torch.optim.SGD(ps, lr=0.1))
for n in range(8):
    try:
        if rank == 1 and n == 4: model(torch.randn(8, 17))
        step(model, optimizer)
    except RuntimeError as error:
        print("skipped", n, str(error)[:80])
        optimizer.zero_grad()
"""
    first, second = run_script(BEGIN + program, 2)
    assert "skipped 4" in second.stdout, second
    said = first.stdout + first.stderr
    assert "rank 1 has ended its training after 7 steps" in said, first


def test_a_spawned_loader_needs_its_guard(tmp_path: Path) -> None:
    """Its workers run the program again, and are no ranks."""
    program = """
import torch, sluice
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    model, optimizer = sluice.distribute(torch.nn.Linear(4, 2), \
lambda ps: torch.optim.SGD(ps, lr=0.1))
    data = TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,)))
    for x, y in DataLoader(data, batch_size=16, num_workers=1, multiprocessing_context="spawn"):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    print("done", flush=True)
"""
    file = tmp_path / "train.py"
    file.write_text(program)
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, str(file)],
            env=environment(rank, 2, port),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    assert [rank.communicate(timeout=120)[0] for rank in ranks] == ["done\n", "done\n"]
