"""Views that end with ORDER BY … LIMIT: the first rows by an order, against comparisons in plain Python."""

import math
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import msgspec
import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from tests.seeds import of_today
from tests.simulation.witness import KeptStore
from tests.topology.tracing.traced import Traced
from tests.waiting import step_to_rest

S, N = eddy.String, eddy.Int64
COLUMNS = {"id": "bigint", "a": "integer", "s": "text", "f": "text", "n": "text", "b": "boolean", "at": "text"}
SHOWN = "a, s, f::double precision AS f, n::numeric AS n, b, at::timestamp AS at"
VALUES: list[list[Any]] = [
    [None, 0, 1, -1],
    [None, "", "a", "ab", "a\x00", "b", "é", "\U0001f600", "\uffff"],
    [None, "NaN", "1.5", "-Infinity", "0"],
    [None, "1.5", "12345678901234567890123456789012345678.1", "12345678901234567890123456789012345678.2", "-2"],
    [None, True, False],
    [None, "2024-01-01T00:00:00.000001", "2024-01-01T00:00:00", "1969-12-31T23:59:59"],
]
"""The values of the columns after the id."""
READ: list[Callable[[Any], Any]] = [int, str, float, Decimal, bool, datetime.fromisoformat]
KEYS: dict[str, Callable[[int, Any], Any]] = {
    **{name: lambda _, row, place=place: row[place] for place, name in enumerate(("a", "s", "f", "n", "b", "at"))},
    "id": lambda number, _: number,
    "a * -2": lambda _, row: None if row[0] is None else row[0] * -2,
}
Direction = tuple[str, bool, bool]
"""What is compared, whether descending, and whether nulls are first."""
Items = dict[int, tuple[Any, ...]]


def read(item: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row of the view, with one NaN."""
    cells = [None if cell is None else make(cell) for make, cell in zip(READ, item, strict=True)]
    return tuple(math.nan if cell != cell else cell for cell in cells)


def compared(one: Any, other: Any, descending: bool, nulls_first: bool) -> int:
    if one is None or other is None:
        return 0 if one is other else (1 if (one is None) is not nulls_first else -1)
    if one is other or one == other:
        return 0
    greater = one != one or (other == other and one > other)
    return 1 if greater is not descending else -1


def expected(items: Items, order: list[Direction], limit: int, offset: int) -> "Counter[str]":
    def by_order(one: tuple[int, Any], other: tuple[int, Any]) -> int:
        for what, descending, nulls_first in order:
            if found := compared(KEYS[what](*one), KEYS[what](*other), descending, nulls_first):
                return found
        for mine, theirs in zip(one[1], other[1], strict=True):
            if found := compared(mine, theirs, False, False):
                return found
        return 0

    rows = sorted([(number, read(item)) for number, item in items.items()], key=cmp_to_key(by_order))
    return Counter(repr(row) for _, row in rows[offset : offset + limit])


def ordered(dice: random.Random) -> tuple[str, list[Direction]]:
    """A random ORDER BY."""
    words, order = [], []
    for what in dice.sample(list(KEYS), dice.randrange(1, 4)):
        descending, nulls_first = dice.random() < 0.5, dice.choice([True, False, None])
        nulls = "" if nulls_first is None else f" NULLS {'FIRST' if nulls_first else 'LAST'}"
        words.append(f"{what}{' DESC' if descending else ''}{nulls}")
        order.append((what, descending, descending if nulls_first is None else nulls_first))
    return f"ORDER BY {', '.join(words)}", order


def topology_of(text: str) -> eddy.Topology:
    topology = eddy.Topology("app")
    tables = {"items": (topology.table("items", key=N, value=eddy.Native), COLUMNS)}
    view = topology.sql(text, tables, name="view")
    view.map(lambda _, row: (repr(row), 1), key=S, value=N).group_by_key().count("rows").to("out")
    return topology


class Running:
    """Workers on a log, each with a store that outlives it."""

    def __init__(self, topology: eddy.Topology, partitions: int, count: int, most: int) -> None:
        self.log, self.topology, self.partitions = LocalLog(None), topology, partitions
        self.log.create_topics([TopicSpec("items", partitions), TopicSpec("out", partitions)])
        self.config = eddy.Config(max_epoch_records=most)
        self.stores = [KeptStore() for _ in range(count)]
        self.workers = [self._worker(number) for number in range(count)]

    def _worker(self, number: int) -> eddy.Worker:
        return eddy.Worker(self.topology, self.log, self.config, member=str(number), store=self.stores[number])

    def restart(self, number: int, lose_state: bool) -> None:
        self.workers[number].close()
        if lose_state:
            self.stores[number] = KeptStore()
        self.workers[number] = self._worker(number)

    def write(self, edits: list[tuple[int, Any]]) -> None:
        producer = self.log.producer(None)
        producer.begin()
        for number, item in edits:
            key, value = N.encode(number), None if item is None else eddy.Native.encode(item)
            producer.send("items", partition_of(key, self.partitions), [key], [value], [0])
        producer.commit({}, None)
        producer.close()

    def rows(self) -> "Counter[str]":
        found: Counter[str] = Counter()
        for partition in range(self.partitions):
            at = TopicPartition("out", partition)
            records = self.log.read(at, 0, self.log.end_offsets([at])[at], 100_000)
            for key, value in zip(records.keys, records.values, strict=True):
                assert key is not None
                found[S.decode(key)] = 0 if value is None else N.decode(value)
        return +found


@pytest.mark.parametrize("seed", of_today(25))
def test_it_has_the_first_rows_after_every_change_on_any_number_of_workers(seed: int) -> None:
    dice = random.Random(seed)
    text, order = ordered(dice)
    limit, offset = dice.randrange(1, 5), dice.choice([0, 0, 1, 3])
    topology = topology_of(f"SELECT {SHOWN} FROM items {text} LIMIT {limit} OFFSET {offset}")
    running = Running(topology, dice.randrange(1, 4), dice.randrange(1, 4), dice.randrange(1, 6))
    columns = [[dice.choice(values) for _ in range(dice.randrange(1, 4))] for values in VALUES]
    items: Items = {}
    for _ in range(8):
        edits = [
            (dice.randrange(9), None if dice.random() < 0.3 else tuple(map(dice.choice, columns)))
            for _ in range(dice.randrange(1, 7))
        ]
        for number, item in edits:
            items.pop(number, None)
            if item is not None:
                items[number] = item
        running.write(edits)
        if dice.random() < 0.3:
            running.restart(dice.randrange(len(running.workers)), dice.random() < 0.5)
        step_to_rest(running.workers)
        assert running.rows() == expected(items, order, limit, offset), text
    for worker in running.workers:
        worker.close()


def test_equal_rows_are_counted_and_moves_let_others_in() -> None:
    topology = eddy.Topology("app")
    table = topology.table("people", key=S, value=N)
    view = topology.sql("SELECT value FROM people ORDER BY value DESC LIMIT 3", {"people": table}, name="view")
    view.map(lambda _, row: (row[0], 1), key=N, value=N).group_by_key().count("rows")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("people").pipe_all([("a", 5), ("b", 5), ("c", 4), ("d", 4), ("e", 3)])
        assert driver.store("rows").all() == {5: 2, 4: 1}
        driver.input("people").pipe("a", None)
        assert driver.store("rows").all() == {5: 1, 4: 2}
        driver.restart(lose_state=True)
        driver.input("people").pipe_all([("b", 1), ("e", 9)])
        assert driver.store("rows").all() == {9: 1, 4: 2}
        assert driver.store("view-limit").all() == {(): ((9,), (4,), (4,))}  # a column of ORDER BY is there once


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("WITH c AS (SELECT a FROM t ORDER BY a DESC LIMIT 2) SELECT x.a FROM c AS x JOIN c AS y ON x.a = y.a", [2, 3]),
        ("SELECT DISTINCT a % 2 AS r FROM t ORDER BY r LIMIT 1", [0]),
        ("SELECT a FROM t UNION ALL SELECT 7 ORDER BY a DESC LIMIT 2 OFFSET 1", [3, 2]),
        ("(SELECT a FROM t ORDER BY a LIMIT 1) UNION ALL (SELECT a FROM t ORDER BY -a LIMIT 1)", [1, 3]),
        ("SELECT max(a) FROM t GROUP BY a % 2 ORDER BY count(*) DESC, 1 LIMIT 1", [3]),
        ("SELECT (SELECT a FROM t ORDER BY a DESC LIMIT 1) + a FROM t ORDER BY a LIMIT 1", [4]),
        ("SELECT a FROM t WHERE a IN (SELECT a FROM t ORDER BY a LIMIT 1 OFFSET 1)", [2]),
        ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM t ORDER BY a LIMIT 1 OFFSET 3)", []),
        ("SELECT 4 FROM t HAVING count(*) = 3 ORDER BY 1 LIMIT 5", [4]),
        (
            "WITH RECURSIVE r(n) AS ((SELECT a FROM t ORDER BY a LIMIT 1) UNION SELECT n + 1 FROM r JOIN "
            "(SELECT a FROM t ORDER BY a DESC LIMIT 1) AS last ON n < last.a) SELECT n FROM r",
            [1, 2, 3],
        ),
        (
            "WITH MUTUALLY RECURSIVE r(n integer) AS (SELECT 1 UNION (SELECT n + 1 FROM r ORDER BY n LIMIT 2)) "
            "SELECT n FROM r",
            [1, 2, 3],
        ),
    ],
)
def test_limits_are_in_queries_of_all_kinds(text: str, rows: list[int]) -> None:
    tables = {"t": ({"a": "integer"}, [(2,), (3,), (1,)])}
    assert sorted(eddy.query(f"SELECT * FROM ({text}) AS inside", tables).rows) == sorted((n,) for n in rows)
    topology = eddy.Topology("app")
    view = topology.sql(text, {"t": (topology.table("t", key=N, value=N), {"a": "integer", "v": "bigint"})}, name="v")
    view.map(lambda _, row: (row[0], 1), key=N, value=N).group_by_key().count("rows")
    with eddy.TopologyTestDriver(topology, partitions=3) as driver:
        driver.input("t").pipe_all([(9, 0), (8, 0)])
        driver.input("t").pipe_all([(2, 0), (3, 0), (1, 0), (8, None)])
        driver.input("t").pipe(9, None)
        assert driver.store("rows").all() == Counter(rows)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT a FROM t ORDER BY a", "ORDER BY a is not supported; rows of a view and of an inner query have no"),
        ("SELECT a FROM t LIMIT 3", "LIMIT 3 is not supported; rows of a view and of an inner query have no order"),
        ("SELECT a FROM t ORDER BY a OFFSET 1", "is not supported; rows of a view and of an inner query have no"),
        ("SELECT a FROM t ORDER BY a LIMIT 0", "LIMIT 0 OFFSET 0; LIMIT from 1 on is needed here"),
        ("SELECT a FROM t ORDER BY a LIMIT 9999 OFFSET 2", "LIMIT 9999 OFFSET 2; LIMIT from 1 on is needed here, and"),
        ("SELECT a FROM t ORDER BY a LIMIT 1 + 1", "LIMIT 1 + 1 is not supported; a whole number is needed"),
        ("SELECT a FROM t ORDER BY a LIMIT 1 OFFSET a", "OFFSET a is not supported; a whole number is needed"),
        ("SELECT a FROM t ORDER BY a LIMIT ALL", "a whole number is needed"),
        ("SELECT a FROM t ORDER BY a LIMIT NULL", "LIMIT without a number is not supported; a whole number is needed"),
        ("SELECT a FROM t ORDER BY a FETCH FIRST 1 ROW ONLY", "FETCH is not supported; write LIMIT n"),
        ("SELECT a FROM t ORDER BY a LIMIT 1 WITH TIES", "WITH TIES"),
        ("SELECT a FROM t ORDER BY z LIMIT 1", "no column 'z'"),
        ("SELECT a FROM t ORDER BY 2 LIMIT 1", "ORDER BY 2: the SELECT has 1 columns"),
        ("SELECT DISTINCT a FROM t ORDER BY a + 1 LIMIT 1", "ORDER BY here takes the name or the number of a column"),
        (
            "SELECT (SELECT u.a FROM t u WHERE u.a = t.a ORDER BY a LIMIT 1) FROM t",
            "LIMIT of a query that names columns of the enclosing query is not supported",
        ),
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION (SELECT n + 1 FROM r ORDER BY n LIMIT 1)) SELECT n FROM r",
            "'r' below LIMIT of its step is not supported; WITH MUTUALLY RECURSIVE",
        ),
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT n + 1 FROM r ORDER BY n LIMIT 1) SELECT n FROM r",
            "inside of the recursive table 'r' is not supported",
        ),
    ],
)
def test_what_is_refused_is_named(text: str, said: str) -> None:
    topology = eddy.Topology("app")
    with pytest.raises(eddy.TopologyError) as caught:
        topology.sql(text, {"t": (topology.table("t", key=N, value=N), {"a": "integer"})}, name="v")
    assert said in str(caught.value)


class Person(msgspec.Struct, frozen=True):
    name: str
    pay: int | None


def test_a_trace_of_a_row_shows_the_rows_up_to_it() -> None:
    topology = eddy.Topology("app")
    people = topology.table("people", key=S, value=eddy.Struct(Person))
    text = "SELECT name FROM people ORDER BY pay DESC NULLS LAST LIMIT 1 OFFSET 1"
    topology.sql(text, {"people": people}, name="view", key="name").to_table("second")
    rows = {name: Person(name, pay) for name, pay in {"ann": 5, "bob": 7, "cleo": None}.items()}
    derivation, _ = Traced(topology, "second", {"people": rows}).trace("ann")
    found = [derivation]
    while found[0].step != "view-limit":
        found = [one for part in found for group in part.of for one in group]
    assert found[0].value == (("bob", 7), ("ann", 5))
    assert [group[0].value for group in found[0].of] == [("bob", 7), ("ann", 5)]


def test_explain_names_it() -> None:
    table = {"t": (["a"], [(1,)])}
    answer = eddy.query("EXPLAIN SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 1) AS q", table)
    assert answer.rows == [("functions over whole tables",), ("  limit",), ("    table t",)]
