"""Runs the tests of the Python package, as CTest calls it: with 77, which it shows as skipped,
where Torch is missing."""

import sys

try:
    import pytest
    import torch  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}; scripts/install_deps.sh --with-torch installs it")
    sys.exit(77)

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
