"""WITH MUTUALLY RECURSIVE inside of one, and elsewhere in a statement: evaluated anew in every iteration around it.

The oracle runs every definition as a query of its own, iteration by iteration, inner blocks whole in each iteration of
the outer one, with the bindings as tables; nothing of it recurs.
"""

import re
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eddy
from eddy import query
from tests.seeds import share
from tests.sql import duck, queries
from tests.sql.test_iterations import PAIR, changes, view_of

M = "WITH MUTUALLY RECURSIVE"
COUNT = "n(x int) AS (SELECT 1 UNION SELECT x + 1 FROM n WHERE x < {to}) SELECT x FROM n"

COMPONENTS = """
WITH MUTUALLY RECURSIVE
    inside (src bigint, dst bigint) AS (
        SELECT * FROM edges EXCEPT ALL SELECT * FROM delayed
        UNION ALL
        SELECT src, dst FROM edges, forth f, forth g, back b, back c
        WHERE src = f.node AND src = b.node AND dst = g.node AND dst = c.node AND f.label = g.label
            AND b.label = c.label
    ),
    forth (node bigint, label bigint) AS (
        WITH MUTUALLY RECURSIVE label (node bigint, least bigint) AS (
            SELECT dst, min(least) FROM (
                SELECT dst, dst AS least FROM edges
                UNION ALL SELECT inside.dst, label.least FROM inside JOIN label ON inside.src = label.node
            ) q GROUP BY dst
        )
        SELECT * FROM label
    ),
    back (node bigint, label bigint) AS (
        WITH MUTUALLY RECURSIVE label (node bigint, least bigint) AS (
            SELECT src, min(least) FROM (
                SELECT src, src AS least FROM edges
                UNION ALL SELECT inside.src, label.least FROM inside JOIN label ON inside.dst = label.node
            ) q GROUP BY src
        )
        SELECT * FROM label
    ),
    delayed (src bigint, dst bigint) AS (SELECT * FROM edges)
SELECT label, count(*) AS nodes FROM (SELECT * FROM forth UNION SELECT * FROM back) q GROUP BY label
"""
"""Strongly connected components: an edge stays inside while its ends have equal labels, forth and back."""
EDGES = [*((n, n + 1) for n in range(10)), (4, 2), (8, 6)]


def answer(text: str, tables: Any = None) -> list[Any]:
    rows = query(text, tables or {}).rows
    return sorted((row[0] if len(row) == 1 else row for row in rows), key=repr)


def test_strongly_connected_components() -> None:
    found = answer(COMPONENTS, {"edges": (["src", "dst"], EDGES)})
    assert found == [(0, 1), (1, 1), (10, 1), (2, 3), (5, 1), (6, 3), (9, 1)]


def test_view_of_components_follows_edges_that_come_and_go() -> None:
    topology = eddy.Topology("components")
    edges = topology.table("edges", key=eddy.Int64, value=eddy.Native)
    tables = {"edges": (edges, {"id": "bigint", "src": "bigint", "dst": "bigint"})}
    text = COMPONENTS.replace("FROM edges", "FROM (SELECT src, dst FROM edges) AS edges")
    view = topology.sql(text, tables, name="labels", key="label")
    view.to_table("of")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("edges").pipe_all(enumerate(EDGES))
        sizes = {2: 3, 6: 3}
        assert {key: row[1] for key, row in driver.store("of").all().items() if row[1] > 1} == sizes
        driver.input("edges").pipe(10, None)
        assert {key: row[1] for key, row in driver.store("of").all().items() if row[1] > 1} == {6: 3}
        driver.input("edges").pipe(10, (9, 0))
        assert {key: row[1] for key, row in driver.store("of").all().items() if row[1] > 1} == {0: 10}


class TestPlaces:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (f"SELECT x FROM ({M} {COUNT}) q", [1, 2, 3]),
            (f"WITH c AS ({M} {COUNT}) SELECT a.x FROM c a JOIN c b ON a.x = b.x + 1", [2, 3]),
            (f"SELECT 7 WHERE 3 IN ({M} {COUNT})", [7]),
            (f"SELECT 7 WHERE EXISTS ({M} {COUNT} WHERE x > 3)", []),
            (f"SELECT ({M} n(x int) AS (SELECT 1 UNION SELECT x + 1 FROM n WHERE x < 3) SELECT max(x) FROM n)", [3]),
            (f"({M} {COUNT}) UNION ALL ({M} {COUNT})", [1, 1, 2, 2, 3, 3]),
            (f"{M} {COUNT.rsplit(' SELECT', 1)[0]} ({M} m(y int) AS (SELECT x + 1 FROM n) SELECT y FROM m)", [2, 3, 4]),
            (f"SELECT a FROM (VALUES (1), (5)) v(a) WHERE EXISTS ({M} {COUNT} WHERE n.x = v.a)", [1]),
        ],
    )
    def test_block_is_a_query_wherever_one_can_be(self, text: str, expected: list[Any]) -> None:
        assert answer(text.format(to=3)) == expected

    def test_view_of_several_blocks_shows_the_errors_of_each(self) -> None:
        topology = eddy.Topology("several")
        rows = topology.table("rows", key=eddy.Int64, value=eddy.Int64)
        up = f"{M} (RECURSION LIMIT 3) n(x bigint) AS (SELECT value FROM rows UNION SELECT x + 1 FROM n WHERE x < {{}})"
        text = f"SELECT x FROM ({up.format(5)} SELECT x FROM n) a JOIN ({up.format(9)} SELECT x FROM n) b USING (x)"
        view = topology.sql(text, {"rows": rows}, name="view")
        assert view.errors is not None
        view.errors.group_by_key().count("errors")
        view.map(lambda key, row: (row, 1)).group_by_key().count("view-rows")
        with eddy.TopologyTestDriver(topology) as driver:
            driver.input("rows").pipe(1, 8)
            assert driver.store("view-rows").all() == {(8,): 1}
            driver.input("rows").pipe(1, 4)
            assert driver.store("errors").all() == {"n": 1}, "the second block's alone"
            driver.input("rows").pipe(1, 1)
            assert driver.store("errors").all() == {"n": 2}

    def test_names_of_inner_bindings_hide_outer_ones_and_only_there(self) -> None:
        """`c` is of the outer r, wherever it is read."""
        step = "SELECT x + 10 FROM c WHERE x < 20 UNION SELECT x + 1 FROM r WHERE x < 12"
        inner = f"{M} r(x int) AS ({step}) SELECT x FROM r"
        text = f"{M} r(x int) AS (WITH c AS (SELECT x FROM r) SELECT 1 UNION SELECT x FROM ({inner}) q) SELECT x FROM r"
        assert answer(text) == [1, 11, 12, 21, 22]

    def test_comments_quotes_and_keywords_in_an_inner_head(self) -> None:
        text = """
            select "B b" from (with mutually recursive -- a comment, (with parentheses
              (return at recursion limit 3)
              "My R" (class int, "B b" text) as (select 1, 'a ) b'
              union select class + 1, "B b" from "My R" where class < 9)
            select class, "B b" from "My R") q where class > 1
        """
        assert answer(text) == ["a ) b", "a ) b"]


class TestLimits:
    OUTER = f"{M} r(x int) AS (SELECT 0 UNION ALL SELECT y FROM ({M} {{limit}} s(y int) AS "
    INNER = "(SELECT x + 1 FROM r WHERE x < 3 UNION SELECT y + 1 FROM s WHERE y < 6) SELECT y FROM s) q) "

    @pytest.mark.parametrize(
        ("iterations", "expected"), [(1, [0, 1, 2, 3]), (2, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 3, 4, 5, 6])]
    )
    def test_return_at_inside_counts_iterations_of_the_inner_block(self, iterations: int, expected: list[int]) -> None:
        text = self.OUTER.replace("UNION ALL", "UNION").format(limit=f"(RETURN AT RECURSION LIMIT {iterations})")
        assert answer(text + self.INNER + "SELECT DISTINCT x FROM r") == expected

    def test_error_at_inside_fails_in_whichever_iteration(self) -> None:
        """From the 0 of the first iteration on the inner block needs six iterations, and one that changes nothing."""
        text = self.OUTER.replace("UNION ALL", "UNION") + self.INNER + "SELECT x FROM r"
        with pytest.raises(
            eddy.DataError, match=r"ERROR AT RECURSION LIMIT 6: iteration 6 still changed binding 'r\.s'"
        ):
            answer(text.format(limit="(ERROR AT RECURSION LIMIT 6)"))
        assert answer(text.format(limit="(ERROR AT RECURSION LIMIT 7)")) == [0, 1, 2, 3, 4, 5, 6]

    def test_errors_of_two_blocks_in_one_definition_are_told_apart(self) -> None:
        steps = (
            f"SELECT y FROM ({M} (RECURSION LIMIT {{n}}) s(y int) AS (SELECT x FROM r UNION SELECT y + 1 FROM s "
            + ("WHERE y < {to}) SELECT y FROM s) q")
        )
        both = f"{steps.format(n=9, to=3)} UNION {steps.format(n=4, to=7)}"
        text = f"{M} r(x int) AS (SELECT 1 UNION {both}) SELECT x FROM r"
        with pytest.raises(
            eddy.DataError, match=r"LIMIT 4: iteration 4 still changed binding 'r-union-2-from-q-block\.s'"
        ):
            answer(text)

    def test_view_is_empty_while_an_inner_limit_is_too_low(self) -> None:
        topology = eddy.Topology("held")
        rows = topology.table("rows", key=eddy.Int64, value=eddy.Int64)
        text = (
            f"{M} r(x bigint) AS (SELECT value FROM rows UNION SELECT y FROM ({M} (ERROR AT RECURSION LIMIT 4) "
            "s(y bigint) AS (SELECT x FROM r UNION SELECT y + 1 FROM s WHERE y < 9) SELECT y FROM s) q) SELECT x FROM r"
        )
        view = topology.sql(text, {"rows": rows}, name="view")
        assert view.errors is not None
        view.errors.group_by_key().count("errors")
        view.map(lambda key, row: (row[0], 1)).group_by_key().count("view-rows")
        with eddy.TopologyTestDriver(topology) as driver:
            driver.input("rows").pipe(1, 7)
            assert driver.store("view-rows").all().keys() == {7, 8, 9}
            driver.input("rows").pipe(1, 4)
            assert driver.store("view-rows").all() == {}
            assert driver.store("errors").all().keys() == {"r.s"}
            driver.input("rows").pipe(1, 8)
            assert driver.store("view-rows").all().keys() == {8, 9}
            assert driver.store("errors").all() == {}


class TooLowError(Exception):
    """An inner block's ERROR AT RECURSION LIMIT."""


@dataclass(frozen=True)
class Block:
    """A block: its definitions, which are texts, or (text, block): what `inner` stands for in it."""

    definitions: dict[str, Any]
    iterations: int
    then: str
    result: str

    def text(self) -> str:
        """The query."""
        bindings = []
        for name, definition in self.definitions.items():
            text = definition if isinstance(definition, str) else definition[0].replace(
                "FROM inner", f"FROM ({definition[1].text()}) AS inner"
            )  # fmt: skip
            bindings.append(f"{name}(a integer, c integer) AS ({text})")
        limit = f"({self.then} AT RECURSION LIMIT {self.iterations})"
        return f"{M} {limit} {', '.join(bindings)} SELECT a, c FROM {self.result}"

    def answer(self, tables: Any) -> list[tuple[Any, ...]]:
        """Its rows, as they are defined. Raises: TooLowError."""
        held: dict[str, list[Any]] = {name: [] for name in self.definitions}
        before = held
        for _ in range(self.iterations):
            before = dict(held)
            for name, definition in self.definitions.items():
                now = {**tables, **{binding: (PAIR, rows) for binding, rows in held.items()}}
                if isinstance(definition, str):
                    held[name] = query(definition, now).rows
                else:
                    text, block = definition
                    held[name] = query(
                        text.replace("inner", "innermost"), {**now, "innermost": (PAIR, block.answer(now))}
                    ).rows
        changed = any(duck.bag(before[name]) != duck.bag(held[name]) for name in held)
        if changed and self.then == "ERROR":
            raise TooLowError
        return held[self.result]


@st.composite
def blocks(draw: Any, seen: tuple[str, ...], depth: int) -> Block:
    """A block whose definitions are over t, base, the bindings around and its own."""
    names = [f"{'rp'[depth]}{i}" for i in range(draw(st.integers(1, 2)))]
    definitions: dict[str, Any] = {}
    for name in names:
        text = draw(queries.queries(depth=0))
        text = re.sub(r"\bu\b", draw(st.sampled_from([*names, *names, *seen, "base"])), text)
        word = draw(st.sampled_from(["UNION", "UNION", "EXCEPT", "INTERSECT"]))
        text = f"SELECT a, c FROM base {word} SELECT x % 5, y % 5 FROM ({text}) AS q"
        definitions[name] = text
        if depth == 0 and (name == names[0] or draw(st.booleans())):
            how = draw(st.sampled_from(["UNION", "EXCEPT"]))
            inner = draw(blocks((*names, *seen), 1))
            definitions[name] = f"{text} {how} SELECT a, c FROM inner", inner
    then = "RETURN" if depth == 0 else draw(st.sampled_from(["RETURN", "RETURN", "ERROR"]))
    return Block(definitions, draw(st.integers(1, 4)), then, draw(st.sampled_from(names)))


@settings(max_examples=share(5), deadline=None, suppress_health_check=list(HealthCheck))
@given(block=blocks((), 0), tables=queries.tables)
def test_nested_block_is_so_many_iterations_of_its_definitions(block: Block, tables: Any) -> None:
    tables = {"t": tables["t"], "base": tables["u"]}
    try:
        expected = block.answer(tables)
    except TooLowError:
        with pytest.raises(eddy.DataError, match="ERROR AT RECURSION LIMIT"):
            query(block.text(), tables)
        return
    assert duck.bag(query(block.text(), tables).rows) == duck.bag(expected)


@settings(max_examples=share(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    block=blocks((), 0),
    story=st.lists(changes, min_size=1, max_size=5),
)
@pytest.mark.slow
def test_view_of_a_nested_block_is_that_after_every_change(block: Block, story: Any) -> None:
    for tables, rows in view_of(block.text(), story):
        try:
            expected = dict(duck.bag(block.answer(tables)))
        except TooLowError:
            continue
        assert rows == expected
