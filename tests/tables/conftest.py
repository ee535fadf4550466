"""A bank of two tables, between which money moves, on each log; and a reader of them that a test steps or lets run."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import Log
from tests.serve.conftest import patient_server

__all__ = ["START", "patient_server", "produce"]

START = 1_000


def produce(
    log: Log, topic: str, rows: Mapping[str, bytes | None] | list[tuple[str, bytes | None]], partitions: int = 1
) -> dict[str, dict[int, int]]:
    """Write rows in one transaction; returns what to ask for to read them, as `at_least`."""
    pairs = list(rows.items()) if isinstance(rows, Mapping) else rows
    producer = log.producer(None)
    producer.begin()
    keys, values = [key.encode() for key, _ in pairs], [value for _, value in pairs]
    producer.send(topic, [log.partitioner(key, partitions) for key in keys], keys, values, [0] * len(pairs))
    ends = producer.flush()
    producer.commit({}, None)
    producer.close()
    return {topic: {tp.partition: end for tp, end in ends.items()}}


@pytest.fixture
def name() -> str:
    return f"app{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=["memory", "disk", "kafka"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    made: Log
    if request.param == "kafka":
        made = eddy.kafka(request.getfixturevalue("broker"))
    else:
        made = eddy.open_log(None if request.param == "memory" else tmp_path / "log")
    yield made
    made.close()


@pytest.fixture
def local() -> Iterator[Any]:
    made = eddy.open_log()
    yield made
    made.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


Application = Callable[..., eddy.Topology]
