"""The trace of a row: the rows, joins and iterations that make the row, computed again from the tables of a version.

Tables are read at one version; records of streams are read up to the version's inputs. All steps upstream of the row
are evaluated from scratch, and the result is compared with the row that is served at that version. So a trace also
checks the row.
"""

import json
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from eddy.connectors.log import Log
from eddy.errors import NotReadyError, QueryError
from eddy.operators.batch import Place
from eddy.program.open_tables import Tables, TablesSnapshot
from eddy.program.stream_facts import deleted_records, facts_of_source
from eddy.program.version_moves import KeptSince, Moves, kept_since, moves_text, moves_to
from eddy.runtime.metadata import read_metadata
from eddy.tables.key_text import key_of_text
from eddy.topology.plan.bags import Row, identity
from eddy.topology.plan.plan import Node, Plan
from eddy.topology.tracing.derivation import Derivation, derive
from eddy.topology.tracing.evaluation import Evaluation
from eddy.topology.tracing.moved_parts import TracedVersion
from eddy.topology.tracing.receipts import Receipts
from eddy.topology.tracing.source_clocks import SourceClocks
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

    - `why_not`: if there are no rows, the steps that dropped the rows that could have made one.
    - `held`: the recursions that hold keys, each with the cycle that is the reason.
    - `agrees`: whether the row that is served at this version equals the computed row. None if no row is served, if the
      version is not exact, so that tables may be of different moments, or if a note says that rows may differ.
    - `notes`: facts that a reader of the rows needs: an open window, a closed window that the table has removed,
      records that were deleted, records on which a step fails, and results that the order of arrival decides.
    - `moved`: the changes since an earlier version, if they were asked for.
    - `kept_since`: the earliest version that can be asked for.
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
    notes: list[str] = []
    moved: Moves | None = None
    kept_since: KeptSince | None = None
    text: str = ""


class _Computed(NamedTuple):
    """The rows of a step, computed from the tables of one version."""

    name: str
    version: str
    evaluation: Evaluation
    ways: Ways
    uncertain: list[str]
    """The reasons why a worker's rows may differ."""

    def rows(self, node: Node, identities: Sequence[Any]) -> list[Row]:
        """Return the rows of the step whose keys have these identities."""
        return [row for row, _ in self.evaluation.bags[node] if identity(row[0]) in identities]


class Traces:
    """Traces the rows of a plan.

    The computation of the last step is kept until `forget`, or until another step or version is traced. The computation
    at the version since which changes were asked for is kept as well. So a reader can open the parts of a sum without a
    new computation.

    Args:
        limit: the approximate number of rows in a trace; rows nearer to the result are preferred.
        max_rows: the most rows to compute; more rows raise an error.
    """

    def __init__(self, plan: Plan, limit: int = 500, max_rows: int = MAX_ROWS) -> None:
        self._plan, self._limit, self._max_rows = plan, limit, max_rows
        self._kept: dict[str, _Computed] = {}

    def forget(self) -> None:
        """Free the memory of the computation that is kept."""
        self._kept.clear()

    def trace(
        self, tables: Tables, name: str, key: str, path: Sequence[str] = (), since: str | None = None
    ) -> RowTrace:
        """Trace the rows of the step or topic `name` whose key is `key`, as text or as JSON.

        `path` has the keys of the parts of sums to open, each one level below the key before. `since` is the token of a
        version, or `earliest`; the trace then shows the changes since that version.
        Raises: QueryError, also if the rows of that version are not kept; NotReadyError.
        """
        node = _step(self._plan, tables, name)
        with tables.snapshot() as snapshot:
            version = snapshot.version
            now = self._computed("now", tables, snapshot, node, name)
            _, _, evaluation, ways, uncertain = now
            served = tables.catalog.tables.get(name)
            wanted = _keys(key) if served is None else [key_of_text(served, key)]
            value = None if served is None else snapshot[name].get(wanted[0])
            identities = [identity(each) for each in wanted]
            rows = now.rows(node, identities)
            receipts = Receipts(self._plan, evaluation, ways, path)
            moves = None
            if since is not None:
                side = TracedVersion(evaluation, ways, receipts, rows)
                moves = self._moves(tables, snapshot, side, node, name, identities, path, since)
        is_compared = served is not None and served.kind != "source" and version.exact and not uncertain
        agrees = _agree(value, [row for row in rows if not _is_removed(evaluation, node, row)]) if is_compared else None
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
        notes = [*(note for row in rows if (note := _note(evaluation, node, row))), *uncertain]
        made = RowTrace(*of, agrees, value, found, why_not, held, notes, moves, kept_since(tables.rows.earliest()))
        made.text = _text(made, len(rows))
        return made

    def _computed(self, use: str, tables: Tables, snapshot: TablesSnapshot, node: Node, name: str) -> _Computed:
        """Return a step's rows at a version.

        They are computed, unless the last call with the same `use` has computed them.
        """
        known, version = self._kept.get(use), snapshot.version.token
        if known is not None and (known.name, known.version) == (name, version):
            return known
        known = None
        self._kept.pop(use, None)
        with tables.log_client() as log:
            rows = _SourceRows(self._plan, tables, snapshot, log, self._max_rows)
            clocks = SourceClocks(tables.catalog.inputs, log.partitioner)
            evaluation = Evaluation(self._plan, node, rows, self._max_rows, clocks)
        uncertain = [*rows.deleted, *evaluation.left_out(), *evaluation.by_arrival]
        made = self._kept[use] = _Computed(name, version, evaluation, Ways(self._plan, evaluation), uncertain)
        return made

    def _moves(
        self,
        tables: Tables,
        snapshot: TablesSnapshot,
        now: TracedVersion,
        node: Node,
        name: str,
        identities: list[Any],
        path: Sequence[str],
        since: str,
    ) -> Moves:
        with TablesSnapshot(tables.catalog, tables.rows.former(since)) as before:
            if before.version.number > snapshot.version.number:
                raise NotReadyError(
                    f"since: version {before.version.token} is later than that of the trace, whose rows were dropped "
                    "meanwhile. Try again, or keep more: --recent-memory"
                )
            then = self._computed("then", tables, before, node, name)
            receipts = Receipts(self._plan, then.evaluation, then.ways, path)
            side = TracedVersion(then.evaluation, then.ways, receipts, then.rows(node, identities))
            return moves_to(self._plan, tables, before, snapshot, (side, now), node)


def _step(plan: Plan, tables: Tables, name: str) -> Node:
    found: dict[str, Node] = {sink.topic: sink for sink in plan.sinks()}
    found |= {node.name: node for node in plan.nodes if node.role != "block"}
    if name not in found:
        known = ", ".join(sorted(tables.catalog.tables))
        raise QueryError(
            f"trace: there is no step '{name[:200]}'; a table ({known}), or another step that `eddy describe` shows, "
            "is needed"
        )
    return found[name]


class _SourceRows(dict[str, Iterable[Row]]):
    """The rows of sources by topic. A topic is read when its rows are first needed.

    `deleted` has messages about records of streams that their topics no longer have.
    """

    def __init__(self, plan: Plan, tables: Tables, snapshot: TablesSnapshot, log: Log, max_rows: int) -> None:
        super().__init__()
        self._sources = {source.topic: source for source in plan.sources()}
        self._tables, self._snapshot, self._log, self._max_rows = tables, snapshot, log, max_rows
        self.deleted: list[str] = []

    @cached_property
    def _rejected(self) -> set[Place]:
        """The records that workers have noted as rejected."""
        return read_metadata(self._log, self._tables.catalog.internal.plan).left_out

    def __missing__(self, topic: str) -> Iterable[Row]:
        source = self._sources[topic]
        if source.kind == "stream":
            ends = self._snapshot.version.inputs.get(topic, [0] * self._tables.catalog.inputs[topic])
            self.deleted += [told for told in [deleted_records(self._log, source, len(ends))] if told]
            return facts_of_source(self._log, source, ends, self._max_rows, self._rejected)
        if self._tables.rows.counts[source.name] > self._max_rows:
            raise QueryError(
                f"trace: table '{source.name}' has more than {self._max_rows:,} rows; a larger limit is needed"
            )
        return list(self._snapshot[source.name].all())


def _is_removed(evaluation: Evaluation, node: Node, row: Row) -> bool:
    """Return whether the row is of a window that the step's table has removed."""
    closing = node.closing(row) if node.closes else None
    return closing is not None and evaluation.clocks.has_removed(closing)


def _note(evaluation: Evaluation, node: Node, row: Row) -> str:
    """Return a text about the window of a row, such as that it is open; empty if the row has no window."""
    closing = node.closing(row) if node.closes else None
    if closing is None:
        return ""
    if waits := evaluation.clocks.waits(closing._replace(waits=True)):
        return f"the window is open, and {waits}"
    return f"the window is closed{', and the table has it no more' if _is_removed(evaluation, node, row) else ''}"


def _keys(text: str) -> list[Any]:
    """Return the keys that a text may mean: its value as JSON, if it is JSON, and the text itself."""
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
    lines += [moves_text(made.moved)] if made.moved is not None else []
    lines += [f"{each}\n" for each in (*made.held, *made.notes)]
    if made.agrees is not None:
        says = "as computed here from the inputs" if made.agrees else "NOT as computed here from the inputs"
        lines.append(f"served at this version: {json.dumps(made.served, default=repr)}, {says}\n")
    return "".join(lines)
