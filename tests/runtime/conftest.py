"""The logs on which several workers run: in memory, and Kafka with both group protocols."""

from collections.abc import Iterator

import pytest

import eddy
from eddy.connectors.log import Log


@pytest.fixture(params=["memory", "kafka", "kafka, consumer"])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    settings = {"group_protocol": "consumer", "group_remote_assignor": "range"} if "," in request.param else {}
    on_kafka = request.param != "memory"
    made: Log = eddy.kafka(request.getfixturevalue("broker"), **settings) if on_kafka else eddy.open_log(None)
    yield made
    made.close()
