#!/usr/bin/env python3
"""Compares the server-side optimizers with PyTorch's over 100 steps.

usage: optimizer_vs_torch_test.py OPTIMIZER_STEPS      (the program built from optimizer_steps.cc)

Ends with 77, which CTest shows as skipped, where PyTorch is not installed.
"""

import array
import ctypes
import subprocess
import sys

try:
    import torch
except ImportError:
    print("skipped: python3 has no torch; pip install torch==2.13.0")
    sys.exit(77)

ELEMENTS = 10_007
STEPS = 100

DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
# Bounds of norm(ours - torch) / norm(torch) after every step. The bound of f32 is the promise. The
# 16-bit bounds are a fraction of one rounding: PyTorch fuses multiply and add, so now and then a
# number falls to the other side.
BOUNDS = {"f32": 1e-6, "f64": 1e-14, "bf16": 1e-4, "f16": 5e-5}

SGD = {"lr": 1e-3, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False}
ADAM = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
DEFAULTS = {"sgd": SGD, "adam": ADAM, "adamw": {**ADAM, "weight_decay": 1e-2}}

VARIANTS = [
    ("sgd", {"lr": 0.1}),
    ("sgd", {"lr": 0.1, "weight_decay": 1e-2}),
    ("sgd", {"lr": 0.05, "momentum": 0.9}),
    ("sgd", {"lr": 0.05, "momentum": 0.9, "dampening": 0.5}),
    ("sgd", {"lr": 0.05, "momentum": 0.9, "dampening": 0.1, "weight_decay": 1e-2}),
    ("sgd", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    ("sgd", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}),
    ("adam", {}),
    ("adam", {"lr": 1e-2, "weight_decay": 1e-2}),
    ("adam", {"lr": 1e-2, "beta1": 0.3, "beta2": 0.95, "eps": 1e-4}),
    ("adam", {"lr": 1e-2, "beta1": 0.0, "beta2": 0.9}),
    ("adamw", {}),
    ("adamw", {"lr": 1e-2, "weight_decay": 0.1, "beta2": 0.95}),
    ("adamw", {"lr": 1e-2, "weight_decay": 0.0}),
]


def raw(tensor):
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def ours(program, name, hyperparameters, dtype, initial, rates, gradients):
    """Returns the parameters that the server publishes after every step, as tensors of `dtype`."""
    pieces = [raw(initial)]
    for rate, gradient in zip(rates, gradients):
        if hyperparameters:
            pieces.append(array.array("d", [rate, *list(hyperparameters.values())[1:]]).tobytes())
        pieces.append(raw(gradient))
    command = [program, name, dtype, str(initial.numel()), str(len(gradients))]
    output = subprocess.run(
        command, input=b"".join(pieces), stdout=subprocess.PIPE, check=True
    ).stdout
    return torch.frombuffer(bytearray(output), dtype=DTYPES[dtype]).reshape(len(gradients), -1)


def torch_optimizer(name, hyperparameters, parameter):
    options = dict(hyperparameters)
    if name != "sgd":
        options["betas"] = (options.pop("beta1"), options.pop("beta2"))
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    return kind([parameter], foreach=False, **options)


def theirs(name, hyperparameters, dtype, initial, rates, gradients):
    """Returns the parameters of PyTorch after every step. 16-bit parameters are stepped in f32 and
    rounded after every step, as optimizer.h says."""
    parameter = initial.to(gradients[0].dtype, copy=True).requires_grad_()
    optimizer = torch_optimizer(name, hyperparameters, parameter)
    after = []
    for rate, gradient in zip(rates, gradients):
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = gradient.clone()
        optimizer.step()
        with torch.no_grad():
            parameter.copy_(parameter.to(DTYPES[dtype]))
        after.append(parameter.detach().to(DTYPES[dtype]).clone())
    return torch.stack(after)


def numbers(dtype, generator):
    accumulator = torch.float64 if dtype == "f64" else torch.float32
    initial = torch.randn(ELEMENTS, generator=generator, dtype=torch.float64).to(DTYPES[dtype])
    # Some gradients are near Adam's eps.
    sizes = 10.0 ** torch.linspace(-6, 0, ELEMENTS, dtype=torch.float64)
    gradients = [
        (torch.randn(ELEMENTS, generator=generator, dtype=torch.float64) * sizes).to(accumulator)
        for _ in range(STEPS)
    ]
    return initial, gradients


def compare_optimizers(program):
    failures = 0
    generator = torch.Generator().manual_seed(5)
    for dtype, bound in BOUNDS.items():
        initial, gradients = numbers(dtype, generator)
        for name, changes in VARIANTS:
            hyperparameters = {**DEFAULTS[name], **changes}
            # A scheduler lowers the rate by exponential decay without warm-up.
            rates = [hyperparameters["lr"] * 0.99**step for step in range(STEPS)]
            mine = ours(program, name, hyperparameters, dtype, initial, rates, gradients).double()
            reference = theirs(name, hyperparameters, dtype, initial, rates, gradients).double()
            worst = ((mine - reference).norm(dim=1) / reference.norm(dim=1)).max().item()
            moved = ((reference[-1] - initial.double()).norm() / initial.double().norm()).item()
            ok = worst <= bound and moved > 10 * bound
            failures += not ok
            text = ",".join(f"{key}={value:g}" for key, value in changes.items())
            print(
                f"{'ok  ' if ok else 'FAIL'} {dtype:4} {name:5} worst {worst:.1e} moved "
                f"{moved:.1e}  {text}"
            )
    return failures


def compare_rounding(program):
    """Checks that the mean gradient is rounded to 16 bits exactly as PyTorch rounds."""
    failures = 0
    generator = torch.Generator().manual_seed(6)
    bits = torch.randint(-(2**31), 2**31, (200_000,), generator=generator, dtype=torch.int64).to(
        torch.int32
    )
    wide = bits.view(torch.float32)
    wide = torch.cat(
        [
            wide,
            torch.randn(200_000, generator=generator),
            torch.randn(200_000, generator=generator) * 1e-6,
        ]
    )
    wide = wide[~wide.isnan()].contiguous()
    for dtype in ("bf16", "f16"):
        expected = wide.to(DTYPES[dtype])
        mine = ours(program, "mean-gradient", {}, dtype, torch.zeros_like(expected), [0.0], [wide])[
            0
        ]
        different = (mine.view(torch.int16) != expected.view(torch.int16)).sum().item()
        failures += different != 0
        print(
            f"{'ok  ' if different == 0 else 'FAIL'} {dtype:4} {different} of {wide.numel()} "
            "rounded otherwise"
        )
    return failures


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {ELEMENTS} parameters, {STEPS} steps")
    sys.exit(1 if compare_optimizers(sys.argv[1]) + compare_rounding(sys.argv[1]) else 0)


if __name__ == "__main__":
    main()
