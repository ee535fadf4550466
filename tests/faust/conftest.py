"""Faust workers that end with their test, and its topics."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faust.family import Family
from tests.faust.rig import FaustWorker, Topics

Start = Callable[..., FaustWorker]


@pytest.fixture
def topics(broker: str) -> Iterator[Topics]:
    made = Topics(broker)
    yield made
    made.close()


@pytest.fixture
def family(topics: Topics) -> Family:
    return Family(topics)


@pytest.fixture
def start(broker: str, tmp_path: Path) -> Iterator[Start]:
    """Start a Faust worker: of a module in a folder, by default in the test's own."""
    workers: list[FaustWorker] = []

    def started(module: str, folder: Path | None = None, **environment: str) -> FaustWorker:
        workers.append(FaustWorker(folder or tmp_path, module, tmp_path, broker, **environment))
        return workers[-1]

    yield started
    for worker in workers:
        worker.kill()
