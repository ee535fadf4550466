"""Random queries as text, over the tables t(a, b, s) and u(a, c) of whole numbers and words, with nulls."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

COLUMNS = {"t": {"a": "integer", "b": "integer", "s": "text"}, "u": {"a": "integer", "c": "integer"}}

number = st.one_of(st.none(), st.integers(0, 3))
word = st.sampled_from([None, "", "ab", "b%", "Abc"])
t_rows = st.lists(st.tuples(number, number, word), max_size=6)
u_rows = st.lists(st.tuples(number, number), max_size=6)
tables = st.fixed_dictionaries({"t": t_rows, "u": u_rows}).map(
    lambda rows: {name: (COLUMNS[name], rows[name]) for name in rows}
)

Draw = Callable[[Any], Any]


def numbers(draw: Draw, columns: list[str], depth: int) -> str:
    """An expression of a whole number."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([*columns, "0", "1", "2", "NULL::integer"]))
    one, other = numbers(draw, columns, depth - 1), numbers(draw, columns, depth - 1)
    form = draw(
        st.sampled_from(
            [
                "({0} + {1})",
                "({0} - {1})",
                "({0} * {1})",
                "({0} / nullif({1}, 0))",
                "({0} % nullif({1}, 0))",
                "coalesce({0}, {1})",
                "nullif({0}, {1})",
                "abs({0} - {1})",
                "greatest({0}, {1})",
                "least({0}, {1})",
                "-({0})",
                "CASE WHEN {p} THEN {0} ELSE {1} END",
                "CASE {0} WHEN {1} THEN 1 WHEN 2 THEN 3 END",
            ]
        )
    )
    return form.format(one, other, p=predicates(draw, columns, [], depth - 1) if "{p}" in form else "")


def predicates(draw: Draw, columns: list[str], words: list[str], depth: int) -> str:
    """A condition; one of three values."""
    if depth > 0 and draw(st.booleans()):
        one = predicates(draw, columns, words, depth - 1)
        other = predicates(draw, columns, words, depth - 1)
        form = draw(
            st.sampled_from(["({0} AND {1})", "({0} OR {1})", "(NOT {0})", "({0}) IS NOT TRUE", "({0}) IS NULL"])
        )
        return form.format(one, other)
    if words and draw(st.integers(0, 3)) == 0:
        form = draw(st.sampled_from(["{} LIKE '%b%'", "{} = 'ab'", "{} < 'b'", "lower({}) = 'abc'", "length({}) > 1"]))
        return form.format(draw(st.sampled_from(words)))
    one, other = numbers(draw, columns, 1), numbers(draw, columns, 1)
    form = draw(
        st.sampled_from(
            [
                "{0} = {1}",
                "{0} <> {1}",
                "{0} < {1}",
                "{0} >= {1}",
                "{0} IS NULL",
                "{0} IS NOT NULL",
                "{0} IS DISTINCT FROM {1}",
                "{0} IS NOT DISTINCT FROM {1}",
                "{0} BETWEEN {1} AND 2",
                "{0} NOT BETWEEN 1 AND {1}",
                "{0} IN (1, {1})",
                "{0} NOT IN (1, {1})",
            ]
        )
    )
    return form.format(one, other)


def conditions(draw: Draw, columns: list[str], words: list[str]) -> str:
    """A WHERE, which may hold a query."""
    plain = predicates(draw, columns, words, 2)
    column = draw(st.sampled_from(columns))
    form = draw(
        st.sampled_from(
            [
                "{0}",
                "{0}",
                "{0} AND {1} IN (SELECT c FROM u)",
                "{1} NOT IN (SELECT c FROM u WHERE u.a > 0)",
                "{1} NOT IN (SELECT c FROM u)",
                "EXISTS (SELECT 1 FROM u AS v WHERE v.a = {1})",
                "NOT EXISTS (SELECT 1 FROM u AS v WHERE v.a = {1} AND v.c > 0)",
                "{0} OR {1} IN (SELECT c FROM u)",
                "{0} OR NOT EXISTS (SELECT 1 FROM u AS v WHERE v.c = {1})",
                "({1} IN (SELECT c FROM u)) IS NULL",
                "{1} = (SELECT max(c) FROM u)",
                "{1} = (SELECT count(v.c) FROM u AS v WHERE v.a = {1})",
                "{0} OR (SELECT min(v.c) + count(*) FROM u AS v WHERE v.a = {1} AND v.c > 0) IS NULL",
                "{1} IN (SELECT v.c FROM u AS v WHERE v.a = {1} + 0)",
            ]
        )
    )
    return form.format(plain, column)


@st.composite
def selects(draw: Draw, depth: int = 1) -> str:
    """A query of two columns of whole numbers."""
    source, columns, words = _from(draw, depth)
    where = f" WHERE {conditions(draw, columns, words)}" if draw(st.booleans()) else ""
    one, other = numbers(draw, columns, 1), numbers(draw, columns, 2)
    form = draw(st.integers(0, 5))
    if form == 0:
        return f"SELECT DISTINCT {one} AS x, {other} AS y FROM {source}{where}"
    if form == 1:
        return (
            f"SELECT {one} AS x, count(*) + count({other}) + count(DISTINCT {other}) AS y FROM {source}{where} "
            f"GROUP BY 1{draw(st.sampled_from(['', ' HAVING count(*) > 1', f' HAVING min({other}) IS NOT NULL']))}"
        )
    if form == 2:
        return f"SELECT min({one}) AS x, max({other})::integer AS y FROM {source}{where}"
    if form == 3:
        return f"SELECT sum({one})::integer AS x, count({other})::integer AS y FROM {source}{where}"
    return f"SELECT {one} AS x, {other} AS y FROM {source}{where}"


def _from(draw: Draw, depth: int) -> tuple[str, list[str], list[str]]:
    kind = draw(st.integers(0, 7 if depth else 5))
    if kind == 0:
        return "t", ["t.a", "t.b"], ["t.s"]
    both = ["t.a", "t.b", "u.a", "u.c"]
    if kind == 1:
        return "t, u", both, ["t.s"]
    if kind <= 4:
        on = draw(st.sampled_from(["t.a = u.a", "t.a = u.a AND t.b = u.c", "t.a = u.a AND t.b > 1", "t.b + 1 = u.c"]))
        extra = predicates(draw, both, [], 1) if draw(st.booleans()) else ""
        join = draw(st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]))
        # DuckDB takes only simple conditions for a full join.
        return f"t {join} u ON {on}{f' AND {extra}' if extra and join != 'FULL JOIN' else ''}", both, ["t.s"]
    if kind == 5:
        return "t JOIN u ON t.a = u.a LEFT JOIN u AS w ON w.c = t.b", [*both, "w.a"], ["t.s"]
    inner = draw(queries(depth=depth - 1))
    if kind == 6:
        return f"({inner}) AS q", ["q.x", "q.y"], []
    return f"t JOIN ({inner}) AS q ON t.a = q.x", ["t.a", "t.b", "q.x", "q.y"], ["t.s"]


@st.composite
def queries(draw: Draw, depth: int = 1) -> str:
    """A query, or a set operation of two."""
    one = draw(selects(depth=depth))
    if draw(st.integers(0, 2)):
        return one
    word = draw(st.sampled_from(["UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]))
    return f"({one}) {word} ({draw(selects(depth=0))})"
