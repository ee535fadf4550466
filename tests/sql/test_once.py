"""A statement that is asked once: the answer, the error and the advice are those of the circuit."""

import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

import eddy
from eddy.topology.sql.once import batch_compiler, waves_of_rows
from eddy.topology.sql.once.batch_compiler import BatchCompiler
from eddy.topology.sql.once.suitable import why_circuit
from tests.seeds import of_today
from tests.sql import both_ways

EDGES = {"a": "bigint", "b": "bigint"}
SET = "WITH RECURSIVE r(a, b) AS (SELECT a, b FROM e UNION SELECT r.a, e.b FROM r JOIN e ON e.a = r.b) "
BAG = "WITH RECURSIVE r(a, b) AS (SELECT a, b FROM e UNION ALL SELECT r.a, e.b FROM r JOIN e ON e.a = r.b) "


def layers(count: int, width: int) -> list[tuple[int, int]]:
    """Edges of a graph whose nodes are all linked to all nodes of the next layer."""
    layer = lambda n: range(n * width, (n + 1) * width)  # noqa: E731
    return [(a, b) for n in range(count) for a in layer(n) for b in layer(n + 1)]


def closure(edges: list[tuple[Any, Any]]) -> set[tuple[Any, Any]]:
    """The pairs of nodes with a path between them, by a search from each node."""
    found = set()
    for start in {a for a, _ in edges}:
        todo = [b for a, b in edges if a == start]
        seen = set(todo)
        while todo:
            node = todo.pop()
            new = {b for a, b in edges if a == node and a is not None} - seen
            seen |= new
            todo += new
        found |= {(start, node) for node in seen}
    return found


@pytest.mark.parametrize("seed", of_today(20))
def test_closure_is_that_of_a_search(seed: int) -> None:
    dice = random.Random(seed)
    node = dice.choice([lambda: dice.randrange(12), lambda: dice.choice(["a", "b", "", "zz", None]), lambda: None])
    edges = [(node(), node()) for _ in range(dice.randrange(40))]
    type = "text" if any(isinstance(cell, str) for edge in edges for cell in edge) else "bigint"
    tables: Any = {"e": ({"a": type, "b": type}, edges)}
    rows = both_ways.at_once(SET + "SELECT * FROM r", tables)
    assert rows is not None
    assert len(rows) == len(set(rows))
    assert set(rows) == closure(edges)


def test_weights_that_no_memory_could_hold_as_rows_are_counted() -> None:
    tables: Any = {"e": (EDGES, layers(50, 3))}
    text = BAG + "SELECT a, count(*) AS n FROM r GROUP BY a"
    rows = both_ways.at_once(text, tables)
    assert rows is not None
    assert dict(rows) == {a: sum(3**n for n in range(1, 51 - a // 3)) for a in range(150)}


def test_all_pairs_of_two_large_tables_are_counted_without_being_made() -> None:
    rows = [(n,) for n in range(100_000)]
    tables: Any = {"x": ({"n": "bigint"}, rows), "y": ({"n": "bigint"}, rows)}
    assert both_ways.at_once("SELECT count(*) FROM x, y", tables) == [(10_000_000_000,)]
    assert both_ways.at_once("SELECT count(*) FROM x, y WHERE y.n < 0", tables) == [(0,)]


def test_a_chain_of_more_joins_than_python_nests_loops() -> None:
    after = {0: 1, 1: 2, 2: 3, 3: 0, 4: 4}
    tables: Any = {"e": (EDGES, list(after.items()))}
    names = [f"e{n}" for n in range(30)]
    joins = " ".join(f"JOIN e AS e{n} ON e{n}.a = e{n - 1}.b AND e{n}.b <> e{n - 1}.b" for n in range(1, 30))
    text = f"SELECT {', '.join(f'{name}.a' for name in names)} FROM e AS e0 {joins}"
    rows = both_ways.at_once(text, tables)
    assert rows is not None
    assert sorted(rows) == [tuple((start + n) % 4 for n in range(30)) for start in range(4)]


@pytest.mark.parametrize("seed", of_today(5))
def test_paths_that_meet_again_after_many_waves_are_counted(seed: int) -> None:
    dice = random.Random(seed)
    edges = [(n, n + 1) for n in range(100)] + [(n, n + dice.randrange(2, 9)) for n in range(0, 90, 30)]
    paths = {100: 1}
    for node in reversed(range(100)):
        paths[node] = sum(paths.get(b, 0) for a, b in edges if a == node)
    text = (
        "WITH RECURSIVE r(n) AS (SELECT 0 UNION ALL SELECT e.b FROM r JOIN e ON e.a = r.n) "
        "SELECT count(*) FROM r WHERE n = 100"
    )
    tables: Any = {"e": (EDGES, edges)}
    with pytest.raises(waves_of_rows.UndecidedError):
        both_ways.at_once(text.replace("0 UNION", "0::bigint UNION"), tables)
    assert eddy.query(text.replace("0 UNION", "0::bigint UNION"), tables).rows == [(paths[0],)]


def test_the_circuit_writes_rows_of_tables_as_they_are() -> None:
    tables: Any = {"e": (EDGES, [(n, n + 1) for n in range(20)])}
    assert len(both_ways.by_circuit(BAG + "SELECT * FROM r", tables)) == 20 * 21 // 2


ERRORS = {
    "a bag over a cycle": (BAG + "SELECT * FROM r", r"the path .* came around"),
    "a set that grows": (
        "WITH RECURSIVE r(n) AS (SELECT a FROM e UNION SELECT n + 1 FROM r WHERE n > 0) SELECT * FROM r",
        "'r' does not end: after 10000 iterations",
    ),
    "texts that grow": (
        "WITH RECURSIVE r(s) AS (SELECT a::text FROM e UNION SELECT s || s FROM r WHERE s <> '') SELECT * FROM r",
        "'r' does not end: .*max_row_bytes",
    ),
    "a step that drops nothing": (
        "WITH RECURSIVE r(n) AS (SELECT a FROM e UNION ALL SELECT n + 1 FROM r) SELECT * FROM r",
        "nothing in the step of 'r' can drop a row",
    ),
    "a row that fails": ("SELECT 1 / (a - 1) FROM e", "division by zero"),
    "a scalar subquery of several rows": ("SELECT (SELECT a FROM e)", "several rows"),
    "a sum out of range": ("SELECT sum((a * 4611686018427387904)) FROM e WHERE a > 1", "bigint out of range"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_those_of_the_circuit(name: str) -> None:
    text, said = ERRORS[name]
    tables: Any = {"e": (EDGES, [(1, 2), (2, 1)])}
    with pytest.raises(eddy.EddyError, match=said) as ours:
        eddy.query(text, tables)
    with pytest.raises(eddy.EddyError) as theirs:
        both_ways.by_circuit(text, tables)
    assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))


@pytest.mark.parametrize(
    "step", ["SELECT n + 1 FROM r WHERE n > 0", "SELECT n * 2 + d FROM r, (VALUES (0), (1)) AS v(d) WHERE n > 0"]
)
def test_a_bag_that_grows_is_left_to_the_circuit_before_it_fills_the_memory(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waves_of_rows, "MOST_WAVES", 200)
    monkeypatch.setattr(waves_of_rows, "MOST_ROWS", 2_000)
    text = f"WITH RECURSIVE r(n) AS (SELECT a FROM e UNION ALL {step}) SELECT * FROM r"
    with pytest.raises(waves_of_rows.UndecidedError):
        both_ways.at_once(text, {"e": (EDGES, [(1, 2)])})


LEFT = {
    "WITH MUTUALLY RECURSIVE r(n bigint) AS (SELECT a FROM e UNION SELECT n FROM r) SELECT * FROM r": "iterations",
    "WITH RECURSIVE r(n) AS (SELECT a FROM e UNION ALL SELECT n FROM r) SELECT * FROM r": "can drop a row",
    "WITH RECURSIVE r(n) AS (SELECT a FROM e UNION SELECT n FROM (SELECT n FROM r UNION ALL SELECT 7) AS s) "
    "SELECT * FROM r": "not made of 'r'",
}


@pytest.mark.parametrize("text", LEFT)
def test_what_is_left_to_the_circuit_is_decided_from_the_plan(text: str) -> None:
    statement, _ = both_ways.bound(text, {"e": (EDGES, [])})
    assert LEFT[text] in why_circuit(statement.node)


@pytest.mark.parametrize("most_loops", [1, 2, 12])
def test_functions_may_be_cut_anywhere(most_loops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_compiler, "MOST_LOOPS", most_loops)
    tables: Any = {"e": (EDGES, [(0, 1), (0, 2), (1, 2), (2, 0), (0, None), (None, 1), (0, 1)])}
    for text in (
        "SELECT x.a, y.b, z.b FROM e x JOIN e y ON x.b = y.a JOIN e z ON y.b = z.a WHERE x.a <> z.b",
        "SELECT count(*), min(z.b) FROM e x JOIN e y ON x.b = y.a LEFT JOIN e z ON y.b = z.a AND z.b > x.a",
        SET + "SELECT r.a, s.b FROM r JOIN r AS s ON r.b = s.a JOIN e ON e.a = s.b",
        BAG.replace("r.b)", "r.b WHERE e.a > r.a)")
        + "SELECT x.a, y.b FROM r x JOIN r y ON x.b = y.a JOIN e ON e.a = y.b",
        "WITH RECURSIVE r(a, b) AS (SELECT a, b FROM e UNION SELECT r.a, coalesce(e.b, r.a) "
        "FROM r LEFT JOIN e ON e.a = r.b AND e.b > r.a) SELECT * FROM r",
        "WITH RECURSIVE r(n, d) AS (SELECT a, 0 FROM e UNION ALL SELECT coalesce(e.b, 9), d + 1 "
        "FROM r LEFT JOIN e ON e.a = r.n AND e.b > d WHERE d < 4) SELECT * FROM r",
    ):
        rows = both_ways.at_once(text, tables)
        assert rows is not None
        assert Counter(rows) == Counter(both_ways.by_circuit(text, tables)), text


def test_a_row_that_fails_only_by_the_way_of_whole_tables_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> Any:
        raise eddy.DataError("planted")

    monkeypatch.setattr(BatchCompiler, "answer", fails)
    assert eddy.query("SELECT a FROM e", {"e": (EDGES, [(1, 2)])}).rows == [(1,)]


def test_a_chain_of_unions_that_is_too_long_is_refused_by_name() -> None:
    short, long = (" UNION ".join(f"SELECT {n} AS n" for n in range(count)) for count in (50, 300))
    assert len(eddy.query(short).rows) == 50
    with pytest.raises(eddy.TopologyError, match="nesting so deep is not supported"):
        eddy.query(long)


def test_explain_is_answered_without_rows_and_keeps_positions() -> None:
    answer = eddy.query("explain SELECT e.a FROM e JOIN e AS f ON e.b = f.b", {"e": (EDGES, [])})
    assert answer.columns == ("plan",)
    assert [line for (line,) in answer] == [
        "functions over whole tables",
        "  join",
        "    table e",
        "    table e",
    ]
    with pytest.raises(eddy.TopologyError, match="line 1, column 16"):
        eddy.query("EXPLAIN SELECT nothing FROM e", {"e": (EDGES, [])})


def test_a_query_imports_no_operators_states_and_serdes() -> None:
    """With msgspec they would take a third of what the first query imports, sqlglot's parser not counted."""
    code = f"import sys, eddy; eddy.query({BAG + 'SELECT a, count(*) FROM r GROUP BY a'!r}, {{'e': (['a', 'b'], [])}})"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    imported = done.stdout.split()
    operators = {name for name in imported if name.startswith("eddy.operators.")}
    assert operators == {"eddy.operators.batch", "eddy.operators.chains"}
    assert not {"eddy.serde", "eddy.state", "eddy.topology.dsl", "msgspec", "sortedcontainers"} & {*imported}
