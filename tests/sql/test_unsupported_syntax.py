"""Every part of a statement counts: what is planted into a query is refused, or changes the answer as DuckDB says."""

import random
from collections import Counter
from typing import Any

import duckdb
import pytest
from sqlglot import exp
from sqlglot.dialects import Postgres
from sqlglot.errors import ErrorLevel, SqlglotError

import eddy
from eddy.topology.sql import statement
from eddy.topology.sql.dialect import WholePostgres
from eddy.topology.sql.unsupported_syntax import Unread
from tests.seeds import of_today, parts_of
from tests.sql import duck, random_queries

_RICH = [
    "WITH RECURSIVE w(x) AS MATERIALIZED (SELECT 1 UNION ALL SELECT x + 1 FROM w WHERE x < 3 ORDER BY x LIMIT 2 "
    "OFFSET 1) SEARCH DEPTH FIRST BY x SET o SELECT * FROM w",
    "WITH RECURSIVE w(x) USING KEY (x) AS (SELECT 1) CYCLE x SET c USING p SELECT DISTINCT ON (x) x FROM w",
    "SELECT a FROM e ORDER BY a DESC NULLS FIRST FETCH FIRST 1 ROW WITH TIES",
    "SELECT count(*) FILTER (WHERE a > 0), sum(a) OVER w FROM e TABLESAMPLE (10) GROUP BY a HAVING a > 0 "
    "WINDOW w AS (PARTITION BY a) LIMIT 1 WITH TIES FOR UPDATE",
    "SELECT * FROM e WHERE a > 0 AND b IN (SELECT 1) AND a BETWEEN SYMMETRIC 1 AND 2",
    "SELECT * FROM e NATURAL JOIN u LEFT JOIN t USING (a) RIGHT JOIN s.t v ON v.a = 1",
    "SELECT * FROM generate_series(1, 2, 1) WITH ORDINALITY g(n), LATERAL (SELECT 1) l, ONLY e, (VALUES (1)) v(a)",
    "SELECT a FROM e GROUP BY ROLLUP (a), CUBE (b), GROUPING SETS ((a), ())",
    "SELECT a FROM e UNION BY NAME SELECT b FROM e",
    "SELECT CASE a WHEN 1 THEN 2 ELSE 3 END, trim(LEADING 'x' FROM 'y'), round(a, 1), a::numeric(3, 1), a IS NOT NULL",
    "SELECT substring('abc', 1, 2), lpad('a', 2, 'b'), initcap('a', 'b'), a NOT IN (1), position('a' IN 'b')",
    'SELECT a COLLATE "C", array_agg(a ORDER BY b) FROM e',
]


_WORDS = {"side", "kind", "method", "position"}
"""Arguments whose values are words."""


def _bank() -> dict[str, list[Any]]:
    """Values of arguments, by the arguments' names, from clauses of all kinds."""
    found: dict[str, list[Any]] = {}
    for text in _RICH:
        for tree in Postgres().parse(text):
            for node in tree.walk() if tree is not None else ():
                for name, value in node.args.items():
                    if value is True or (value and isinstance(value, exp.Expr | list)) or name in _WORDS:
                        found.setdefault(name, []).append(value)
    return found


BANK = _bank()


def planted(dice: random.Random, tree: exp.Expr) -> str:
    """Plant a part where a random node has none; return a description of it."""
    nodes = [node for node in tree.walk() if not isinstance(node, exp.Literal)]  # whose flag is what it is
    while True:
        node = dice.choice(nodes)
        free = [name for name in node.arg_types if not node.args.get(name)]
        if free:
            name = dice.choice(free)
            value = dice.choice(BANK.get(name) or [True, exp.to_identifier("a"), [exp.to_identifier("b")]])
            value = [part.copy() for part in value] if isinstance(value, list) else value
            node.set(name, value.copy() if isinstance(value, exp.Expr) else value)
            return f"{type(node).__name__}.{name} = {value!r}"


def written(tree: exp.Expr) -> str | None:
    """The tree as SQL; None if the parser cannot write it."""
    try:
        return tree.sql(dialect="postgres", unsupported_level=ErrorLevel.IGNORE)
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError):
        return None


class Judge:
    """Asks both engines about planted trees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._duck, self._patch = duck.Duck(), monkeypatch
        self.seen: Counter[str] = Counter()

    def wrong(self, seed: int) -> str:
        """What is wrong about the query of a seed with a part that it did not have; empty if nothing is."""
        dice = random.Random(seed)
        tables, text = random_queries.tables(dice), random_queries.query(dice)
        tree = Postgres().parse(text)[0]
        assert tree is not None
        what = planted(dice, tree)
        after = written(tree) or text
        self._patch.setattr(statement, "parse", lambda _: tree)
        try:
            ours = duck.bag(eddy.query(text, tables).rows)
        except eddy.TopologyError:
            self.seen["refused"] += 1
            return ""
        except (AttributeError, TypeError):
            self.seen["no tree of the parser's"] += 1
            return ""
        self.seen["answered"] += 1
        self._duck.fill(tables)
        try:
            theirs = self._duck.answer(after.replace(" ONLY ", " "))  # which DuckDB does not have
        except duckdb.Error as error:
            return f"{what}: answered, and DuckDB: {error}\n{after}"
        return "" if ours == theirs else f"{what}: {ours} and {theirs}\n{after}"


@pytest.mark.parametrize("seeds", [of_today(100), *parts_of(of_today(3_000), 6)], ids=str)
@pytest.mark.slow
def test_a_planted_part_is_refused_or_changes_the_answer(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(monkeypatch)
    wrong = [(seed, said) for seed in seeds if (said := judge.wrong(seed))]
    print(dict(judge.seen))
    assert wrong == []
    assert judge.seen["answered"] > 0.05 * len(seeds)
    assert judge.seen["no tree of the parser's"] < 0.05 * len(seeds)


def test_a_binder_that_refuses_no_unread_part_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unread, "refuse", lambda _: None)
    judge = Judge(monkeypatch)
    assert any(judge.wrong(seed) for seed in range(1_000, 1_030))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("WITH RECURSIVE t AS (_ LIMIT 1) SELECT * FROM t", "LIMIT 1 inside of the recursive table 't'"),
        ("WITH RECURSIVE t AS (_ OFFSET 1) SELECT * FROM t", "OFFSET 1 inside of the recursive table 't'"),
        ("WITH RECURSIVE t AS (_ ORDER BY x) SELECT * FROM t", "ORDER BY x inside of the recursive table 't'"),
        ("WITH RECURSIVE t AS ((_) LIMIT 1) SELECT * FROM t", "LIMIT 1 inside of the recursive table 't'"),
        ("WITH RECURSIVE t AS (_) SEARCH DEPTH FIRST BY x SET o SELECT * FROM t", "SEARCH DEPTH FIRST BY x SET o"),
        ("WITH RECURSIVE t AS (_) CYCLE x SET c USING p SELECT * FROM t", "CYCLE x SET c USING p"),
        ("WITH RECURSIVE t(x) USING KEY (x) AS (_) SELECT * FROM t", "USING KEY x inside of the recursive table 't'"),
        ("SELECT a FROM e ORDER BY a FETCH FIRST 1 ROW WITH TIES", "FETCH"),
        ("SELECT a FROM e ORDER BY a LIMIT 1 WITH TIES", "WITH TIES"),
        ("SELECT sum(a ORDER BY b) FROM e", "this form of sum()"),
        ("SELECT initcap('a', 'b')", "'b'"),
        ("SELECT a FROM e WINDOW w AS (PARTITION BY a)", "WINDOW w"),
        ("SELECT a FROM e FOR UPDATE", "FOR UPDATE"),
        ("SELECT a FROM e WHERE b IN ((SELECT 1) LIMIT 1)", "LIMIT 1"),
        ("SELECT a FROM ((SELECT a FROM e) ORDER BY a) q", "ORDER BY a"),
        ("SELECT a FROM e GROUP BY ALL a", "this form of GROUP BY"),
    ],
)
def test_a_clause_that_is_not_there_is_refused_by_name(text: str, said: str) -> None:
    text = text.replace("(_", "(SELECT 1 AS x UNION ALL SELECT x + 1 FROM t WHERE x < 3")
    with pytest.raises(eddy.TopologyError) as caught:
        eddy.query(text, {"e": (["a", "b"], [(1, 2)])})
    assert said in str(caught.value)
    assert "is not supported" in str(caught.value)


def arguments_lost(name: str, count: int) -> set[str]:
    """The arguments of a function that the parser leaves out of its tree; none where it refuses the call."""
    given = {f"argument_{number}" for number in range(count)}
    try:
        tree = WholePostgres().parse(f"SELECT {name}({', '.join(sorted(given))})")[0]
    except SqlglotError:
        return set()
    assert tree is not None
    return given - {node.name for node in tree.find_all(exp.Identifier, exp.Var)}


def test_no_argument_of_a_function_is_lost_before_it_is_bound() -> None:
    names = Postgres.Parser.FUNCTIONS.keys() - Postgres.Parser.FUNCTION_PARSERS.keys()
    assert len(names) > 500
    assert {(name, count): lost for name in names for count in (1, 3, 6) if (lost := arguments_lost(name, count))} == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT mod(7, 2, 1)", "the function mod() is not supported"),
        ("SELECT ltrim('abc', 'a', 'b')", "ltrim(text, text) is needed"),
        ("SELECT levenshtein_less_equal()", "levenshtein_less_equal()"),
        ("SELECT concat_ws('-', 'a', 'b')", "the function concat_ws() is not supported"),
        ("SELECT 1_000", "1_000 is not a number"),
        ("SELECT a FROM e WHERE a = 1e", "1e is not a number"),
        ("SELECT 1a FROM e", "1a is not a number"),
    ],
)
def test_what_the_parser_takes_for_something_else_is_refused(text: str, said: str) -> None:
    with pytest.raises(eddy.TopologyError) as caught:
        eddy.query(text, {"e": (["a", "b"], [(1, 2)])})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "WITH w AS MATERIALIZED (SELECT a FROM e) SELECT * FROM w",
        "WITH w AS NOT MATERIALIZED (SELECT a FROM e) SELECT * FROM w",
        "SELECT a FROM ONLY e",
        "SELECT ALL a FROM e UNION DISTINCT SELECT 1",
        "WITH RECURSIVE r AS (WITH s AS (SELECT 1 AS a) SELECT a FROM s UNION ALL SELECT a + 1 FROM r WHERE a < 1) "
        "SELECT * FROM r",
        "SELECT initcap(lower('A')) = 'A' OR a = 1, 1 FROM e WHERE (a, b) IN ((1, 2), (3, 4)) AND (a, b) = (1, 2)",
    ],
)
def test_words_that_change_no_answer_are_taken(text: str) -> None:
    assert query_first(text) in (1, True)


def query_first(text: str) -> Any:
    """The first value of an answer."""
    return eddy.query(text, {"e": (["a", "b"], [(1, 2)])}).rows[0][0]
