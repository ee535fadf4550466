"""Actions: what each change of a batch did to the rows of a view, for a log. The names are those of EventReduce.

    insert, remove    a row is added to a bucket or removed: the row changed, or another row made room or took its place
    update, move      a row of a bucket has other values, at the same place or at another place
    nothing           a row of a table that the query reads has changed, and no bucket shows or showed it
    recompute         the rows were computed from the tables, because the query was opened

A window is updated from its index, so that rows are recomputed only when a query is opened.
"""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from eddy.live.dataflow.dataflow import TableRows
from eddy.live.dataflow.values import values_of

__all__ = ["Action", "ActionName", "unseen"]

ActionName = Literal["insert", "update", "move", "remove", "nothing", "recompute"]


class Action(msgspec.Struct, frozen=True):
    """One effect on one row. `key` has the values of the row's key.

    `own`: the row itself changed, not only another row. `table` names the row's table. `bucket` is the id of the bucket
    that changed; None if no bucket did.
    """

    action: ActionName
    table: str = ""
    key: tuple[Any, ...] = ()
    bucket: str | None = None
    own: bool = True


def unseen(seen: Iterable[Action], tables: Iterable[TableRows]) -> list[Action]:
    """Return an action `nothing` for each changed row of the tables for which `seen` has no action."""
    known = {(each.table, each.key) for each in seen}
    return [
        Action("nothing", table.name, values)
        for table in tables
        for key, _, _ in table.out
        if (table.name, values := values_of(key)) not in known
    ]
