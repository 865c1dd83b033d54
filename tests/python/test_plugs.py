"""Tests what of the plug-ins needs no framework; scripts/test_plugs.sh trains with them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ranks import free_port

NO_FRAMEWORK = """
import sys, sluice
found = {"accelerate", "lightning", "ray", "transformers"} & set(sys.modules)
assert not found, found
"""
ONE_PROCESS = """
import torch.distributed as dist, sluice.accelerate
sluice.accelerate.init_process_group()
assert not dist.is_initialized()
"""
TOO_LATE = """
import torch.distributed as dist, sluice.accelerate
dist.init_process_group("gloo")
try:
    sluice.accelerate.init_process_group()
except RuntimeError as error:
    assert "is on gloo already; call sluice.accelerate.init_process_group() before" in str(error)
else:
    raise AssertionError("a group on Gloo is taken for one of sluice")
"""
ON_SLUICE = """
import torch.distributed as dist, sluice.accelerate
dist.init_process_group("sluice")
sluice.accelerate.init_process_group()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("program", [NO_FRAMEWORK, ONE_PROCESS, TOO_LATE, ON_SLUICE])
def test_without_a_framework(program: str) -> None:
    launched = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    if program in (TOO_LATE, ON_SLUICE):
        launched |= {"RANK": "0", "WORLD_SIZE": "1"}
    variables = {**os.environ, **launched, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
