from collections.abc import Iterator

import pytest
from ranks import Ranks


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[Ranks]:
    ranks = Ranks(2)
    yield ranks
    assert ranks.end() == [0, 0]
