"""The findings of a topic as text."""

from __future__ import annotations

from typing import Any


def text(findings: dict[str, Any]) -> str:
    copies, training = findings["copies"], findings["training"]
    same = training["tensors_that_differ"] == 0
    lines = [
        "",
        f"{findings['device']} with PyTorch {findings['torch']} and sluice {findings['sluice']}",
        f"  copies to the host      {copies['to_host_bytes_per_second'] / 1e9:8.2f} GB/s",
        f"  copies to the device    {copies['to_device_bytes_per_second'] / 1e9:8.2f} GB/s",
        f"  hidden behind computing {100 * copies['overlap_with_computing']:8.0f} %",
        f"  both directions at once {100 * copies['overlap_of_directions']:8.0f} %",
        f"  {training['models']} random models        "
        + (
            "same bits as PyTorch alone"
            if same
            else f"differ from PyTorch alone by {training['largest_difference']:.1e} at most"
        ),
        f"  a small step            {1e3 * training['plain_step_seconds']:8.2f} ms alone, "
        f"{1e3 * training['sluice_step_seconds']:.2f} ms with sluice and a second process",
        "",
        "sluice works on this device"
        if findings["correct"]
        else "sluice gives WRONG numbers on this device; please report it with --output",
    ]
    return "\n".join(lines)
