"""The figures of a worker: what they say, and that reading them neither costs much nor ends the work."""

import pathlib
from collections.abc import Iterable, Iterator

import pytest

import eddy
from eddy.cli.load import load
from eddy.cli.progress import Meter
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec


class SlowLog(LocalLog):
    """A log whose answers take time, or do not come."""

    now = took_s = 0.0
    away = False
    asked = 0

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.now += self.took_s
        self.asked += 1
        if self.away:
            raise eddy.ConnectorError("no answer", retriable=True)
        return super().end_offsets(partitions)


@pytest.fixture
def log() -> Iterator[SlowLog]:
    log = SlowLog()
    log.create_topics([TopicSpec("nodes", 1), TopicSpec("descendants", 1)])
    producer = log.producer(None)
    producer.begin()
    producer.send("nodes", 0, [b"a", b"b"], [b"b", b"c"], [0, 0])
    producer.commit({}, None)
    yield log
    log.close()


@pytest.fixture
def worker(log: SlowLog, folder: pathlib.Path) -> Iterator[eddy.Worker]:
    worker = eddy.Worker(load("family.py").topology, log)
    yield worker
    worker.close()


def test_figures_are_those_since_the_last_sample(log: SlowLog, worker: eddy.Worker) -> None:
    meter = Meter(worker, lambda: log.now)
    worker.run_until_idle()
    assert meter.sample(1.0) is None
    log.now = 2.0
    sample = meter.sample(1.0)
    assert sample is not None
    assert (sample.records_per_s, sample.records, sample.lag) == (1, 2, 0)


def test_lag_is_read_in_a_twentieth_of_the_time_and_stands_where_it_cannot_be_read(
    log: SlowLog, worker: eddy.Worker
) -> None:
    meter = Meter(worker, lambda: log.now)
    log.took_s, log.asked = 0.5, 0
    for _ in range(100):
        log.now += 1.0
        sample = meter.sample(1.0)
        assert sample is not None
        assert sample.lag == 3
    assert log.asked == pytest.approx(10, abs=1)
    worker.run_until_idle()
    log.away = True
    log.now += 100.0
    sample = meter.sample(1.0)
    assert sample is not None
    assert sample.lag == 3
