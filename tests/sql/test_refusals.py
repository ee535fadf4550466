"""What is wrong or not supported is refused when the topology is built, by name, with line and column."""

from typing import Any

import pytest

import eddy

TABLES: Any = {"t": {"a": "integer", "b": "text", "f": "boolean"}, "u": {"a": "integer", "c": "double"}}


def refused(text: str) -> str:
    topology = eddy.Topology("test")
    tables = {
        name: (topology.stream(name, value=eddy.Native).filter(lambda key, value: value), columns)
        for name, columns in TABLES.items()
    }
    with pytest.raises(eddy.TopologyError) as caught:
        topology.sql(text, tables=tables, name="v")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("SELECT x FROM t", "1, column 8", "no column 'x'; one of ['a', 'b', 'f'] is needed"),
        ("SELECT\n  t.x FROM t", "2, column 3", "no column 'x' in 't'"),
        ("SELECT w.a FROM t", "1, column 8", "no table 'w' in FROM; one of ['t'] is needed"),
        ("SELECT a FROM t, u", "1, column 8", "column 'a' is ambiguous: t.a, u.a"),
        ("SELECT 1 FROM w", "1, column 15", "no table 'w'; one of ['t', 'u'] is needed"),
        ("SELECT 1 FROM t, u, t", "1, column 21", "table name 't' is used twice in one FROM"),
        ("SELECT a", "1, column 8", "no column 'a': there is no FROM to take it from"),
        ("SELECT * ", "1, column 1", "SELECT * without a column: there is no FROM"),
        ("SELECT a FROM t UNION SELECT a, c FROM u", "1, column 30", "UNION of 1 and 2 columns"),
        ("SELECT b FROM t EXCEPT SELECT a FROM t", "1, column 31", "EXCEPT: column 1 is text on one side and integer"),
        ("SELECT a + b FROM t", "1, column 12", "+ of integer and text; one type is needed"),
        ("SELECT a = f FROM t", "1, column 12", "= of integer and boolean"),
        ("SELECT 1 FROM t WHERE a", "1, column 23", "integer where a condition is needed"),
        ("SELECT f + f FROM t", "1, column 8", "+ of boolean"),
        ("SELECT c % 2 FROM u", "1, column 8", "% of double"),
        ("SELECT length(a) FROM t", "1, column 8", "length(integer); length(text) is needed"),
        ("SELECT 'x'::integer", "1, column 8", "'x' is not a valid integer"),
        ("SELECT f::timestamp FROM t", "1, column 8", "no cast from boolean to timestamp"),
        ("SELECT a::money FROM t", "1, column 8", "the type MONEY is not supported"),
        ("SELECT a::integer[] FROM t", "1, column 8", "the type INT[] is not supported"),
        ("SELECT a, count(*) FROM t", "1, column 8", "column 'a' is neither in GROUP BY nor inside of an aggregate"),
        ("SELECT b FROM t GROUP BY a", "1, column 8", "column 'b' is neither in GROUP BY"),
        ("SELECT 1 FROM t WHERE sum(a) > 1", "1, column 23", "sum() in WHERE; aggregates belong in SELECT and HAVING"),
        ("SELECT 1 FROM t JOIN u ON count(*) = 1", "1, column 27", "count() in JOIN … ON"),
        ("SELECT sum(max(a)) FROM t", "1, column 12", "max() in sum()"),
        ("SELECT 1 FROM t GROUP BY count(*)", "1, column 26", "count() in GROUP BY"),
        ("SELECT sum(b) FROM t", "1, column 8", "sum(text); another type is needed"),
        ("SELECT a FROM t GROUP BY 2", "1, column 26", "GROUP BY 2: the SELECT has 1 columns"),
        ("SELECT array_agg(a) FROM t", "1, column 8", "the aggregate array_agg is not supported"),
        ("SELECT count(*) OVER () FROM t", "1, column 8", "a window function is not supported"),
        ("SELECT a FROM t ORDER BY a", "1, column 26", "ORDER BY a is not supported"),
        ("SELECT a FROM t LIMIT 1", "1, column 23", "LIMIT 1 is not supported"),
        ("SELECT DISTINCT ON (a) a FROM t", "1, column 21", "DISTINCT ON is not supported"),
        ("SELECT a FROM t GROUP BY ROLLUP (a)", "1, column 34", "this form of GROUP BY is not supported"),
        ("SELECT 1 FROM t NATURAL JOIN u", "1, column 30", "NATURAL JOIN is not supported"),
        ("SELECT 1 FROM t JOIN u", "1, column 22", "JOIN without a condition"),
        ("SELECT 1 FROM t JOIN u USING (c)", "1, column 31", "no column 'c' on both sides of USING"),
        ("SELECT 1 FROM t, LATERAL (SELECT t.a) x", "1, column 34", "LATERAL in FROM is not supported"),
        ("SELECT 1 FROM t TABLESAMPLE (1)", "1, column 30", "TABLESAMPLE (1) is not supported"),
        ("SELECT foo(a) FROM t", "1, column 8", "the function foo() is not supported"),
        ("SELECT now()", "1, column 8", "the present time here is not supported; compare it alone, in WHERE"),
        ("SELECT generate_series(1, 2)", "1, column 8", "generate_series outside of FROM is not supported"),
        ("SELECT * FROM generate_series(1, 3, 0)", "1, column 37", "generate_series by steps of 0"),
        ("SELECT a = ANY (SELECT 1) FROM t", "1, column 24", "ANY and ALL is not supported"),
        ("SELECT $1", "1, column 9", "a parameter is not supported"),
        ("SELECT b LIKE 'x' ESCAPE '!' FROM t", "1, column 8", "LIKE … ESCAPE is not supported"),
        ("SELECT INTERVAL '1 day'", "1, column", "INTERVAL here is not supported"),
        ("INSERT INTO t VALUES (1)", "1, column 1", "INSERT is not supported"),
        ("EXPLAIN SELECT 1", "1, column 1", "EXPLAIN is not supported"),
        ("WITH c AS (SELECT 1), c AS (SELECT 2) SELECT 1", "1, column 6", "'c' is defined twice in one WITH"),
        ("SELECT 1 FROM s.t", "1, column 15", "a schema of a table in FROM is not supported"),
        ("SELECT 1; SELECT 2", "1, column 1", "2 statements; one is needed"),
        ("", "1, column 1", "there is no statement"),
        ("SELECT FROM", "1, column 8", "Expected table name"),
        ("SELECT a FROM t WHERE (a = 1", "1, column 28", "Expecting )"),
        ("SELECT 'abc", "1, column 1", "the text cannot be read"),
        ("VALUES (1), (2, 3)", "1, column 14", "VALUES: a row of 2 values below one of 1"),
        ("VALUES (1), ('x' || 'y')", "1, column 14", "VALUES: column 1 is integer and text"),
        ("SELECT (SELECT a, b FROM t)", "1, column 16", "a query of 2 columns where a value is needed"),
        ("SELECT 1 FROM t WHERE a IN (SELECT a, c FROM u)", "1, column 23", "IN: 1 values before it and 2 columns"),
        ("SELECT 1 FROM t WHERE b IN (SELECT a FROM u)", "1, column 23", "IN: text among integer"),
        (
            "SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a > t.a)",
            "1, column 59",
            "a column of the enclosing query, used so, is not supported",
        ),
        (
            "SELECT 1 FROM t WHERE EXISTS (SELECT max(c) FROM u WHERE u.a = t.a)",
            "1, column 58",
            "a query with aggregates that names columns of the enclosing query is not supported",
        ),
        ("SELECT (SELECT max(c + t.a) FROM u) FROM t", "1, column 24", "a column of the enclosing query, used so,"),
        (
            "SELECT (SELECT 1 FROM u JOIN u v ON v.a = t.a) FROM t",
            "1, column 43",
            "a column of the enclosing query, used so,",
        ),
        (
            "SELECT (SELECT n FROM generate_series(1, t.a) g(n)) FROM t",
            "1, column 42",
            "a column of the enclosing query",
        ),
        ("SELECT (VALUES (t.a)) FROM t", "1, column 17", "a column of the enclosing query, used so,"),
        ("SELECT 1 FROM t WHERE (a, a) NOT IN (SELECT a, a FROM u)", "1, column 24", "NOT IN of several columns"),
        ("WITH c(x, y) AS (SELECT 1) SELECT * FROM c", "1, column 6", "'c' names 2 columns, and its query has 1"),
        ("SELECT * FROM t AS x(p, q, r, s)", "1, column 22", "4 names for the 3 columns of 'x'"),
        ("SELECT a FROM (SELECT a FROM t LIMIT 1) AS q", "1, column 38", "LIMIT 1 is not supported"),
    ],
)
def test_query(text: str, place: str, said: str) -> None:
    told = refused(text)
    assert said in told
    assert f"sql 'v' line {place}" in told


R = "WITH RECURSIVE r(n) AS ("


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (f"{R}SELECT n FROM r) SELECT 1", "1, column 39", "'r' inside of itself is not supported"),
        (f"{R}SELECT n FROM r UNION SELECT 1) SELECT 1", "1, column 39", "'r' in its own seed"),
        (f"{R}SELECT 1 EXCEPT SELECT n FROM r) SELECT 1", "1, column 55", "'r' inside of itself"),
        (f"{R}SELECT 1 UNION SELECT x.n FROM r x, r y) SELECT 1", "1, column 61", "'r' named twice in its step"),
        (f"{R}SELECT 1 UNION SELECT max(n) FROM r) SELECT 1", "1, column 59", "'r' below an aggregate of its step"),
        (f"{R}SELECT 1 UNION SELECT n FROM r GROUP BY n) SELECT 1", "1, column 54", "below an aggregate"),
        (f"{R}SELECT 1 UNION ALL SELECT DISTINCT n FROM r WHERE n < 3) SELECT 1", "1, column 67", "below DISTINCT"),
        (f"{R}SELECT 1 UNION SELECT t.a FROM t LEFT JOIN r ON a = n) SELECT 1", "1, column 68", "in an outer join"),
        (
            f"{R}SELECT 1 UNION SELECT a FROM t WHERE a IN (SELECT n FROM r)) SELECT 1",
            "1, column 82",
            "in a query",
        ),
        (f"{R}SELECT 1 UNION (SELECT a FROM t EXCEPT SELECT n FROM r)) SELECT 1", "1, column 78", "inside of EXCEPT"),
        (
            f"{R}SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r",
            "1, column 51",
            "can drop a row",
        ),
        (
            f"{R}SELECT 1 UNION SELECT n + 1.5 FROM r WHERE n < 3) SELECT 1",
            "1, column 47",
            "integer in the seed",
        ),
        (
            f"{R}SELECT 1 UNION SELECT n, n FROM r WHERE n < 3) SELECT 1",
            "1, column 47",
            "has 2 columns",
        ),
        (
            f"{R}SELECT 1 UNION (WITH s AS (SELECT * FROM r) SELECT max(n) FROM s)) SELECT 1",
            "1, column 66",
            "aggregate",
        ),
        (
            f"{R}SELECT 1 UNION (WITH s AS (SELECT * FROM r) SELECT DISTINCT n FROM s)) SELECT 1",
            "1, column 66",
            "DISTINCT",
        ),
        (
            f"{R}SELECT 1 UNION ALL (WITH s AS (SELECT * FROM r) SELECT a.n FROM s a JOIN s b ON a.n < b.n)) SELECT 1",
            "1, column 70",
            "'r' named twice in its step",
        ),
        (
            f"{R}SELECT 1 UNION SELECT a FROM t LEFT JOIN (SELECT n + 1 AS m FROM r) q ON a = m) SELECT 1",
            "1, column 90",
            "'r' in an outer join of its step",
        ),
        (f"{R}SELECT 1 UNION SELECT (SELECT max(n) FROM r) + a FROM t) SELECT 1", "1, column 67", "below an aggregate"),
        (f"{R}SELECT 1 UNION VALUES ((SELECT n FROM r))) SELECT 1", "1, column 56", "a query inside of VALUES"),
        (
            f"{R}SELECT 1 UNION SELECT m FROM (WITH RECURSIVE s(m) AS (SELECT 2 UNION ALL SELECT m + n FROM s, r WHERE "
            "m < 5) SELECT m FROM s) q) SELECT 1",
            "1, column 119",
            "'r' in a recursive table inside of its step",
        ),
        ("WITH RECURSIVE a AS (SELECT * FROM b), b AS (SELECT 1) SELECT 1", "1, column 36", "'b' before it is defined"),
        (
            "WITH RECURSIVE a(n) AS (SELECT 1 UNION SELECT n FROM (WITH MUTUALLY RECURSIVE b(n int) AS (SELECT n FROM "
            "a WHERE n < 3) SELECT n FROM b) q) SELECT 1",
            "1, column 106",
            "'a' in a block inside of its step is not supported; WITH MUTUALLY RECURSIVE, which is over all rows,",
        ),
    ],
)
def test_with_recursive(text: str, place: str, said: str) -> None:
    told = refused(text)
    assert said in told
    assert f"sql 'v' line {place}" in told


M = "WITH MUTUALLY RECURSIVE "


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (
            f"{M}r AS (SELECT 1) SELECT 1",
            "1, column 27",
            "binding 'r' declares no columns",
        ),
        (f"{M}r(n) AS (SELECT 1) SELECT 1", "1, column 28", "column 'n' of 'r' has no type"),
        (f"{M}r(n money) AS (SELECT 1) SELECT 1", "1, column 29", "the type money is not supported"),
        (f"{M}r(n int, n int) AS (SELECT 1, 2) SELECT 1", "1, column 25", "binding 'r' declares a column twice"),
        (f"{M}r(n int) AS (SELECT 1), r(n int) AS (SELECT 1) SELECT 1", "1, column 49", "binding 'r' is defined twice"),
        (f"{M}r(n int, m int) AS (SELECT 1) SELECT 1", "1, column 52", "declares 2 columns, and its query has 1"),
        (
            f"{M}r(n int) AS (SELECT b FROM t) SELECT 1",
            "1, column 45",
            "column 'n' is declared as integer",
        ),
        (f"{M}r(n int) AS (SELECT 'x') SELECT 1", "1, column 45", "'x' is not a valid integer"),
        (f"{M}r(n int) AS () SELECT 1", "1, column 38", "binding 'r' has no query"),
        (f"{M}r(n int) (SELECT 1) SELECT 1", "1, column 34", "'(' where AS is needed"),
        (f"{M}r(n int) AS (SELECT 1)", "1, column 47", "the statement ends"),
        (
            f"{M}(RETURN AT RECURSION LIMIT 0) r(n int) AS (SELECT 1) SELECT 1",
            "1, column 52",
            "RECURSION LIMIT 0",
        ),
        (f"{M}(RECURSION LIMIT = ) r(n int) AS (SELECT 1) SELECT 1", "1, column 44", "RECURSION LIMIT )"),
        (f"{M}(RECURSION LIMIT = x) r(n int) AS (SELECT 1) SELECT 1", "1, column 44", "RECURSION LIMIT x"),
        (
            f"{M}(RETURN RECURSION LIMIT 1) r(n int) AS (SELECT 1) SELECT 1",
            "1, column 33",
            "'RECURSION' where AT",
        ),
        (f"SELECT * FROM ({M}r AS (SELECT 1) SELECT 1) x", "1, column 42", "binding 'r' declares no columns"),
        (f"SELECT * FROM ({M}r(n money) AS (SELECT 1) SELECT 1) x", "1, column 44", "the type money is not supported"),
        (f"SELECT * FROM ({M}r(n int) AS (SELECT 1)) x", "1, column 62", "Failed to parse any statement"),
        (f"SELECT b, ({M}r(n int) AS (SELECT b) SELECT n FROM r) FROM t", "1, column 56", "no column 'b'"),
        (
            f"{M}r(n int) AS ({M}s(n int) AS (SELECT 1\n UNION SELECT q FROM s) SELECT 1) SELECT 1",
            "2, column 15",
            "no column 'q'",
        ),
        (
            f"{M}r(n int) AS ({M}s(n int, m int) AS (SELECT 1) SELECT 1) SELECT 1",
            "1, column 89",
            "declares 2 columns, and its query has 1",
        ),
        (f"{M}r(n int) AS (SELECT 1\n UNION SELECT q FROM r) SELECT 1", "2, column 15", "no column 'q'"),
    ],
)
def test_with_mutually_recursive(text: str, place: str, said: str) -> None:
    told = refused(text)
    assert said in told
    assert f"sql 'v' line {place}" in told


class TestTables:
    def told(self, source: Any) -> str:
        with pytest.raises(eddy.TopologyError) as caught:
            eddy.Topology("test").sql("SELECT 1", tables={"t": source(eddy.Topology("test"))})
        return str(caught.value)

    def test_what_is_no_collection(self) -> None:
        assert "sql table 't': int is not a table; a KTable, a KStream or a Relation is needed" in self.told(
            lambda _: 1
        )

    def test_types_that_no_serde_tells(self) -> None:
        told = self.told(lambda topology: topology.table("t", key=eddy.String, value=eddy.Json()))
        assert "sql table 't': the type of column 'value' is not known from its serde (json)" in told

    def test_columns_without_types_or_of_none_that_there_is(self) -> None:
        assert "2 names of columns" in self.told(lambda topology: (topology.table("t", value=eddy.Json()), ["a", "b"]))
        told = self.told(lambda topology: (topology.table("t", value=eddy.Json()), {"a": "money"}))
        assert "column 'a' of the unknown type 'money'" in told

    def test_key_column_that_is_none(self) -> None:
        topology = eddy.Topology("test")
        table = topology.table("t", key=eddy.String, value=eddy.String)
        with pytest.raises(eddy.TopologyError, match="key column 'x'; one of"):
            topology.sql("SELECT * FROM t", {"t": table}, key="x")
