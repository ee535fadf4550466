"""Tables whose rows expire: the node, and the checks of its input, which has to be facts.

A deadline is counted from a record's timestamp, so every step between the source and the table has to keep records. So
the table cannot be in a recursion, where there is no clock. By event time, the clock is that of the row's source
partition, so the rows also have to be in this partition.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, get_args

from eddy.errors import TopologyError
from eddy.operators import expiring_table
from eddy.operators.expiring_table import Expiry
from eddy.operators.operator import Operator
from eddy.operators.row_clocks import ExpiryClock
from eddy.serde import Int64
from eddy.state.calendar import MOST_MS, Calendar
from eddy.state.table_state import Table
from eddy.topology.arguments import check_choice
from eddy.topology.plan.compilers import Spark, States
from eddy.topology.plan.node import MIXED, Arrival, Node
from eddy.topology.plan.record_steps import is_source_of_records, record_steps
from eddy.topology.plan.states_kept import TABLE, StateKept

__all__ = ["ExpiringTable", "check_expiry"]

_MILLISECOND, _LONGEST = timedelta(milliseconds=1), timedelta(milliseconds=MOST_MS // 2**20)


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpiringTable(Node):
    """Makes a table of the latest value of each key among facts, and removes values that have expired."""

    linear = False
    keeps_last = True
    crosses = True
    keeps = (
        TABLE,
        StateKept("deadlines", "table", "others"),
        StateKept("calendar", "calendar", "others"),
    )
    does = "expiring table"
    untraced = "removes rows as time passes"

    after: timedelta
    clock: ExpiryClock
    source: Node | None = None
    """The source whose event time is the clock of the rows; None for the wall clock."""

    @property
    def arrival(self) -> Arrival:
        """The part of the result that depends on the order of arrival: the last value of a key."""
        return Arrival(f"a table of the last records of a stream: {MIXED}", mixed=True)

    @property
    def expiry(self) -> Expiry:
        """The span and the clock by which rows expire."""
        return Expiry(self.after // _MILLISECOND, self.clock, self.source.user_topic or "" if self.source else "")

    def operator(self, states: States) -> Operator:
        """Return the operator of the table, the deadlines, and the calendar of the keys."""
        table = states.table(self, self.name)
        deadlines = Table[Any, int](states.spec(self, f"{self.name}-deadlines", "table", Int64), states.store)
        calendar = Calendar[Any](states.spec(self, f"{self.name}-calendar", "calendar", Int64), states.store)
        count, ownership = table.spec.partitions, states.ownership
        return expiring_table.ExpiringTable(
            self.name, table, deadlines, calendar, self.expiry, lambda: ownership.of(count)
        )

    def on_spark(self, spark: Spark) -> None:
        """Keep the last records that have not expired."""
        spark.expiring(self)


def check_expiry(where: str, facts: Node, after: Any, by: Any) -> Node | None:
    """Check the author's `expire_after` and `expire_by`.

    Returns the source whose event time is the clock; None for wall clock.

    Raises: TopologyError.
    """
    if not isinstance(after, timedelta) or not _MILLISECOND <= after <= _LONGEST:
        raise TopologyError(
            f"{where}: expire_after={after!r}; a timedelta from a millisecond to {_LONGEST.days:,} days is needed, "
            "such as expire_after=timedelta(hours=1)"
        )
    check_choice(where, get_args(ExpiryClock), expire_by=by)
    sources = list(_sources(where, facts, by))
    if by == "wall clock":
        return None
    if len(sources) > 1:
        topics = ", ".join(f"'{source.user_topic}'" for source in sources)
        raise TopologyError(
            f"{where}: expire_by='event time' takes the time of a row's source partition, and the rows come from "
            f"several topics: {topics}; one is needed. Make a table of each, or write expire_by='wall clock'"
        )
    return sources[0]


def _sources(where: str, facts: Node, by: ExpiryClock) -> Iterator[Node]:
    """Yield the sources of facts. Check that facts kept their timestamps and, for event time, their partitions."""
    for node in record_steps(facts):
        if is_source_of_records(node):
            yield node
            continue
        if node.role == "pattern" and by == "event time":
            raise TopologyError(
                f"{where}: expire_by='event time' takes the time of a row's source partition, and step '{node.name}' "
                "reads topics by a pattern; one topic is needed. Name it, or write expire_by='wall clock'"
            )
        if not node.keeps_records or node.kind != "stream":
            raise TopologyError(
                f"{where}: rows expire some time after their record's timestamp, and step '{node.name}' makes rows "
                "that are not records of a source; a stream of records is needed. Let the source's records expire, and "
                "do the rest after it: topology.stream('…').to_table(expire_after=…)"
            )
        if by == "event time" and (node.rekeys or node.role == "exchange"):
            raise TopologyError(
                f"{where}: expire_by='event time' takes the time of a row's source partition, and step '{node.name}' "
                "moves rows to others; rows where their source has them are needed. Call to_table before it, or write "
                "expire_by='wall clock'"
            )
