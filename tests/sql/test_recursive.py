"""WITH MUTUALLY RECURSIVE as Materialize has it, and WITH RECURSIVE as PostgreSQL has it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eddy
from eddy import query
from tests.seeds import share

CHAIN = {"e": (["src", "dst"], [(1, 2), (2, 3), (3, 4)])}
COUNT = "n(x int) AS (SELECT 1 UNION SELECT x + 1 FROM n WHERE x < 4) SELECT x FROM n"


def answer(text: str, tables: Any = CHAIN) -> list[Any]:
    rows = query(text, tables).rows
    return sorted((row[0] if len(row) == 1 else row for row in rows), key=repr)


@pytest.mark.parametrize(
    ("iterations", "expected"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 3, 4]), (9, [1, 2, 3, 4])]
)
def test_return_at_is_the_state_after_so_many_iterations(iterations: int, expected: list[int]) -> None:
    assert answer(f"WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT {iterations}) {COUNT}") == expected


@pytest.mark.parametrize("limit", ["ERROR AT RECURSION LIMIT", "RECURSION LIMIT"])
def test_error_at_fails_if_the_last_iteration_changed_anything(limit: str) -> None:
    with pytest.raises(eddy.DataError, match="ERROR AT RECURSION LIMIT 4: iteration 4 still changed binding 'n'"):
        answer(f"WITH MUTUALLY RECURSIVE ({limit} 4) {COUNT}")
    assert answer(f"WITH MUTUALLY RECURSIVE ({limit} 5) {COUNT}") == [1, 2, 3, 4]


@pytest.mark.parametrize(("iterations", "expected"), [(1, [1]), (2, []), (3, [1]), (10, [])])
def test_oscillation_stops_where_it_is_returned(iterations: int, expected: list[int]) -> None:
    text = "flip(x int) AS (VALUES (1) EXCEPT ALL SELECT * FROM flip) SELECT * FROM flip"
    assert answer(f"WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT {iterations}) {text}") == expected


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_later_bindings_see_the_new_values_of_earlier_ones(first: str, second: str) -> None:
    """After two iterations a has gone one iteration, or two, before b has looked."""
    definitions = {"a": "a(x int) AS (SELECT 1 UNION SELECT x + 1 FROM a)", "b": "b(x int) AS (SELECT x FROM a)"}
    both = f"{definitions[first]}, {definitions[second]}"
    found = answer(f"WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 2) {both} SELECT x FROM b")
    assert found == ([1, 2] if first == "a" else [1])


def test_bindings_may_name_one_another() -> None:
    text = (
        "WITH MUTUALLY RECURSIVE even(x int) AS (SELECT 0 UNION SELECT x + 1 FROM odd WHERE x < 6), "
        "odd(x int) AS (SELECT x + 1 FROM even WHERE x < 6) "
        "SELECT 'even', x FROM even UNION ALL SELECT 'odd', x FROM odd"
    )
    assert answer(text) == [("even", 0), ("even", 2), ("even", 4), ("even", 6), ("odd", 1), ("odd", 3), ("odd", 5)]


def test_results_are_cast_to_the_declared_types() -> None:
    found = query("WITH MUTUALLY RECURSIVE a(x numeric(5,1), y text, z bigint) AS (SELECT 1.25, 7, 1) SELECT * FROM a")
    assert (found.columns, found.types) == (("x", "y", "z"), ("numeric(5,1)", "text", "bigint"))
    assert [tuple(map(str, row)) for row in found.rows] == [("1.3", "7", "1")]


def test_step_is_over_all_rows_in_one_form_and_over_the_last_iterations_in_the_other() -> None:
    """Sums of two: all of them need every row, which the standard's form cannot name twice."""
    text = "SELECT 1 UNION SELECT a.x + b.x FROM n a, n b WHERE a.x + b.x < 6"
    assert answer(f"WITH MUTUALLY RECURSIVE n(x int) AS ({text}) SELECT * FROM n") == [1, 2, 3, 4, 5]
    with pytest.raises(eddy.TopologyError, match="'n' named twice in its step is not supported"):
        answer(f"WITH RECURSIVE n(x) AS ({text}) SELECT * FROM n")


def test_aggregates_and_negation_recur() -> None:
    shortest = (
        "WITH MUTUALLY RECURSIVE best(n bigint, d bigint) AS (SELECT n, min(d) FROM (SELECT 1 AS n, 0 AS d UNION ALL "
        "SELECT dst, d + 1 FROM best JOIN e ON n = src) s GROUP BY n) SELECT * FROM best"
    )
    edges = {"e": (["src", "dst"], [(1, 2), (2, 3), (3, 1), (1, 3)])}
    assert answer(shortest, edges) == [(1, 0), (2, 1), (3, 1)]
    won = (
        "WITH MUTUALLY RECURSIVE win(n bigint) AS (SELECT src FROM e WHERE NOT EXISTS (SELECT 1 FROM win WHERE "
        "win.n = e.dst)) SELECT * FROM win"
    )
    assert answer(won) == [1, 3]


def test_body_and_bindings_may_have_common_expressions_and_the_binding_may_be_used_twice() -> None:
    text = (
        "WITH MUTUALLY RECURSIVE r(a bigint, b bigint) AS (WITH step AS (SELECT r.a, e.dst FROM r JOIN e ON b = src) "
        "SELECT * FROM e UNION SELECT * FROM step) "
        "SELECT x.a, y.b FROM r x JOIN r y ON x.b = y.a AND x.a = 1 AND y.b = 4"
    )
    assert answer(text) == [(1, 4), (1, 4)]


def test_block_over_an_empty_input_ends() -> None:
    step = "SELECT dst FROM e JOIN r ON a = src"
    text = f"WITH MUTUALLY RECURSIVE r(a bigint) AS (SELECT src FROM e UNION {step}) SELECT * FROM r"
    assert answer(text, {"e": ({"src": "bigint", "dst": "bigint"}, [])}) == []


def test_comments_quotes_and_keywords_in_a_head() -> None:
    text = """
        with mutually recursive -- a comment, (with parentheses
          "My R" (class int, "B b" text) as (select 1, 'a ) b'
          union select class + 1, "B b" from "My R" where class < 2)
        select class, "B b" from "My R"
    """
    assert answer(text) == [(1, "a ) b"), (2, "a ) b")]


def test_union_all_adds_up_and_union_does_not() -> None:
    step = "SELECT dst FROM r JOIN e ON n = src"
    edges = {"e": (["src", "dst"], [(1, 2), (1, 3), (2, 4), (3, 4)])}
    assert answer(f"WITH RECURSIVE r(n) AS (SELECT 1::bigint UNION ALL {step}) SELECT * FROM r", edges) == [
        1,
        2,
        3,
        4,
        4,
    ]
    assert answer(f"WITH RECURSIVE r(n) AS (SELECT 1::bigint UNION {step}) SELECT * FROM r", edges) == [1, 2, 3, 4]


def test_union_ends_on_a_cycle() -> None:
    edges = {"e": (["src", "dst"], [(1, 2), (2, 1)])}
    text = "WITH RECURSIVE r(n) AS (SELECT 1::bigint UNION SELECT dst FROM r JOIN e ON n = src) SELECT * FROM r"
    assert answer(text, edges) == [1, 2]


class TestReachability:
    """A set of one column that follows edges goes by ranked supports."""

    @staticmethod
    def view(step: str) -> eddy.Topology:
        topology = eddy.Topology("reach")
        edges = topology.table("edges", key=eddy.Int64, value=eddy.Native)
        starts = topology.table("starts", key=eddy.Int64, value=eddy.Int64)
        tables = {"e": (edges, {"id": "bigint", "src": "integer", "dst": "integer"}), "starts": starts}
        text = f"WITH RECURSIVE r(n) AS (SELECT value::integer FROM starts UNION {step}) SELECT * FROM r"
        topology.sql(text, tables, name="view").map(lambda _, row: (row, 1)).group_by_key().count("rows")
        return topology

    @pytest.mark.parametrize(
        ("step", "ranked"),
        [
            ("SELECT dst FROM r JOIN e ON n = src", True),
            ("SELECT e.dst + 0 FROM e, r WHERE e.src + 1 = r.n + 1 AND e.dst < 100", False),
            ("SELECT e.dst + 0 FROM e, r WHERE e.src = r.n AND e.dst < 100", True),
            ("SELECT n + dst FROM r JOIN e ON n = src WHERE n < 9", False),
            ("SELECT dst FROM r JOIN e ON n = src WHERE n < 9", False),
        ],
    )
    def test_describe_says_where(self, step: str, ranked: bool) -> None:
        assert ("ranked supports (F1)" in self.view(step).describe()) is ranked

    @given(
        story=st.lists(
            st.tuples(
                st.sampled_from(["edges", "edges", "edges", "starts"]),
                st.integers(0, 5),
                st.none() | st.tuples(st.none() | st.integers(0, 4), st.none() | st.integers(0, 4)),
            ),
            max_size=25,
        )
    )
    @settings(max_examples=share(1), deadline=None)
    def test_it_is_what_a_search_finds_after_every_change(self, story: list[Any]) -> None:
        with eddy.TopologyTestDriver(self.view("SELECT dst FROM r JOIN e ON n = src")) as driver:
            tables: dict[str, dict[int, Any]] = {"edges": {}, "starts": {}}
            for topic, key, ends in story:
                value = ends if topic == "edges" or ends is None else ends[0]
                driver.input(topic).pipe(key, value)
                tables[topic][key] = value
            edges = [ends for ends in tables["edges"].values() if ends is not None]
            found, new = set(), [start for start in tables["starts"].values() if start is not None]
            while new:
                found |= set(new)
                new = [b for a, b in edges if a in found and a is not None and b not in found]
            assert {row for (row,) in driver.store("rows").all()} == found
