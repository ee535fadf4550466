"""The trace of a row: the rows, joins and iterations that make it, computed again from the tables of a version.

The tables are read at one version, the steps upstream of the row are evaluated from scratch, and the result is compared
with the row that is served at that version. So a trace also checks the row. Only tables are read, so that steps over
facts (streams) cannot be traced.
"""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from eddy.errors import QueryError
from eddy.program.open_tables import Tables, TablesSnapshot
from eddy.tables.key_text import key_of_text
from eddy.topology.plan.bags import Row, identity
from eddy.topology.plan.plan import Node, Plan
from eddy.topology.tracing.derivation import Derivation, derive
from eddy.topology.tracing.evaluation import Evaluation
from eddy.topology.tracing.receipts import Receipts
from eddy.topology.tracing.summands import DIRECT
from eddy.topology.tracing.text import text_of, why_not_text
from eddy.topology.tracing.titles import cut, label
from eddy.topology.tracing.ways import Ways
from eddy.topology.tracing.why_not import DroppedRow, WhyNot

__all__ = ["RowTrace", "Traces"]

MAX_ROWS = 5_000_000
_MAX_VALUES = 20


class RowTrace(msgspec.Struct):
    """The rows of a step with one key, and the rows from which they are made.

    `why_not`: without rows, what has dropped those that would have made one.
    `held`: the recursions that hold keys, each with the cycle that is the reason.
    `agrees`: whether the row that is served at this version equals the computed one; None if no row is served, or if
    the version is not exact, so that tables may be of different moments.
    """

    application: str
    step: str
    key: Any
    version: str
    exact: bool
    agrees: bool | None
    served: Any
    rows: list[Derivation]
    why_not: list[DroppedRow]
    held: list[str]
    text: str = ""


class _Computed(NamedTuple):
    """A step that was computed at a version."""

    name: str
    version: str
    evaluation: Evaluation
    ways: Ways


class Traces:
    """Traces of the rows of a plan. The last step is kept as it was computed, until `forget` or a trace of another step
    or version, so that parts of its sums are opened without computing it again.

    Args:
        limit: the approximate number of rows in a trace; the rows nearest to the result are first.
        max_rows: the most rows to compute; more are an error.
    """

    def __init__(self, plan: Plan, limit: int = 500, max_rows: int = MAX_ROWS) -> None:
        self._plan, self._limit, self._max_rows = plan, limit, max_rows
        self._last: _Computed | None = None

    def forget(self) -> None:
        """Free the memory of the last step."""
        self._last = None

    def trace(self, tables: Tables, name: str, key: str, path: Sequence[str] = ()) -> RowTrace:
        """Trace the rows of the step or topic `name` whose key is this text, or JSON.

        `path` has the keys of the parts of a sum to open, one level below the other. Raises: QueryError, NotReadyError.
        """
        node = _step(self._plan, tables, name)
        with tables.snapshot() as snapshot:
            version = snapshot.version
            _, _, evaluation, ways = self._computed(tables, snapshot, node, name)
            served = tables.catalog.tables.get(name)
            wanted = _keys(key) if served is None else [key_of_text(served, key)]
            value = None if served is None else snapshot[name].get(wanted[0])
        identities = [identity(each) for each in wanted]
        rows = [row for row, _ in evaluation.bags[node] if identity(row[0]) in identities]
        is_compared = served is not None and served.kind != "source" and version.exact
        agrees = _agree(value, rows) if is_compared else None
        receipts = Receipts(self._plan, evaluation, ways, path)
        found = [derive(evaluation, ways, node, row, self._limit, receipts) for row in rows[:_MAX_VALUES]]
        if rows and not receipts.opened:
            raise QueryError(
                f"trace: the rows of '{name}' with the key {label(wanted[0])} are made of no count or sum with a part "
                f"{cut(path[0], 200)!r}; the key of one of the parts that a trace shows is needed, or '{DIRECT}'"
            )
        held = [
            f"recursion '{loop.name}' holds {len(kept.keys):,} keys: the path {kept.path} is a cycle"
            for loop, kept in evaluation.held.items()
        ]
        why_not = [] if rows else WhyNot(self._plan, evaluation).of(node, wanted)
        of = self._plan.name, name, wanted[0], version.token, version.exact
        made = RowTrace(*of, agrees, value, found, why_not, held)
        made.text = _text(made, len(rows))
        return made

    def _computed(self, tables: Tables, snapshot: TablesSnapshot, node: Node, name: str) -> _Computed:
        last, version = self._last, snapshot.version.token
        if last is None or (last.name, last.version) != (name, version):
            self._last = None
            rows = _Tables(self._plan, tables, snapshot, self._max_rows)
            evaluation = Evaluation(self._plan, node, rows, self._max_rows)
            last = self._last = _Computed(name, version, evaluation, Ways(self._plan, evaluation))
        return last


def _step(plan: Plan, tables: Tables, name: str) -> Node:
    found: dict[str, Node] = {sink.topic: sink for sink in plan.sinks()}
    found |= {node.name: node for node in plan.nodes if node.is_collection}
    if name not in found:
        known = ", ".join(sorted(tables.catalog.tables))
        raise QueryError(
            f"trace: there is no step '{name[:200]}'; a table ({known}), or another step that `eddy describe` shows, "
            "is needed"
        )
    return found[name]


class _Tables(dict[str, Iterable[Row]]):
    """The rows of source tables by their topics, which are read when they are first needed."""

    def __init__(self, plan: Plan, tables: Tables, snapshot: TablesSnapshot, max_rows: int) -> None:
        super().__init__()
        self._names = {source.topic: source.name for source in plan.sources() if source.kind == "table"}
        self._tables, self._snapshot, self._max_rows = tables, snapshot, max_rows

    def __missing__(self, topic: str) -> Iterable[Row]:
        name = self._names[topic]
        if self._tables.rows.counts[name] > self._max_rows:
            raise QueryError(f"trace: table '{name}' has more than {self._max_rows:,} rows; a larger limit is needed")
        return list(self._snapshot[name].all())


def _keys(text: str) -> list[Any]:
    """The keys that a text may mean: the text itself, and its value as JSON."""
    try:
        return [_hashable(json.loads(text)), text]
    except (ValueError, RecursionError):
        return [text]


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _agree(value: Any, rows: list[Row]) -> bool:
    if value is None or len(rows) != 1:
        return value is None and not rows
    made = rows[0][1]
    if isinstance(value, float) and isinstance(made, float):
        return math.isclose(value, made, rel_tol=1e-9)
    return bool(identity(value) == identity(made))


def _text(made: RowTrace, count: int) -> str:
    lines = [f"application {made.application}, version {made.version}{'' if made.exact else ', not exact'}\n"]
    if not made.rows:
        lines.append(f"{made.step} has no row with the key {json.dumps(made.key, default=repr)}:\n")
        lines.append(why_not_text(made.why_not))
    lines += [text_of(row) for row in made.rows]
    if count > len(made.rows):
        lines.append(f"… {count - len(made.rows):,} more rows with this key\n")
    lines += [f"{each}\n" for each in made.held]
    if made.agrees is not None:
        says = "as computed here from the inputs" if made.agrees else "NOT as computed here from the inputs"
        lines.append(f"served at this version: {json.dumps(made.served, default=repr)}, {says}\n")
    return "".join(lines)
