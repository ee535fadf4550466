"""Random queries over small tables with nulls: eddy answers as DuckDB does, and a view answers as the query."""

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eddy import query
from tests.seeds import share
from tests.sql import duck, queries, random_queries

TABLES: Any = {
    "t": (queries.COLUMNS["t"], [(1, 2, "ab"), (1, None, None), (None, 0, ""), (2, 2, "Abc"), (2, 2, "Abc")]),
    "u": (queries.COLUMNS["u"], [(1, 2), (1, 1), (None, 2), (3, None), (1, 2)]),
}

QUERIES = [
    "SELECT * FROM t",
    "SELECT t.*, u.c FROM t JOIN u ON t.a = u.a",
    "SELECT * FROM t LEFT JOIN u ON t.a = u.a AND u.c > 1",
    "SELECT * FROM t RIGHT JOIN u ON t.a = u.a AND t.b > 1",
    "SELECT * FROM t FULL JOIN u ON t.a = u.a",
    "SELECT a, c FROM t FULL JOIN u USING (a)",
    "SELECT * FROM t CROSS JOIN u WHERE t.b < u.c",
    "SELECT a, count(*), sum(b), min(b), max(s), avg(b) FROM t GROUP BY a HAVING count(*) > 0",
    "SELECT count(*), sum(a), min(a), avg(a) FROM t WHERE a > 100",
    "SELECT g.a, g.m, u.c FROM (SELECT a, min(b) AS m FROM t GROUP BY a) g, u WHERE u.c > g.m",
    "SELECT g.m, u.c FROM u LEFT JOIN (SELECT a, count(DISTINCT b) AS m FROM t GROUP BY a) g ON u.c > g.m",
    "SELECT g.a, g.m FROM (SELECT a, max(b) AS m FROM t GROUP BY a) g WHERE g.m <= (SELECT count(*) FROM u)",
    "SELECT count(DISTINCT b), sum(DISTINCT b), count(*) FILTER (WHERE b > 1), bool_or(b > 1), bool_and(b > 1) FROM t",
    "SELECT a FROM t EXCEPT ALL SELECT a FROM u",
    "SELECT a FROM t INTERSECT ALL SELECT a FROM u",
    "SELECT a FROM t EXCEPT SELECT a FROM u",
    "SELECT a FROM u INTERSECT SELECT a FROM t",
    "SELECT a, 1.5 FROM t UNION SELECT c, 2 FROM u",
    "SELECT a FROM t ORDER BY a DESC LIMIT 1",
    "SELECT a, b FROM t ORDER BY a OFFSET 4",
    "SELECT n * 2 FROM generate_series(1, 5) AS g(n) WHERE n % 2 = 1",
    "SELECT * FROM (VALUES (1, 'x'), (NULL, 'y')) AS v(n, w)",
    "WITH w AS (SELECT a FROM t), x(k) AS (SELECT a FROM w) SELECT * FROM w JOIN x ON a = k",
    "SELECT a, (SELECT max(c) FROM u), a IN (SELECT c FROM u), EXISTS (SELECT 1 FROM u WHERE u.c = t.b) FROM t",
    "SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a), (SELECT sum(c) + 1 FROM u WHERE u.a = t.a AND c < 9) FROM t",
    "SELECT a, (SELECT DISTINCT c FROM u WHERE u.a = t.a AND c = 2) + 1 FROM t "
    "WHERE (SELECT count(c) FROM u WHERE a = b) < 2",
    "SELECT s || '!' , length(s), upper(s), lower(s), substring(s, 2, 1), substring(s, 0, 2), "
    "position('b' IN s) FROM t",
    "SELECT trim('  x '), ltrim('xxa', 'x'), replace('abc', 'b', 'zz'), left('abc', -1), right('abc', 2), "
    "lpad('a', 3, 'xy'), rpad('abc', 2, ' '), split_part('a,b,c', ',', 2), starts_with('abc', 'ab'), repeat('ab', 2), "
    "reverse('abc'), concat('a', NULL, 1), 'a_b' LIKE 'a_%', 'ab' ILIKE 'A_'",
    "SELECT round(2.5), round(-2.5), round(1.005, 2), floor(-1.5), ceil(1.2), abs(-3), sign(-2.5::double precision), "
    "sqrt(4.0::double precision), power(2.0::double precision, 3), mod(-7, 3), -7 / 2, trunc(2.7)",
    "SELECT '12'::integer, 2.5::integer, 3.7::double precision::integer, 1::boolean, true::text, 1.50::numeric(5, 1), "
    "'2024-02-29 12:30:00'::timestamp < '2024-03-01'::timestamp, 7::bigint / 2, 1 / 2.0::double precision",
]


@pytest.mark.parametrize("text", QUERIES)
def test_query_answers_as_duckdb_does(text: str) -> None:
    assert duck.bag(query(text, TABLES).rows) == duck.answer(text, TABLES)


@settings(
    max_examples=share(1), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(text=queries.queries(), tables=queries.tables)
@example("SELECT t.a AS x, t.b AS y FROM t WHERE t.a NOT IN (SELECT c FROM u)", TABLES)
def test_any_query_answers_as_duckdb_does(text: str, tables: Any) -> None:
    assert duck.bag(query(text, tables).rows) == duck.answer(text, tables)


edges = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8)

RECURSIVE = [
    "WITH RECURSIVE r(a, b) AS (SELECT src, dst FROM e UNION SELECT r.a, e.dst FROM r JOIN e ON r.b = e.src) "
    "SELECT * FROM r",
    "WITH RECURSIVE r(n, d) AS (SELECT 0, 0 UNION ALL SELECT e.dst, d + 1 FROM r, e WHERE r.n = e.src AND d < 4) "
    "SELECT n, count(*), min(d) FROM r GROUP BY n",
    "WITH RECURSIVE r(n) AS (VALUES (0) UNION SELECT dst FROM r JOIN e ON n = src WHERE dst <> 3) "
    "SELECT * FROM r EXCEPT SELECT 1",
    "WITH RECURSIVE a AS (SELECT dst FROM e WHERE src = 0), r AS (SELECT dst FROM a UNION SELECT e.dst FROM r "
    "JOIN e ON r.dst = e.src), s AS (SELECT dst + 10 AS n FROM r) SELECT * FROM s",
    "WITH RECURSIVE r(n) AS (SELECT 0 UNION ALL (SELECT n + 1 FROM r WHERE n < 3 UNION ALL SELECT n + 2 FROM r WHERE "
    "n < 0)) SELECT * FROM r",
    "WITH RECURSIVE r(n, d) AS (SELECT 1, 0 UNION ALL SELECT coalesce(dst, 9), d + 1 FROM r LEFT JOIN e ON src < n "
    "WHERE d < 3) SELECT * FROM r",
    "WITH RECURSIVE r(n, d) AS (SELECT 1, 0 UNION ALL SELECT m, d + 1 FROM (WITH RECURSIVE s(m, d, k) AS (SELECT n, d, "
    "0 FROM r UNION ALL SELECT dst, d, k + 1 FROM s JOIN e ON m = src WHERE k < 2) SELECT m, d FROM s) q WHERE d < 2) "
    "SELECT * FROM r",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION (WITH s AS (SELECT max(n) FROM r) SELECT dst FROM e JOIN r ON n = src)) "
    "SELECT * FROM r",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION (WITH r AS (SELECT dst AS n FROM e) SELECT n + 1 FROM r)) SELECT * FROM r",
]


@pytest.mark.parametrize("text", RECURSIVE)
@settings(max_examples=share(2), deadline=None)
@given(rows=edges)
def test_with_recursive_answers_as_duckdb_does(text: str, rows: list[tuple[int, int]]) -> None:
    tables = {"e": ({"src": "integer", "dst": "integer"}, rows)}
    try:
        expected = duck.answer(text, tables)
    except Exception as error:
        pytest.skip(f"DuckDB: {error}")
    assert duck.bag(query(text, tables).rows) == expected


def test_equal_rows_are_added_up_before_they_meet_in_a_join() -> None:
    """Outer joins and EXISTS make many deltas of each row, and pairs of them took gigabytes."""
    text = """
    WITH one(x, y) AS (
        SELECT coalesce(f.a, v.x), (SELECT max(w.c) FROM u w WHERE w.a = f.b)
        FROM (SELECT t.b AS x, coalesce(g.b, t.a) AS y FROM t LEFT JOIN e g ON t.a = g.b) v CROSS JOIN e f
        WHERE least(f.a, v.y) IS NOT NULL OR NOT EXISTS (SELECT 1 FROM u i WHERE i.a = v.y)
    ) SELECT count(*) FROM one a JOIN one b ON a.x < b.x
    """
    rows: Any = {
        "e": [(0, 2), (1, 2), (0, 0), (0, 2), (0, 0)],
        "t": [(1, 1, "b%"), (None, 2, ""), (2, 1, "b%"), (1, None, "ab"), (0, 3, "b%"), (None, 2, "ab")],
        "u": [(0, 0), (1, 2), (3, 1), (3, 1), (2, 2), (2, 3)],
    }
    tables = {name: (random_queries.COLUMNS[name], rows[name]) for name in rows}
    assert duck.bag(query(text, tables).rows) == duck.answer(text, tables)
