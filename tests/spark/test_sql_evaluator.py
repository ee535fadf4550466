"""The second evaluator of SQL's expressions and aggregates: the same values as the first, of the same types."""

import decimal
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.spark.sql_aggregates import Aggregates, SqlFold
from eddy.connectors.spark.sql_expressions import own
from eddy.errors import DataError
from eddy.topology.sql.aggregates import group_function
from eddy.topology.sql.algebra import Aggregate
from eddy.topology.sql.casts import CONTEXT
from eddy.topology.sql.folds import fold_of
from eddy.topology.sql.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NUMERIC, REAL, TEXT, Type
from tests.sql import test_expressions as first

LISTS = (
    first.test_nulls_go_through_or_do_not,
    first.test_numbers,
    first.test_what_has_no_value_is_an_error_with_its_place,
    first.test_casts,
    first.test_texts,
)


def expressions() -> Iterator[str]:
    """The expressions whose values the tests of SQL name."""
    for test in LISTS:
        for mark in getattr(test, "pytestmark", ()):
            if mark.name == "parametrize":
                yield from (getattr(case, "values", case)[0] for case in mark.args[1])


def functions(text: str) -> list[Any]:
    """The functions of a statement that are made of expressions."""
    topology = eddy.Topology("t")
    topology.sql(text, {"unread": (topology.table("unread", eddy.String, eddy.String), {"a": "text"})}, name="v")
    found = (getattr(node, "function", None) for node in topology.plan.nodes)
    return [function for function in found if getattr(function, "written", None) is not None]


def outcome(function: Any, *args: Any) -> Any:
    """The result as text: numerics without zeros at their ends, floats to nine digits."""
    try:
        return repr(plain(function(*args)))
    except DataError:
        return "an error"


def plain(found: Any) -> Any:
    if isinstance(found, tuple | list):
        return type(found)(map(plain, found))
    if isinstance(found, float):
        return f"{found:.9e}"
    return found.normalize(CONTEXT) + 0 if isinstance(found, decimal.Decimal) else found


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_expressions_have_the_same_values(expression: str) -> None:
    made = functions(f"SELECT {expression} AS x")
    assert made
    for function in made:
        if "row[0]" not in function.written.columns:
            assert outcome(own(function), (), ()) == outcome(function, (), ())


ARGUMENTS: dict[str, tuple[Type, st.SearchStrategy[Any]]] = {
    "integer": (INTEGER, st.integers(-9, 9)),
    "bigint": (BIGINT, st.integers(-(2**63), 2**63 - 1)),
    "numeric": (NUMERIC, st.decimals(-100, 100, allow_nan=False, places=3)),
    "double": (DOUBLE, st.floats(-1e300, 1e300) | st.sampled_from([math.nan, math.inf, -math.inf])),
    "real": (REAL, st.floats(width=32)),
    "boolean": (BOOLEAN, st.booleans()),
    "text": (TEXT, st.sampled_from(["", "a", "b"])),
}
SUITS = {
    "count": set(ARGUMENTS),
    "min": set(ARGUMENTS) - {"boolean"},
    "max": set(ARGUMENTS) - {"boolean"},
    "sum": {"integer", "bigint", "numeric", "double", "real"},
    "avg": {"integer", "bigint", "numeric", "double", "real"},
    "bool_and": {"boolean"},
    "bool_or": {"boolean"},
}


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in SUITS for kind in sorted(SUITS[name])])
@given(data=st.data(), distinct=st.booleans())
def test_aggregates_have_the_same_values(name: str, kind: str, data: st.DataObject, distinct: bool) -> None:
    type_, values = ARGUMENTS[kind]
    aggregates, types = [Aggregate(name, BIGINT, None, distinct)], [type_]
    rows = data.draw(st.dictionaries(st.tuples(st.none() | values), st.integers(1, 3), max_size=5))
    if kind in {"double", "real"}:  # one object for all NaNs, as in rows
        rows = {tuple(math.nan if v is not None and v != v else v for v in row): n for row, n in rows.items()}
    expected, made = group_function(aggregates, types), Aggregates.of(group_function(aggregates, types).written)
    assert outcome(made, ("k",), rows) == outcome(expected, ("k",), rows)
    if (fold := fold_of(aggregates, types)) is None:
        return
    state, mine = fold.initial(), None
    again = SqlFold(Aggregates.of(fold.adder.written))
    for row, weight in [*rows.items(), *((row, -1) for row in rows)]:
        for _ in range(abs(weight)):
            state = (fold.adder if weight > 0 else fold.subtractor)(("k",), row, state)
            mine = (again.add if weight > 0 else again.subtract)(("k",), row, mine)
    if mine is not None:
        assert again.result(mine) == state
        assert [type(cell) for cell in again.result(mine)] == [type(cell) for cell in state]
        assert outcome(own(fold.row), ("k",), state) == outcome(fold.row, ("k",), state)


def test_numerics_have_all_digits_in_a_fold() -> None:
    fold = SqlFold(Aggregates.of(group_function([Aggregate("sum", NUMERIC)], [NUMERIC]).written))
    large, small = decimal.Decimal(10) ** 60, decimal.Decimal("1E-60")
    assert fold.result(fold.add((), (small,), fold.add((), (large,), None))) == (
        2,
        decimal.Decimal(f"1{'0' * 60}.{'0' * 59}1"),
    )
