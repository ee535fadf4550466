"""One process of Kafka Streams for all tests of the folder."""

from collections.abc import Iterator

import pytest

from tests.streams_oracle.oracle import Oracle


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """Kafka Streams."""
    with Oracle(tmp_path_factory.mktemp("oracle")) as started:
        yield started
