"""Views: after every epoch a view holds what the one-off query answers; what they are keyed, called and written by."""

import datetime
from collections import Counter
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eddy
from eddy import query
from tests.seeds import share
from tests.sql import duck, queries


def rows_of(driver: eddy.TopologyTestDriver) -> "Counter[tuple[Any, ...]]":
    return Counter(dict(driver.store("rows").all()))


def counted(view: Any) -> None:
    """Count the rows of a view in a store, to be looked at."""
    serde = view._node.value  # private: the type of its rows
    view.map(lambda key, row: (row, 1), key=serde).group_by_key(key=serde).count("rows")


def topology_of(text: str) -> eddy.Topology:
    topology = eddy.Topology("test")
    tables = {
        name: (topology.table(name, key=eddy.Int64, value=eddy.Native), {"id": "bigint", **columns})
        for name, columns in queries.COLUMNS.items()
    }
    counted(topology.sql(text, tables=tables, name="view"))
    return topology


changes = st.lists(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("t"), st.integers(0, 4), st.none() | st.tuples(queries.number, queries.number, queries.word)
            ),
            st.tuples(st.just("u"), st.integers(0, 4), st.none() | st.tuples(queries.number, queries.number)),
        ),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=5,
)

RECURSIVE = [
    "WITH RECURSIVE r(x) AS (SELECT 0 UNION SELECT c FROM r JOIN u ON x = u.a) SELECT x, 1 AS y FROM r",
    "WITH RECURSIVE r(x, d) AS (SELECT a, 0 FROM t UNION ALL SELECT c, d + 1 FROM r JOIN u ON x = u.a WHERE d < 3) "
    "SELECT x, d AS y FROM r",
    "WITH MUTUALLY RECURSIVE r(x integer, y integer) AS (SELECT a, c FROM u UNION SELECT r.x, u.c FROM r JOIN u ON "
    "r.y = u.a), s(x integer, n bigint) AS (SELECT x, count(*) FROM r GROUP BY x) "
    "SELECT r.*, s.n FROM r JOIN s ON r.x = s.x",
    "WITH MUTUALLY RECURSIVE best(x integer, d integer) AS (SELECT x, min(d) FROM (SELECT 0 AS x, 0 AS d UNION ALL "
    "SELECT u.c, d + 1 FROM best JOIN u ON x = u.a) AS step GROUP BY x) SELECT * FROM best",
    "WITH MUTUALLY RECURSIVE win(x integer) AS (SELECT a FROM u EXCEPT SELECT u.a FROM u JOIN win ON u.c = win.x WHERE "
    "u.a < u.c) SELECT x, 0 AS y FROM win",
]


def assert_view_follows(text: str, story: Any, partitions: int = 1) -> None:
    topology = topology_of(text)
    now: dict[str, dict[int, Any]] = {name: {} for name in queries.COLUMNS}
    with eddy.TopologyTestDriver(topology, partitions=partitions) as driver:
        for epoch in story:
            for table, key, value in epoch:
                now[table][key] = value
            for table in queries.COLUMNS:
                driver.input(table).pipe_all([(key, value) for name, key, value in epoch if name == table])
            tables = {
                name: ({"id": "bigint", **queries.COLUMNS[name]}, [(k, *v) for k, v in rows.items() if v is not None])
                for name, rows in now.items()
            }
            assert duck.bag(rows_of(driver).elements()) == duck.bag(query(text, tables).rows)


@settings(max_examples=share(2), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=queries.queries(), story=changes)
def test_view_holds_what_the_query_answers_after_every_epoch(text: str, story: Any) -> None:
    assert_view_follows(text, story)


@pytest.mark.parametrize("text", RECURSIVE)
@settings(max_examples=share(4), deadline=None, suppress_health_check=list(HealthCheck))
@given(story=changes, partitions=st.sampled_from([1, 3]))
def test_recursive_view_holds_what_the_query_answers_after_every_epoch(text: str, story: Any, partitions: int) -> None:
    assert_view_follows(text, story, partitions)


class Order(msgspec.Struct, frozen=True):
    customer: str
    total: float
    note: str | None = None


def test_columns_follow_from_the_serdes_the_key_first() -> None:
    topology = eddy.Topology("test")
    orders = topology.table("orders", key=eddy.Int64, value=eddy.Struct(Order))
    names = topology.table("names", key=eddy.String, value=eddy.String)
    tables = {"orders": orders, "names": names}
    view = topology.sql("SELECT * FROM orders JOIN names ON customer = names.key", tables=tables)
    assert view.columns == ("key", "customer", "total", "note", "key", "value")
    assert view.types == ("bigint", "text", "double", "text", "text", "text")


def test_given_columns_name_fields_and_elements() -> None:
    topology = eddy.Topology("test")
    orders = topology.table("orders", key=eddy.Int64, value=eddy.Struct(Order))
    events = topology.stream("events", key=eddy.String, value=eddy.Json())
    tables = {
        "orders": (orders, {"id": "bigint", "total": "numeric(8,2)"}),
        "events": (events, {"key": "text", "at": "timestamp", "order": int}),
    }
    counted(topology.sql('SELECT id, total, at FROM orders JOIN events ON id = "order"', tables=tables))
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("orders").pipe(7, Order("ann", 1.005))
        driver.input("events").pipe("e", {"order": 7, "at": "2024-01-01T10:00:00"})
        driver.input("events").pipe("e", {"order": 7, "at": None, "more": 1})
        expected = {(7, Decimal("1.01"), datetime.datetime(2024, 1, 1, 10)): 1, (7, Decimal("1.01"), None): 1}
        assert rows_of(driver) == expected


def test_view_keyed_by_a_column_becomes_a_table_and_a_topic() -> None:
    topology = eddy.Topology("test")
    orders = topology.table("orders", key=eddy.Int64, value=eddy.Struct(Order))
    view = topology.sql(
        "SELECT customer, count(*) AS n FROM orders GROUP BY customer", {"orders": orders}, name="sums", key="customer"
    )
    view.to_table().map_values(view.as_object).to("sums", key=eddy.String, value=eddy.Json())
    with eddy.TopologyTestDriver(topology) as driver:
        for number in range(2):
            driver.input("orders").pipe(number, Order("ann", 1.0))
        driver.input("orders").pipe(0, None)
        driver.input("orders").pipe(1, None)
        assert driver.output("sums").read_key_values() == [
            ("ann", {"customer": "ann", "n": 1}),
            ("ann", {"customer": "ann", "n": 2}),
            ("ann", {"customer": "ann", "n": 1}),
            ("ann", None),
        ]


def test_an_object_has_one_value_of_each_name() -> None:
    topology = eddy.Topology("test")
    orders = topology.table("orders", key=eddy.Int64, value=eddy.Int64)
    view = topology.sql("SELECT key, value, value FROM orders", {"orders": orders}, name="pairs", key="key")
    with pytest.raises(eddy.TopologyError, match=r"view 'pairs': several columns are called 'value'.*AS value_1"):
        view.map_values(view.as_object)


@pytest.mark.parametrize("columns", [[], ["id"], ["total", "id"], ["id", "customer", "total"]])
def test_the_key_has_the_columns_that_are_named(columns: list[str]) -> None:
    topology = eddy.Topology("test")
    orders = topology.table("orders", key=eddy.Int64, value=eddy.Struct(Order))
    view = topology.sql("SELECT key AS id, customer, total FROM orders", {"orders": orders}, name="all", key=columns)
    view.to_table("rows")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("orders").pipe(7, Order("ann", 1.0))
        row = (7, "ann", Decimal("1.00"))
        key = tuple(row[["id", "customer", "total"].index(column)] for column in columns)
        assert dict(driver.store("rows").all()) == {key: row}


def test_two_rows_of_a_key_are_no_table() -> None:
    topology = eddy.Topology("test")
    orders = topology.table("orders", key=eddy.Int64, value=eddy.Struct(Order))
    topology.sql("SELECT * FROM orders", {"orders": orders}, name="all", key="customer").to_table()
    with eddy.TopologyTestDriver(topology, eddy.Config()) as driver:
        driver.input("orders").pipe(1, Order("ann", 1.0))
        with pytest.raises(eddy.DataError, match="2 rows of key 'ann'"):
            driver.input("orders").pipe(2, Order("ann", 1.0))


def test_limit_of_iterations_withholds_and_says_so_until_the_data_fits() -> None:
    topology = eddy.Topology("test")
    edges = topology.table("edges", key=eddy.Int64, value=eddy.Int64)
    view = topology.sql(
        "WITH MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT 3) r(n bigint) AS (SELECT 0 UNION SELECT edges.value FROM r "
        "JOIN edges ON r.n = edges.key) SELECT n FROM r",
        {"edges": edges},
        name="reach",
    )
    counted(view)
    assert view.errors is not None
    view.errors.map(lambda binding, row: (binding, 1), key=eddy.String).group_by_key().count("errors")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("edges").pipe(0, 1)
        assert rows_of(driver) == {(0,): 1, (1,): 1}
        driver.input("edges").pipe(1, 2)
        assert rows_of(driver) == {}
        assert driver.store("errors").all() == {"r": 1}
        driver.input("edges").pipe(1, None)
        assert driver.store("errors").all() == {}
        assert rows_of(driver) == {(0,): 1, (1,): 1}


STATES = (
    "WITH a AS (SELECT DISTINCT b FROM t), {more} c AS (SELECT a, count(*) FROM t GROUP BY a) SELECT 1 FROM a, c{end}"
)


def states(text: str) -> set[str]:
    with eddy.TopologyTestDriver(topology_of(text)) as driver:
        return {name for name in driver.worker.circuit.states if name.startswith(("view-a", "view-c"))}


def test_a_change_in_one_expression_renames_no_state_of_another() -> None:
    plain = states(STATES.format(more="", end=""))
    more = states(STATES.format(more="x AS (SELECT DISTINCT a, b FROM t WHERE b > 0),", end=", x"))
    assert plain
    assert plain <= more


def test_names_that_others_have_too_are_told_apart() -> None:
    counts = "SELECT a AS x, count(*) AS n FROM t GROUP BY a"
    topology_of(f"WITH u AS ({counts}) SELECT q.x, u.n FROM u JOIN ({counts}) AS q ON q.x = u.x")
    topology_of(f"WITH u AS ({counts}) SELECT u.x, v.n FROM ({counts}) AS u, u AS v")
    topology_of(
        "WITH MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT 9) errors(x int) AS (SELECT a FROM t), held(x int) AS "
        '(SELECT x FROM errors), "limit"(x int) AS (SELECT x FROM held), "ä b"(x int) AS (SELECT x FROM "limit"), '
        '"class"(x int) AS (SELECT * FROM "ä b") SELECT x FROM "class"'
    )


def test_restart_with_or_without_the_state_goes_on() -> None:
    text = (
        "WITH MUTUALLY RECURSIVE r(x integer, n numeric(5, 1)) AS (SELECT a, 1.5 FROM u UNION SELECT u.c, n FROM r "
        "JOIN u ON r.x = u.a) SELECT x, sum(n) FROM r GROUP BY x"
    )
    with eddy.TopologyTestDriver(topology_of(text)) as driver:
        driver.input("u").pipe(1, (1, 2))
        driver.restart()
        driver.input("u").pipe(2, (2, 3))
        driver.restart(lose_state=True)
        assert rows_of(driver) == {(n, Decimal("1.5")): 1 for n in (1, 2, 3)}
        driver.input("u").pipe(1, None)
        assert rows_of(driver) == {(n, Decimal("1.5")): 1 for n in (2, 3)}
