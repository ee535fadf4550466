"""sum, avg, distinct_count, latest and collect of groups: a law against plain Python, examples, what is refused."""

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import Config, TopologyError, TopologyTestDriver
from eddy.serde import Tuple

S, N, J = eddy.String, eddy.Int64, eddy.Json()
Grouped = Any
"""A KGroupedStream or a KGroupedTable."""


def of_stream(topology: eddy.Topology) -> Grouped:
    records = topology.stream("in", S, eddy.Native).filter(lambda _, row: row is not None)
    return records.map(lambda _, row: row, key=S).group_by_key()


def of_table(topology: eddy.Topology) -> Grouped:
    return topology.table("in", S, eddy.Native, name="rows").group_by(lambda _, row: row, key=S)


def aggregates(grouped: Grouped) -> list[str]:
    """The five, over numbers; the names of their stores."""
    grouped.sum("sum")
    grouped.avg("avg")
    grouped.distinct_count("kinds")
    grouped.latest("latest", by=lambda n: -1 if n is None else n % 7)
    grouped.collect("all", by=lambda n: n % 5, max=4).errors.to_stream("said")
    return ["sum", "avg", "kinds", "latest", "all"]


def place(by: Any, number: Any) -> Any:
    """The order: by the author's function, then by the bytes of the value; equal values have equal ones."""
    whole = int(number) if float(number).is_integer() else number
    return by, eddy.Native.encode(whole)


def plainly(rows: list[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    """The tables of `aggregates`, of all rows (group, number)."""
    groups: dict[str, list[Any]] = {}
    for group, number in rows:
        if number is not None:
            groups.setdefault(group, []).append(number)
    exact = {group: sum(map(Fraction, numbers), Fraction(0)) for group, numbers in groups.items()}
    return {
        "sum": {group: int(total) if total.denominator == 1 else float(total) for group, total in exact.items()},
        "avg": {group: float(total / len(groups[group])) for group, total in exact.items()},
        "kinds": {group: len(set(numbers)) for group, numbers in groups.items()},
        "latest": {group: max(numbers, key=lambda n: place(n % 7, n)) for group, numbers in groups.items()},
        "all": {
            group: tuple(sorted(numbers, key=lambda n: place(n % 5, n)))
            for group, numbers in groups.items()
            if len(numbers) <= 4
        },
    }


numbers = st.none() | st.integers(0, 9) | st.sampled_from([0.1, 0.2, 0.7, 1.0, 1e15 + 0.3])
rows = st.none() | st.tuples(st.sampled_from("xy"), numbers)


@pytest.mark.parametrize("of", [of_stream, of_table])
@given(
    batches=st.lists(st.lists(st.tuples(st.sampled_from("abcdefg"), rows), max_size=6), max_size=5),
    partitions=st.sampled_from([1, 3]),
    size=st.sampled_from([1, 3, 50]),
)
def test_tables_are_those_of_all_rows(
    of: Callable[[eddy.Topology], Grouped], batches: list[list[Any]], partitions: int, size: int
) -> None:
    topology = eddy.Topology("app")
    names = aggregates(of(topology))
    there: dict[str, Any] = {}
    facts: list[Any] = []
    with TopologyTestDriver(topology, Config(max_epoch_records=size), partitions=partitions) as driver:
        for batch in batches:
            driver.input("in").pipe_all(batch)
            there.update(batch)
            facts += [row for _, row in batch if row is not None]
            expected = plainly(facts if of is of_stream else [row for row in there.values() if row is not None])
            assert {name: dict(driver.store(name).all()) for name in names} == expected
        driver.restart(lose_state=True)
        assert {name: dict(driver.store(name).all()) for name in names} == (expected if batches else plainly([]))


def table_of(topology: eddy.Topology, name: str, *batches: list[Any]) -> dict[Any, Any]:
    with TopologyTestDriver(topology) as driver:
        for batch in batches:
            driver.input("in").pipe_all(batch)
        return dict(driver.store(name).all())


def test_sums_of_decimals_have_all_their_digits() -> None:
    topology = eddy.Topology("app")
    paid = topology.stream("in", S, eddy.Json(Decimal)).group_by_key()
    paid.sum("sums").to("out")
    paid.avg("means")
    records = [("a", Decimal("0.10")), ("a", Decimal("0.20")), ("b", Decimal("12345678901234567890.12")), ("b", None)]
    found = table_of(topology, "sums", records)
    assert found == {"a": Decimal("0.3"), "b": Decimal("12345678901234567890.12")}
    assert {type(value) for value in found.values()} == {Decimal}
    assert table_of(topology, "means", records) == {"a": 0.15, "b": 1.2345678901234567e19}


def test_sums_of_values_that_are_read_as_floats_are_floats() -> None:
    """The table's serde would round an int."""
    topology = eddy.Topology("app")
    topology.stream("in", S, eddy.Float64).group_by_key().sum("sums")
    records = [("a", 2.0**62), ("a", 2.0**62), ("a", 1.0), ("a", 2.0**62)]
    found = table_of(topology, "sums", records)
    assert found == {"a": 3 * 2.0**62}
    assert type(found["a"]) is float


def test_infinities_and_nan_are_numbers() -> None:
    topology = eddy.Topology("app")
    topology.table("in", S, eddy.Float64, name="rows").group_by(lambda key, n: ("all", n)).sum("sums")
    batches = [[("a", math.inf), ("b", 1.0)], [("c", -math.inf)], [("a", None)], [("c", None)]]
    seen = [table_of(topology, "sums", *batches[: at + 1])["all"] for at in range(4)]
    assert repr(seen) == "[inf, nan, -inf, 1]"


def test_the_latest_value_of_records_that_cannot_be_hashed() -> None:
    topology = eddy.Topology("app")
    topology.stream("in", S, J).group_by_key().latest("latest", by=lambda event: event["at"])
    records = [("a", {"at": 2, "is": "new"}), ("a", {"at": 1, "is": "old"}), ("b", {"at": 5}), ("b", None)]
    assert table_of(topology, "latest", records) == {"a": {"at": 2, "is": "new"}, "b": {"at": 5}}
    assert table_of(topology, "latest", records[::-1]) == {"a": {"at": 2, "is": "new"}, "b": {"at": 5}}


def test_a_latest_value_needs_its_time() -> None:
    grouped: Grouped = of_table(eddy.Topology("app"))
    with pytest.raises(
        TopologyError, match=r"latest 'x': by=None; the time of a value is needed.*stream\.to_table\(\)"
    ):
        grouped.latest("x")


def test_values_of_another_serde_are_told_apart_by_it() -> None:
    topology = eddy.Topology("app")
    days = topology.stream("in", S, J).group_by_key()
    days.distinct_count("days", of=datetime.date.fromisoformat, value=eddy.Json(datetime.date))
    days.distinct_count("months", of=lambda day: day[:7])
    records = [("a", "2020-01-01"), ("a", "2020-01-01"), ("a", "2020-01-02"), ("b", None)]
    assert table_of(topology, "days", records) == {"a": 2}
    assert table_of(topology, "months", records) == {"a": 1}


class TestCollect:
    def test_a_group_with_too_many_values_is_an_error_until_some_go(self) -> None:
        topology = eddy.Topology("app")
        lists = of_table(topology).collect("lists", max=2)
        assert lists.errors._node is lists.errors._node  # private: the steps are added once
        lists.errors.to("said", value=S)
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe_all([("1", ("x", 3)), ("2", ("x", 1)), ("3", ("y", 5))])
            assert driver.store("lists").all() == {"x": (1, 3), "y": (5,)}
            driver.input("in").pipe_all([("4", ("x", 3)), ("5", ("x", None))])
            assert driver.store("lists").all() == {"y": (5,)}
            assert driver.output("said").read_key_values() == [
                (
                    "x",
                    "collect 'lists': this group has 3 values, and max=2. Raise max, take values away, or keep only "
                    "the first ones: .top_k(…)",
                )
            ]
            driver.input("in").pipe("2", None)
            assert driver.store("lists").all() == {"x": (3, 3), "y": (5,)}
            assert driver.output("said").read_key_values() == [("x", None)]

    def test_a_row_with_a_great_weight_is_not_listed_to_be_counted(self) -> None:
        """Forty diamonds in a row: 2 ** 40 ways to the last node."""
        topology = eddy.Topology("app")
        links = (
            topology.table("in", S, eddy.Native, name="links").to_relation().map(lambda _, link: link, key=N, value=N)
        )
        start = topology.constant([(0, 0)], "start", key=N, value=N)
        ways = start.recursively(lambda at: at.join(links, lambda _, one, to: (to, one), "on", N, N), "ways", limit=50)
        ends = ways.filter(lambda at, _: at in {0, 40}).group_by_key()
        ends.collect("lists", max=3).errors.to("said", value=S)
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe_all([(f"{n}{side}", (n, n + 1)) for n in range(40) for side in "ab"])
            assert driver.store("lists").all() == {0: (0,)}
            (record,) = driver.output("said", key=N).read_key_values()
            assert record[0] == 40
            assert "this group has 1099511627776 values" in record[1]


class TestWindows:
    def windowed(self) -> tuple[eddy.Topology, Grouped]:
        topology = eddy.Topology("app")
        windows = eddy.TimeWindows(datetime.timedelta(milliseconds=10))
        return topology, topology.stream("in", S, J).group_by_key().windowed_by(windows)

    def test_sums_means_and_latest_values_of_windows_end_with_them(self) -> None:
        topology, groups = self.windowed()
        groups.sum("sums", of=lambda event: event["n"])
        groups.avg("means", of=lambda event: event["n"])
        groups.latest("latest", by=lambda event: event["at"]).map_values(lambda event: event["n"])
        with TopologyTestDriver(topology) as driver:
            for at, n in [(3, 0.1), (7, 0.2), (1, 0.3)]:
                driver.input("in").pipe("a", {"n": n, "at": at}, timestamp_ms=at)
            window = eddy.Windowed("a", 0, 10)
            assert driver.store("sums").all() == {window: 0.6}
            assert driver.store("means").all() == {window: 0.2}
            assert driver.store("latest").all() == {window: {"n": 0.2, "at": 7}}
            driver.input("in").pipe("a", {"n": 5, "at": 10}, timestamp_ms=10)
            later = eddy.Windowed("a", 10, 20)
            assert driver.store("sums").all() == {later: 5}
            assert driver.store("sums-totals").all().keys() == driver.store("means-totals").all().keys() == {later}

    def test_lists_and_different_values_of_windows_end_with_them(self) -> None:
        topology, groups = self.windowed()
        groups.distinct_count("kinds", of=lambda event: event["n"])
        lists = groups.collect("lists", by=lambda event: event["at"], max=2)
        lists.errors.to_stream().map(lambda window, told: (window.key, told), key=S).to("said", value=S)
        with TopologyTestDriver(topology) as driver:
            for at, n in [(7, 1.0), (3, 1)]:
                driver.input("in").pipe("a", {"n": n, "at": at}, timestamp_ms=at)
            window, later = eddy.Windowed("a", 0, 10), eddy.Windowed("a", 10, 20)
            assert driver.store("kinds").all() == {window: 1}
            assert driver.store("lists").all() == {window: ({"n": 1, "at": 3}, {"n": 1.0, "at": 7})}
            driver.input("in").pipe("a", {"n": None, "at": 1}, timestamp_ms=1)
            assert driver.store("kinds").all() == {window: 1}
            assert driver.store("lists").all() == {}
            driver.input("in").pipe("a", {"n": 5, "at": 10}, timestamp_ms=10)
            assert driver.store("kinds").all() == {later: 1}
            assert driver.store("lists").all() == {later: ({"n": 5, "at": 10},)}
            assert driver.output("said").read_key_values() == [
                (
                    "a",
                    "collect 'lists': this group has 3 values, and max=2. Raise max, take values away, or keep only "
                    "the first ones: .top_k(…)",
                )
            ]

    @pytest.mark.parametrize("windows", ["tumbling", "sessions"])
    def test_a_record_of_whose_value_nothing_can_be_made_is_left_out_alone(self, windows: str) -> None:
        topology = eddy.Topology("app")
        five = datetime.timedelta(milliseconds=5)
        groups: Grouped = topology.stream("in", S, J).group_by_key()
        groups = groups.windowed_by(eddy.SessionWindows(five) if windows == "sessions" else eddy.TimeWindows(2 * five))
        groups.distinct_count("kinds", of=lambda n: 10 // n)
        groups.collect("lists", by=lambda n: 100 // (n - 5), max=9)
        with TopologyTestDriver(topology, Config(on_error="dead-letter")) as driver:
            driver.input("in").pipe_all([("a", n) for n in (2, 0, 5, 3, "x", 3, 9)], timestamp_ms=1)
            window = eddy.Windowed("a", 1, 1) if windows == "sessions" else eddy.Windowed("a", 0, 10)
            assert driver.store("kinds").all() == {window: 4}
            assert driver.store("lists").all() == {window: (3, 3, 2, 0, 9)}

    @pytest.mark.parametrize("windows", ["tumbling", "sessions"])
    def test_a_list_that_its_serde_cannot_write(self, windows: str) -> None:
        """It is withheld with its window; a session leaves the record out, as any fold of sessions does."""
        topology = eddy.Topology("app")
        five = datetime.timedelta(milliseconds=5)
        groups: Grouped = topology.stream("in", S, J).group_by_key()
        groups = groups.windowed_by(eddy.SessionWindows(five) if windows == "sessions" else eddy.TimeWindows(2 * five))
        groups.collect("lists", max=9, value=Tuple(N, ...))
        with TopologyTestDriver(topology, Config(on_error="skip")) as driver:
            driver.input("in").pipe_all([("a", 1), ("b", 1), ("a", "x"), ("a", 2)], timestamp_ms=1)
            there = {window.key: row for window, row in driver.store("lists").all().items()}
            assert there == ({"a": (1, 2), "b": (1,)} if windows == "sessions" else {"b": (1,)})
            driver.input("in").pipe("c", 1, timestamp_ms=1_000)
            assert [window.key for window in driver.store("lists").all()] == ["c"]

    def test_a_record_of_a_session_needs_a_value_to_be_told_apart(self) -> None:
        topology = eddy.Topology("app")
        sessions = eddy.SessionWindows(datetime.timedelta(milliseconds=10))
        topology.stream("in", S, J).group_by_key().windowed_by(sessions).distinct_count("kinds", of=lambda e: e["n"])
        told = (
            r"distinct_count 'kinds': of\(\{'n': None\}\) is None, and each record of a session needs a value\. Filter"
        )
        with TopologyTestDriver(topology) as driver, pytest.raises(eddy.DataError, match=told):
            driver.input("in").pipe("a", {"n": None}, timestamp_ms=5)

    @given(
        records=st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 7), st.integers(0, 40)), max_size=30),
        kind=st.sampled_from(["tumbling", "sessions", "sliding"]),
        size=st.sampled_from([1, 4, 50]),
    )
    def test_values_of_epochs_that_are_undone_are_not_there(
        self, records: list[tuple[str, int, int]], kind: str, size: int
    ) -> None:
        """A later step fails on each 7, so that epochs are undone and their other records are read again."""
        assert self.tables(kind, records, size) == self.tables(
            kind, [record for record in records if record[1] != 7], 1
        )

    def tables(self, kind: str, records: list[tuple[str, int, int]], size: int) -> list[Any]:
        topology = eddy.Topology("app")
        windows: dict[str, Any] = {
            "tumbling": eddy.TimeWindows(datetime.timedelta(milliseconds=9), grace=datetime.timedelta(1)),
            "sessions": eddy.SessionWindows(datetime.timedelta(milliseconds=3), datetime.timedelta(1)),
            "sliding": eddy.SlidingWindows(datetime.timedelta(milliseconds=4), datetime.timedelta(1)),
        }
        read = topology.stream("in", S, eddy.Native, timestamp=lambda value: value[1])
        stream = read.map_values(lambda value: value[0], value=N)
        groups = stream.group_by_key().windowed_by(windows[kind])
        groups.distinct_count("kinds")
        groups.collect("lists", max=4)
        stream.map_values(lambda n: 1 // (n - 7), value=N).to("out")
        with TopologyTestDriver(topology, Config(on_error="skip", max_epoch_records=size)) as driver:
            for part in (records[:9], records[9:]):
                driver.input("in").pipe_all([(key, (n, at)) for key, n, at in part])
            return [dict(driver.store(name).all()) for name in ("kinds", "lists")]

    @pytest.mark.parametrize("times", [[5, 20, 13], [20, 13, 5], [13, 5, 20]])
    def test_sums_and_means_of_sessions_are_exact_and_merge(self, times: list[int]) -> None:
        topology = eddy.Topology("app")
        sessions = eddy.SessionWindows(datetime.timedelta(milliseconds=10), datetime.timedelta(milliseconds=100))
        groups: Grouped = topology.stream("in", S, J).group_by_key().windowed_by(sessions)
        groups.sum("sums", of=lambda event: event["n"], value=eddy.Float64)
        groups.avg("means", of=lambda event: event["n"])
        numbers = {5: 1e100, 13: 0.1, 20: -1e100}
        with TopologyTestDriver(topology) as driver:
            for at in times:
                driver.input("in").pipe("a", {"n": numbers[at]}, timestamp_ms=at)
            session = eddy.Windowed("a", 5, 20)
            assert driver.store("sums").all() == {session: 0.1}
            assert driver.store("means").all() == {session: 0.1 / 3}
            assert driver.store("sums-totals").all().keys() == {session}
            driver.input("in").pipe("b", {"n": 1}, timestamp_ms=1_000)
            assert driver.store("sums").all().keys() == driver.store("sums-totals").all().keys()
            assert session not in driver.store("means").all()

    def test_a_record_of_a_session_needs_a_number_that_its_table_can_write(self) -> None:
        topology = eddy.Topology("app")
        groups = topology.stream("in", S, J).group_by_key()
        windowed = groups.windowed_by(eddy.SessionWindows(datetime.timedelta(milliseconds=10)))
        windowed.sum("sums", of=lambda event: event["n"], value=N)
        with TopologyTestDriver(topology, eddy.Config(on_error="skip")) as driver:
            for number in (1, None, 2**63 - 1, "x", 2):
                driver.input("in").pipe("a", {"n": number}, timestamp_ms=5)
            assert driver.store("sums").all() == {eddy.Windowed("a", 5, 5): 3}

    def test_latest_values_of_sessions_merge(self) -> None:
        topology = eddy.Topology("app")
        sessions = eddy.SessionWindows(datetime.timedelta(milliseconds=10))
        groups: Grouped = topology.stream("in", S, J).group_by_key().windowed_by(sessions)
        groups.latest("latest", by=lambda event: event["at"])
        with TopologyTestDriver(topology) as driver:
            for at in [5, 20, 13]:
                driver.input("in").pipe("a", {"at": at}, timestamp_ms=at)
            assert driver.store("latest").all() == {eddy.Windowed("a", 5, 20): {"at": 20}}


class TestErrors:
    def stream(self, **arguments: Any) -> eddy.Topology:
        topology = eddy.Topology("app")
        topology.stream("in", S, J).group_by_key().sum("sums", **arguments).to("out", value=J)
        return topology

    def test_another_value_than_a_number_is_named_with_group_value_and_remedy(self) -> None:
        told = (
            r"topic 'in' partition 0 offset 1 key b'a': sum 'sums': 'six' of the value \{'n': 'six'\} in the group 'a' "
            r"is not a number; an int, a float, a Decimal or None is needed\. Name the number of a value: of=lambda"
        )
        with (
            TopologyTestDriver(self.stream(of=lambda value: value["n"])) as driver,
            pytest.raises(eddy.DataError, match=told),
        ):
            driver.input("in").pipe_all([("a", {"n": 5}), ("a", {"n": "six"}), ("a", {"n": 7})])

    @pytest.mark.parametrize("build", [of_stream, of_table])
    def test_it_is_left_out_alone(self, build: Callable[[eddy.Topology], Grouped]) -> None:
        topology = eddy.Topology("app")
        build(topology).sum("sums")
        with TopologyTestDriver(topology, Config(on_error="dead-letter")) as driver:
            driver.input("in").pipe_all([("1", ("a", 5)), ("2", ("a", "six")), ("3", ("a", 7))])
            assert driver.store("sums").all() == {"a": 12}
            driver.input("in").pipe("2", ("a", 6))
            assert driver.store("sums").all() == {"a": 18}

    def test_a_sum_that_its_serde_cannot_write_is_withheld_until_it_can(self) -> None:
        topology = eddy.Topology("app")
        table = topology.table("in", S, N, name="rows")
        grouped = table.group_by(lambda key, n: (key[0], n), key=S, value=N)
        grouped.sum("sums").to("out")
        grouped.sum("large", value=J)
        with TopologyTestDriver(topology, Config(on_error="skip")) as driver:
            driver.input("in").pipe_all([("a1", 2**63 - 1), ("a2", 1), ("b", 1)])
            assert driver.store("sums").all() == {"b": 1}
            assert driver.store("large").all() == {"a": 2**63, "b": 1}
            driver.input("in").pipe("a2", None)
            assert driver.store("sums").all() == {"a": 2**63 - 1, "b": 1}

    @pytest.mark.parametrize(
        ("build", "told"),
        [
            (
                lambda g: g.sum("x"),
                r"sum 'x': the serde string writes no sums; a serde of int, float or Decimal is needed\. Name the "
                r"number of a value, of=lambda value: …, or another serde, value=eddy\.Float64",
            ),
            (lambda g: g.sum("x", of=len, value=S), "sum 'x': the serde string writes no sums"),
            (
                lambda g: g.avg("x", of=len, value=N),
                "avg 'x': the serde int64 writes no means; a serde of float is needed",
            ),
            (lambda g: g.avg("x", value=eddy.Json(Decimal)), r"avg 'x': the serde json\(Decimal\) writes no means"),
            (lambda g: g.collect("x", max=0), "collect 'x': max=0; 1 or more is needed, a whole number"),
        ],
    )
    def test_what_cannot_work_is_refused_when_it_is_built(self, build: Any, told: str) -> None:
        with pytest.raises(TopologyError, match=told):
            build(eddy.Topology("app").stream("in", S, S).group_by_key())
