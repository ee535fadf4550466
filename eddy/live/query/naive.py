"""Answers a query from scratch: filters, sorts and cuts all rows, without operators.

Tests and the checks of views compare maintained results with this answer. Benchmarks take its time as the time of a new
query. It shares no code with the operators except the comparison of values.

Rows are dicts. A nest is a list under its name; with `one` it is a row or None, with a single aggregate its value. In a
cycle the result ends at a row that leads back to a nest around it: the row has `"$cycle": True` instead of the nest.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from operator import itemgetter
from typing import Any

from eddy.errors import QueryError
from eddy.like_pattern import like_pattern
from eddy.live.dataflow.values import (
    Flat,
    Row,
    ascending,
    flat,
    flat_key,
    order_key,
    order_of,
    spelling,
)
from eddy.live.query.syntax import Aggregate, And, Compare, Condition, Exists, Nest, Or, Select, nest_select

__all__ = ["evaluate"]

Tables = Mapping[str, Iterable[Row]]
Around = dict[str, Select]
Equal = list[tuple[str, Any]]
Placed = list[tuple[Flat, Row]]
Opened = dict[str, tuple[int, int | None]]
"""The present level of each recursion, and its bound, by label."""


def evaluate(select: Select, tables: Tables) -> Any:
    """Return the result of a query over tables, which are given as rows by the table's name.

    Raises: QueryError if a table is missing in `tables`.
    """
    return _Evaluation(tables).shown(select, [], {}, {}, ())


class _Evaluation:
    """One evaluation. `around` has the enclosing labelled Selects, `path` the nests between the root and a row."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def shown(self, select: Select, equal: Equal, around: Around, opened: Opened, path: tuple[Any, ...]) -> Any:
        """Return the query's result over the rows whose columns have the values in `equal`."""
        rows = [row for _, row in self._placed(select, equal, around, opened, path)]
        if select.scalar:
            return rows[0][select.aggregates[0].name]
        return (rows[0] if rows else None) if select.one else rows

    def _placed(self, select: Select, equal: Equal, around: Around, opened: Opened, path: tuple[Any, ...]) -> Placed:
        """Return the shown rows in order, each with its position, which may depend on columns that are not shown."""
        around = {**around, select.label: select} if select.label else around
        rows = self.rows(select, equal)
        if select.aggregates:
            return self._groups(select, rows, equal)
        rows = _cut(select, rows)
        if select.pluck is not None:
            return self._plucked(select, rows, around, opened, path)
        position = _position(select)
        return [(position(row), _only(select, self._with_nests(select, row, around, opened, path))) for row in rows]

    def rows(self, select: Select, equal: Equal) -> list[Row]:
        """Return the rows that fulfil the condition, sorted."""
        if select.table.name not in self._tables:
            raise QueryError(
                f"query: there is no table '{select.table.name}'; the tables are {', '.join(self._tables)}"
            )
        wanted = [(column, ascending(value)) for column, value in equal]
        if any(value is None for _, value in equal):
            return []
        rows = [
            row
            for row in self._tables[select.table.name]
            if all(ascending(row.get(column)) == value for column, value in wanted)
            and (select.where is None or self._true(select.where, row))
        ]
        return rows if select.aggregates else sorted(rows, key=_position(select))

    def _true(self, condition: Condition, row: Row) -> bool:
        if isinstance(condition, And):
            return all(self._true(term, row) for term in condition.terms)
        if isinstance(condition, Or):
            return any(self._true(term, row) for term in condition.terms)
        if isinstance(condition, Exists):
            equal = [(own, row.get(parent)) for parent, own in condition.on]
            return bool(self.rows(condition.query, equal)) is not condition.negated
        return _compared(condition, row.get(condition.column))

    def _with_nests(self, select: Select, row: Row, around: Around, opened: Opened, path: tuple[Any, ...]) -> Row:
        made = dict(row)
        for nest in select.nests:
            below = nest_select(nest, around)
            equal = [(own, row.get(parent)) for parent, own in nest.on]
            levels = _levels(nest, below, opened)
            if levels is None:
                continue
            step = (id(below), *(ascending(value) for _, value in equal))
            if step in path:
                made["$cycle"] = True
            else:
                made[nest.name] = self.shown(below, equal, around, levels, (*path, step))
        return made

    def _plucked(
        self, select: Select, rows: list[Row], around: Around, opened: Opened, path: tuple[Any, ...]
    ) -> Placed:
        """Return the rows of a plucked nest, which take the place of `rows`. `path` is the same for the two."""
        nest = next(nest for nest in select.nests if nest.name == select.pluck)
        below = nest_select(nest, around)
        levels = _levels(nest, below, opened)
        found: dict[Flat, Row] = {}
        if levels is None:
            return []
        for row in rows:
            equal = [(own, row.get(parent)) for parent, own in nest.on]
            found.update(self._placed(below, equal, around, levels, path))
        placed = sorted(found.items(), key=itemgetter(0))
        return placed[:1] if select.one else placed

    def _groups(self, select: Select, rows: list[Row], equal: Equal) -> Placed:
        key = flat_key(select.group)
        groups: dict[Flat, list[Row]] = {} if select.group else {key({}): []}
        for row in rows:
            groups.setdefault(key(row), []).append(row)
        made = [
            {column: min((row.get(column) for row in members), key=_spelled) for column in select.group}
            | {each.name: _aggregate(each, members) for each in select.aggregates}
            for members in groups.values()
        ]
        before = order_of([(o.column, o.descending) for o in select.order])
        above = b"".join(flat(value) for _, value in equal)
        placed = sorted(((before(row) + above + key(row), row) for row in made), key=itemgetter(0))
        return [(position, _only(select, row)) for position, row in placed[select.skip :][: select.bound]]


def _levels(nest: Nest, below: Select, opened: Opened) -> Opened | None:
    """Return the level numbers below this nest; None if a recursion has reached its depth there."""
    if below.label is None:
        return opened
    if below is nest.query:
        return {**opened, below.label: (1, nest.depth)}
    level, bound = opened[below.label]
    return None if bound is not None and level >= bound else {**opened, below.label: (level + 1, bound)}


def _position(select: Select) -> Any:
    return order_key([(o.column, o.descending) for o in select.order], flat_key(select.table.key))


def _cut(select: Select, rows: list[Row]) -> list[Row]:
    if select.start is not None:
        position = _position(select)
        at = position(select.start.row)
        rows = [row for row in rows if position(row) > at or (select.start.inclusive and position(row) == at)]
    return rows[select.skip :][: select.bound]


def _only(select: Select, row: Row) -> Row:
    if select.columns is None:
        return row
    names = {*select.columns, *(nest.name for nest in select.nests), "$cycle"}
    return {name: value for name, value in row.items() if name in names}


def _compared(condition: Compare, value: Any) -> bool:
    op = condition.op
    other: Any = condition.value
    if op in {"is", "is not"}:
        return (value is None) is (op == "is")
    if value is None:
        return False
    if op.endswith("in"):
        return any(ascending(value) == ascending(each) for each in other) is (op == "in")
    if op.endswith("like"):
        fits = isinstance(value, str) and like_pattern(other, ignore_case="ilike" in op).fullmatch(value)
        return bool(fits) is not op.startswith("not")
    one, two = ascending(value), ascending(other)
    if op in {"=", "!="}:
        return (one == two) is (op == "=")
    return one[0] == two[0] and bool(
        one < two if op == "<" else one <= two if op == "<=" else one > two if op == ">" else one >= two
    )


def _aggregate(aggregate: Aggregate, rows: list[Row]) -> Any:
    if aggregate.column is None:
        return len(rows)
    values = [value for row in rows if (value := row.get(aggregate.column)) is not None]
    if aggregate.function == "count":
        return len(values)
    if aggregate.function in {"min", "max"}:
        return (min if aggregate.function == "min" else max)(values, key=_spelled, default=None)
    numbers = [value for value in values if type(value) in (int, float) and abs(value) < float("inf")]
    if not numbers:
        return None
    total = sum(map(Fraction, numbers), Fraction())
    if aggregate.function == "avg":
        return _float(total / len(numbers))
    return int(total) if all(type(value) is int for value in numbers) else _float(total)


def _spelled(value: Any) -> tuple[int, Any, str]:
    return *ascending(value), spelling(value)


def _float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
