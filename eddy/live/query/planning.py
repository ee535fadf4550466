"""Translates syntax into operators, which are shared by all queries with the same filters, orders and groups.

Equalities with constants are not filters: they choose a bucket. So queries that differ in a constant share one ordered
arrangement. A change finds its bucket by the value, however many queries there are.

    Shape          the levels by which the buckets of a view become nested rows
    PlannedView    the operator of one query, with its shape; equal queries share it
"""

import operator as comparisons
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from eddy.errors import QueryBuildError, QueryError
from eddy.like_pattern import like_pattern
from eddy.live.dataflow.dataflow import Dataflow, QueryOperator, TableRows
from eddy.live.dataflow.filter import ConditionFilter, MatchCount, RowIndex
from eddy.live.dataflow.first_rows import FirstRows, PassingRows
from eddy.live.dataflow.groups import Groups, hidden
from eddy.live.dataflow.kept_order import KeptOrder
from eddy.live.dataflow.nest_levels import Level, Nesting
from eddy.live.dataflow.ordered import Ordered
from eddy.live.dataflow.patch import Buckets
from eddy.live.dataflow.patch_making import ViewOperator
from eddy.live.dataflow.stored_order import StoredOrdered
from eddy.live.dataflow.values import Flat, Row, ascending, flat_key, order_key
from eddy.live.dataflow.window import Bounds
from eddy.live.query.syntax import And, Compare, Condition, Exists, Nest, Or, Ref, Select

__all__ = [
    "PlannedView",
    "Shape",
    "bounds_of",
    "constants_of",
    "exists_in",
    "is_window",
    "open_view",
    "plan_view",
    "selects_of",
    "sorts_of",
    "tables_of",
]

MAX_ROWS = 1_000_000
"""The default of `max_rows`: the most rows that a view holds."""


@dataclass(slots=True, eq=False)
class Shape:
    """One level of a view: its Select, which says what its rows show, and the levels of its nests by name."""

    select: Select
    nests: dict[str, "Shape"] = field(default_factory=dict)
    empty: Row | None = None
    """The row of aggregates over no rows; None for queries with groups or without aggregates."""
    is_plucked: bool = False
    """Whether rows have their position as a column, since they are shown in place of the rows that lead to them."""


Around = dict[str, tuple[Level, Shape, frozenset[str]]]


@dataclass(slots=True, eq=False)
class PlannedView:
    """A query that is kept up to date for a number of `users`.

    `operators` are released when the view closes. `begun` are those operators that were made for this query.
    """

    operator: ViewOperator
    shape: Shape
    order: Callable[[Row], Flat]
    operators: list[QueryOperator]
    dataflow: Dataflow
    begun: set[QueryOperator]
    users: int = 0

    def filled(self) -> Buckets:
        """Return the buckets with the rows of the query, as they are now."""
        found = Buckets()
        found.apply(self.operator.snapshot())
        return found

    def close(self) -> None:
        """Close the operator, and release all operators of the query."""
        self.operator.close()
        for operator in reversed(self.operators):
            self.dataflow.release(operator)
        self.operators = []
        self.begun = set()


def selects_of(select: Select) -> Iterator[Select]:
    """Yield a query, then the queries of its nests and of its conditions, at any depth."""
    yield select
    for nest in select.nests:
        if isinstance(nest.query, Select):
            yield from selects_of(nest.query)
    for exists in exists_in(select.where):
        yield from selects_of(exists.query)


def tables_of(select: Select) -> set[str]:
    """Return the names of the tables that a query reads."""
    return {each.table.name for each in selects_of(select)}


def exists_in(condition: Condition | None) -> list[Exists]:
    """Return the `exists` of a condition, in their order."""
    if isinstance(condition, And | Or):
        return [found for term in condition.terms for found in exists_in(term)]
    return [condition] if isinstance(condition, Exists) else []


def is_window(select: Select) -> bool:
    """Return whether a query shows a bounded number of its table's rows, and reads the table for nothing else.

    Then only the shown rows of the table have to be in memory.
    """
    elsewhere = tables_of(
        msgspec.structs.replace(select, where=None, table=msgspec.structs.replace(select.table, name=""))
    )
    return (
        select.bound is not None
        and not select.aggregates
        and not exists_in(select.where)
        and select.table.name not in elsewhere
    )


def sorts_of(select: Select) -> Hashable:
    """Return a value that is equal for two windows over one table if they differ only in bounds, columns or nests."""
    return _text(select.where), select.table.key, _order(select)


def bounds_of(select: Select, position: Callable[[Row], Flat]) -> Bounds:
    """Return the window of a Select."""
    start = select.start
    return Bounds(
        None if start is None else position(start.row),
        start is not None and start.inclusive,
        select.skip,
        select.bound if not select.aggregates or select.group else None,
    )


def open_view(select: Select, dataflow: Dataflow, max_rows: int = MAX_ROWS) -> PlannedView:
    """Make the operators of a query, and its rows. Raises: QueryError."""
    planner = plan_view(select, dataflow)
    try:
        equal, root = dict(planner.constants), planner.root
        values = flat_key(list(equal))(equal)
        operator = ViewOperator(root, values, max_rows)
    except BaseException:
        for each in reversed(planner.operators):
            dataflow.release(each)
        raise
    return PlannedView(operator, planner.shape, root.ordered.position, planner.operators, dataflow, planner.begun)


def plan_view(select: Select, dataflow: Dataflow) -> "_Planner":
    """Make the operators of a query, without its view. Raises: QueryError for an unknown table or nest."""
    planner = _Planner(dataflow)
    try:
        planner.plan(select)
    except BaseException:
        for each in reversed(planner.operators):
            dataflow.release(each)
        raise
    return planner


class _Planner:
    """Makes the operators of one query.

    `around` has, for each enclosing labelled Select, its level, its shape, and the bounded recursions around it.
    """

    def __init__(self, dataflow: Dataflow) -> None:
        self._dataflow = dataflow
        self.operators: list[QueryOperator] = []
        self.begun: set[QueryOperator] = set()
        self.constants: list[tuple[str, Any]] = []

    def plan(self, select: Select) -> None:
        self.constants, where = constants_of(select.where)
        by = tuple(column for column, _ in self.constants)
        if isinstance(self._table(select.table.name), PassingRows):
            where = select.where
        self.root, self.shape = self._level("", select, by, where, {}, {})

    def _shared(self, identity: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        is_begun = identity not in self._dataflow
        made = self._dataflow.shared(identity, make)
        self.operators.append(made)
        if is_begun:
            self.begun.add(made)
        return made

    def _level(
        self,
        name: str,
        select: Select,
        by: tuple[str, ...],
        where: Condition | None,
        around: Around,
        bounded: dict[str, int],
    ) -> tuple[Level, Shape]:
        """Plan a Select whose rows are in buckets by the columns `by`. Returns its level and shape."""
        table: TableRows = self._table(select.table.name)
        if isinstance(table, PassingRows):
            return self._planned(
                name, select, self._first_rows(select, table, where), around, bounded, _columns(select)
            )
        source = self._filter(select.table.name, where)
        keys: tuple[str, ...] = select.table.key
        columns = _columns(select)
        identity: tuple[Any, ...] = (select.table.name, _text(where))
        if select.aggregates:
            measures = tuple((each.name, each.function, each.column) for each in select.aggregates)
            identity = ("groups", *identity, by, select.group, measures)
            groups = self._shared(identity, lambda: Groups(source, by, select.group, measures))
            source = table = groups
            keys, by = tuple(groups.key_columns), tuple(map(hidden, by))
            columns = columns or (*select.group, *(each.name for each in select.aggregates))
        order = _order(select)
        kind = Ordered if table.spaces is None else StoredOrdered
        if not name and table.can_keep_order and is_window(select):
            kind = KeptOrder
        ordered: Ordered = self._shared(
            ("ordered", *identity, keys, by, order), lambda: kind(source, table, keys, by, order)
        )
        return self._planned(name, select, ordered, around, bounded, columns)

    def _first_rows(self, select: Select, table: PassingRows, where: Condition | None) -> Ordered:
        """Return the operator that keeps the rows for the window of a Select over a table that is not in memory."""
        if not is_window(select):
            raise QueryError(f"query: table '{table.name}' is not in memory, so that only windows can read it")

        def refused(exists: Exists) -> Callable[[Row], bool]:
            raise QueryError(f"query: table '{table.name}' is not in memory, and has no exists")

        test: Callable[[Row], bool] = _predicate(And(()) if where is None else where, refused)
        sorts = sorts_of(select)
        order, keys = _order(select), select.table.key
        bounds = bounds_of(select, order_key(order, flat_key(keys)))
        identity = ("first", select.table.name, sorts, bounds.start)
        found: Ordered = self._shared(identity, lambda: FirstRows(table, test, keys, order, bounds, sorts))
        return found

    def _planned(
        self,
        name: str,
        select: Select,
        ordered: Ordered,
        around: Around,
        bounded: dict[str, int],
        columns: tuple[str, ...] | None,
    ) -> tuple[Level, Shape]:
        """Return the level and shape of a Select over its sorted rows, with its nests."""
        level = Level(name, ordered, bounds_of(select, ordered.position), columns)
        shape = Shape(select, empty=_empty(select))
        if select.label is not None:
            around = {**around, select.label: (level, shape, frozenset(bounded))}
        for nest in select.nests:
            self._nest(nest, level, shape, around, bounded)
        if select.pluck is not None:
            self._pluck(select.pluck, level, shape)
        return level, shape

    def _nest(
        self,
        nest: Nest,
        level: Level,
        shape: Shape,
        around: Around,
        bounded: dict[str, int],
    ) -> None:
        parents, own = tuple(parent for parent, _ in nest.on), tuple(own for _, own in nest.on)
        if isinstance(nest.query, Ref):
            label = nest.query.label
            if label not in around:
                raise QueryBuildError(f"nest '{nest.name}': no enclosing query is called '{label}'")
            below, shape.nests[nest.name], kept = around[label]
            again = (label, bounded[label]) if label in bounded else None
            level.nests.append(Nesting(nest.name, parents, below, again=again, kept=kept))
            return
        label = nest.query.label or ""
        begins = None
        bounded = {name: depth for name, depth in bounded.items() if name != label}
        if nest.depth is not None:
            begins, bounded = (label, nest.depth), {**bounded, label: nest.depth}
        name = f"{level.name}.{nest.name}" if level.name else nest.name
        below, shape.nests[nest.name] = self._level(name, nest.query, own, nest.query.where, around, bounded)
        level.nests.append(Nesting(nest.name, parents, below, begins=begins))

    def _pluck(self, name: str, level: Level, shape: Shape) -> None:
        """Let this nest's rows be shown in place of the level's rows."""
        nesting = next((nesting for nesting in level.nests if nesting.name == name), None)
        if nesting is None:
            table = shape.select.table.name
            raise QueryBuildError(f"pluck: table '{table}' has no nest '{name}' in this query")
        nesting.below.is_plucked = shape.nests[name].is_plucked = True

    def _table(self, name: str) -> TableRows:
        found = self._dataflow.tables.get(name)
        if found is None:
            raise QueryError(
                f"query: table '{name}' does not exist; the tables are {', '.join(sorted(self._dataflow.tables))}"
            )
        return found

    def _filter(self, name: str, where: Condition | None) -> Any:
        """Return the operator for the rows of a table that fulfil a condition."""
        table = self._table(name)
        if where is None or where == And(()):
            return table
        matches: list[tuple[MatchCount, RowIndex]] = []
        terms = where.terms if isinstance(where, And) else (where,)
        required = [number for number, each in enumerate(exists_in(where)) if each in terms and not each.negated]

        def counted(exists: Exists) -> Callable[[Row], bool]:
            parents, own = tuple(parent for parent, _ in exists.on), tuple(own for _, own in exists.on)
            source = self._filter(exists.query.table.name, exists.query.where)
            child = (exists.query.table.name, _text(exists.query.where))
            count = self._shared(("count", *child, own), lambda: MatchCount(source, own))
            index = self._shared(("index", name, parents), lambda: RowIndex(table, parents))
            matches.append((count, index))
            key, counts, negated = flat_key(parents), count.counts, exists.negated
            return lambda row: (key(row) in counts) is not negated

        test = _predicate(where, counted)
        return self._shared(("filter", name, _text(where)), lambda: ConditionFilter(table, test, matches, required))


def constants_of(where: Condition | None) -> tuple[list[tuple[str, Any]], Condition | None]:
    """Split a condition. Returns the equalities with constants that it requires, one for each column, and the rest."""
    terms = where.terms if isinstance(where, And) else () if where is None else (where,)
    equal: dict[str, Any] = {}
    rest: list[Condition] = []
    for term in terms:
        if isinstance(term, Compare) and term.op == "=" and term.column not in equal:
            equal[term.column] = term.value
        else:
            rest.append(term)
    both: Condition | None = rest[0] if len(rest) == 1 else And(tuple(rest)) if rest else None
    return sorted(equal.items()), both


def _order(select: Select) -> tuple[tuple[str, bool], ...]:
    """Return the columns of an order, with whether each is descending."""
    return tuple((each.column, each.descending) for each in select.order)


def _columns(select: Select) -> tuple[str, ...] | None:
    """Return the shown columns of a row; None for all columns."""
    return () if select.pluck is not None else select.columns


def _text(where: Condition | None) -> bytes:
    """Return a condition as JSON, for identities."""
    return b"" if where is None or where == And(()) else msgspec.json.encode(where, order="deterministic")


def _empty(select: Select) -> Row | None:
    if not select.aggregates or select.group:
        return None
    return {each.name: 0 if each.function == "count" else None for each in select.aggregates}


def _predicate(condition: Condition, counted: Callable[[Exists], Callable[[Row], bool]]) -> Callable[[Row], bool]:
    """Return a function that returns whether a condition is true for a row."""
    if isinstance(condition, Exists):
        return counted(condition)
    if isinstance(condition, And | Or):
        tests = [_predicate(term, counted) for term in condition.terms]
        if len(tests) == 2:
            one, two = tests
            if isinstance(condition, And):
                return lambda row: one(row) and two(row)
            return lambda row: one(row) or two(row)
        if isinstance(condition, And):
            return lambda row: all(test(row) for test in tests)
        return lambda row: any(test(row) for test in tests)
    return _comparison(condition)


def _comparison(condition: Compare) -> Callable[[Row], bool]:
    column, op = condition.column, condition.op
    value: Any = condition.value
    if op in {"is", "is not"}:
        return (lambda row: row.get(column) is None) if op == "is" else lambda row: row.get(column) is not None
    if op.endswith("like"):
        fits = like_pattern(value, ignore_case="ilike" in op).fullmatch
        wanted = not op.startswith("not")
        return lambda row: (
            (found := row.get(column)) is not None and (isinstance(found, str) and bool(fits(found))) is wanted
        )
    if op.endswith("in"):
        pairs, wanted = {ascending(each) for each in value}, op == "in"
        return lambda row: (found := row.get(column)) is not None and (ascending(found) in pairs) is wanted
    pair = ascending(value)
    if op in {"=", "!="}:
        wanted = op == "="
        return lambda row: (found := row.get(column)) is not None and (ascending(found) == pair) is wanted
    return _ordering(column, op, *pair)


def _ordering(column: str, op: str, kind: int, item: Any) -> Callable[[Row], bool]:
    """Return the test for a comparison such as `<`. It is false for values of another kind than the constant."""
    order = _ORDERS[op]
    kinds = (str,) if type(item) is str else (int, float) if type(item) in {int, float} else ()

    def test(row: Row) -> bool:
        found = row.get(column)
        if type(found) in kinds:  # a value of this kind is compared unchanged
            return order(found, item)
        rank, other = ascending(found)
        return rank == kind and order(other, item)

    return test


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": comparisons.lt,
    "<=": comparisons.le,
    ">": comparisons.gt,
    ">=": comparisons.ge,
}
