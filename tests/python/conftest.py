from collections.abc import Iterator

import pytest
from ranks import Ranks
from sluice.study.ranks import prepare_to_fork

prepare_to_fork()


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[Ranks]:
    ranks = Ranks(2)
    yield ranks
    assert ranks.end() == [0, 0]
