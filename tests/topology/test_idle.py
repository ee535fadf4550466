"""Partitions that are idle: their event time goes on with the wall clock, so that windows close without records."""

import time
import uuid
from contextlib import closing
from datetime import timedelta

import pytest

import eddy
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import TopicPartition, TopicSpec
from tests.connectors.steps import QUICK_SESSIONS, wait_for

S, N = eddy.String, eddy.Int64
MINUTE = timedelta(minutes=1)


def counts(topic: str = "in", idle_after: timedelta = 2 * MINUTE, by_value: bool = False) -> eddy.Topology:
    topology = eddy.Topology(f"{topic}-app")
    records = topology.stream(topic, S, S, idle_after=idle_after)
    groups = records.group_by(lambda key, value: value, key=S) if by_value else records.group_by_key()
    counted = groups.windowed_by(eddy.TimeWindows(MINUTE), emit="close").count("n").to_stream()
    counted.map(lambda window, n: (window.key, n), key=S, value=N).to(f"{topic}-out")
    return topology


@pytest.mark.parametrize("by_value", [False, True])
def test_windows_close_without_records_when_their_partitions_are_idle(by_value: bool) -> None:
    with eddy.TopologyTestDriver(counts(by_value=by_value), partitions=3) as driver:
        driver.advance_wall_clock_time(10 * MINUTE)
        for key, minute in [("a", 9), ("b", 9), ("b", 10)]:
            driver.input("in").pipe(key, key, timestamp_ms=minute * 60_000)
        driver.advance_wall_clock_time(timedelta(seconds=119))
        out = driver.output("in-out")
        assert out.read_key_values() == ([] if by_value else [("b", 1)])
        driver.advance_wall_clock_time(timedelta(seconds=1))  # each partition is at minute 10
        assert out.read_key_values() == ([("a", 1), ("b", 1)] if by_value else [("a", 1)])
        driver.advance_wall_clock_time(2 * MINUTE)
        assert out.read_key_values() == [("b", 1)]


def test_a_record_after_an_idle_time_is_late_as_after_records() -> None:
    with eddy.TopologyTestDriver(counts()) as driver:
        driver.advance_wall_clock_time(10 * MINUTE)
        driver.input("in").pipe("a", "x", timestamp_ms=9 * 60_000)
        driver.advance_wall_clock_time(4 * MINUTE)
        driver.restart(lose_state=True)
        driver.input("in").pipe("a", "x", timestamp_ms=9 * 60_000)
        driver.input("in").pipe("a", "x", timestamp_ms=11 * 60_000)
        assert driver.worker.statistics.late == 2
        driver.input("in").pipe("a", "x", timestamp_ms=12 * 60_000)
        assert driver.worker.statistics.late == 2
        assert driver.output("in-out").read_key_values() == [("a", 1)]


def test_a_partition_with_records_or_with_a_later_event_time_is_not_idle() -> None:
    with eddy.TopologyTestDriver(counts()) as driver:
        for _ in range(3):
            driver.advance_wall_clock_time(MINUTE)
            driver.input("in").pipe("a", "x", timestamp_ms=0)
        assert driver.output("in-out").read_key_values() == []
        driver.input("in").pipe("b", "x", timestamp_ms=50 * 60_000)
        driver.advance_wall_clock_time(9 * MINUTE)
        assert driver.worker.positions.entry.event_time == {("in", 0): 50 * 60_000}


def test_rows_expire_and_schedules_run_when_their_partition_is_idle() -> None:
    told: list[int] = []

    class Teller:
        def init(self, context: eddy.ProcessorContext) -> None:
            context.schedule(MINUTE, "event time", told.append)

        def process(self, record: eddy.Record[str, str]) -> None: ...

    topology = eddy.Topology("app")
    records = topology.stream("in", S, S, idle_after=MINUTE)
    records.to_table("last", MINUTE, "event time")
    records.process(Teller, [], "teller", S, S).to("told")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("in").pipe("a", "x", timestamp_ms=30_000)
        driver.advance_wall_clock_time(MINUTE)
        assert driver.store("last").all() == {"a": "x"}
        driver.advance_wall_clock_time(2 * MINUTE)
        assert driver.store("last").all() == {}
        assert told == [2 * 60_000]


def test_a_driver_advances_event_time_without_records() -> None:
    topology = eddy.Topology("app")
    records = topology.stream("in", S, S)
    windows = eddy.TimeWindows(MINUTE, grace=MINUTE)
    records.group_by(lambda key, value: value, key=S).windowed_by(windows, "close").count("n").to("out", value=N)
    with eddy.TopologyTestDriver(topology, partitions=3) as driver:
        driver.input("in").pipe_all([("a", "x"), ("b", "x")], 30_000)
        driver.advance_event_time(119_999)
        assert driver.output("out").read_key_values() == []
        driver.input("in").pipe("c", "x", 59_999)
        driver.advance_event_time(120_000)
        assert [n for _, n in driver.output("out").read_key_values()] == [3]
        driver.advance_event_time(60_000)
        driver.input("in").pipe("c", "x", 59_999)
        assert driver.worker.statistics.late == 1
        for wrong in (-1, 1.5, None):
            with pytest.raises(eddy.TopologyError, match="advance_event_time: to_ms="):
                driver.advance_event_time(wrong)  # type: ignore[arg-type]
    topology = eddy.Topology("app")
    topology.stream("in", S, S).to("out")
    with eddy.TopologyTestDriver(topology) as driver, pytest.raises(eddy.TopologyError, match="reads event times"):
        driver.advance_event_time(1)


def test_an_idle_time_that_is_none_is_refused_where_it_is_written() -> None:
    for wrong in (timedelta(0), 5, timedelta(microseconds=3)):
        with pytest.raises(eddy.TopologyError, match=r"topic 'in': idle_after=.* from a millisecond"):
            eddy.Topology("app").stream("in", S, S, idle_after=wrong)  # type: ignore[arg-type]


def test_on_kafka_a_partition_is_idle_behind_the_end_of_a_transaction(broker: str) -> None:
    topic = f"idle-{uuid.uuid4().hex[:8]}"
    log = KafkaLog(KafkaSettings.of(broker, pairs=QUICK_SESSIONS))
    log.create_topics([TopicSpec(topic, 2), TopicSpec(f"{topic}-out", 2)])
    now = round(time.time() * 1000)
    producer = log.producer(f"{topic}-writer")
    producer.begin()
    producer.send(topic, 0, [b"a"], [b"x"], [now])
    producer.commit({}, None)
    producer.close()
    topology = counts(topic, timedelta(seconds=1), by_value=True)
    ahead = 3 * MINUTE.total_seconds()  # by as much as the window is long, so that it closes soon
    out = [TopicPartition(f"{topic}-out", partition) for partition in range(2)]
    with closing(log), closing(eddy.Worker(topology, log, wall=lambda: time.time() + ahead)) as worker:
        wait_for(lambda: worker.step(0.1) == 0 and sum(log.end_offsets(out).values()) > 0)
