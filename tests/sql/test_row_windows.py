"""TUMBLE, HOP and SESSION in SQL: oracles in plain Python over the rows that are there, and what is refused."""

import datetime
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.spark.sql_expressions import own
from eddy.errors import DataError, TopologyError
from eddy.topology.sql.row_windows import FixedWindows, SessionsOfRows

N = eddy.Int64
Row = tuple[str, int | None, int]
Windows = Callable[[list[Row]], Counter[tuple[Any, ...]]]


class Click(msgspec.Struct, frozen=True):
    """Who, when, and a number."""

    who: str
    at: int | None
    n: int


def fixed(size: int, advance: int, offset: int = 0) -> Windows:
    """Each row in each window, of all that begin near it, that has its time."""

    def windows(rows: list[Row]) -> Counter[tuple[Any, ...]]:
        found: Counter[tuple[Any, ...]] = Counter()
        for who, at, n in rows:
            if at is not None:
                near = range(-(size // advance) - 2, size // advance + 3)
                starts = (at // advance * advance + k * advance + offset for k in near)
                found.update((who, at, n, start, start + size) for start in starts if start <= at < start + size)
        return found

    return windows


def sessions(gap: int, by_person: bool = True) -> Windows:
    """Each row with the first and the last one that are reached from it in steps below the gap."""

    def windows(rows: list[Row]) -> Counter[tuple[Any, ...]]:
        found: Counter[tuple[Any, ...]] = Counter()
        for who, at, n in rows:
            if at is None:
                continue
            first = last = at
            times = [t for other, t, _ in rows if t is not None and (other == who or not by_person)]
            while near := [t for t in times if first - gap < t < first]:
                first = min(near)
            while near := [t for t in times if last < t < last + gap]:
                last = max(near)
            found[who, at, n, first, last + gap] += 1
        return found

    return windows


CALLS: dict[str, Windows] = {
    "TUMBLE(clicks, at, INTERVAL '10 milliseconds')": fixed(10, 10),
    "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(at), INTERVAL '7' MILLISECONDS, INTERVAL '3' MILLISECONDS))": fixed(7, 7, 3),
    "HOP(clicks, at, INTERVAL '4 milliseconds', INTERVAL '10 milliseconds')": fixed(10, 4),
    "TABLE(HOP(TABLE clicks, DESCRIPTOR(at), INTERVAL '5' MILLISECONDS, INTERVAL '5' MILLISECONDS))": fixed(5, 5),
    "HOP(clicks, at, INTERVAL '1 millisecond', INTERVAL '3 milliseconds', INTERVAL '1 second')": fixed(3, 1),
    "TABLE(SESSION(TABLE clicks PARTITION BY who, DESCRIPTOR(at), INTERVAL '5' MILLISECONDS))": sessions(5),
    "TABLE(SESSION(TABLE clicks PARTITION BY (who), DESCRIPTOR(clicks.at), INTERVAL '2 milliseconds'))": sessions(2),
    "TABLE(SESSION(TABLE clicks PARTITION BY upper(who)::text, DESCRIPTOR(at), INTERVAL '5' MILLISECONDS))": sessions(
        5
    ),
    "TABLE(SESSION(TABLE clicks, DESCRIPTOR(at), INTERVAL '4' MILLISECONDS))": sessions(4, by_person=False),
    "TABLE(SESSION((SELECT * FROM clicks WHERE n >= 0) c PARTITION BY c.who, DESCRIPTOR(c.at), "
    "INTERVAL '3 milliseconds'))": lambda rows: sessions(3)([row for row in rows if row[2] >= 0]),
}
changes = st.lists(
    st.one_of(
        st.tuples(
            st.integers(0, 5),
            st.one_of(
                st.none(),
                st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(-30, 30)), st.integers(-1, 2)),
            ),
        ),
        st.just("restart"),
    ),
    max_size=20,
)


def view_of(text: str) -> eddy.Topology:
    topology = eddy.Topology("app")
    clicks = topology.table("clicks", key=N, value=eddy.Struct(Click))
    view = topology.sql(text, {"clicks": clicks}, name="windows")
    view.map(lambda key, row: (str(row), 1), key=eddy.String, value=N).group_by_key().count("found")
    return topology


@given(st.sampled_from(sorted(CALLS)), changes, st.integers(1, 3))
def test_rows_are_in_their_windows_as_rows_come_change_and_go(call: str, changes: list[Any], partitions: int) -> None:
    topology = view_of(f"SELECT who, at, n, window_start, window_end FROM {call} AS w")
    rows: dict[int, Row] = {}
    with eddy.TopologyTestDriver(topology, partitions=partitions) as driver:
        for change in changes:
            if change == "restart":
                driver.restart(lose_state=True)
                continue
            key, value = change
            driver.input("clicks").pipe(key, None if value is None else Click(*value))
            rows = {**rows, key: value} if value else {k: row for k, row in rows.items() if k != key}
            found = Counter(driver.store("found").all())
            assert found == Counter({str(row): n for row, n in CALLS[call](list(rows.values())).items()})


rows_of_clicks = st.lists(
    st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(-30, 30)), st.integers(-1, 2)), max_size=9
)


@given(st.sampled_from(sorted(CALLS)), rows_of_clicks)
def test_timestamps_have_the_windows_of_their_milliseconds(call: str, rows: list[Row]) -> None:
    zero = datetime.datetime(1970, 1, 1)

    def moment(at: int | None) -> datetime.datetime | None:
        return None if at is None else zero + datetime.timedelta(milliseconds=at)

    given_rows = [(who, moment(at), n) for who, at, n in rows]
    columns = {"who": "text", "at": "timestamp", "n": "bigint"}
    answer = eddy.query(f"SELECT * FROM {call} AS w", {"clicks": (columns, given_rows)})
    assert answer.types[-2:] == ("timestamp", "timestamp")
    expected = Counter(
        {
            (who, moment(at), n, moment(start), moment(end)): many
            for (who, at, n, start, end), many in CALLS[call](rows).items()
        }
    )
    assert Counter(answer.rows) == expected


@given(st.sampled_from(sorted(CALLS)), rows_of_clicks)
def test_spark_evaluates_them_by_itself(call: str, rows: list[Row]) -> None:
    topology = view_of(f"SELECT who, at, n, window_start, window_end FROM {call} AS w")
    functions = (getattr(node, "function", None) for node in topology.plan.nodes)
    function: Any = next(f for f in functions if isinstance(getattr(f, "written", None), FixedWindows | SessionsOfRows))
    mine = own(function)
    assert type(mine).__module__.startswith("eddy.connectors.spark")
    width = function.written.place + 1
    placed = [(*(row[0],) * (width - 1), row[1]) for row in rows]
    if isinstance(function.written, SessionsOfRows):
        bag = Counter(placed)
        assert Counter(mine((), bag)) == Counter(function((), bag))
    else:
        assert [list(mine(row)) for row in placed] == [list(function(row)) for row in placed]


def test_windows_end_by_a_condition_on_the_present_time() -> None:
    text = """
        SELECT who, window_start, count(*) AS clicks FROM TUMBLE(clicks, at, INTERVAL '10 seconds')
        WHERE now() < window_end + INTERVAL '5 seconds' GROUP BY who, window_start
    """
    with eddy.TopologyTestDriver(view_of(text)) as driver:
        driver.input("clicks").pipe_all([(1, Click("a", 0, 0)), (2, Click("a", 9_999, 0)), (3, Click("a", 10_000, 0))])
        assert driver.store("found").all() == {"('a', 0, 2)": 1, "('a', 10000, 1)": 1}
        driver.advance_wall_clock_time(15)
        assert driver.store("found").all() == {"('a', 10000, 1)": 1}
        driver.advance_wall_clock_time(10)
        assert driver.store("found").all() == {}


def test_they_join_and_recurse_as_other_tables() -> None:
    clicks = (["id", "who", "at"], [(1, "a", 0), (2, "b", 4), (3, "c", 11), (4, "d", 19)])
    text = """
        WITH RECURSIVE near (one, other) AS (
            SELECT x.id, y.id FROM TUMBLE(clicks, at, INTERVAL '10 milliseconds') AS x
            JOIN TUMBLE(clicks, at, INTERVAL '10 milliseconds') AS y USING (window_start)
        ), reached (id) AS (
            SELECT 1::bigint UNION SELECT other FROM reached JOIN near ON one = reached.id
        )
        SELECT id FROM reached ORDER BY id
    """
    assert eddy.query(text, {"clicks": clicks}).rows == [(1,), (2,)]
    mutual = """
        WITH MUTUALLY RECURSIVE seen (id bigint, at bigint) AS (
            SELECT id, at FROM clicks WHERE id = 1
            UNION
            SELECT clicks.id, clicks.at
            FROM clicks JOIN TABLE(SESSION(TABLE seen, DESCRIPTOR(at), INTERVAL '8 milliseconds')) AS s
            ON clicks.at < s.window_end
        )
        SELECT id FROM seen ORDER BY id
    """
    assert eddy.query(mutual, {"clicks": clicks}).rows == [(1,), (2,), (3,)]


HOUR = "INTERVAL '1 hour'"
REFUSED = {
    f"SELECT tumble(clicks, at, {HOUR}) FROM clicks": "column 8: a window outside of FROM",
    f"SELECT * FROM TUMBLE(clicks, who, {HOUR})": "column 30: TUMBLE by a column of text; .* milliseconds",
    "SELECT * FROM TUMBLE(clicks, at, 5)": "column 34: TUMBLE: an INTERVAL is needed",
    "SELECT * FROM TUMBLE(clicks, at, INTERVAL '0 hours')": "TUMBLE: a span of 0",
    "SELECT * FROM TUMBLE(clicks, at, INTERVAL '1 month')": "this INTERVAL is not supported",
    f"SELECT * FROM HOP(clicks, at, INTERVAL '2 hours', {HOUR})": "HOP every 7,200,000 ms of windows of 3,600,000 ms",
    f"SELECT * FROM HOP(clicks, at, INTERVAL '1 millisecond', {HOUR})": "3,600,000 of them; at most 10,000 are",
    f"SELECT * FROM HOP(clicks, at, {HOUR})": "HOP needs 2 spans of time; HOP",
    "SELECT * FROM TUMBLE(clicks, at)": r"column 32: TUMBLE is TUMBLE\(orders, at",
    f"SELECT * FROM TUMBLE(clicks c, at, {HOUR})": "TUMBLE is TUMBLE",
    f"SELECT * FROM TUMBLE(clicks, at + 1, {HOUR})": "TUMBLE is TUMBLE",
    "SELECT * FROM TABLE(SESSION(TABLE clicks, DESCRIPTOR(at)))": r"SESSION is TABLE\(SESSION",
    "SELECT * FROM TABLE(many(clicks))": "TABLE.* is for TUMBLE, HOP and SESSION",
    f"SELECT * FROM TUMBLE(click, at, {HOUR})": r"no table 'click'; one of \['clicks'\]",
    f"SELECT * FROM TUMBLE(clicks, moment, {HOUR})": "no column 'moment'",
    f"SELECT * FROM TUMBLE(clicks, at, {HOUR}) WITH ORDINALITY": "ORDINALITY",
    f"SELECT * FROM TABLE(TUMBLE(TABLE clicks PARTITION BY n, DESCRIPTOR(at), {HOUR}))": "PARTITION BY in TUMBLE",
    f"SELECT * FROM TUMBLE((SELECT * FROM TUMBLE(clicks, at, {HOUR})) t, at, {HOUR})": "a column window_start; rename",
    f"SELECT (SELECT max(n) FROM TUMBLE(clicks, c.at, {HOUR})) FROM clicks c": "a column of the enclosing query",
    f"WITH RECURSIVE r (at) AS (SELECT at FROM clicks UNION SELECT window_end FROM "
    f"TABLE(SESSION(TABLE r, DESCRIPTOR(at), {HOUR}))) SELECT * FROM r": "'r' below SESSION of its step",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(TopologyError, match=REFUSED[text]):
        view_of(text)


BEYOND = [("bigint", 2**63 - 1), ("bigint", -(2**63)), ("timestamp", datetime.datetime(9999, 12, 31, 23, 59))]


@pytest.mark.parametrize(("column", "value"), BEYOND)
def test_a_window_beyond_all_times_is_an_error_of_its_row(column: str, value: Any) -> None:
    tables = {"t": ({"at": column}, [(value,)])}
    with pytest.raises(DataError, match=r"line 1, column 15: a window is out of range"):
        eddy.query("SELECT * FROM TUMBLE(t, at, INTERVAL '7 hours')", tables)
    text = "SELECT window_start FROM TABLE(SESSION(TABLE t, DESCRIPTOR(at), INTERVAL '3' HOURS))"
    if value == -(2**63):  # a session begins at its first row
        assert eddy.query(text, tables).rows == [(value,)]
        return
    with pytest.raises(DataError, match="a window is out of range"):
        eddy.query(text, tables)
