"""split_group() of torch.distributed for groups of sluice.

Torch asks no backend about a split unless the default group is bound to an accelerator, and device
meshes split then. A group of sluice has connections of its own, so there is nothing to split: its
parts are new groups.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch.distributed as dist


@functools.cache
def take_over() -> None:
    """Makes split_group() work for the default group if that is of sluice. Other backends keep
    Torch's. A second call does nothing."""
    torchs = dist.distributed_c10d.split_group
    signature = inspect.signature(torchs)

    @functools.wraps(torchs)
    def split_group(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options).arguments
        world = dist.group.WORLD
        parent = given.get("parent_pg") or world
        if parent is None or "sluice" not in dist.get_backend_config(parent):
            return torchs(*args, **options)
        if parent is not world:
            raise RuntimeError(
                "sluice: split_group() can only split the default group; use "
                "new_group(ranks, use_local_synchronization=True)"
            )
        parts = given.get("split_ranks")
        if not parts:
            raise ValueError("sluice: split_group() needs split_ranks, the ranks of each part")
        mine = None
        for ranks in parts:  # every rank makes the same calls
            group = dist.new_group(
                ranks,
                given.get("timeout"),
                given.get("backend"),
                group_desc=given.get("group_desc"),
            )
            if mine is None and dist.get_rank() in ranks:
                mine = group
        return mine

    for module in (dist, dist.distributed_c10d, dist.device_mesh):
        if getattr(module, "split_group", None) is torchs:
            vars(module)["split_group"] = split_group
