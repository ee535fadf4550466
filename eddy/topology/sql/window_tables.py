"""Binds TUMBLE, HOP and SESSION in FROM to nodes of the algebra."""

from collections.abc import Sequence

from sqlglot import exp

from eddy.topology.sql.algebra import InSessions, InWindows, NamedColumn, Node
from eddy.topology.sql.binder import Binder
from eddy.topology.sql.expressions import Expr
from eddy.topology.sql.row_windows import FixedWindows, SessionsOfRows
from eddy.topology.sql.scope import ColumnScope, refuse_outer
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.temporal import interval
from eddy.topology.sql.types import BIGINT, TIMESTAMP
from eddy.topology.sql.window_syntax import EXAMPLES, WindowTable

__all__ = ["window_table"]

_BOUNDS = ("window_start", "window_end")
_SPANS = {"TUMBLE": (1, 2), "HOP": (2, 3), "SESSION": (1, 1)}
"""By the function's name, the least and the most spans of time; the last span may be an offset."""


def window_table(text: StatementText, call: WindowTable, table: Node, scope: ColumnScope, name: str) -> Node:
    """Return a table's rows with window_start and window_end; `name` is the step's name. Raises: TopologyError."""
    kind = call.args["this"]
    place, timestamps = _time(text, call.args["time"], scope, kind)
    spans = _spans(text, call, call.args["spans"], kind)
    partition = _partition(text, call.args.get("partition") or [], scope, kind)
    taken = [found.name for found in table.columns if found.name in _BOUNDS]
    if taken:
        raise text.error(
            call,
            f"{kind} of a table that has a column {taken[0]}; rename it: {kind}((SELECT {taken[0]} AS … FROM …), …)",
        )
    type = TIMESTAMP if timestamps else BIGINT
    columns = (*table.columns, *(NamedColumn(bound, type) for bound in _BOUNDS))
    where = text.where(call)
    if kind == "SESSION":
        sessions = SessionsOfRows(place, spans[0], timestamps, where)
        return InSessions(columns=columns, name=name, input=table, keys=partition, sessions=sessions)
    size, advance = (spans[0], spans[0]) if kind == "TUMBLE" else (spans[1], spans[0])
    if advance > size:
        raise text.error(
            call.args["spans"][0],
            f"HOP every {advance:,} ms of windows of {size:,} ms, between which rows are in no window; the first span "
            "is how often a window begins, and may not be longer than the second, its size",
        )
    # Imported only here, because it needs serdes, and most statements have no windows.
    from eddy.windows import MOST_WINDOWS

    if (many := -(-size // advance)) > MOST_WINDOWS:
        raise text.error(
            call.args["spans"][0],
            f"HOP every {advance:,} ms of windows of {size:,} ms: each row is in {many:,} of them; at most "
            f"{MOST_WINDOWS:,} are possible",
        )
    offset = sum(spans[_SPANS[kind][0] :])
    windows = FixedWindows(place, size, advance, offset, timestamps, where)
    return InWindows(columns=columns, name=name, input=table, windows=windows)


def _time(text: StatementText, node: exp.Expr, scope: ColumnScope, kind: str) -> tuple[int, bool]:
    """Return the place of the column of times, and whether its values are timestamps."""
    found = Binder(scope, kind).bind(node)
    refuse_outer(text, found)
    if not found.type.integral and found.type != TIMESTAMP:
        raise text.error(
            node,
            f"{kind} by a column of {found.type}; whole numbers of milliseconds since 1970, or timestamps, are needed. "
            "Cast in a query: (SELECT x::timestamp AS at FROM …)",
        )
    if found.op != "column":
        raise text.error(node, f"{kind} by an expression; a column is needed. Compute it in a query: (SELECT … AS at)")
    return found.value, found.type == TIMESTAMP


def _spans(text: StatementText, call: exp.Expr, written: Sequence[exp.Expr], kind: str) -> list[int]:
    """Return the call's spans of time, in milliseconds."""
    least, most = _SPANS[kind]
    if not least <= len(written) <= most:
        raise text.error(call, f"{kind} needs {least} {'spans' if least > 1 else 'span'} of time; {EXAMPLES[kind]}")
    spans = []
    for number, node in enumerate(written):
        if not isinstance(node, exp.Interval):
            raise text.error(node, f"{kind}: an INTERVAL is needed; {EXAMPLES[kind]}")
        spans.append(int(interval(text, node).value))
        if spans[-1] < 1 and number < least:
            raise text.error(node, f"{kind}: a span of 0; one millisecond or more is needed")
    return spans


def _partition(text: StatementText, written: Sequence[exp.Expr], scope: ColumnScope, kind: str) -> tuple[Expr, ...]:
    if written and kind != "SESSION":
        raise text.unsupported(written[0], f"PARTITION BY in {kind}", "windows are the same for all rows: GROUP BY it")
    bound = tuple(Binder(scope, kind).bind(node) for node in written)
    refuse_outer(text, *bound)
    return bound
