"""Writes a derivation as text: a line for each row and, indented below, its receipt or the rows it is made from."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from eddy.topology.plan.step_names import NUMBERED
from eddy.topology.tracing.derivation import Derivation
from eddy.topology.tracing.receipts import Receipt, Summand
from eddy.topology.tracing.titles import cut, label
from eddy.topology.tracing.why_not import DroppedRow

__all__ = ["text_of", "why_not_text"]

_MAX_CHARS = 160


def text_of(derivation: Derivation) -> str:
    """Return the lines of a derivation as one text.

    Rows of one join are marked by ⋈. Further ways to make the same row are below them.
    """
    lines: list[str] = []
    todo: list[tuple[Derivation | int, int, str]] = [(derivation, 0, "")]
    while todo:
        found, depth, mark = todo.pop()
        indent = "  " * depth
        if isinstance(found, int):
            lines.append(f"{indent}… {found:,} more")
            continue
        lines.append(f"{indent}{mark}{_line(found)}")
        for receipt in found.sums:
            lines += _receipt(receipt, depth + 1)
        below: list[tuple[Derivation | int, int, str]] = []
        for way in found.of:
            below += [(row, depth + 1, "⋈ " if index else "") for index, row in enumerate(way)]
        if found.more:
            below.append((found.more, depth + 1, ""))
        todo += reversed(below)
    return "\n".join(lines) + "\n"


def why_not_text(dropped: Iterable[DroppedRow], depth: int = 1) -> str:
    """Return the steps that dropped rows as text, each with a dropped row.

    Where a side of a join lacks the row's key, the reason is below the row.
    """
    lines = []
    for each in dropped:
        row = f": {_shown(each.key)} = {_shown(each.value)}" if each.key is not None else ""
        more = f", and {each.more:,} more" if each.more else ""
        perhaps = "; the key of its result is not known" if each.maybe else ""
        lines.append(f"{'  ' * depth}{each.where} {each.reason}{row}{more}{perhaps}\n")
        lines.append(why_not_text(each.of, depth + 1))
    return "".join(lines)


def _line(row: Derivation) -> str:
    does = row.does if NUMBERED.fullmatch(row.step) else f"{row.step} ({row.does})"
    text = f"{_shown(row.key)} = {_shown(row.value)}"
    notes = [f"{row.weight:,} times"] if row.weight != 1 else []
    notes += [row.record] if row.record else []
    if row.iteration:
        notes.append(f"iteration {row.iteration}")
    if row.repeated:
        notes.append("see above")
    return f"{text}   {does}" + (f" · {', '.join(notes)}" if notes else "")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return cut(text, _MAX_CHARS)


def _receipt(receipt: Receipt, depth: int) -> Iterator[str]:
    """Yield one line for each open level."""
    level: Receipt | None = receipt
    name = f" {receipt.name}" if receipt.name else ""
    while level is not None:
        parts = list(map(_summand, level.parts))
        parts += [f"… {level.rest:,} ({level.more:,} more)"] if level.more else []
        yield f"{'  ' * depth}{_name(level)}{name} {level.number:,} = {' + '.join(parts) or 0}"
        level, depth = level.opened, depth + 1


def _summand(part: Summand) -> str:
    return f"{part.number:,} {part.word}" if part.word else f"{_name(part)} {part.number:,}"


def _name(of: Receipt | Summand) -> str:
    """Return a title and, in brackets, the key by which the user opens the part, if its text differs from the title."""
    return of.title if of.title == (key := label(of.key)) else f"{of.title} ({key})"
