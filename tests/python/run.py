"""Runs the tests of the Python package for CTest. Without Torch it ends with 77, which CTest shows
as skipped."""

import sys

try:
    import pytest
    import torch  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}; scripts/install_deps.sh --with-torch installs it")
    sys.exit(77)

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
