"""Event times that a source's function reads from its records."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import eddy
from eddy.errors import DataError, TopologyError

S, N, J = eddy.String, eddy.Int64, eddy.Json()
Driver = eddy.TopologyTestDriver


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def reading(timestamp: Callable[..., Any], on_error: Any = "fail", partitions: int = 1) -> Driver:
    """Counts in windows of 10 ms."""
    topology = eddy.Topology("app")
    events = topology.stream("in", S, J, timestamp=timestamp)
    events.group_by_key().windowed_by(eddy.TimeWindows(ms(10))).count("n").to("out")
    return Driver(topology, eddy.Config(on_error=on_error), partitions=partitions)


def spans(driver: Driver) -> list[tuple[str, int, int]]:
    return [(key.key, key.start_ms, count) for key, count in driver.output("out").read_key_values()]


def test_windows_lateness_and_written_times_are_those_of_the_function() -> None:
    with reading(lambda value: value["at"]) as driver:
        driver.input("in").pipe_all([("a", {"at": 3}), ("a", {"at": 25}), ("a", {"at": 4})], timestamp_ms=90_000)
        assert spans(driver) == [("a", 0, 1), ("a", 20, 1)]
        assert driver.worker.statistics.late == 1
        driver.input("in").pipe("a", {"at": 27}, timestamp_ms=1)
        assert [record.timestamp_ms for record in driver.output("out").read_records()] == [27]


def test_a_function_may_have_the_key_and_return_a_datetime() -> None:
    zone = timezone(timedelta(hours=2))
    topology = eddy.Topology("app")
    events = topology.stream(
        "in", S, J, timestamp=lambda key, value: datetime.fromtimestamp(int(key) + value / 1000, UTC).astimezone(zone)
    )
    events.to("out")
    with Driver(topology) as driver:
        driver.input("in").pipe("7", 5)
        assert [record.timestamp_ms for record in driver.output("out").read_records()] == [7_005]


def test_a_record_without_a_value_has_the_timestamp_of_the_log() -> None:
    topology = eddy.Topology("app")
    topology.table("in", S, J, timestamp=lambda value: value["at"]).to("out")
    with Driver(topology) as driver:
        driver.input("in").pipe("a", {"at": 5}, timestamp_ms=70)
        driver.input("in").pipe("a", None, timestamp_ms=80)
        assert [(r.value, r.timestamp_ms) for r in driver.output("out").read_records()] == [({"at": 5}, 5), (None, 80)]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, r"timestamp raised KeyError: 'at' \(.*test_timestamps.py:\d+"),
        ({"at": None}, "timestamp returned None: whole milliseconds since 1970, or a datetime with a time zone"),
        ({"at": True}, "timestamp returned True: whole milliseconds"),
        ({"at": 1.5}, "timestamp returned 1.5: whole milliseconds"),
        ({"at": -1}, "timestamp returned -1: a time from 1970 to the year 9999"),
        ({"at": 253_402_300_800_000}, "timestamp returned 253402300800000: a time from 1970"),
    ],
)
def test_a_record_without_an_event_time_is_rejected(value: Any, told: str) -> None:
    with reading(lambda value: value["at"]) as driver, pytest.raises(DataError, match=rf"offset 0 key b'a': {told}"):
        driver.input("in").pipe("a", value)
    with reading(lambda value: value["at"], "dead-letter") as driver:
        driver.input("in").pipe_all([("a", {"at": 1}), ("a", value), ("a", {"at": 2})])
        assert spans(driver) == [("a", 0, 2)]
        (letter,) = driver.output("app-dead-letter", key=eddy.Bytes, value=eddy.Bytes).read_records()
        assert told.split(":")[0].partition("(")[0] in dict(letter.headers)["eddy.error"].decode()


def test_a_datetime_without_a_zone_is_rejected() -> None:
    naive = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    told = "without a time zone it is another moment on each machine"
    with reading(lambda value: naive) as driver, pytest.raises(DataError, match=told):
        driver.input("in").pipe("a", {})


def test_values_that_do_not_decode_are_told_as_ever() -> None:
    with reading(lambda value: value["at"]) as driver, pytest.raises(DataError, match=r"the value b'\{' is no"):
        driver.input("in").pipe_raw(b"a", b"{")


def test_rows_of_a_table_expire_by_them() -> None:
    topology = eddy.Topology("app")
    events = topology.stream("in", S, J, timestamp=lambda value: value["at"])
    events.to_table("latest", expire_after=ms(10), expire_by="event time").to("out")
    with Driver(topology) as driver:
        driver.input("in").pipe_all([("a", {"at": 5}), ("b", {"at": 14})], timestamp_ms=0)
        assert set(driver.store("latest").all()) == {"a", "b"}
        driver.input("in").pipe("b", {"at": 15}, timestamp_ms=0)
        assert set(driver.store("latest").all()) == {"b"}


def test_the_record_that_fails_behind_an_exchange_is_found() -> None:
    """The timestamps of the log are those of other records."""
    topology = eddy.Topology("app")
    events = topology.stream("in", S, N, timestamp=lambda value: value)
    sent = events.select_key(lambda key, value: f"k{value}", key=S).repartition(1)
    sent.map_values(lambda value: 6 // (value - 3), value=N).to("out")
    with Driver(topology, eddy.Config(on_error="dead-letter")) as driver:
        driver.input("in").pipe_all([("a", 2), ("a", 3), ("a", 1), ("a", 5)])
        assert [record.timestamp_ms for record in driver.output("out").read_records()] == [2, 1, 5]
        (letter,) = driver.output("app-dead-letter", key=eddy.Bytes, value=eddy.Bytes).read_records()
        assert (letter.value, dict(letter.headers)["eddy.offset"]) == (N.encode(3), b"1")


def test_several_topics_have_one_function() -> None:
    topology = eddy.Topology("app")
    topology.stream(["in", "more"], S, N, timestamp=lambda value: value).to("out")
    with Driver(topology) as driver:
        driver.input("in").pipe("a", 5)
        driver.input("more").pipe("a", 6)
        assert [record.timestamp_ms for record in driver.output("out").read_records()] == [5, 6]


@pytest.mark.parametrize("timestamp", [7, "at", lambda one, other, third: 0])
def test_what_is_no_function_is_refused_where_it_is_written(timestamp: Any) -> None:
    with pytest.raises(TopologyError, match="topic 'in': timestamp"):
        eddy.Topology("app").stream("in", S, J, timestamp=timestamp)
