from collections.abc import Iterator

import place
import pytest
from device_exceptions import reason_of
from ranks import Ranks
from sluice.processes import prepare_to_fork

prepare_to_fork()

_left_out: list[str] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that the device cannot run."""
    if not place.IS_DEVICE:
        return
    left_out = [item for item in items if reason_of(item.nodeid) is not None]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
    _left_out.extend(f"{item.nodeid}: {reason_of(item.nodeid)}" for item in left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _left_out:
        terminalreporter.write_line(f"not on {place.DEVICE}: {line}")


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[Ranks]:
    ranks = Ranks(2)
    yield ranks
    assert ranks.end() == [0, 0]
