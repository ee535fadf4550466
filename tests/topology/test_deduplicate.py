"""Records once within a span of event time: what a user expects, and bad input; the law is in
`test_deduplicate_laws.py`.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.errors import DataError, TopologyError
from eddy.operators.context import Context
from eddy.operators.windows.windowed_fold import OpenWindow
from eddy.state.memory import MemoryStore
from tests.topology.joining import ms
from tests.waiting import step_to_rest

S, N, Native = eddy.String, eddy.Int64, eddy.Native
Record = tuple[str | None, str | None, int]
"""The key, the value, the timestamp."""


def second(key: Any, value: Any) -> Any:
    return value and value[1]


def topology_of(by: Any = second, within: int = 10, **options: Any) -> eddy.Topology:
    topology = eddy.Topology("app")
    topology.stream("in", S, S).deduplicate(by, within=ms(within), name="once", **options).to("out")
    return topology


def piped(topology: eddy.Topology, *records: Record, partitions: int = 1) -> eddy.TopologyTestDriver:
    driver = eddy.TopologyTestDriver(topology, partitions=partitions)
    for key, value, time in records:
        driver.input("in").pipe(key, value, time)
    return driver


def passed(driver: eddy.TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    return [(one.key, one.value, one.timestamp_ms) for one in driver.output("out").read_records()]


def test_the_first_record_of_a_value_passes_at_once_and_others_near_it_do_not() -> None:
    with piped(topology_of(), ("k", "1a", 100), ("k", "2b", 100), ("l", "3a", 109)) as driver:
        assert passed(driver) == [("k", "1a", 100), ("k", "2b", 100)]
        driver.input("in").pipe("k", "4a", 110)
        driver.input("in").pipe("k", "5a", 111)
        assert passed(driver) == [("k", "4a", 110)]
        assert driver.worker.statistics.duplicates == 2


def test_a_record_with_an_earlier_time_is_a_duplicate_of_the_one_that_was_read_before_it() -> None:
    with piped(topology_of(), ("k", "1a", 100), ("k", "2a", 91), ("k", "3b", 95)) as driver:
        assert passed(driver) == [("k", "1a", 100), ("k", "3b", 95)]
        assert (driver.worker.statistics.duplicates, driver.worker.statistics.late) == (1, 0)


def test_a_record_that_is_late_does_not_pass() -> None:
    late = ("k", "2b", 90)
    with piped(topology_of(), ("k", "1a", 100), late) as driver:
        assert passed(driver) == [("k", "1a", 100)]
        assert (driver.worker.statistics.duplicates, driver.worker.statistics.late) == (0, 1)
    with piped(topology_of(grace=ms(1)), ("k", "1a", 100), late) as driver:
        assert passed(driver) == [("k", "1a", 100), late]


def test_without_a_function_it_is_by_the_key_and_no_partition_waits_for_another() -> None:
    records = [("a", "1", 5), ("b", "2", 6), ("a", "3", 9), ("b", "4", 7), ("a", None, 16), (None, "5", 17)]
    topology = topology_of(None)
    with piped(topology, *records, partitions=3) as driver:
        assert sorted(passed(driver), key=str) == [("a", "1", 5), ("a", None, 16), ("b", "2", 6)]
        assert driver.worker.statistics.dropped == 1
        assert "-repartition" not in topology.describe()


def test_a_record_waits_until_all_partitions_have_reached_its_time() -> None:
    with piped(topology_of(), ("a", "1x", 50), partitions=2) as driver:
        assert passed(driver) == []
        driver.input("in").pipe("d", "2x", 45)  # in the other partition, and before it
        assert passed(driver) == [("d", "2x", 45)]
        driver.input("in").pipe("d", "3y", 51)
        assert (passed(driver), driver.worker.statistics.duplicates) == ([], 1)
        driver.input("in").pipe("a", "4z", 60)
        assert passed(driver) == [("d", "3y", 51)]


def test_an_idle_partition_lets_records_pass() -> None:
    topology = eddy.Topology("app")
    source = topology.stream("in", S, S, idle_after=timedelta(seconds=5))
    source.deduplicate(second, within=ms(10)).to("out")
    with eddy.TopologyTestDriver(topology, initial_wall_clock_ms=0, partitions=3) as driver:
        driver.input("in").pipe("a", "1x", 50)
        assert passed(driver) == []
        driver.advance_wall_clock_time(timedelta(seconds=6))
        driver.advance_wall_clock_time(timedelta(seconds=6))
        assert passed(driver) == [("a", "1x", 50)]


def test_a_moment_is_kept_while_a_record_near_it_may_come() -> None:
    with piped(topology_of(grace=ms(3)), ("k", "1a", 100), ("k", "2b", 122)) as driver:
        states = driver.worker.circuit.states
        assert dict(states["once-passed"].items()) == {"a": (100,), "b": (122,)}  # type: ignore[attr-defined]
        driver.input("in").pipe("k", "3b", 123)
        assert dict(states["once-passed"].items()) == {"b": (122,)}  # type: ignore[attr-defined]
        assert not list(states["once-waiting"].items([0]))  # type: ignore[attr-defined]


def test_headers_and_the_record_of_the_function() -> None:
    topology = eddy.Topology("app")
    source = topology.stream("in", S, S)
    source.deduplicate(lambda key, value, record: dict(record.headers)["id"], within=ms(9), key=eddy.Bytes).to("out")
    with eddy.TopologyTestDriver(topology) as driver:
        for value, identity in [("1", b"x"), ("2", b"x"), ("3", b"y")]:
            driver.input("in").pipe("k", value, 5, headers=[("id", identity)])
        found = [(record.value, record.headers) for record in driver.output("out").read_records()]
    assert found == [("1", (("id", b"x"),)), ("3", (("id", b"y"),))]


@pytest.mark.parametrize("count", [1, 2])
def test_headers_are_kept_through_an_exchange_and_while_a_record_waits(count: int) -> None:
    log = LocalLog(None)
    log.create_topics(TopicSpec(topic, 3) for topic in ("in", "out"))
    workers = [
        eddy.Worker(topology_of(), log, member=str(number), store=MemoryStore(), clock=lambda: 0.0)
        for number in range(count)
    ]
    producer = log.producer(None)
    for time in (10, 20):
        producer.begin()
        for partition, letter in enumerate("abc"):
            headers = [(("from", letter.encode()),)]
            producer.send("in", partition, [b"k"], [f"{time}{letter}"[1:].encode()], [time], headers)
        producer.commit({}, None)
        step_to_rest(workers)
    producer.close()
    found = []
    for partition in range(3):
        at = TopicPartition("out", partition)
        records = log.read(at, 0, log.end_offsets([at])[at], 100)
        found += list(zip(records.values, records.headers or [()] * len(records.values), strict=True))
    own = [(value, tuple(h for h in headers if not h[0].startswith("eddy."))) for value, headers in found]
    assert sorted(own) == sorted(
        (f"0{letter}".encode(), (("from", letter.encode()),))
        for _, letter in [*zip("123", "abc", strict=True), (2, "a")]
    )
    for worker in workers:
        worker.close()


def test_it_goes_on_from_changelogs() -> None:
    with piped(topology_of(), ("a", "1x", 50), ("d", "2y", 40), partitions=2) as driver:
        assert passed(driver) == [("d", "2y", 40)]
        driver.restart(lose_state=True)
        driver.input("in").pipe("d", "3y", 49)
        driver.restart(lose_state=True)
        driver.input("in").pipe("d", "4x", 55)
        assert passed(driver) == [("a", "1x", 50)]
        driver.input("in").pipe("a", "5z", 70)
        driver.input("in").pipe("d", "6z", 80)
        assert passed(driver) == [("a", "5z", 70)]
        assert driver.worker.statistics.duplicates == 1  # since the last start, without 3y, which came before it


@pytest.mark.parametrize(
    ("by", "why"),
    [
        (lambda key, value: 1 / int(value), "ZeroDivisionError: division by zero"),
        (lambda key, value: [value], "deduplicate 'once': by= returned .'0'., which cannot be compared by hash"),
        (lambda key, value: complex(1), "key .1.0j. is not a valid native: complex has no native form"),
    ],
)
def test_a_record_whose_value_cannot_be_told_is_the_records_own_error(by: Callable[..., Any], why: str) -> None:
    with pytest.raises(DataError, match=why):
        piped(topology_of(by), ("k", "0", 5))
    config = eddy.Config(on_error="skip")
    safe = topology_of(lambda key, value: by(key, value) if value == "0" else value)
    with eddy.TopologyTestDriver(safe, config=config) as driver:
        driver.input("in").pipe_all([("k", "7"), ("k", "0"), ("k", "8")], 5)
        assert [value for _, value, _ in passed(driver)] == ["7", "8"]


@pytest.mark.parametrize("sent", [False, True])
def test_a_record_that_the_state_cannot_write_is_left_out(sent: bool) -> None:
    topology = eddy.Topology("app")
    stream = topology.stream("in", S, S)
    odd = (stream.repartition(2) if sent else stream).map_values(lambda value: {1} if value == "0" else value)
    odd.deduplicate(lambda key, value: key, within=ms(9), name="once").map_values(str, value=S).to("out")
    with eddy.TopologyTestDriver(topology, config=eddy.Config(on_error="skip")) as driver:
        driver.input("in").pipe_all([("k", "0"), ("k", "7")], 5)
        driver.advance_event_time(6)
        assert driver.output("out").read_key_values() == [("k", "7")]
        assert driver.worker.statistics.set_aside + driver.worker.statistics.skipped == 1


def refused(build: Callable[[eddy.KStream[str, str]], Any]) -> str:
    with pytest.raises(TopologyError) as told:
        build(eddy.Topology("app").stream("in", S, S))
    return str(told.value)


def test_what_is_refused() -> None:
    assert "within=datetime.timedelta(0); a timedelta" in refused(lambda s: s.deduplicate(within=ms(0)))
    assert "key=string is the serde of what by= returns" in refused(lambda s: s.deduplicate(within=ms(1), key=S))
    assert "a stream of records is needed" in refused(lambda s: s.to_table("t").to_stream().deduplicate(within=ms(1)))
    assert "inside recursively" in refused(
        lambda s: s.recursively(lambda rows: rows.filter(second).deduplicate(within=ms(1)), name="r")
    )
    windows = eddy.TimeWindows(ms(5))
    again = refused(lambda s: s.deduplicate(second, within=ms(1)).group_by_key().windowed_by(windows))
    assert "step 'in-deduplicate' makes rows that are not records of a source" in again


def test_records_of_one_topic_that_are_told_by_their_keys_are_still_records_of_their_source() -> None:
    topology = eddy.Topology("app")
    once = topology.stream("in", S, S).deduplicate(within=ms(4))
    once.group_by(lambda key, value: value[0], key=S).windowed_by(eddy.TimeWindows(ms(10))).count("n")
    placed = once.map_values(lambda value, record: (record.topic, record.offset, record.timestamp_ms))
    placed.to("out", value=Native)
    with eddy.TopologyTestDriver(topology) as driver:
        for key, value, time in [("a", "1", 5), ("a", "2", 8), ("b", "3", 9), ("a", "4", 11), ("c", "5", 10)]:
            driver.input("in").pipe(key, value, timestamp_ms=time)
        counts = {(window.key, window.start_ms): n for window, n in driver.store("n").all().items()}
        assert [value for _, value in driver.output("out").read_key_values()] == [
            ("in", 0, 5),
            ("in", 4, 9),
            ("in", 6, 11),
            ("in", 8, 10),
        ]
        assert counts == {("4", 10): 1, ("5", 10): 1}
        assert driver.worker.statistics.duplicates == 1


def test_two_spans_are_two_steps() -> None:
    stream = eddy.Topology("app").stream("in", S, S)
    stream.deduplicate(within=ms(1))
    with pytest.raises(TopologyError, match="the name is taken"):
        stream.deduplicate(within=ms(2))


def test_open_windows_name_the_partition_that_is_waited_for() -> None:
    with piped(topology_of(), ("a", "1x", 50), ("d", "2x", 40), partitions=2) as driver:
        times = {("in", 0): 50, ("in", 1): 40}
        assert driver.worker.circuit.open_windows(Context(event_time=times)) == [OpenWindow("once", "in", 1, 0)]
        times["in", 0] = 57
        assert driver.worker.circuit.open_windows(Context(event_time=times)) == [OpenWindow("once", "in", 1, 7)]


def test_after_an_exchange_records_have_the_order_of_their_source() -> None:
    topology = eddy.Topology("app")
    by_value = topology.stream("in", S, S).select_key(lambda key, value: value, key=S).repartition(3)
    by_value.deduplicate(within=ms(10), name="once").to("out")
    with eddy.TopologyTestDriver(topology, partitions=2) as driver:
        for key, value, at in [("a", "x", 1), ("b", "x", 2), ("c", "y", 3), ("d", "x", 20)]:
            driver.input("in").pipe(key, value, timestamp_ms=at)
        driver.advance_event_time(21)
        assert sorted(driver.output("out").read_key_values()) == [("x", "x"), ("x", "x"), ("y", "y")]
