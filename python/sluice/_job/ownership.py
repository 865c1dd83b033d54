"""The import name `sluice` belongs to the distribution torch-sluice. Other distributions on PyPI
install a package of that name too, and pip lets one overwrite the files of the other."""

from __future__ import annotations

from importlib.metadata import packages_distributions, version

_OURS = "torch-sluice"


def complaint() -> str | None:
    """Returns one line that says which distribution also has a package `sluice` and what to do;
    None if the name is ours alone, or if this package was not installed by pip, so that no other
    can have overwritten it. Reads the list of files of every distribution."""
    owners = set(packages_distributions().get("sluice", []))
    others = sorted(owners - {_OURS})
    if _OURS not in owners or not others:
        return None
    found = ", ".join(f"{name} {version(name)}" for name in others)
    return (
        f"another distribution also installs a package named sluice ({found}): run "
        f"'pip uninstall {' '.join(others)} {_OURS}' and then 'pip install {_OURS}'"
    )
