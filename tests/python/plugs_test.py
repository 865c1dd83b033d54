"""Tests what of the plug-ins needs no framework; tests/python/plugs/run.sh trains with them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ranks import free_port

ALONE = """
import sys, torch.distributed as dist, sluice.accelerate
found = {"accelerate", "lightning", "ray", "torchft", "transformers"} & set(sys.modules)
assert not found, found
sluice.accelerate.init_process_group()
assert not dist.is_initialized()
"""
GROUPS = """
import torch.distributed as dist, sluice.accelerate
dist.init_process_group("gloo")
try:
    sluice.accelerate.init_process_group()
except RuntimeError as error:
    assert "is on gloo already; call sluice.accelerate.init_process_group() before" in str(error)
else:
    raise AssertionError("a group on Gloo is taken for one of sluice")
dist.destroy_process_group()
dist.init_process_group("sluice")
sluice.accelerate.init_process_group()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("program", [ALONE, GROUPS], ids=["alone", "groups"])
def test_accelerate_without_itself(program: str) -> None:
    launched = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    if program == GROUPS:
        launched |= {"RANK": "0", "WORLD_SIZE": "1"}
    variables = {**os.environ, **launched, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
