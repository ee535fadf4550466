"""The plan of a running query: its operators, the numbers of rows that they read, and the reasons for choices.

    QueryPlan   one step: its operator, the rows that it has, the rows it read at the beginning, the steps it reads

If a condition requires an `exists`, there is a choice: the condition is evaluated for all rows of the table
(parent-first), or only for the rows with a match, if the counts of both sides show that these are fewer (child-first).
"""

from collections.abc import Iterable

import msgspec

from eddy.live.dataflow.dataflow import QueryOperator, TableRows
from eddy.live.dataflow.filter import ConditionFilter
from eddy.live.dataflow.first_rows import FirstRows
from eddy.live.dataflow.groups import Groups
from eddy.live.dataflow.nest_levels import Level
from eddy.live.query.planning import PlannedView, Shape, constants_of, exists_in
from eddy.live.query.renaming import renamed
from eddy.live.query.syntax import And, Condition, Exists, Select
from eddy.live.query.written import condition_text

__all__ = ["QueryPlan", "explain"]

_COUNTED = 10_000
"""The most rows on disk that are counted for the note of a step."""


class QueryPlan(msgspec.Struct, frozen=True):
    """One step of a plan. `str` shows it with the steps that it reads, one on each line.

    Attributes:
        step: the operator and its arguments, such as "sort issues by -created".
        rows: the number of rows that it has now.
        cost: the number of rows that it read, evaluated or sorted when it was made; 0 if it was made for another query.
        note: the reason for a choice; "" if there was no choice.
        reads: the steps that it reads.
    """

    step: str
    rows: int
    cost: int
    note: str = ""
    reads: tuple["QueryPlan", ...] = ()

    def total_cost(self) -> int:
        """Return the cost of this step and of all steps that it reads."""
        return self.cost + sum(plan.total_cost() for plan in self.reads)

    def __str__(self) -> str:
        return "\n".join(_lines(self, ""))


def _lines(plan: QueryPlan, indent: str) -> Iterable[str]:
    note = f"; {plan.note}" if plan.note else ""
    yield f"{indent}{plan.step}: rows {plan.rows:,}, cost {plan.cost:,}{note}"
    for each in plan.reads:
        yield from _lines(each, indent + "  ")


def explain(view: PlannedView) -> QueryPlan:
    """Return the plan of a view, with its counts as they are now."""
    return _Explanation(view).whole()


class _Explanation:
    """Makes the plan of a view, level by level."""

    def __init__(self, view: PlannedView) -> None:
        self._view = view
        self._met: set[int] = set()

    def whole(self) -> QueryPlan:
        operator = self._view.operator
        reads = self._level(operator.root.level, self._view.shape)
        return QueryPlan("view", operator.rows, operator.rows, f"buckets: {len(operator):,}", (reads,))

    def _cost(self, operator: QueryOperator, rows: int) -> int:
        return rows if operator in self._view.begun else 0

    def _level(self, level: Level, shape: Shape) -> QueryPlan:
        """Return the window of a level, and the levels of its nests."""
        select = shape.select
        self._met.add(id(level))
        by = constants_of(select.where)[0] if not level.name else []
        buckets = [bucket for bucket in self._view.operator.buckets() if bucket.level is level]
        shown = sum(bucket.window.size for bucket in buckets)
        reads = [self._sorted(level, shape, bool(by))]
        for nest in level.nests:
            if id(nest.below) not in self._met:
                reads.append(self._level(nest.below, shape.nests[nest.name]))
            else:
                reads.append(QueryPlan(f"nest {nest.name} by {', '.join(nest.columns)}: the level above again", 0, 0))
        chosen = "".join(f" of {column} = {value!r}" for column, value in by)
        name = f"nest {level.name}: " if level.name else ""
        step = f"{name}window{chosen}{_window(select)}"
        return QueryPlan(step, shown, shown, f"buckets: {len(buckets):,}", tuple(reads))

    def _sorted(self, level: Level, shape: Shape, is_chosen: bool) -> QueryPlan:
        names = {name: table.name for name, table in self._view.dataflow.tables.items()}
        select, ordered = renamed(shape.select, names), level.ordered
        if isinstance(ordered, FirstRows):
            return self._first_rows(select, ordered)
        order = ", ".join(f"{'-' if each.descending else ''}{each.column}" for each in select.order)
        step = f"sort {select.table.name} by {order or 'key'}"
        rows = ordered.row_count()
        where = constants_of(select.where)[1] if is_chosen else select.where
        source = self._source(select.table.name, where, ordered.source)
        note = "" if ordered in self._view.begun else "shared with other queries"
        if isinstance(ordered.source, Groups):
            groups = ordered.source
            step = f"sort groups of {select.table.name}"
            below = self._source(select.table.name, where, groups.source)
            by = ", ".join(select.group) or "all rows"
            source = QueryPlan(f"groups by {by}", len(groups.rows), self._cost(groups, below.rows), reads=(below,))
        return QueryPlan(step, rows, self._cost(ordered, rows), note, (source,))

    def _first_rows(self, select: Select, ordered: FirstRows) -> QueryPlan:
        table, order = ordered.table.name, ", ".join(f"{'-' if e.descending else ''}{e.column}" for e in select.order)
        where = "" if select.where is None else f" where {condition_text(select.where, table)}"
        step = f"first rows of {table}{where} by {order or 'key'}"
        note = "the other rows are not in memory"
        return QueryPlan(step, ordered.row_count(), self._cost(ordered, ordered.scanned), note)

    def _source(self, table: str, where: Condition | None, operator: QueryOperator) -> QueryPlan:
        """Return a table, or a filter of it."""
        if isinstance(operator, TableRows):
            return QueryPlan(f"table {table}", len(operator.rows), 0)
        assert isinstance(operator, ConditionFilter)
        assert where is not None
        matches = exists_in(where)
        reads = [self._exists(operator, number, exists) for number, exists in enumerate(matches)]
        whole = QueryPlan(f"table {table}", len(operator.table.rows), 0)
        step = f"filter {condition_text(where, table)}"
        cost = self._cost(operator, operator.evaluated)
        return QueryPlan(step, operator.row_count(), cost, _choice(operator, table, where), (whole, *reads))

    def _exists(self, operator: ConditionFilter, number: int, exists: Exists) -> QueryPlan:
        count, index = operator.matches[number]
        source = self._source(exists.query.table.name, exists.query.where, count.source)
        on = " and ".join(f"{own} = {parent}" for parent, own in exists.on)
        keys = len(count.counts)
        led_to = count.led_to(index, _COUNTED)
        note = "on disk, not counted" if led_to is None else f"leads to {led_to:,} rows"
        return QueryPlan(
            f"count {exists.query.table.name} by {on}", keys, self._cost(count, source.rows), note, (source,)
        )


def _choice(operator: ConditionFilter, table: str, where: Condition) -> str:
    """Return the reason why a filter began with all rows or with the rows that have a match; "" without an `exists`."""
    matches = exists_in(where)
    if not matches:
        return ""
    terms = where.terms if isinstance(where, And) else (where,)
    if operator.start is not None:
        child = matches[operator.start].query.table.name
        return f"child-first: began with {operator.evaluated:,} rows that {child} led to, fewer than all of {table}"
    if not any(each in terms and not each.negated for each in matches):
        return f"parent-first: no exists is required, so all {operator.evaluated:,} rows were evaluated"
    return f"parent-first: no exists led to fewer rows than the {operator.evaluated:,} of {table}"


def _window(select: Select) -> str:
    parts = [" from start"] if select.start is not None else []
    parts += [f" skip {select.skip}"] if select.skip else []
    parts += [f" limit {select.bound}"] if select.bound is not None else []
    return "".join(parts)
