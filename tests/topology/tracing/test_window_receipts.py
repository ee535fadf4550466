"""Windows and joins in time are computed again from the records, as the oracles of their laws have them."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.errors import QueryError
from eddy.partitioner import partition_of
from eddy.topology.tracing.receipts import Receipts
from eddy.topology.tracing.ways import Ways
from eddy.topology.tracing.why_not import DroppedRow, WhyNot
from tests.topology import test_as_of_laws as as_of_laws
from tests.topology import test_stream_join_laws as join_laws
from tests.topology import test_window_laws as window_laws
from tests.topology.joining import SIDES, home_of
from tests.topology.tracing.facts import At, evaluated, node_of

S, N = eddy.String, eddy.Int64
partition_counts = st.integers(1, 3)


def windowed(program: window_laws.Program, records: list[window_laws.Record], partitions: int) -> list[At]:
    placed = [(topic % program.topics, key, value, stamp) for topic, key, value, stamp in records]
    return [
        (window_laws.TOPICS[topic], partition_of(key.encode(), partitions), key, value, stamp)
        for topic, key, value, stamp in placed
    ]


@given(
    window_laws.programs.filter(lambda program: not program.idle_after),
    st.lists(window_laws.record, max_size=40),
    partition_counts,
)
def test_windows_are_those_of_the_law(
    program: window_laws.Program, records: list[window_laws.Record], partitions: int
) -> None:
    topology, placed = program.topology(), windowed(program, records, partitions)
    read = [(topic % program.topics, *rest) for topic, *rest in records]
    oracle = window_laws.Oracle(program, partitions, read)  # type: ignore[arg-type]
    evaluation = evaluated(topology, "sums", placed, partitions)
    node = node_of(topology, "sums")
    assert {tuple(key): value for (key, value), _ in evaluation.bags[node]} == oracle.sums
    there = [row for row, _ in evaluation.bags[node]]
    closings = {tuple(row[0]): node.closing(row) for row in there}
    clocks = evaluation.clocks
    for window, closing in closings.items():
        assert closing is not None
        assert (clocks.waits(closing) == "") == oracle.passed(window)
    kept = {window for window, closing in closings.items() if closing and not clocks.has_removed(closing)}
    assert kept == set(oracle.table() if program.emit != "suppress" else kept)
    if program.emit == "update":
        with pytest.raises(QueryError, match="has each change of a table, and how many there are depends on"):
            evaluated(topology, "out", placed, partitions)
        return
    out = evaluated(topology, "out", placed, partitions)
    found = {(key, start): total for (key, (start, total)), _ in out.bags[node_of(topology, "out")]}
    assert found == oracle.closed()
    check_parts(topology, placed, partitions, oracle)


def check_parts(topology: eddy.Topology, records: list[At], partitions: int, oracle: window_laws.Oracle) -> None:
    """The parts of each sum are its records, and a late record is the reason where a window has no row."""
    evaluation = evaluated(topology, "sums", records, partitions)
    node, ways = node_of(topology, "sums"), Ways(topology.plan, evaluation)
    if oracle.program.aggregate == "sum":
        for row, _ in evaluation.bags[node]:
            (receipt,) = Receipts(topology.plan, evaluation, ways).of(node, row)
            assert receipt.number == oracle.sums[row[0]] == sum(part.number for part in receipt.parts) + receipt.rest
            assert all("@" in part.key for part in receipt.parts)
    for window in lost_windows(oracle):
        told = WhyNot(topology.plan, evaluation).of(node, [eddy.Windowed(*window)])
        assert any("leaves it out as late: partition" in each.reason for each in told), told


def lost_windows(oracle: window_laws.Oracle) -> set[window_laws.Window]:
    """Windows of a fixed size whose records are all late."""
    program, times = oracle.program, dict[tuple[int, int], int]()
    lost: set[window_laws.Window] = set()
    for topic, key, value, stamp in oracle.records:
        place = topic, partition_of(key.encode(), oracle.partitions)
        times[place] = max(stamp, times.get(place, -1))
        if program.kind != "time" or (program.filtered and value % 3 == 0):
            continue
        for start in range(0, stamp + 1, program.advance):
            end = start + program.size
            if stamp < end and end + program.grace <= times[place]:
                by_value = program.by_value or program.sent == "keyed"
                lost.add((str(value % 10) if by_value else key, start, end))
    return lost - oracle.values.keys()


@given(join_laws.programs, st.lists(join_laws.record, max_size=40), partition_counts)
def test_joins_in_time_are_those_of_the_law(
    program: join_laws.Program, records: list[join_laws.Record], partitions: int
) -> None:
    read = [(0 if program.alone else side, key, value, stamp) for side, key, value, stamp in records]
    oracle = join_laws.Oracle(program, partitions, read)
    placed = [(SIDES[side], home_of(key, value, partitions), key, value, stamp) for side, key, value, stamp in read]
    evaluation = evaluated(program.topology(), "out", placed, partitions)
    node = next(node for node in evaluation.bags if node.user_topic == "out")
    assert plain(evaluation.bags[node]) == Counter((key, values) for key, values, _ in oracle.joined)


@given(as_of_laws.programs, st.lists(as_of_laws.record, max_size=40), partition_counts)
def test_joins_as_of_a_time_are_those_of_the_law(
    program: as_of_laws.Program, records: list[as_of_laws.Record], partitions: int
) -> None:
    read = [(side, key, value, max(0, 2 * n + stamp)) for n, (side, key, value, stamp) in enumerate(records)]
    oracle = as_of_laws.Oracle(program, partitions, read)
    placed = [(SIDES[side], home_of(key, value, partitions), key, value, stamp) for side, key, value, stamp in read]
    evaluation = evaluated(program.topology(), "out", placed, partitions)
    node = next(node for node in evaluation.bags if node.user_topic == "out")
    assert plain(evaluation.bags[node]) == Counter((key, values) for key, values, _ in oracle.joined)


def plain(rows: Any) -> Counter[Any]:
    """The rows without their records, as often as they are there."""
    found: Counter[Any] = Counter()
    for row, weight in rows:
        found[tuple(row)] += weight
    return found


# Why not


def minutes(emit: Any = "close") -> eddy.Topology:
    topology = eddy.Topology("pages")
    windows = eddy.TimeWindows(timedelta(minutes=1), grace=timedelta(seconds=30))
    clicks = topology.stream("clicks", key=S, value=S).filter(lambda page, by: by != "bot", name="people")
    clicks.group_by_key().windowed_by(windows, emit=emit).count("clicks-a-minute").to("per-minute")
    return topology


def why_not(topology: eddy.Topology, name: str, key: Any, records: list[At], partitions: int = 1) -> list[DroppedRow]:
    evaluation = evaluated(topology, name, records, partitions)
    node = node_of(topology, name)
    assert key not in [row[0] for row, _ in evaluation.bags[node]]
    return WhyNot(topology.plan, evaluation).of(node, [key])


def click(second: int, by: str = "ann", page: str = "/", partition: int = 0) -> At:
    return "clicks", partition, page, by, second * 1000


def test_late_record_is_named_with_its_partition_and_the_time_that_it_had() -> None:
    (late,) = why_not(minutes(), "per-minute", ("/", 0, 60_000), [click(100), click(59, "bob")])
    assert late.reason == (
        "leaves it out as late: partition 0 of 'clicks' had a record of 1970-01-01 00:01:40 already, and the window "
        "was over at 1970-01-01 00:01:30"
    )
    assert (late.key, late.value) == ("/", "bob")


def test_window_that_is_not_closed_yet_names_the_partition_that_it_waits_for() -> None:
    (open,) = why_not(minutes(), "per-minute", ("/", 0, 60_000), [click(5), click(70)])
    assert open.reason == (
        "waits for the time of 'clicks': partition 0 is at 1970-01-01 00:01:10, and 1970-01-01 00:01:30 is needed"
    )
    assert (open.key, open.value) == (("/", 0, 60_000), 1)


def test_partition_without_a_record_holds_windows_behind_an_exchange_open() -> None:
    topology = eddy.Topology("people")
    windows = eddy.TimeWindows(timedelta(minutes=1))
    clicks = topology.stream("clicks", key=S, value=S).group_by(lambda page, by: by, key=S)
    clicks.windowed_by(windows, emit="close").count("clicks-a-minute").to("per-minute")
    (open,) = why_not(topology, "per-minute", ("ann", 0, 60_000), [click(5), click(200)], 2)
    assert open.reason == (
        "waits for the time of 'clicks': partition 1 has no record yet, and 1970-01-01 00:01:00 is needed"
    )


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (
            ("/", 120_000, 180_000),
            "has no record of this key from 1970-01-01 00:02:00 to 00:03:00; the nearest: clicks-0@0, 1970-01-01 "
            "00:00:05 and clicks-0@1, 1970-01-01 00:03:20",
        ),
        (("/", 0, 30_000), "has no such window; a record of this key at clicks-0@0, 1970-01-01 00:00:05 is there, and"),
        (("/b", 0, 60_000), "has no record with this key, among 2"),
        ("/", "makes keys with windows, and this one names none; there is the window 1970-01-01 00:03:00 to 00:04:00,"),
    ],
)
def test_record_outside_of_the_window(key: Any, reason: str) -> None:
    (found,) = why_not(minutes(), "per-minute", key, [click(5), click(200)])
    assert found.reason.startswith(reason)


def test_filter_before_a_window_is_named() -> None:
    found = why_not(minutes(), "per-minute", ("/", 0, 60_000), [click(5, "bot"), click(200)])
    assert [(each.step, each.key, each.value) for each in found] == [("people", "/", "bot")]


def test_late_and_unmatched_records_of_joins_are_named() -> None:
    topology = eddy.Topology("payments")
    orders, payments = topology.stream("orders", key=S, value=S), topology.stream("payments", key=S, value=S)
    windows = eddy.JoinWindows(timedelta(seconds=10))
    orders.join(payments, lambda order, payment: (order, payment), windows, name="paid").to("out")
    shop: list[At] = [("orders", 0, "a", "shoes", 5_000), ("payments", 0, "a", "cash", 60_000)]
    lacking = why_not(topology, "out", "a", shop)
    assert [(each.reason, each.more) for each in lacking] == [
        ("has no record with this key on its left side from 1970-01-01 00:00:50 to 00:01:10", 1)
    ]
    late = why_not(topology, "out", "a", [*shop, ("payments", 0, "a", "late", 6_000)])
    assert any("leaves it out as late: partition 0 of 'payments'" in each.reason for each in late)


def test_partitions_that_may_be_idle_are_refused_with_the_reason() -> None:
    topology = eddy.Topology("idle")
    clicks = topology.stream("clicks", key=S, value=S, idle_after=timedelta(seconds=1))
    clicks.group_by_key().windowed_by(eddy.TimeWindows(timedelta(minutes=1))).count("counts")
    with pytest.raises(QueryError, match="topic 'clicks' has idle_after, so that records may be late by the wall"):
        evaluated(topology, "counts", [click(5)], 1)
