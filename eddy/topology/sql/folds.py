"""Aggregates whose state a row can be added to and retracted from: count, and sum and avg of exact numbers.

The state of a group is counts and totals, so a change costs the same however large the group is. Totals are exact, so
subtracting undoes adding in any order.
"""

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eddy.topology.sql.aggregates import EXACT, MARKER, Grouped, addends_of, average_of, sum_of
from eddy.topology.sql.algebra import Aggregate
from eddy.topology.sql.types import BIGINT, NUMERIC, Type

__all__ = ["Fold", "GroupRow", "fold_of"]

_FOLDED = {"count", "sum", "avg"}
_State = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class GroupRow:
    """The attribute `written` of a function that makes a group's row from its state: the group's aggregates."""

    grouped: Grouped


@dataclass(frozen=True)
class Fold:
    """The functions on a group's state. The state has a count for each aggregate, and also a total for sum and avg."""

    types: tuple[Type, ...]
    initial: Callable[[], _State]
    adder: Callable[[Any, Any, _State], _State]
    subtractor: Callable[[Any, Any, _State], _State]
    row: Callable[[Any, _State], tuple[Any, _State]]
    """A function from a group's key and state to the pair of the empty key and the group's row."""


def fold_of(aggregates: Sequence[Aggregate], types: Sequence[Type | None]) -> Fold | None:
    """Return the fold of these aggregates over arguments of these types; None if an aggregate cannot be folded."""
    for aggregate, type in zip(aggregates, types, strict=True):
        if aggregate.function not in _FOLDED or aggregate.distinct or (type is not None and type.floating):
            return None
    state: list[Type] = []
    for aggregate, type in zip(aggregates, types, strict=True):
        state.append(BIGINT)
        if aggregate.function != "count":
            state.append(BIGINT if type is not None and type.kind in {"smallint", "integer"} else NUMERIC)
    zeros = tuple(0 if type == BIGINT else decimal.Decimal(0) for type in state)
    parts = [(aggregate.function != "count", type is None) for aggregate, type in zip(aggregates, types, strict=True)]
    adder: Any = _folded(parts, 1)
    row: Any = _finished([_finish(aggregate, type) for aggregate, type in zip(aggregates, types, strict=True)])
    adder.written = Grouped(tuple(aggregates), tuple(types))
    adder.addends = addends_of(aggregates, types, _places(parts))
    row.written = GroupRow(adder.written)
    return Fold(tuple(state), lambda: zeros, adder, _folded(parts, -1), row)


def _places(parts: Sequence[tuple[bool, bool]]) -> list[int]:
    """Return the place of each aggregate's number in the state: its total, or its count if it has no total."""
    places, place = [], 0
    for totalled, _ in parts:
        places.append(place + totalled)
        place += 1 + totalled
    return places


def _folded(parts: Sequence[tuple[bool, bool]], sign: int) -> Callable[[Any, Any, _State], _State]:
    """Return a function that adds the arguments of one row to the state, or subtracts them if `sign` is negative."""
    add = EXACT.add if sign > 0 else EXACT.subtract

    def fold(key: Any, arguments: Any, state: _State) -> _State:
        if arguments is MARKER:
            return state
        cells, made = iter(state), []
        for (totalled, every), value in zip(parts, arguments, strict=True):
            counts = every or value is not None
            made.append(next(cells) + (sign if counts else 0))
            if totalled:
                total = next(cells)
                if not counts:
                    made.append(total)
                else:
                    made.append(total + sign * value if type(total) is int else add(total, decimal.Decimal(value)))
        return tuple(made)

    return fold


def _finish(aggregate: Aggregate, type: Type | None) -> Callable[[Any], Any]:
    """Return a function that reads an aggregate's numbers from an iterator over the state, and returns its result."""
    if aggregate.function == "count":
        return next
    finish = sum_of if aggregate.function == "sum" else average_of
    assert type is not None
    return lambda cells: finish(type, next(cells), next(cells))


def _finished(finishes: Sequence[Callable[[Any], Any]]) -> Callable[[Any, _State], tuple[Any, _State]]:
    def row(key: Any, state: _State) -> tuple[Any, _State]:
        cells = iter(state)
        return (), (*key, *(finish(cells) for finish in finishes))

    return row
