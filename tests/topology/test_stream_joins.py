"""Joins of streams in time: what a user of Kafka Streams expects, and bad input; the law is in
`test_stream_join_laws.py`.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.operators.context import Context
from eddy.operators.windows.windowed_fold import OpenWindow

S, N, Native = eddy.String, eddy.Int64, eddy.Native
Record = tuple[str, str | None, str | None, int]
"""The topic, the key, the value, the timestamp."""


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


FIVE = eddy.JoinWindows(ms(5))


def joining(method: str = "join", windows: eddy.JoinWindows = FIVE, **options: Any) -> eddy.Topology:
    topology = eddy.Topology("app")
    left, right = topology.stream("left", S, S), topology.stream("right", S, S)
    joined = getattr(left, method)(right, lambda one, other: (one, other), windows, **options)
    joined.to("out", value=Native)
    return topology


def piped(topology: eddy.Topology, *records: Record, partitions: int = 1) -> eddy.TopologyTestDriver:
    driver = eddy.TopologyTestDriver(topology, partitions=partitions)
    for topic, key, value, time in records:
        driver.input(topic).pipe(key, value, time)
    return driver


def rows(driver: eddy.TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    return [(one.key, one.value, one.timestamp_ms) for one in driver.output("out").read_records()]


def test_records_of_a_key_are_joined_within_the_window_whichever_comes_first() -> None:
    records: list[Record] = [("left", "a", "l10", 10), ("right", "a", "r5", 5), ("right", "a", "r15", 15)]
    records += [("right", "a", "r16", 16), ("right", "b", "r10", 10), ("left", "a", "l20", 20)]
    with piped(joining(windows=eddy.JoinWindows(ms(5), grace=ms(99))), *records) as driver:
        pairs = [("a", ("l10", "r5"), 10), ("a", ("l10", "r15"), 15), ("a", ("l20", "r15"), 20)]
        assert rows(driver) == [*pairs, ("a", ("l20", "r16"), 20)]


@pytest.mark.parametrize(
    ("windows", "joined"),
    [
        (eddy.JoinWindows(before=ms(2), after=ms(1), grace=ms(9)), [8, 9, 10, 11]),
        (eddy.JoinWindows(ms(2), before=ms(0), grace=ms(9)), [10, 11, 12]),
        (eddy.JoinWindows(ms(2), before=ms(-1), grace=ms(9)), [11, 12]),
        (eddy.JoinWindows(before=ms(3), after=ms(-2), grace=ms(9)), [7, 8]),
        (eddy.JoinWindows(ms(0), grace=ms(9)), [10]),
    ],
)
def test_a_right_record_may_be_so_much_earlier_and_later(windows: eddy.JoinWindows, joined: list[int]) -> None:
    rights: list[Record] = [("right", "a", str(time), time) for time in range(5, 15)]
    with piped(joining(windows=windows), *rights, ("left", "a", "l", 10)) as driver:
        assert [int(value[1]) for _, value, _ in rows(driver)] == joined
    assert windows.size == ms(joined[-1] - joined[0])


def test_a_left_record_without_a_match_is_passed_on_once_when_none_can_come_any_more() -> None:
    with piped(joining("left_join", eddy.JoinWindows(ms(5), grace=ms(2)), name="near")) as driver:
        left, right = driver.input("left"), driver.input("right")
        left.pipe("a", "x", 10), left.pipe("b", "y", 10)
        right.pipe("b", "z", 14), right.pipe("c", "z", 14)
        left.pipe("c", "far ahead", 900)
        right.pipe("z", "tick", 22)
        assert rows(driver) == [("b", ("y", "z"), 14)]
        right.pipe("a", "not late yet", 15)
        right.pipe("z", "tick", 23)  # one of 15 is late now: its time, before and grace are over
        assert rows(driver) == [("a", ("x", "not late yet"), 15)]
        right.pipe("z", "tick", 912)
        assert rows(driver) == []
        right.pipe("z", "tick", 913)
        assert rows(driver) == [("c", ("far ahead", None), 900)]
        right.pipe("z", "tick", 2_000)
        assert rows(driver) == []
        states = driver.worker.circuit.states
        assert list(states["near-left"].items()) == []
        assert list(states["near-left-unmatched"].items()) == []


def test_both_sides_of_an_outer_join_are_passed_on() -> None:
    records: list[Record] = [("left", "a", "x", 10), ("right", "b", "y", 11)]
    with piped(joining("outer_join"), *records, ("left", "z", "t", 99), ("right", "z", "t", 99)) as driver:
        pairs = [("b", (None, "y"), 11), ("a", ("x", None), 10), ("z", ("t", "t"), 99)]
        assert sorted(rows(driver), key=str) == sorted(pairs, key=str)


def test_a_record_that_comes_when_its_window_is_over_for_the_other_side_is_passed_on_at_once() -> None:
    with piped(joining("left_join"), ("right", "a", "r", 9), ("right", "z", "t", 99)) as driver:
        driver.input("left").pipe("a", "x", 10)
        driver.input("left").pipe("b", "y", 10)
        assert rows(driver) == [("a", ("x", "r"), 10), ("b", ("y", None), 10)]


def test_records_without_a_key_have_no_match_and_those_without_a_value_are_dropped() -> None:
    records: list[Record] = [("left", None, "x", 1), ("right", None, "y", 2), ("left", "a", None, 3)]
    for method, found in [
        ("join", []),
        ("left_join", [(None, ("x", None), 1)]),
        ("outer_join", [(None, ("x", None), 1), (None, (None, "y"), 2)]),
    ]:
        with piped(joining(method), *records) as driver:
            assert rows(driver) == found
            assert driver.worker.statistics.dropped == 3 - len(found)


def test_a_late_record_is_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    windows = eddy.JoinWindows(before=ms(0), after=ms(5), grace=ms(2))
    records: list[Record] = [("left", "a", "x", 20), ("left", "a", "on time", 13), ("left", "a", "late", 12)]
    records += [("right", "a", "y", 20), ("right", "a", "on time", 18), ("right", "a", "late", 17)]
    with piped(joining(windows=windows, name="near"), *records) as driver:
        found = [("a", ("x", "y"), 20), ("a", ("on time", "on time"), 18)]
        assert rows(driver) == found
        assert driver.worker.statistics.late == 2
        told = {record.getMessage() for record in caplog.records if "late" in record.getMessage()}
        assert told == {"windows after 'near': records were late for 1 window(s), which were over with their grace"}


def test_equal_records_are_joined_as_often_as_they_are_there() -> None:
    with piped(joining()) as driver:
        driver.input("left").pipe_all([("a", "x"), ("a", "x")], 1)
        driver.input("right").pipe_all([("a", "y"), ("a", "y"), ("a", "z")], 2)
        assert sorted(rows(driver)) == [("a", ("x", "y"), 2)] * 4 + [("a", ("x", "z"), 2)] * 2


def test_a_stream_is_joined_with_itself() -> None:
    topology = eddy.Topology("app")
    clicks = topology.stream("left", S, S)
    clicks.join(clicks, lambda one, other: (one, other), FIVE).to("out", value=Native)
    with piped(topology, ("left", "a", "x", 1), ("left", "a", "y", 3)) as driver:
        assert sorted(rows(driver)) == [("a", pair, max(times)) for pair, times in PAIRS.items()]


PAIRS = {("x", "x"): (1, 1), ("x", "y"): (1, 3), ("y", "x"): (3, 1), ("y", "y"): (3, 3)}


def test_keys_that_begin_with_one_another_are_not_joined() -> None:
    topology = eddy.Topology("app")
    left, right = topology.stream("left", eddy.Bytes, S), topology.stream("right", eddy.Bytes, S)
    left.join(right, lambda one, other: (one, other), eddy.JoinWindows(timedelta(days=1))).to("out", value=Native)
    with eddy.TopologyTestDriver(topology) as driver:
        keys = [b"", b"\x00", b"a", b"a\x00", b"a" + bytes(8), b"a" + bytes(16), bytes(24)]
        driver.input("right").pipe_all([(key, str(n)) for n, key in enumerate(keys)], 0)
        driver.input("left").pipe_all([(key, str(n)) for n, key in enumerate(keys)], 0)
        assert sorted(one.value for one in driver.output("out").read_records()) == [(n, n) for n in "0123456"]


def test_a_joined_stream_is_grouped_joined_with_tables_and_rekeyed() -> None:
    topology = eddy.Topology("app")
    left, right = topology.stream("left", S, S), topology.stream("right", S, S)
    names = topology.table("names", S, S)
    near = left.left_join(right, lambda key, one, other: f"{key}{one}{other}", FIVE, S)
    near.group_by_key().count("pairs").to("counts", value=N)
    near.left_join(names, lambda one, name: f"{one} of {name}", value=S).to("named")
    near.group_by(lambda key, value: value[-1], key=S).count("by-end").to("ends", value=N)
    records: list[Record] = [("names", "a", "Ann", 0), ("left", "a", "x", 1), ("right", "a", "y", 2)]
    with piped(topology, *records, ("left", None, "u", 3), ("right", "a", "v", 3), partitions=3) as driver:
        assert driver.output("counts").read_map() == {"a": 2}
        assert sorted(driver.output("named").read_key_values(), key=str) == [
            ("a", "axv of Ann"),
            ("a", "axy of Ann"),
            (None, "NoneuNone of None"),
        ]
        assert driver.output("ends").read_map() == {"y": 1, "v": 1, "e": 1}


def test_a_joined_record_has_no_headers() -> None:
    with piped(joining()) as driver:
        driver.input("left").pipe("a", "x", 1, headers=[("from", b"left")])
        driver.input("right").pipe("a", "y", 1, headers=[("from", b"right")])
        (record,) = driver.output("out").read_records()
        assert record.headers == ()


def test_a_value_that_the_state_cannot_have_is_set_aside_alone() -> None:
    topology = eddy.Topology("app")
    left = topology.stream("left", S, N).map_values(lambda value: 2**70 if value == 13 else value, value=N)
    left.join(topology.stream("right", S, N), lambda one, other: one * other, FIVE, N).to("out")
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="skip")) as driver:
        driver.input("left").pipe_all([("a", 2), ("a", 13), ("b", 3)], 1)
        driver.input("right").pipe_all([("a", 5), ("b", 5)], 2)
        assert driver.output("out").read_key_values() == [("a", 10), ("b", 15)]
        assert driver.worker.statistics.set_aside == 1


def test_a_pair_on_which_the_joiner_fails_is_set_aside_alone() -> None:
    topology = eddy.Topology("app")
    left, right = topology.stream("left", S, N), topology.stream("right", S, N)
    left.join(right, lambda one, other: one // other, FIVE, N).to("out")
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="skip")) as driver:
        driver.input("left").pipe_all([("a", 6)], 1)
        driver.input("right").pipe_all([("a", 0), ("a", 3)], 2)
        assert driver.output("out").read_key_values() == [("a", 2)]
        assert driver.worker.statistics.set_aside == 1


@pytest.mark.slow
def test_many_rows_leave_in_several_steps() -> None:
    with piped(joining("left_join", name="near")) as driver:
        driver.input("left").pipe_all([(f"k{n}", "x") for n in range(45_000)], 1)
        driver.input("right").pipe("z", "t", 99)
        assert len(rows(driver)) == 45_000
        assert list(driver.worker.circuit.states["near-left"].items()) == []


def test_a_restart_that_loses_its_disk_goes_on() -> None:
    with piped(joining("outer_join"), ("left", "a", "x", 1), ("right", "b", "y", 1)) as driver:
        driver.restart(lose_state=True)
        driver.input("right").pipe("a", "z", 3)
        driver.restart(lose_state=True)
        driver.input("left").pipe("t", "t", 99)
        assert rows(driver) == [("a", ("x", "z"), 3), ("b", (None, "y"), 1)]


def test_the_side_that_keeps_a_window_open_is_named() -> None:
    with piped(joining("left_join", name="near"), ("left", "a", "x", 1), ("left", "a", "x", 50)) as driver:
        (found,) = driver.worker.circuit.open_windows(Context(event_time={("left", 0): 50}))
        assert found == OpenWindow("near", "right", 0, 50 - (1 + 5 + 5 + 1))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: eddy.JoinWindows(), "JoinWindows: difference=None.* are needed"),
        (lambda: eddy.JoinWindows(before=ms(1)), "after=None; the difference, or both others, are needed"),
        (lambda: eddy.JoinWindows(ms(-1)), "JoinWindows: difference=.* from 0"),
        (lambda: eddy.JoinWindows(5), "JoinWindows: difference=5; a timedelta"),  # type: ignore[arg-type]
        (lambda: eddy.JoinWindows(ms(1), before=timedelta(microseconds=5)), "before=.* whole milliseconds"),
        (lambda: eddy.JoinWindows(ms(1), after="1 h"), "after='1 h'; a timedelta"),  # type: ignore[arg-type]
        (lambda: eddy.JoinWindows(ms(1), grace=ms(-1)), "JoinWindows: grace="),
        (lambda: eddy.JoinWindows(ms(1), before=ms(-2)), "before=-2 ms and after=1 ms, so that the window ends"),
    ],
)
def test_what_is_no_window_is_refused_where_it_is_written(make: Callable[[], object], told: str) -> None:
    with pytest.raises(eddy.TopologyError, match=told):
        make()


def both(one: Any, other: Any) -> Any:
    return one, other


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda s, t: s.join(t.stream("right", S, S), both), r"join 's-right-join': windows=None; .*JoinWindows\("),
        (lambda s, t: s.join(t.table("right", S, S), both, FIVE), "a table has no time"),
        (lambda s, t: s.join(t.table("right", S, S), both, "a", name="b"), "'a' as the third argument, and name='b'"),
        (lambda s, t: s.outer_join(t.table("right", S, S), both, FIVE), r"another KStream.* table\.to_stream\(\)"),
        (lambda s, t: s.join(7, both, FIVE), "int cannot be joined to a stream; a KTable or a KStream"),
        (lambda s, t: s.join(eddy.Topology("other").stream("x", S, S), both, FIVE), "topology 'app', the other"),
        (
            lambda s, t: s.left_join(t.stream("right", N, S), both, FIVE),
            "left_join 's-right-left-join': 's' writes its keys as string, 'right' as int64",
        ),
        (lambda s, t: s.join(s.to_table("t").to_stream(), both, FIVE), "not records of a source"),
        (
            lambda s, t: s.join(s, both, FIVE, name="near").join(s, both, FIVE),
            "step 'near' makes rows that are not records of a source.* Call join before it",
        ),
        (
            lambda s, t: s.join(s, both, FIVE, name="near").group_by_key().windowed_by(eddy.TimeWindows(ms(1))),
            "step 'near' makes rows that are not records of a source.* Call windowed_by before it",
        ),
        (
            lambda s, t: s.recursively(lambda rows: rows.join(s, both, FIVE, name="near"), "loop"),
            "join 'near': two streams cannot be joined in time inside recursively 'loop'",
        ),
    ],
)
def test_joins_are_refused_where_they_have_no_meaning(build: Callable[[Any, Any], object], told: str) -> None:
    topology = eddy.Topology("app")
    with pytest.raises(eddy.TopologyError, match=told):
        build(topology.stream("s", S, S), topology)


def test_streams_with_different_numbers_of_partitions_are_refused() -> None:
    log = LocalLog(None)
    log.create_topics([TopicSpec("left", 1), TopicSpec("right", 2), TopicSpec("out", 1)])
    with pytest.raises(eddy.TopologyError, match="'left' has 1 partitions, 'right' has 2"):
        eddy.Worker(joining(), log)
