"""The conformance cases of windows. Record number n has timestamp n."""

from datetime import UTC, datetime, timedelta
from typing import Any

import eddy
from tests.conformance.case import N, Native, S, case, of

TEN = timedelta(milliseconds=10)
LATER = of("in", *((f"later {n}", "x") for n in range(40)))
"""Enough records for all partitions to pass the first windows."""


def told(table: eddy.KTable[eddy.Windowed[str], Any]) -> eddy.KStream[tuple[str, int], Any]:
    """The rows of the first records, by key and start."""
    stream = table.to_stream().filter(lambda key, value: not key.key.startswith("later"))
    return stream.map(lambda key, value: ((key.key, key.start_ms), value), key=Native)


@case(
    [[*of("in", *[("a", "x")] * 12, ("b", "x"), ("b", "y")), *LATER]],
    out={("a", 0): 9, ("a", 10): 3, ("b", 10): 2},
)
def windows_count(t: eddy.Topology) -> None:
    windows = eddy.TimeWindows(TEN)
    told(t.stream("in", S, S).group_by_key().windowed_by(windows).count("n")).to_table().to("out", value=N)


@case(
    [[*of("in", *[("a", "x")] * 12, ("b", "x"), ("b", "y")), *LATER]],
    out=[(("a", 0), 9), (("a", 10), 3), (("b", 10), 2)],
)
def windows_close(t: eddy.Topology) -> None:
    windows = eddy.TimeWindows(TEN, grace=timedelta(milliseconds=3))
    told(t.stream("in", S, S).group_by_key().windowed_by(windows, "close").count("n")).to("out", value=N)


@case(
    [[*of("in", *[("a", "x")] * 12, ("b", "x"), ("b", "y")), *LATER]],
    out={("a", 5): 8, ("b", 5): 2},
)
def windows_without_an_end(t: eddy.Topology) -> None:
    windows = eddy.UnlimitedWindows(datetime(1970, 1, 1, microsecond=5_000, tzinfo=UTC))
    told(t.stream("in", S, S).group_by_key().windowed_by(windows).count("n")).to_table().to("out", value=N)


@case(
    [[*of("in", *[("a", "x")] * 7, *[("b", "y")] * 7, *[("c", "x")] * 3), *LATER]],
    out=[
        *((("x", start), n) for start, n in [(0, 7), (5, 3), (10, 3), (15, 3)]),
        *((("y", start), n) for start, n in [(0, 2), (5, 7), (10, 5)]),
    ],
)
def hopping_windows_close_behind_an_exchange(t: eddy.Topology) -> None:
    stream = t.stream("in", S, S).filter(lambda key, value: not key.startswith("later"))
    groups = stream.group_by(lambda key, value: value, key=S)
    windows = eddy.TimeWindows(TEN, advance=timedelta(milliseconds=5))
    lengths = groups.windowed_by(windows, "close", retention=TEN).aggregate(int, lambda key, v, n: n + len(v), "n", N)
    told(lengths).to("out", value=N)


@case(
    [[*of("in", *[("a", "x")] * 3, *[("b", "x")] * 4, ("a", "x"), *[("b", "x")] * 5, ("a", "x")), *LATER]],
    out=[(("a", 1), 4), (("b", 4), 9), (("a", 14), 1)],
)
def sessions_close(t: eddy.Topology) -> None:
    windows = eddy.SessionWindows(timedelta(milliseconds=5))
    told(t.stream("in", S, S).group_by_key().windowed_by(windows, "close").count("n")).to("out", value=N)


@case(
    [[*of("in", *[("a", "x")] * 3, *[("b", "xy")] * 7, ("a", "xyz"), ("c", "x")), *LATER]],
    out={("a", 1): 0.75, ("b", 4): 3.5, ("a", 11): 0.75, ("c", 12): 0.25},
)
def sums_of_sessions(t: eddy.Topology) -> None:
    groups = t.stream("in", S, S).group_by_key().windowed_by(eddy.SessionWindows(timedelta(milliseconds=5)))
    told(groups.sum("sums", of=lambda value: len(value) / 4)).to_table().to("out", value=eddy.Float64)


@case(
    [[*of("in", *[("a", "x")] * 3, *[("b", "y")] * 7, ("c", "xx")), *LATER]],
    out={("x", 1): "x", ("y", 4): "y", ("xx", 11): "xx"},
)
def sessions_behind_an_exchange(t: eddy.Topology) -> None:
    stream = t.stream("in", S, S).filter(lambda key, value: not key.startswith("later"))
    groups = stream.group_by(lambda key, value: value, key=S)
    longest = groups.windowed_by(eddy.SessionWindows(timedelta(milliseconds=5))).reduce(max, "longest")
    told(longest).to_table().to("out", value=S)


@case(
    [[*of("in", *[("a", "x")] * 3, *[("b", "x")] * 4, ("a", "x"), *[("b", "x")] * 5, ("a", "x")), *LATER]],
    out=[
        *((("a", start), n) for start, n in [(0, 3), (2, 2), (3, 2), (4, 1), (9, 1)]),
        *((("b", start), n) for start, n in [(0, 2), (1, 3), (2, 4), (4, 5), (5, 5), (6, 5), (7, 5), (8, 5)]),
        *((("b", start), n) for start, n in [(10, 4), (11, 3), (12, 2), (13, 1)]),
    ],
)
def sliding_windows_close(t: eddy.Topology) -> None:
    windows = eddy.SlidingWindows(timedelta(milliseconds=5))
    told(t.stream("in", S, S).group_by_key().windowed_by(windows, "close").count("n")).to("out", value=N)


@case(
    [[*of("in", ("a", "x"), ("b", "yy"), ("c", "x"), ("d", "yyy")), *LATER]],
    out={(1, 0): 2, (1, 2): 1, (2, 0): 1, (3, 0): 1},
)
def sliding_windows_behind_an_exchange(t: eddy.Topology) -> None:
    stream = t.stream("in", S, S).filter(lambda key, value: not key.startswith("later"))
    groups = stream.group_by(lambda key, value: len(value), key=N)
    near = groups.windowed_by(eddy.SlidingWindows(timedelta(milliseconds=5))).count("near").to_stream()
    near.map(lambda key, value: ((key.key, key.start_ms), value), key=Native).to_table().to("out", value=N)


@case(
    [[*of("in", *[("a", "x")] * 12, ("b", "x"), ("b", "y")), *LATER]],
    out=[(("a", 0), 9), (("a", 10), 3), (("b", 10), 2)],
    lengths={"a": 12, "b": 2},
)
def two_kinds_of_windows_after_a_repartition(t: eddy.Topology) -> None:
    stream = t.stream("in", S, S).repartition(3, "sent")
    windows = eddy.TimeWindows(TEN, grace=timedelta(milliseconds=3))
    told(stream.group_by_key().windowed_by(windows, "close").count("n")).to("out", value=N)
    sessions = stream.group_by_key().windowed_by(eddy.SessionWindows(TEN), "close").count("visits").to_stream()
    told_visits = sessions.filter(lambda key, value: not key.key.startswith("later"))
    told_visits.map(lambda key, n: (key.key, n), key=S).to_table().to("lengths", value=N)


@case(
    [[*of("in", ("a", "x"), ("b", "yy"), ("c", "x"), ("d", "yyy")), *LATER]],
    out={(1, 0): 2, (1, 2): 1, (2, 0): 1, (3, 0): 1},
)
def sliding_windows_after_two_repartitions(t: eddy.Topology) -> None:
    stream = t.stream("in", S, S).filter(lambda key, value: not key.startswith("later")).repartition(2, "first")
    groups = stream.select_key(lambda key, value: len(value), key=N).repartition(3, "second").group_by_key()
    near = groups.windowed_by(eddy.SlidingWindows(timedelta(milliseconds=5))).count("near").to_stream()
    near.map(lambda key, value: ((key.key, key.start_ms), value), key=Native).to_table().to("out", value=N)
