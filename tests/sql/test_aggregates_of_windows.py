"""Aggregates of TUMBLE, HOP and SESSION, DISTINCT and FILTER included, as DuckDB answers over windows that it makes."""

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eddy
from eddy.connectors.spark.sql_expressions import own
from eddy.errors import TopologyError
from tests.seeds import share
from tests.sql import duck

N = eddy.Int64


class Click(msgspec.Struct, frozen=True):
    """Who, when, and a number."""

    who: str
    ms: int | None
    n: int | None


WINDOWS = {
    "TUMBLE(clicks, ms, INTERVAL '10 milliseconds')": (
        "(SELECT *, CAST(floor(ms / 10::double) AS bigint) * 10 AS window_start FROM clicks WHERE ms IS NOT NULL)"
    ),
    "HOP(clicks, ms, INTERVAL '4 milliseconds', INTERVAL '10 milliseconds')": (
        "(SELECT clicks.*, starts.s AS window_start FROM clicks, (SELECT range AS s FROM range(-60, 61, 4)) AS starts "
        "WHERE ms >= s AND ms < s + 10)"
    ),
    "TABLE(SESSION(TABLE clicks PARTITION BY who, DESCRIPTOR(ms), INTERVAL '5' MILLISECONDS))": (
        "(SELECT *, min(ms) OVER (PARTITION BY who, number) AS window_start FROM (SELECT *, sum(begins) OVER "
        "(PARTITION BY who ORDER BY ms) AS number FROM (SELECT *, CASE WHEN ms - lag(ms) OVER "
        "(PARTITION BY who ORDER BY ms) < 5 THEN 0 ELSE 1 END AS begins FROM clicks WHERE ms IS NOT NULL)))"
    ),
}
"""Each call, and the same windows in DuckDB's words."""
AGGREGATES = [
    "count(DISTINCT n)",
    "count(DISTINCT n), count(DISTINCT who), count(n), count(*)",
    "count(DISTINCT n) FILTER (WHERE n > 0), sum(n) FILTER (WHERE n < 2), count(*) FILTER (WHERE n IS NULL)",
    "sum(DISTINCT n), avg(DISTINCT n), sum(n), avg(n)",
    "min(n), max(n), bool_and(n > 0), bool_or(n > 0)",
    "count(DISTINCT n % 2), count(DISTINCT who || '!'), max(DISTINCT n)",
]
rows = st.tuples(
    st.sampled_from("ab"), st.one_of(st.none(), st.integers(-30, 30)), st.one_of(st.none(), st.integers(-1, 2))
)
changes = st.lists(
    st.one_of(st.tuples(st.integers(0, 6), st.one_of(st.none(), rows)), st.just("restart")), min_size=4, max_size=16
)


def query_of(windows: str, aggregates: str, by: str) -> str:
    """The aggregates of each window."""
    return f"SELECT {by}, {aggregates} FROM {windows} AS w GROUP BY {by}"


def answer(windows: str, aggregates: str, by: str, clicks: list[Any]) -> Counter[tuple[Any, ...]]:
    """DuckDB's answer."""
    columns = {"who": "text", "ms": "bigint", "n": "bigint"}
    return duck.answer(query_of(WINDOWS[windows], aggregates, by), {"clicks": (columns, clicks)})


def text_of(row: Iterable[Any]) -> str:
    """A row, its numbers as exact as both engines have them."""
    return str([round(float(cell), 9) if isinstance(cell, Decimal | float | int) else cell for cell in row])


chosen = st.tuples(
    st.sampled_from(sorted(WINDOWS)), st.sampled_from(AGGREGATES), st.sampled_from(["who, window_start", "who"])
)


@settings(max_examples=share(1))
@given(chosen, st.lists(rows, max_size=12))
def test_a_query_answers_as_duckdb_does(chosen: tuple[str, str, str], clicks: list[Any]) -> None:
    columns = {"who": "text", "ms": "bigint", "n": "bigint"}
    assert duck.bag(eddy.query(query_of(*chosen), {"clicks": (columns, clicks)}).rows) == answer(*chosen, clicks)


@settings(max_examples=share(1))
@given(chosen, changes, st.integers(1, 3))
def test_a_view_has_what_duckdb_answers_as_rows_come_change_and_go(
    chosen: tuple[str, str, str], changes: list[Any], partitions: int
) -> None:
    topology = eddy.Topology("app")
    clicks = topology.table("clicks", key=N, value=eddy.Struct(Click))
    view = topology.sql(query_of(*chosen), {"clicks": clicks}, name="windows")
    view.map(lambda key, row: (text_of(row), 1), key=eddy.String, value=N).group_by_key().count("found")
    there: dict[int, Any] = {}
    with eddy.TopologyTestDriver(topology, partitions=partitions) as driver:
        for change in changes:
            if change == "restart":
                driver.restart(lose_state=True)
                continue
            key, value = change
            driver.input("clicks").pipe(key, None if value is None else Click(*value))
            there = {**there, key: value} if value else {k: row for k, row in there.items() if k != key}
        found = driver.store("found").all()
    assert found == Counter(map(text_of, answer(*chosen, list(there.values())).elements()))


@pytest.mark.parametrize("aggregates", AGGREGATES)
def test_spark_evaluates_them_by_itself(aggregates: str) -> None:
    topology = eddy.Topology("app")
    clicks = topology.table("clicks", key=N, value=eddy.Struct(Click))
    topology.sql(query_of(min(WINDOWS), aggregates, "who"), {"clicks": clicks}, name="windows")
    functions: list[Any] = [getattr(node, "function", None) for node in topology.plan.nodes]
    assert all(type(own(f)).__module__.startswith("eddy.connectors.spark") for f in functions if hasattr(f, "written"))
    assert any(hasattr(f, "written") for f in functions)


LISTS = ["array_agg(n)", "array_agg(DISTINCT n ORDER BY n)", "string_agg(who, ',')", "json_agg(n)", "list(n)"]


@pytest.mark.parametrize("call", [*LISTS, "jsonb_agg(n)", "array_agg(n) FILTER (WHERE n > 1)"])
def test_lists_of_values_are_refused_with_what_lists_them(call: str) -> None:
    with pytest.raises(TopologyError, match=r"is not supported; a column has no lists\. .* groups\.collect\('lists'"):
        eddy.query(query_of(min(WINDOWS), call, "who"), {"clicks": (["who", "ms", "n"], [("a", 1, 2)])})


def test_an_approximate_count_is_refused_as_the_exact_one_is_there() -> None:
    text = query_of(min(WINDOWS), "approx_count_distinct(n)", "who")
    with pytest.raises(TopologyError, match=r"approx_count_distinct is not supported; count\(DISTINCT x\) is exact"):
        eddy.query(text, {"clicks": (["who", "ms", "n"], [("a", 1, 2)])})
