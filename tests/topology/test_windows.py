"""Windows: what a user of Kafka Streams expects, by the calendar, bad input; the laws are in `test_window_laws.py`."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.errors import DataError
from eddy.operators.batch import Batch, concat
from eddy.operators.context import Context
from eddy.operators.windows.source_times import event_times
from eddy.partitioner import partition_of

S, N = eddy.String, eddy.Int64
Windows = eddy.TimeWindows | eddy.CalendarWindows | eddy.UnlimitedWindows
Record = tuple[str | None, str | None, int]
HOUR_MS = 3_600_000


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def counting(windows: Windows, **options: Any) -> eddy.Topology:
    topology = eddy.Topology("app")
    topology.stream("in", S, S).group_by_key().windowed_by(windows, **options).count("n").to("out")
    return topology


def piped(topology: eddy.Topology, *records: Record, partitions: int = 1) -> eddy.TopologyTestDriver:
    driver = eddy.TopologyTestDriver(topology, partitions=partitions)
    for key, value, time in records:
        driver.input("in").pipe(key, value, time)
    return driver


def spans(driver: eddy.TopologyTestDriver) -> list[tuple[str, int, int, int]]:
    return [(*key, value) for key, value in driver.output("out").read_key_values()]


def test_a_record_is_in_each_window_with_its_timestamp() -> None:
    with piped(counting(eddy.TimeWindows(ms(10), advance=ms(5))), ("a", "x", 3), ("a", "x", 7)) as driver:
        assert spans(driver) == [("a", 0, 10, 1), ("a", 0, 10, 2), ("a", 5, 15, 1)]


def test_a_late_record_is_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    records = [("a", "x", 9), ("a", "x", 12), ("a", "x", 1), ("a", "x", 13), ("a", "x", 2)]
    with piped(counting(eddy.TimeWindows(ms(10), grace=ms(3))), *records) as driver:
        assert spans(driver) == [("a", 0, 10, 1), ("a", 10, 20, 1), ("a", 0, 10, 2), ("a", 10, 20, 2)]
        assert driver.worker.statistics.late == 1
        (line,) = [record.getMessage() for record in caplog.records if "late" in record.getMessage()]
        assert line == "windows after 'in': records were late for 1 window(s), which were over with their grace"


def test_records_without_a_key_or_a_value_are_in_no_window() -> None:
    with piped(counting(eddy.TimeWindows(ms(10))), (None, "x", 1), ("a", None, 2), ("a", "x", 3)) as driver:
        assert spans(driver) == [("a", 0, 10, 1)]
        assert driver.worker.statistics.dropped == 2


def test_a_record_that_a_filter_drops_ends_a_window() -> None:
    topology = eddy.Topology("app")
    kept = topology.stream("in", S, S).filter(lambda key, value: value == "x")
    kept.group_by_key().windowed_by(eddy.TimeWindows(ms(10)), "close").count("n").to("out")
    with piped(topology, ("a", "x", 3), ("b", "y", 10)) as driver:
        assert spans(driver) == [("a", 0, 10, 1)]


def test_a_final_row_has_the_last_moment_of_its_window() -> None:
    with piped(counting(eddy.TimeWindows(ms(10)), emit="close"), ("a", "x", 3), ("a", "x", 20)) as driver:
        (record,) = driver.output("out").read_records()
        assert (record.value, record.timestamp_ms) == (1, 9)


def test_a_silent_partition_keeps_windows_open() -> None:
    topology = eddy.Topology("app")
    groups = topology.stream("in", S, S).group_by(lambda key, value: value, key=S)
    groups.windowed_by(eddy.TimeWindows(ms(10)), "close").count("n").to("out")
    keys = ("a", "b", "c", "d", "e", "f")  # of all three partitions
    with piped(topology, *[("a", "x", 1), ("a", "x", 99)], partitions=3) as driver:
        assert spans(driver) == []
        for key in keys:
            driver.input("in").pipe(key, "y", 50)
        assert spans(driver) == [("x", 0, 10, 1)]


@pytest.mark.parametrize(
    ("unit", "zone", "moment", "hours"),
    [
        ("day", "Europe/Zurich", datetime(2025, 3, 30, 12, tzinfo=UTC), 23),
        ("day", "Europe/Zurich", datetime(2025, 10, 26, 12, tzinfo=UTC), 25),
        ("day", "UTC", datetime(2025, 3, 30, 12, tzinfo=UTC), 24),
        ("week", "America/New_York", datetime(2025, 3, 9, 12, tzinfo=UTC), 7 * 24 - 1),
        ("month", "Europe/Zurich", datetime(2024, 2, 29, 12, tzinfo=UTC), 29 * 24),
        ("day", "Africa/Cairo", datetime(2023, 4, 28, 12, tzinfo=UTC), 23),  # its midnight does not exist
    ],
)
def test_calendars_know_time_zones(unit: Any, zone: str, moment: datetime, hours: int) -> None:
    windows = eddy.CalendarWindows(unit, zone)
    now = int(moment.timestamp() * 1000)
    ((start, end),) = windows.of(now)
    assert start <= now < end
    assert end - start == hours * HOUR_MS
    assert windows.of(end)[0][0] == end
    assert windows.of(start - 1)[0][1] == start
    assert (windows.last_end(now), windows.next_end(now)) == (start, end)
    assert (windows.last_end(start), windows.next_end(start)) == (start, start)


def test_records_that_were_joined_with_a_table_have_windows() -> None:
    topology = eddy.Topology("app")
    shops = topology.table("shops", S, S)
    sales = topology.stream("in", S, S).join(shops, lambda sale, town: town, value=S)
    towns = sales.group_by(lambda shop, town: town, key=S).windowed_by(eddy.TimeWindows(ms(10), grace=ms(2)), "close")
    towns.count("n").to("out")
    with eddy.TopologyTestDriver(topology, partitions=3) as driver:
        shops_of = {"a": "bern", "b": "bern", "c": "chur", "d": "chur", "e": "bern", "f": "genf"}
        driver.input("shops").pipe_all(list(shops_of.items()))
        for time in (3, 9, 8, 11, 12, 1, 13, 40):
            driver.input("in").pipe_all([(shop, "x") for shop in shops_of], time)
        driver.input("in").pipe("nobody", "x", 99)
        towns_at = {(key, start): n for key, start, _, n in spans(driver)}
        assert towns_at == {
            ("bern", 0): 9,
            ("chur", 0): 6,
            ("genf", 0): 3,
            ("bern", 10): 9,
            ("chur", 10): 6,
            ("genf", 10): 3,
        }
        assert driver.worker.statistics.late == 6


def test_windowed_keys_are_read_as_they_were_written() -> None:
    windowed = eddy.Windowed("a", 20, 30)
    serde = eddy.TimeWindowed(S, ms(10))
    assert serde.encode(windowed) == b"a" + (20).to_bytes(8, "big")
    assert serde.decode(serde.encode(windowed)) == windowed
    assert (windowed.start, windowed.end) == tuple(datetime.fromtimestamp(n / 1000, UTC) for n in (20, 30))
    topology = eddy.Topology("reader")
    table = topology.table("in", key=serde, value=N)
    table.group_by(lambda key, n: (key.key, n), key=S, value=N).reduce(
        lambda a, b: a + b, lambda a, b: a - b, "sums"
    ).to("out")
    with eddy.TopologyTestDriver(topology, partitions=3) as driver:
        for start in range(0, 50, 10):
            key = serde.encode(eddy.Windowed("a", start, start + 10))
            driver.input("in").pipe_raw(key, N.encode(start))
        assert driver.output("out").read_map() == {"a": 100}


def test_sessions_merge_whatever_their_order() -> None:
    topology = eddy.Topology("app")
    groups = (
        topology.stream("in", S, S).group_by_key().windowed_by(eddy.SessionWindows(ms(5), ms(99)), retention=ms(99))
    )
    together = groups.aggregate(str, lambda key, value, text: text + value, "texts", S, lambda key, a, b: f"{a}|{b}")
    together.to("out")
    groups.top_k(2, "greatest")
    groups.max("max")
    with piped(topology, ("a", "x", 1), ("a", "y", 11), ("a", "z", 6), ("a", "v", 30), ("b", "w", 8)) as driver:
        assert spans(driver) == [
            ("a", 1, 1, "x"),
            ("a", 11, 11, "y"),
            ("a", 1, 1, None),
            ("a", 11, 11, None),
            ("a", 1, 11, "x|yz"),
            ("a", 30, 30, "v"),
            ("b", 8, 8, "w"),
        ]
        assert driver.store("greatest").get(eddy.Windowed("a", 1, 11)) == ("z", "y")
        assert driver.store("max").get(eddy.Windowed("a", 1, 11)) == "z"
    written = eddy.SessionWindowed(S).encode(eddy.Windowed("a", 1, 11))
    assert written == b"a" + (11).to_bytes(8, "big") + (1).to_bytes(8, "big")
    assert eddy.SessionWindowed(S).decode(written) == eddy.Windowed("a", 1, 11)


unlimited_steps = st.lists(
    st.one_of(
        st.lists(
            st.tuples(st.sampled_from(["a", "b", "c", None]), st.sampled_from("xyz"), st.integers(0, 90)), max_size=4
        ),
        st.sampled_from(["restart", "lose the disk"]),
    )
)


@given(unlimited_steps, st.integers(0, 60), st.integers(1, 3), st.booleans())
def test_a_window_without_an_end_has_all_records_from_its_start_on(
    steps: list[Any], start: int, partitions: int, exchange: bool
) -> None:
    windows = eddy.UnlimitedWindows(datetime.fromtimestamp(start / 1000, UTC))
    topology = eddy.Topology("app")
    stream = topology.stream("in", S, S)
    groups = stream.group_by(lambda key, value: value, key=S) if exchange else stream.group_by_key()
    groups.windowed_by(windows).count("n").to("out", value=N)
    counts: Counter[str] = Counter()
    with eddy.TopologyTestDriver(topology, partitions=partitions) as driver:
        for step in steps:
            if isinstance(step, str):
                driver.restart(lose_state=step != "restart")
                continue
            for key, value, time in step:
                driver.input("in").pipe(key, value, timestamp_ms=time)
                if time >= start and (exchange or key is not None):
                    counts[value if exchange else key] += 1
        found = driver.store("n").all()
        assert {key.key: n for key, n in found.items()} == counts
        assert {(key.start_ms, key.end_ms, key.end.year) for key in found} <= {(start, 2**63 - 1, 9999)}
        assert driver.output("out", key=windows.serde(S), value=N).read_map() == found
        assert driver.worker.statistics.late == 0


def test_a_join_with_windows_has_a_table_of_its_own() -> None:
    """The table of windows loses those that are over; what was joined with them remains."""
    topology = eddy.Topology("app")
    groups = topology.stream("in", S, S).group_by_key().windowed_by(eddy.TimeWindows(ms(10)))
    longest = groups.max("longest", by=len)
    groups.count("n").join(longest, lambda n, text: f"{n} {text}").to("out", value=S)
    with piped(topology, ("a", "x", 1), ("a", "xyz", 2), ("a", "x", 30)) as driver:
        assert [(row[1], row[3]) for row in spans(driver)] == [(0, "1 x"), (0, "2 xyz"), (30, "1 x")]
        assert [key.start_ms for key in driver.store("n").all()] == [30]


# Bad input


def summing(emit: Any, retention: int, suppressed: bool) -> eddy.Topology:
    topology = eddy.Topology("app")
    groups = topology.stream("in", S, N).group_by(lambda key, value: key, key=S)
    windowed = groups.windowed_by(eddy.TimeWindows(ms(10)), emit, ms(retention))
    sums = windowed.aggregate(
        lambda: 0, lambda key, value, total: total + value, "sums", eddy.Native if suppressed else N
    )
    if suppressed:
        sums = sums.map_values(lambda total: total, value=N).suppress("last")
    sums.to("out", value=N)
    return topology


LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("emit", "retention", "suppressed"),
    [("close", 0, False), ("close", 15, False), ("update", 0, False), ("update", 15, False), ("update", 0, True)],
)
def test_a_window_that_cannot_be_written_is_told_and_forgotten_when_it_is_over(
    emit: Any, retention: int, suppressed: bool
) -> None:
    """Both if it had a row before, and if its first epoch makes a sum that is too large."""
    topology = summing(emit, retention, suppressed)
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="skip")) as driver:
        worker = driver.worker
        driver.input("in").pipe("a", 1, 1)
        driver.input("in").pipe("a", LARGEST, 2)
        driver.input("in").pipe_all([("b", LARGEST), ("b", LARGEST), ("c", 5)], 3)
        assert (worker.statistics.set_aside, worker.statistics.skipped) == (2, 0)
        assert worker.statistics.kept_aside == 2
        driver.restart(lose_state=True)
        driver.input("in").pipe("z", 1, 40)
        assert driver.worker.statistics.kept_aside == 0
        found = driver.output("out").read_key_values()
        assert [(key.key, total) for key, total in found if key.key == "c"] == [("c", 5)]
        assert {key.key for key in driver.store("sums").all()} == {"z"}
        calendars = [state for name, state in driver.worker.circuit.states.items() if name.endswith("-calendar")]
        assert [key.key for calendar in calendars for (key, _), _ in calendar.items()] == ["z"] * len(calendars)


def test_a_record_behind_an_exchange_on_which_a_fold_fails_is_left_out_of_its_window_alone() -> None:
    def adder(key: str, value: int, total: int) -> int:
        if value == 13:
            raise ValueError("unlucky")
        return total + value

    topology = eddy.Topology("app")
    groups = topology.stream("in", S, N).filter(lambda key, value: value / (value - 7) > -100)
    windows = groups.group_by(lambda key, value: key[0], key=S).windowed_by(eddy.TimeWindows(ms(10)), "close")
    windows.aggregate(lambda: 0, adder, "sums", N).to("out")
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="skip"), partitions=3) as driver:
        # A record 7 fails at the filter: its epoch is cut into parts, and its time, which would close windows, is none.
        driver.input("in").pipe_all([("a1", 1), ("a2", 13), ("b1", 2)], 5)
        driver.input("in").pipe_all([("a1", 7)], 99)
        driver.input("in").pipe_all([("a1", 3), ("a2", 7), ("a3", 4)], 6)
        assert (driver.worker.statistics.skipped, driver.worker.statistics.set_aside) == (2, 1)
        assert driver.output("out").read_key_values() == []
        driver.input("in").pipe_all([(f"{key}{n}", 0) for key in "abc" for n in range(9)], 10)
        found = driver.output("out").read_key_values()
        assert sorted((*key, total) for key, total in found) == [("a", 0, 10, 8), ("b", 0, 10, 2)]


@pytest.mark.parametrize("by_value", [False, True])
@pytest.mark.parametrize(
    ("windows", "found"),
    [
        (eddy.TimeWindows(ms(10)), {(0, 10): "1x2", (10, 20): "y"}),
        (eddy.SessionWindows(ms(5), ms(9)), {(3, 5): "1x2", (12, 12): "y"}),
        (eddy.SlidingWindows(ms(2), ms(9)), {(1, 3): "1", (2, 4): "1x", (3, 5): "1x2", (4, 6): "x2", (5, 7): "2"}),
    ],
)
def test_streams_of_different_values_are_folded_into_windows_together(
    windows: Windows, found: dict[tuple[int, int], str], by_value: bool
) -> None:
    topology = eddy.Topology("app")
    numbers, words = topology.stream("numbers", S, N).group_by_key(), topology.stream("words", S, S)
    groups = words.group_by(lambda key, value: key, key=S) if by_value else words.group_by_key()
    both = numbers.cogroup(lambda key, value, text: f"{text}{value}").cogroup(
        groups, lambda key, word, text: text + word
    )
    merging = {"merger": lambda key, one, later: one + later} if isinstance(windows, eddy.SessionWindows) else {}
    both.windowed_by(windows, retention=ms(99)).aggregate(str, "texts", S, **merging)
    with eddy.TopologyTestDriver(topology, partitions=3) as driver:
        driver.input("numbers").pipe("a", 1, 3)
        driver.input("words").pipe("a", "x", 4)
        driver.input("numbers").pipe("a", 2, 5)
        driver.input("words").pipe("a", "y", 12)
        driver.input("words").pipe("a", None, 12)
        texts = {key[1:]: text for key, text in driver.store("texts").all().items()}
        assert {span: text for span, text in texts.items() if span in found} == found
        assert len(texts) == len(found) + isinstance(windows, eddy.SlidingWindows)


def test_streams_of_different_keys_are_in_no_windows_together() -> None:
    topology = eddy.Topology("app")
    one, other = topology.stream("one", S, N).group_by_key(), topology.stream("other", N, N).group_by_key()
    both = one.cogroup(lambda key, value, total: value).cogroup(other, lambda key, value, total: value)
    with pytest.raises(eddy.TopologyError, match="the streams have keys of string and int64; one serde is needed"):
        both.windowed_by(MINUTE)


def test_a_record_that_sliding_windows_cannot_keep_is_told_and_in_none() -> None:
    topology = eddy.Topology("app")
    records = topology.stream("in", S, N).map_values(lambda value: value + LARGEST, value=N)
    near = records.group_by_key().windowed_by(eddy.SlidingWindows(ms(10), ms(99)))
    near.reduce(lambda total, value: total + value - LARGEST, "sums").to("out", value=N)
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="skip")) as driver:
        driver.input("in").pipe_all([("a", -3), ("a", 1), ("a", -4)], 20)
        assert (driver.worker.statistics.skipped, driver.worker.statistics.set_aside) == (0, 1)
        assert driver.store("sums").all() == {eddy.Windowed("a", 10, 20): LARGEST - 7}


def test_records_are_kept_until_the_window_behind_them_is_over() -> None:
    topology = eddy.Topology("app")
    topology.stream("in", S, N).group_by_key().windowed_by(eddy.SlidingWindows(ms(10), ms(5))).count("n")
    with eddy.TopologyTestDriver(topology) as driver:
        kept = driver.worker.circuit.states["n-records"]
        for time, count in [(20, 1), (36, 2), (37, 2), (100, 1)]:
            driver.input("in").pipe("a", 1, time)
            assert sum(weight for _, weight in kept.items()) == count
        assert driver.worker.statistics.late == 0
        driver.input("in").pipe("b", 1, 84)
        assert driver.worker.statistics.late == 1


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: eddy.SlidingWindows(timedelta(0)), "SlidingWindows: difference="),
        (lambda: eddy.SlidingWindows(ms(1), ms(-1)), "SlidingWindows: grace="),
        (lambda: eddy.TimeWindows(timedelta(0)), "TimeWindows: size=.* from a millisecond to 100 years"),
        (lambda: eddy.TimeWindows(timedelta(microseconds=10)), "TimeWindows: size=.* whole milliseconds"),
        (lambda: eddy.TimeWindows(10), "TimeWindows: size=10; a timedelta"),  # type: ignore[arg-type]
        (lambda: eddy.TimeWindows(ms(10), grace=ms(-1)), "TimeWindows: grace=.* from 0"),
        (lambda: eddy.TimeWindows(ms(10), advance=ms(11)), "advance=.* is more than size="),
        (lambda: eddy.TimeWindows(ms(10), advance=ms(0)), "TimeWindows: advance="),
        (lambda: eddy.TimeWindows(ms(10_001), advance=ms(1)), "is in 10,001 windows; at most 10,000 are possible"),
        (lambda: eddy.CalendarWindows("year"), "unit='year'; 'day', 'week' or 'month'"),  # type: ignore[arg-type]
        (lambda: eddy.CalendarWindows("day", "Mars/Base"), "zone='Mars/Base' is not a time zone"),
        (lambda: eddy.TimeWindowed(S, timedelta(0)), "TimeWindowed: size="),
        (lambda: eddy.SessionWindows(timedelta(0)), "SessionWindows: gap="),
        (lambda: eddy.SessionWindows(ms(1), ms(-1)), "SessionWindows: grace="),
        (lambda: counting(ms(10)), "windows=datetime.timedelta.* are needed"),  # type: ignore[arg-type]
        (lambda: counting(eddy.TimeWindows(ms(10)), emit="end"), "emit='end'"),
        (lambda: counting(eddy.TimeWindows(ms(10)), retention=5), "retention=5"),
        (lambda: eddy.UnlimitedWindows(datetime(2026, 1, 1)), "start=.* with a time zone"),
        (lambda: eddy.UnlimitedWindows(datetime(1969, 1, 1, tzinfo=UTC)), "start=.* 1970 or later"),
        (lambda: eddy.UnlimitedWindows(ms(5)), "start=.* is needed"),  # type: ignore[arg-type]
        (lambda: counting(eddy.UnlimitedWindows(), emit="close"), "never close.* Remove emit="),
        (lambda: counting(eddy.UnlimitedWindows(), retention=ms(5)), "never close.* Remove retention="),
    ],
)
def test_what_is_no_window_is_refused_where_it_is_written(make: Callable[[], object], told: str) -> None:
    with pytest.raises(eddy.TopologyError, match=told):
        make()


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda s: s.to_table("t").to_stream().group_by_key().windowed_by(MINUTE), "not records of a source"),
        (lambda s: s.group_by_key().windowed_by(MINUTE).windowed_by(MINUTE), "have windows already"),
        (
            lambda s: s.group_by_key().windowed_by(MINUTE).cogroup(lambda k, v, a: a),
            "have windows already; groups without are needed",
        ),
        (lambda s: s.group_by_key(key=eddy.Bytes).windowed_by(MINUTE), "group_by_key\\(key=bytes\\) of records"),
        (
            lambda s: s.group_by_key().windowed_by(VISIT).aggregate(int, lambda k, v, n: n, "n"),
            "aggregate 'n': sessions merge.* merger=",
        ),
        (
            lambda s: (
                s.group_by_key().windowed_by(MINUTE).aggregate(int, lambda k, v, n: n, "n", None, lambda k, a, b: a)
            ),
            "aggregate 'n': merger= merges sessions, and there are none",
        ),
        (lambda s: s.to_table("t").suppress(), "have none; a table of windows is needed"),
        (lambda s: s.group_by_key().windowed_by(MINUTE, "close").count("n").suppress(), "passes on each window once"),
        (lambda s: s.group_by_key().windowed_by(eddy.UnlimitedWindows()).count("n").suppress(), "never close"),
        (
            lambda s: s.recursively(lambda r: r.group_by_key().windowed_by(MINUTE).count("n").to_stream(), "r"),
            "not records of a source",
        ),
    ],
)
def test_windows_are_refused_where_they_have_no_meaning(build: Callable[[Any], object], told: str) -> None:
    stream = eddy.Topology("app").stream("in", S, S)
    with pytest.raises(eddy.TopologyError, match=told):
        build(stream)


MINUTE, VISIT = eddy.TimeWindows(timedelta(minutes=1)), eddy.SessionWindows(timedelta(minutes=30))


@pytest.mark.parametrize("time", [0, 1, 2**53 + 1])
def test_any_timestamp_from_1970_on_has_windows(time: int) -> None:
    with piped(counting(eddy.TimeWindows(ms(10))), ("a", "x", time)) as driver:
        ((key, start, end, n),) = spans(driver)
        assert (key, n) == ("a", 1)
        assert start <= time < end


def test_a_timestamp_without_a_calendar_window_is_an_error_of_its_record() -> None:
    with pytest.raises(DataError, match="year 9999"):
        eddy.CalendarWindows("month").of(253_402_300_800_000)


def test_a_final_row_that_cannot_be_written_is_told_once_and_not_remembered() -> None:
    topology = eddy.Topology("app")
    windowed = topology.stream("in", S, S).group_by_key().windowed_by(eddy.TimeWindows(ms(10)), emit="close")
    windowed.count("n").map_values(lambda n: "two" if n == 2 else n).to("out", value=N)
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="skip")) as driver:
        for time in (1, 2, 11, 21, 22, 31):
            driver.input("in").pipe("a", "x", time)
        assert spans(driver) == [("a", 10, 20, 1)]
        assert (driver.worker.statistics.set_aside, driver.worker.statistics.kept_aside) == (2, 0)


class TestAfterExchanges:
    def test_rows_that_were_sent_before_windows_followed_are_not_late(self) -> None:
        """They carry no event time, and have their own in its place, beside rows that carry one."""
        sent = Batch([("a", 1), ("b", 2)], [1, 1], 9, [5, 9])
        assert event_times(Context(), sent) == [5, 9]
        assert event_times(Context(), concat([sent, sent.with_event_times([40, None])])) == [5, 9, 40, 9]

    def test_numbers_of_records_are_no_timestamps(self) -> None:
        """In an epoch that looks for the record of a failing row, the times of rows are numbers of records."""
        context = Context(timestamps=[50, 60])
        assert event_times(context, Batch([("a", 1), ("b", 2)], [1, 1], 2, [2, 1])) == [60, 50]

    def test_a_record_is_late_by_the_records_of_its_partition_that_others_were_sent_between(self) -> None:
        topology = eddy.Topology("app")
        moved = topology.stream("in", S, N).select_key(lambda key, value: "all", key=S).repartition(1, "moved")
        moved.group_by_key().windowed_by(eddy.TimeWindows(ms(10)), "close").count("n").to("out", value=N)
        with eddy.TopologyTestDriver(topology, partitions=2) as driver:
            one, other = (next(k for k in "abcdefgh" if partition_of(k.encode(), 2) == home) for home in (0, 1))
            for key, time in [(one, 5), (other, 25), (one, 6), (other, 7), (one, 30)]:
                driver.input("in").pipe(key, 1, time)
            assert driver.worker.statistics.late == 1
            assert driver.output("out").read_key_values() == [(eddy.Windowed("all", 0, 10), 2)]

    def test_records_that_are_sent_to_the_only_owner_of_a_table_have_windows_there(self) -> None:
        """With one partition they are not sent at all."""
        for partitions in (1, 2):
            topology = eddy.Topology("app")
            known = topology.constant([("a", 1)], "known", key=S, value=N).group_by_key().count("times")
            joined = topology.stream("in", S, N).join(known, lambda value, times: times)
            joined.group_by_key().windowed_by(eddy.TimeWindows(ms(10)), "close").count("n").to("out", value=N)
            with eddy.TopologyTestDriver(topology, partitions=partitions) as driver:
                for key, time in [("a", 5), ("a", 6), ("b", 30), ("a", 30)]:
                    driver.input("in").pipe(key, 1, time)
                assert driver.output("out").read_key_values() == [(eddy.Windowed("a", 0, 10), 2)]

    def test_the_partition_that_is_waited_for_is_named(self) -> None:
        topology = eddy.Topology("app")
        moved = topology.stream("in", S, N).repartition(1, "moved")
        moved.group_by_key().windowed_by(eddy.TimeWindows(ms(10)), "close").count("n")
        with eddy.TopologyTestDriver(topology, partitions=2) as driver:
            driver.input("in").pipe("a", 1, 5)
            driver.input("in").pipe("a", 1, 30)
            (found,) = driver.worker.circuit.open_windows(Context(event_time={("in", 0): 30, ("in", 1): -1}))
            assert (found.step, found.source, found.partition) in {("n", "in", 0), ("n", "in", 1)}
            assert found.partition != partition_of(b"a", 2)
