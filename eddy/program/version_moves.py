"""Finds the changes of a row since an earlier version: its values, the parts of its sums, and their records."""

import json
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from eddy.program.latest_records import record_of_row
from eddy.program.open_tables import Tables, TablesSnapshot
from eddy.tables.key_text import text_of_key
from eddy.tables.recent_versions import PastVersion
from eddy.tables.version import Version
from eddy.topology.plan.facts import moment_text
from eddy.topology.plan.plan import Node, Plan
from eddy.topology.tracing.moved_parts import MovedPart, MovedRow, TracedVersion, moved_parts, moved_rows
from eddy.topology.tracing.titles import cut, label

__all__ = ["KeptSince", "Moves", "kept_since", "moves_text", "moves_to"]

_LOOK_S = 2.0
"""The seconds for which records of changed rows are looked for."""
_MAX_CHARS = 80


class KeptSince(msgspec.Struct):
    """The earliest version whose rows a server still has, and when it was first shown, in milliseconds since 1970."""

    version: str
    shown_ms: int


class Moves(msgspec.Struct, omit_defaults=True):
    """The changes of a step's rows with one key since the version `since`.

    `then` and `now`: the values of the rows at both versions, empty if there was or is no row.
    `parts`: the changed parts of the sums, the largest changes first; `more` counts parts that are not listed.
    `rows`: the changed source rows from which the rows are made, if `parts` is empty; `more` counts further rows.
    """

    since: str
    exact: bool
    then: list[Any]
    now: list[Any]
    parts: list[MovedPart] = []
    rows: list[MovedRow] = []
    more: int = 0
    is_cut: bool = False


def kept_since(past: PastVersion | None) -> KeptSince | None:
    """Return the earliest version that is kept, in the form that is shown; None if `past` is None."""
    return None if past is None else KeptSince(past.version.token, past.shown_ms)


def moves_to(
    plan: Plan,
    tables: Tables,
    before: TablesSnapshot,
    snapshot: TablesSnapshot,
    sides: tuple[TracedVersion, TracedVersion],
    node: Node,
) -> Moves:
    """Return the changes in the rows of a step from one version to another. Raises: ConnectorError."""
    then, now = sides
    version = before.version
    made = Moves(version.token, version.exact, [row[1] for row in then.rows], [row[1] for row in now.rows])
    made.parts, made.more = moved_parts(then, now, node)
    if not made.parts:
        made.rows, made.more, made.is_cut = moved_rows(then, now, node)
    end_s = time.monotonic() + _LOOK_S
    for row in _all_rows(made):
        if not row.record and time.monotonic() < end_s:
            row.record = _record(plan, tables, version, snapshot, row)
    return made


def _all_rows(moves: Moves) -> Iterator[MovedRow]:
    yield from moves.rows
    for part in moves.parts:
        yield from part.rows


def _record(plan: Plan, tables: Tables, since: Version, snapshot: TablesSnapshot, row: MovedRow) -> str:
    """Return a text about the last record of a source table's row between two versions.

    The text is empty if the record is compacted or not found.
    """
    served = tables.catalog.tables.get(row.step)
    if served is None or served.kind != "source":
        return ""
    found = record_of_row(tables, plan, row.step, text_of_key(served, row.key), {}, snapshot)
    of = found.record
    if of is None or not found.agrees or of.offset < since.inputs[of.topic][of.partition]:
        return ""
    return f"{of.topic}-{of.partition}@{of.offset}, {moment_text(of.timestamp)}"


def moves_text(moves: Moves) -> str:
    """Return the changes as lines of text."""
    exact = "" if moves.exact else ", not exact"
    lines = [f"since version {moves.since}{exact}: {_values(moves.then)} → {_values(moves.now)}"]
    for part in moves.parts:
        name = part.word or (part.title if part.title == label(part.key) else f"{part.title} ({label(part.key)})")
        by = part.now - part.then
        lines.append(f"  {name} of {part.of} {part.then:,} → {part.now:,} ({by:+,})")
        lines += [f"    {_row(row)}" for row in part.rows]
        lines += [f"    … {part.more:,} more rows"] if part.more else []
        lines += ["    made of too many rows to look at all"] if part.is_cut else []
    lines += [f"  {_row(row)}" for row in moves.rows]
    lines += [f"  … {moves.more:,} more"] if moves.more else []
    lines += ["  made of too many rows to look at all"] if moves.is_cut else []
    if not (moves.parts or moves.rows):
        lines.append("  nothing of which it is made has changed")
    return "".join(f"{line}\n" for line in lines)


def _values(values: list[Any]) -> str:
    return " and ".join(map(_shown, values)) if values else "no row"


def _row(row: MovedRow) -> str:
    then, now = (f"{'none' if value is None else _shown(value)}" for value in (row.then, row.now))
    return f"{row.step} {_shown(row.key)}: {then} → {now}{f', by {row.record}' if row.record else ''}"


def _shown(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False, default=repr), _MAX_CHARS)
