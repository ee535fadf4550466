"""Joins as of each record's time: what a user of versioned tables expects, and bad input; the law is in
`test_as_of_laws.py`.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import eddy
from eddy.operators.context import Context
from eddy.operators.windows.windowed_fold import OpenWindow
from tests.topology.joining import ms

S, N, Native = eddy.String, eddy.Int64, eddy.Native
HOUR = eddy.AsOf(timedelta(hours=1))
Record = tuple[str, str | None, str | None, int]
"""The topic, the key, the value, the timestamp."""


def both(one: Any, other: Any) -> Any:
    return one, other


def joining(method: str = "join", as_of: eddy.AsOf = HOUR, **options: Any) -> eddy.Topology:
    topology = eddy.Topology("app")
    orders, rates = topology.stream("orders", S, S), topology.stream("rates", S, S)
    getattr(orders, method)(rates, both, as_of, **options).to("out", value=Native)
    return topology


def piped(topology: eddy.Topology, *records: Record, partitions: int = 1) -> eddy.TopologyTestDriver:
    driver = eddy.TopologyTestDriver(topology, partitions=partitions)
    for topic, key, value, time in records:
        driver.input(topic).pipe(key, value, time)
    return driver


def rows(driver: eddy.TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    return [(one.key, one.value, one.timestamp_ms) for one in driver.output("out").read_records()]


RATES: list[Record] = [("rates", "a", "r10", 10), ("rates", "a", "r20", 20), ("rates", "b", "s15", 15)]
END: Record = ("rates", "z", "end", 1_000)


def test_a_record_has_the_value_of_its_time_whenever_it_comes() -> None:
    orders: list[Record] = [("orders", "a", f"o{time}", time) for time in (9, 10, 19, 20, 500)]
    expected = [("a", ("o10", "r10"), 10), ("a", ("o19", "r10"), 19), ("a", ("o20", "r20"), 20)]
    expected.append(("a", ("o500", "r20"), 500))
    for records in ([*RATES, END, *orders], [*orders, *RATES, END], [*RATES[:1], *orders, *RATES[1:], END]):
        with piped(joining(), *records) as driver:
            assert rows(driver) == expected
        with piped(joining("left_join"), *records) as driver:
            assert rows(driver) == [("a", ("o9", None), 9), *expected]


def test_a_record_waits_until_no_value_of_its_time_can_come() -> None:
    with piped(joining(as_of=eddy.AsOf(ms(99), grace=ms(5)), name="rated"), *RATES) as driver:
        driver.input("orders").pipe("a", "o20", 20)
        driver.input("rates").pipe("b", "t", 25)
        assert rows(driver) == []
        driver.input("rates").pipe("a", "r20 again", 20)
        driver.input("rates").pipe("b", "u", 26)
        assert rows(driver) == [("a", ("o20", "r20 again"), 20)]
        driver.input("rates").pipe("a", "late", 20)
        driver.input("orders").pipe("a", "o20", 20)
        assert rows(driver) == [("a", ("o20", "r20 again"), 20)]
        assert driver.worker.statistics.late == 1


def test_a_record_without_a_value_deletes_the_value_before_it() -> None:
    records: list[Record] = [*RATES, ("rates", "a", None, 30), ("rates", "a", "r40", 40), END]
    records += [("orders", "a", f"o{time}", time) for time in (29, 30, 39, 40)]
    with piped(joining("left_join"), *records) as driver:
        values = {value[0]: value[1] for _, value, _ in rows(driver)}
        assert values == {"o29": "r20", "o30": None, "o39": None, "o40": "r40"}
    with piped(joining(), *records) as driver:
        assert [value for _, value, _ in rows(driver)] == [("o29", "r20"), ("o40", "r40")]


def test_a_record_without_a_key_has_no_value() -> None:
    records: list[Record] = [*RATES, ("orders", None, "o", 12), ("orders", "a", None, 12), END]
    with piped(joining("left_join"), *records) as driver:
        assert rows(driver) == [(None, ("o", None), 12)]
    with piped(joining(), *records) as driver:
        assert rows(driver) == []


def test_what_no_record_can_ask_for_is_removed() -> None:
    with piped(joining(as_of=eddy.AsOf(ms(50)), name="rated")) as driver:
        states = driver.worker.circuit.states

        def versions() -> list[Any]:
            return [value[0] for (_, value), _ in states["rated-versions"].items()]

        driver.input("rates").pipe_all([("a", f"r{n}") for n in range(5)], 0)
        for time in range(1, 200):
            driver.input("rates").pipe("a", f"r{time}", time)
        driver.input("rates").pipe("b", None, 200)
        assert len(versions()) == 201  # no order was read, so that any of them may be asked for
        driver.input("orders").pipe("a", "o", 240)
        assert sorted(versions(), key=str) == [None, *(f"r{n}" for n in range(189, 200))]
        driver.input("orders").pipe("a", "p", 400)
        driver.input("rates").pipe("c", "end", 401)
        assert versions() == ["r199", "end"]
        assert not list(states["rated-waiting"].items())
        assert rows(driver) == [("a", ("o", "r199"), 240), ("a", ("p", "r199"), 400)]


def test_a_late_record_is_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    records: list[Record] = [*RATES, ("orders", "a", "x", 90), ("orders", "a", "on time", 40)]
    with piped(joining(as_of=eddy.AsOf(ms(50)), name="rated"), *records, ("orders", "a", "late", 39), END) as driver:
        assert rows(driver) == [("a", ("on time", "r20"), 40), ("a", ("x", "r20"), 90)]
        assert driver.worker.statistics.late == 2  # rate s15 came after r20 of its partition, without a grace
        told = {record.getMessage() for record in caplog.records if "late" in record.getMessage()}
        assert told == {"windows after 'rated': records were late for 1 window(s), which were over with their grace"}


def test_the_clock_lets_records_go_on_if_no_value_comes() -> None:
    topology = eddy.Topology("app")
    orders = topology.stream("orders", S, S)
    rates = topology.stream("rates", S, S, idle_after=timedelta(seconds=10))
    orders.join(rates, both, HOUR).to("out", value=Native)
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("rates").pipe("a", "r", 1_000)
        driver.input("orders").pipe("a", "o", 2_000)
        assert rows(driver) == []
        driver.advance_wall_clock_time(timedelta(days=1))
        assert rows(driver) == [("a", ("o", "r"), 2_000)]


def test_the_stream_of_values_is_a_table_too() -> None:
    topology = eddy.Topology("app")
    orders, rates = topology.stream("orders", S, S), topology.stream("rates", S, S)
    rated = orders.join(rates, both, HOUR, name="rated")
    table = rates.to_table("latest")
    rated.join(table, lambda pair, latest: (*pair, latest)).to("out", value=Native)
    records: list[Record] = [*RATES, END, ("orders", "a", "o", 12)]
    with piped(topology, *records, partitions=3) as driver:
        for number in range(30):
            driver.input("rates").pipe(f"end {number}", "x", 2_000)
        assert rows(driver) == [("a", ("o", "r10", "r20"), 12)]


@pytest.mark.slow
def test_many_records_are_joined_in_several_steps_with_the_values_of_their_times() -> None:
    with piped(joining(as_of=eddy.AsOf(ms(0)), name="rated")) as driver:
        driver.input("rates").pipe_all([("a", "old")], 0)
        for time in range(45):
            driver.input("orders").pipe_all([("a", str(n)) for n in range(1_000 * time, 1_000 * time + 1_000)], time)
        driver.input("rates").pipe("a", "new", 30)
        driver.input("rates").pipe("a", "newest", 90_000)
        found = {value for _, value, _ in rows(driver)}
        assert found == {(str(n), "old" if n < 30_000 else "new") for n in range(45_000)}
        assert [value for (_, value), _ in driver.worker.circuit.states["rated-versions"].items()] == [
            ("new",),
            ("newest",),
        ]


def test_a_restart_that_loses_its_disk_goes_on() -> None:
    with piped(joining("left_join"), *RATES, ("orders", "a", "o", 30)) as driver:
        driver.restart(lose_state=True)
        driver.input("orders").pipe("b", "p", 31)
        driver.restart(lose_state=True)
        driver.input("rates").pipe(*END[1:])
        assert rows(driver) == [("a", ("o", "r20"), 30), ("b", ("p", None), 31)]


def test_a_value_that_the_state_cannot_have_is_set_aside_alone() -> None:
    topology = eddy.Topology("app")
    rates = topology.stream("rates", S, N).map_values(lambda value: 2**70 if value == 13 else value, value=N)
    topology.stream("orders", S, N).join(rates, lambda one, other: one * other, HOUR, N).to("out")
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="skip")) as driver:
        driver.input("rates").pipe_all([("a", 5), ("b", 13), ("b", 7)], 1)
        driver.input("orders").pipe_all([("a", 2), ("b", 3)], 2)
        driver.input("rates").pipe("z", 0, 9)
        assert sorted(driver.output("out").read_key_values()) == [("a", 10), ("b", 21)]
        assert driver.worker.statistics.set_aside == 1


def test_what_a_record_waits_for_is_named() -> None:
    with piped(joining(as_of=eddy.AsOf(ms(9), grace=ms(2)), name="rated"), ("orders", "a", "x", 50)) as driver:
        (found,) = driver.worker.circuit.open_windows(Context(event_time={("orders", 0): 70}))
        assert found == OpenWindow("rated", "rates", 0, 70 - (50 + 2 + 1))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: eddy.AsOf(5), "AsOf: history=5; a timedelta"),  # type: ignore[arg-type]
        (lambda: eddy.AsOf(ms(-1)), "AsOf: history=.* from 0"),
        (lambda: eddy.AsOf(ms(1), grace=timedelta(microseconds=5)), "AsOf: grace=.* whole milliseconds"),
    ],
)
def test_what_is_no_span_is_refused_where_it_is_written(make: Callable[[], object], told: str) -> None:
    with pytest.raises(eddy.TopologyError, match=told):
        make()


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda s, t: s.join(t.table("rates", S, S), both, HOUR), "join the stream of which the table is made"),
        (lambda s, t: s.outer_join(t.stream("rates", S, S), both, HOUR), "outer_join after 's'.* is never unmatched"),
        (lambda s, t: s.join(t.stream("rates", N, S), both, HOUR), "'s' writes its keys as string, 'rates' as int64"),
        (lambda s, t: s.join(s.to_table("t").to_stream(), both, HOUR), "not records of a source"),
        (lambda s, t: s.join(eddy.Topology("other").stream("x", S, S), both, HOUR), "topology 'app', the other"),
        (lambda s, t: s.join(t.stream("rates", S, S), lambda one: one, HOUR), "is called with"),
    ],
)
def test_what_cannot_be_joined_is_refused_by_name(build: Callable[[Any, Any], object], told: str) -> None:
    topology = eddy.Topology("app")
    with pytest.raises(eddy.TopologyError, match=told):
        build(topology.stream("s", S, S), topology)
