"""The figures of `sluice plot`. A package of its own, since it needs matplotlib and no Torch."""
