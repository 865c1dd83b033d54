"""Tests the entry point of Torch's: the backend is known without an import, `import torch` stays
quick, and no state of the package breaks it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from ranks import environment, free_port

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(os.environ["PYTHONPATH"].split(":")[0]) / "sluice"
MOST_SECONDS = 0.002
USE = """
import sys, warnings
warnings.simplefilter("error")
import torch
warnings.simplefilter("default")
import torch.distributed as dist
assert "sluice" not in sys.modules
print("torch is here", flush=True)
dist.init_process_group("sluice")
x = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(x)
print(x.tolist(), "sluice" in sys.modules)
dist.destroy_process_group()
"""


def install(site: Path) -> Path:
    """Makes a folder that looks like an environment with the distribution in it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    points = settings["project"]["entry-points"]["torch.backends"]
    info = site / "torch_sluice-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-sluice\nVersion: 0\n")
    lines = [f"{name} = {where}\n" for name, where in points.items()]
    (info / "entry_points.txt").write_text("[torch.backends]\n" + "".join(lines))
    (site / "sluice_autoload").symlink_to(ROOT / "python/sluice_autoload")
    (site / "sluice").symlink_to(PACKAGE)
    return site


def without(site: Path, pattern: str) -> None:
    """Replaces the package by a copy that lacks some files."""
    (site / "sluice").unlink()
    shutil.copytree(
        PACKAGE, site / "sluice", symlinks=False, ignore=shutil.ignore_patterns(pattern)
    )


def start(site: Path, program: str, *flags: str, **more: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", **more}
    return subprocess.Popen(
        [sys.executable, *flags, "-c", program],
        env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(site: Path, program: str, *flags: str, **more: str) -> tuple[int, str, str]:
    process = start(site, program, *flags, **more)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_a_group_needs_no_import(tmp_path: Path) -> None:
    site, port = install(tmp_path), free_port()
    ranks = []
    for rank in range(2):
        launched = environment(rank, 2, port)
        launched.pop("PYTHONPATH")
        ranks.append(start(site, USE, **launched))
    for process in ranks:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (0, "torch is here\n[3.0, 3.0, 3.0] True\n"), err


def test_the_switch_of_torch_turns_it_off(tmp_path: Path) -> None:
    """On or off, no device gets another default."""
    program = """
import torch, sluice_autoload
sluice_autoload.register()
backend = torch.distributed.Backend
print(backend.default_device_backend_map, "sluice" in backend.backend_list)
"""
    site = install(tmp_path)
    on, off = run(site, program), run(site, program, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert on[0] == off[0] == 0, on[2] + off[2]
    assert on[1] == off[1].replace("False", "True")
    assert off[1].endswith("False\n")


@pytest.mark.parametrize("state", ["another sluice", "no _core", "another Torch", "no sluice"])
def test_no_state_of_the_package_breaks_torch(tmp_path: Path, state: str) -> None:
    site = install(tmp_path)
    if state == "another sluice":
        (site / "sluice").unlink()
        (site / "sluice").mkdir()
        (site / "sluice/__init__.py").write_text("raise OSError('not this sluice')\n")
    elif state == "no sluice":
        (site / "sluice").unlink()
    else:
        without(site, "_core*.so" if state == "no _core" else "torch_*.so")
    port = str(free_port())
    launched = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    code, out, err = run(site, USE, **launched)
    assert (code, out) == (1, "torch is here\n"), err
    last = err.strip().splitlines()[-1]
    expected = "does not fit this Torch" if state == "another Torch" else "cannot be loaded"
    assert expected in last, err


def test_torch_that_refuses_is_one_warning(tmp_path: Path) -> None:
    program = """
import torch, sluice_autoload as s
def refuse(*arguments, **more): raise TypeError("another signature")
torch.distributed.Backend.backend_list.remove("sluice")
torch.distributed.Backend.register_backend = refuse
s.register()
"""
    site = install(tmp_path)
    code, _, err = run(site, program)
    assert (code, err.count("Warning")) == (0, 1), err
    assert run(site, program, "-W", "error") == (0, "", "")


def test_import_torch_stays_quick(tmp_path: Path) -> None:
    """Torch looks for entry points in any case; loading and calling ours is the extra time. It is
    turned off at first, so that it is loaded where its time is taken."""
    program = """
import os, time, torch
from importlib.metadata import entry_points
point, = entry_points(group="torch.backends", name="sluice")
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"
begun = time.perf_counter()
point.load()()
print(time.perf_counter() - begun)
assert "sluice" in torch.distributed.Backend.backend_list
"""
    site = install(tmp_path)
    took = []
    for _ in range(3):  # the least: a busy machine can only add time
        code, out, err = run(site, program, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        assert code == 0, err
        took.append(float(out))
    print(f"{1e3 * min(took):.2f} ms")
    assert min(took) <= MOST_SECONDS, took
