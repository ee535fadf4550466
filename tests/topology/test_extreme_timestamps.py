"""Every kind of window at the ends of time: 1970, the year 9999, beyond 2**53, and timestamps of -1."""

from collections.abc import Callable
from datetime import timedelta

import pytest

import eddy
from eddy.errors import DataError

S = eddy.String
TEN, NONE = timedelta(milliseconds=10), timedelta(0)
MOMENTS = (0, 1, 253_402_300_799_999, (1 << 53) + 1, (1 << 62) + 3)
Row = tuple[object, int, int]
"""A key or value, and the span of its window."""
Stream = eddy.KStream[str, str]


def counted(windows: eddy.TimeWindows | eddy.SlidingWindows | eddy.SessionWindows) -> Callable[[Stream, Stream], None]:
    def build(left: Stream, right: Stream) -> None:
        left.group_by_key().windowed_by(windows, emit="close").count("n").to("out")

    return build


def held(left: Stream, right: Stream) -> None:
    windowed = left.group_by(lambda key, value: value, key=S).windowed_by(eddy.TimeWindows(TEN))
    windowed.count("n").suppress("held").to("out")


def paired(left: Stream, right: Stream) -> None:
    left.outer_join(right, lambda one, other: (one, other), eddy.JoinWindows(TEN)).to("out", value=eddy.Native)


def as_of(left: Stream, right: Stream) -> None:
    left.left_join(right, lambda one, other: (one, other), eddy.AsOf(TEN)).to("out", value=eddy.Native)


def once(left: Stream, right: Stream) -> None:
    left.deduplicate(lambda key, value: value, within=TEN, key=S, name="once").to("out", value=S)


KINDS: dict[str, Callable[[Stream, Stream], None]] = {
    "tumbling": counted(eddy.TimeWindows(TEN)),
    "hopping": counted(eddy.TimeWindows(TEN, advance=timedelta(milliseconds=5))),
    "sliding": counted(eddy.SlidingWindows(TEN)),
    "sessions": counted(eddy.SessionWindows(TEN)),
    "suppressed": held,
    "joined": paired,
    "as of": as_of,
    "once": once,
}


def expected(kind: str, at: int) -> list[tuple[object, object, int]]:
    """The keys, values and timestamps of records of key k at `at` and 3 ms later, on both sides of a join."""
    start, later = at // 10 * 10, at + 3
    match kind:
        case "tumbling" | "suppressed":
            key = "k" if kind == "tumbling" else "v"
            spans = [start] if later < start + 10 else [start, start + 10]
            rows = [((key, one, one + 10), sum(one <= t < one + 10 for t in (at, later)), one + 9) for one in spans]
        case "hopping":
            starts = range(max(0, at // 5 * 5 - 5), later + 1, 5)
            counts = {one: sum(one <= t < one + 10 for t in (at, later)) for one in starts}
            rows = [(("k", one, one + 10), count, one + 9) for one, count in counts.items() if count]
        case "sliding":
            spans_of = {(max(0, t - 10), max(0, t - 10) + 10) for t in (at, later)} | {(at + 1, at + 11)}
            rows = [(("k", *one), sum(one[0] <= t <= one[1] for t in (at, later)), one[1]) for one in spans_of]
        case "sessions":
            rows = [(("k", at, later), 2, later)]
        case "joined":
            rows = [("k", ("v", "v"), max(t, u)) for t in (at, later) for u in (at, later)]
        case "as of":
            rows = [("k", ("v", "v"), t) for t in (at, later)]
        case _:
            rows = [("k", "v", at)]
    return sorted(rows, key=repr)


def topology_of(kind: str) -> eddy.Topology:
    topology = eddy.Topology("app")
    left, right = (topology.stream(name, S, S) for name in ("left", "right"))
    KINDS[kind](left, right)
    return topology


@pytest.mark.parametrize("at", MOMENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_exact_at_any_time(kind: str, at: int) -> None:
    topology = topology_of(kind)
    topics = {source.topic for source in topology.plan.sources()}
    with eddy.TopologyTestDriver(topology) as driver:
        for time in (at, at + 3):
            for topic in sorted(topics):
                driver.input(topic).pipe("k", "v", time)
        driver.restart(lose_state=True)
        driver.advance_event_time(at + 1_000)
        found = [
            (tuple(one.key) if isinstance(one.key, tuple) else one.key, one.value, one.timestamp_ms)
            for one in driver.output("out").read_records()
        ]
        assert sorted(found, key=repr) == expected(kind, at)


def write(driver: eddy.TopologyTestDriver, topic: str, times: list[int]) -> None:
    producer = driver.log.producer(None)
    producer.begin()
    producer.send(topic, 0, [b"k"] * len(times), [b"v"] * len(times), times)
    producer.commit({}, None)
    producer.close()
    driver.run()


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_without_a_timestamp_is_named_and_the_others_count(kind: str) -> None:
    topology = topology_of(kind)
    topics = [source.topic for source in topology.plan.sources()]
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="skip")) as driver:
        for topic in topics:
            write(driver, topic, [-1, 0, 3])
        driver.advance_event_time(1_000)
        assert len(driver.output("out").read_records()) == len(expected(kind, 0))
        assert driver.worker.statistics.skipped == (2 if kind in ("joined", "as of") else 1)
    with eddy.TopologyTestDriver(topology) as driver, pytest.raises(DataError, match="timestamp -1"):
        write(driver, "left", [0, -1])
