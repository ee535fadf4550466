"""Checks a view: compares the rows that the view's patches have made with the answer from scratch."""

from collections.abc import Mapping
from typing import Any

from eddy.errors import QueryError
from eddy.live.dataflow.dataflow import TableRows
from eddy.live.dataflow.values import same_value
from eddy.live.query.naive import evaluate
from eddy.live.query.planning import tables_of
from eddy.live.query.syntax import Select
from eddy.live.query.written import written
from eddy.tables.version import Version

__all__ = ["check_answer"]


def check_answer(rows: Any, select: Select, tables: Mapping[str, TableRows], version: Version) -> None:
    """Compare a result with the naive evaluation over the same tables. Cost: evaluates the query from scratch.

    Raises: QueryError naming the first difference.
    """
    try:
        expected = evaluate(select, {name: tables[name].rows.values() for name in tables_of(select)})
    except RecursionError as error:
        raise QueryError(f"check of {written(select)}: the tree is too deep for an answer from scratch") from error
    if not same_value(rows, expected):
        place, shown, right = _first_difference(rows, expected, "rows")
        raise QueryError(
            f"check of {written(select)}: {place} is {shown!r} and should be {right!r}, at version {version.token}. "
            "This is a defect of eddy: please report it; the query can be opened again"
        )


def _first_difference(shown: Any, right: Any, place: str) -> tuple[str, Any, Any]:
    """Return the first place at which two results differ, the value shown there, and the right value."""
    pairs: list[tuple[str, Any, Any]] = []
    if type(shown) is list and type(right) is list and len(shown) == len(right):
        pairs = [(f"{place}[{i}]", one, other) for i, (one, other) in enumerate(zip(shown, right, strict=True))]
    elif type(shown) is dict and type(right) is dict and shown.keys() == right.keys():
        pairs = [(f"{place}[{name!r}]", one, right[name]) for name, one in shown.items()]
    for inner, one, other in pairs:
        if not same_value(one, other):
            return _first_difference(one, other, inner)
    return place, shown, right
