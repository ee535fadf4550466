"""Rows that are true for a time: the node, and the checks of its input and its clock.

Both moments of a row are functions of the row, so the input may be any relation. By event time the clock of a row is
the event time of the source partition with the row's partition number. So all rows have to be made from one topic, and
to be in its partitions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from eddy.errors import TopologyError
from eddy.operators import valid_rows
from eddy.operators.operator import Operator
from eddy.operators.row_clocks import ExpiryClock, RowClock
from eddy.operators.valid_rows import Lifetime
from eddy.serde import Int64
from eddy.state.calendar import Calendar
from eddy.state.table_state import Table
from eddy.topology.arguments import check_choice
from eddy.topology.plan.compilers import Spark, States
from eddy.topology.plan.node import Node
from eddy.topology.plan.states_kept import StateKept

__all__ = ["CALENDAR", "KEPT", "MOMENTS", "ValidRows", "check_clock"]

KEPT = StateKept("rows", "arrangement", "others")
MOMENTS = StateKept("moments", "table", "others")
CALENDAR = StateKept("calendar", "calendar", "others")


@dataclass(frozen=True, eq=False, kw_only=True)
class ValidRows(Node):
    """Keeps the rows of a relation that are true now."""

    linear = False
    drops = True
    crosses = True
    keeps = (KEPT, MOMENTS, CALENDAR)
    does = "valid rows"
    untraced = "has other rows as time passes"

    from_: Callable[[Any, Any], int | None] | None
    until: Callable[[Any, Any], int | None] | None
    clock: ExpiryClock
    source: Node | None = None
    """The source whose event time is the clock of the rows; None for the wall clock."""

    @property
    def topic(self) -> str:
        """The topic whose event time is the clock; empty for the wall clock."""
        return self.source.user_topic or "" if self.source else ""

    @property
    def refused_in_nested_time(self) -> str:
        """The reason why nested time refuses the step, with the remedy: loops have no clock."""
        return f"step '{self.name}' has rows that are valid for a time, and no time passes inside a recursion"

    def operator(self, states: States) -> Operator:
        """Return the operator, with its states: rows that will still change, each key's next moment, and a calendar."""
        arrangement = states.arrangement(self, KEPT.name_of(self.name))
        moments = Table[Any, int](states.spec(self, MOMENTS.name_of(self.name), "table", Int64), states.store)
        calendar = Calendar[Any](states.spec(self, CALENDAR.name_of(self.name), "calendar", Int64), states.store)
        count, ownership = arrangement.spec.partitions, states.ownership
        lifetime = Lifetime(self.name, self.from_, self.until)
        return valid_rows.ValidRows(
            arrangement, moments, calendar, lifetime, RowClock(self.topic), lambda: ownership.of(count)
        )

    def on_spark(self, spark: Spark) -> None:
        """Keep the rows for which the clock is between their two moments."""
        spark.valid(self)


def check_clock(where: str, rows: Node, clock: Any, bounded: bool) -> Node | None:
    """Check the author's `clock`, and the steps between the rows and their source.

    Returns the source whose event time is the clock; None for the wall clock.

    Raises: TopologyError.
    """
    check_choice(where, get_args(ExpiryClock), clock=clock)
    if not bounded:
        raise TopologyError(
            f"{where}: neither from_ nor until is given, so that every row is always there; at least one is needed, "
            "such as until=lambda key, value: value.at + 3_600_000"
        )
    sources: dict[str, Node] = {}
    left, seen = [rows], set[Node]()
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        _check_step(where, node, clock)
        if node.role == "source":
            sources.setdefault(node.user_topic or "", node)
        left += node.inputs
    if clock == "wall clock":
        return None
    if len(sources) != 1:
        topics = ", ".join(f"'{topic}'" for topic in sources)
        raise TopologyError(
            f"{where}: clock='event time' takes the time of a row's source partition, and the rows derive from "
            f"{f'several topics: {topics}' if topics else 'no topic'}; one is needed. Call valid on the relation of "
            "one source, and combine them after it, or write clock='wall clock'"
        )
    return next(iter(sources.values()))


def _check_step(where: str, node: Node, clock: ExpiryClock) -> None:
    """Refuse a step between the source and `valid` that the clock does not allow. Raises: TopologyError."""
    if node.as_loop is not None or node.variables or node.strategy is not None or node.role == "block":
        raise TopologyError(
            f"{where}: its rows are results of the recursion '{node.name}'; a relation before the recursion is needed. "
            "Call valid on the relation that the recursion begins with or joins: results are valid as long as its rows"
        )
    if clock == "wall clock":
        return
    if node.role == "pattern":
        raise TopologyError(
            f"{where}: clock='event time' takes the time of a row's source partition, and step '{node.name}' reads "
            "topics by a pattern; one topic is needed. Name it, or write clock='wall clock'"
        )
    if (node.rekeyed and not node.begins) or node.rekeys or node.role == "exchange" or node.role == "global table":
        raise TopologyError(
            f"{where}: clock='event time' takes the time of a row's source partition, and step '{node.name}' moves "
            "rows to others; rows where their source has them are needed. Call valid before it, or write "
            "clock='wall clock'"
        )
