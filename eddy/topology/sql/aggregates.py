"""Aggregates: the type of their results, and the functions that compute a group's result from its rows.

Rows are given as a bag: each value with its weight. Nulls are ignored, as SQL requires. Without values, count is 0 and
all other aggregates are null. Sums of floats are rounded once, so the order of values does not matter.
"""

import decimal
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import Row
from eddy.topology.plan.addends import Addend, mean_addends
from eddy.topology.sql.algebra import Aggregate
from eddy.topology.sql.casts import CONTEXT, LIMITS, one_nan
from eddy.topology.sql.types import BIGINT, BOOLEAN, DOUBLE, NUMERIC, Type

__all__ = ["EXACT", "MARKER", "Grouped", "addends_of", "aggregate_type", "average_of", "group_function", "sum_of"]

EXACT = decimal.Context(prec=2000, traps=[])
"""A context in which numerics are added without rounding."""

MARKER: None = None
"""A value that keeps the only group of an aggregate without GROUP BY present even if the group has no rows."""

_Pairs = Iterable[tuple[Any, int]]


@dataclass(frozen=True, slots=True)
class Grouped:
    """The attribute `written` of a function of groups: the aggregates that it computes, and their arguments' types."""

    aggregates: tuple[Aggregate, ...]
    types: tuple[Type | None, ...]


def aggregate_type(name: str, argument: Type | None) -> Type | None:
    """Return the type of an aggregate's result, as in PostgreSQL; None if it does not accept such an argument."""
    if name == "count":
        return BIGINT
    assert argument is not None
    if name in {"min", "max", "only"}:
        return argument if argument.kind != "boolean" or name == "only" else None
    if name in {"bool_and", "bool_or"}:
        return BOOLEAN if argument.kind == "boolean" else None
    if not argument.number:
        return None
    if name == "avg":
        return DOUBLE if argument.floating else NUMERIC
    if argument.kind in {"smallint", "integer"}:
        return BIGINT
    return NUMERIC if argument.kind in {"bigint", "numeric"} else Type(argument.kind)


def group_function(
    aggregates: Sequence[Aggregate], types: Sequence[Type | None]
) -> Callable[[Any, Mapping[Any, int]], list[tuple[Any, ...]]]:
    """Return the function for `Relation.reduce`, which makes a group's row from its key and its bag of arguments.

    `types` are the arguments' types, in the order of the aggregates.
    """
    made: Any = _group_function(aggregates, types)
    made.written = Grouped(tuple(aggregates), tuple(types))
    made.addends = addends_of(aggregates, types, range(-len(aggregates), 0))
    return made


def addends_of(
    aggregates: Sequence[Aggregate], types: Sequence[Type | None], places: Sequence[int]
) -> tuple[Addend, ...]:
    """Return the counts and sums among aggregates, for traces. `places` has each number's place in a group's value.

    An average gives two addends: its sum and its count. At the average's place is the mean or, in a fold's state, the
    total.
    """
    found: list[Addend] = []
    for number, (aggregate, type, place) in enumerate(zip(aggregates, types, places, strict=True)):
        if aggregate.function in {"count", "sum"} and not aggregate.distinct:
            of_row = _number_at(number, aggregate.function == "count", type is None)
            found.append(Addend(aggregate.function, of_row, operator.itemgetter(place)))
        elif aggregate.function == "avg" and not aggregate.distinct:
            number_of, counted = _number_at(number, False, False), _number_at(number, True, False)
            parts = mean_addends(number_of, counted, operator.itemgetter(place))
            found += [part._replace(name=f"{part.name} of avg") for part in parts]
    return tuple(found)


def _number_at(place: int, counts: bool, every: bool) -> Callable[[Row], Any]:
    """Return a function that gives the number that a row of arguments adds to an aggregate."""

    def number(row: Row) -> Any:
        if row[1] is MARKER:
            return 0
        value = row[1][place]
        return int(every or value is not None) if counts else value or 0

    return number


def _group_function(
    aggregates: Sequence[Aggregate], types: Sequence[Type | None]
) -> Callable[[Any, Mapping[Any, int]], list[tuple[Any, ...]]]:
    if len(aggregates) == 1 and (least := _least(aggregates[0].function, types[0])) is not None:
        return least
    functions = [_function(found, type) for found, type in zip(aggregates, types, strict=True)]
    places = list(enumerate(functions))

    def reduce(key: Any, values: Mapping[Any, int]) -> list[tuple[Any, ...]]:
        bag = [(value, weight) for value, weight in values.items() if value is not MARKER]
        return [(*key, *(f([(value[i], weight) for value, weight in bag]) for i, f in places))]

    return reduce


def _least(function: str, type: Type | None) -> Callable[[Any, Mapping[Any, int]], list[tuple[Any, ...]]] | None:
    """Return the function of a single min or max, as in shortest paths; None for any other aggregate."""
    if type is None or type.floating or function not in {"min", "max"}:
        return None
    pick: Callable[..., Any] = min if function == "min" else max

    def least(key: Any, values: Mapping[Any, int]) -> list[tuple[Any, ...]]:
        found = [value[0] for value in values if value is not MARKER and value[0] is not None]
        return [(*key, pick(found, default=None))]

    return least


def _function(aggregate: Aggregate, type: Type | None) -> Callable[[_Pairs], Any]:
    if type is None:
        return lambda pairs: sum(weight for _, weight in pairs)
    function = _FUNCTIONS[aggregate.function](type)
    if aggregate.distinct:
        return lambda pairs: function([(value, 1) for value in {value for value, _ in pairs if value is not None}])
    return lambda pairs: function([pair for pair in pairs if pair[0] is not None])


def _count(type: Type) -> Callable[[_Pairs], int]:
    return lambda pairs: sum(weight for _, weight in pairs)


def _total(type: Type) -> Callable[[_Pairs], Any]:
    """Return a function that adds up values that are not null, as exact numbers of Python or as a float."""
    if type.floating:
        return lambda pairs: _float_sum(value * weight for value, weight in pairs)
    if type.kind == "numeric":
        return _numeric_sum
    return lambda pairs: sum(value * weight for value, weight in pairs)


def _float_sum(values: Iterable[float]) -> float:
    try:
        found = math.fsum(values)
    except (OverflowError, ValueError):
        return math.nan
    return one_nan(found)


def _numeric_sum(pairs: _Pairs) -> decimal.Decimal:
    total = decimal.Decimal(0)
    for value, weight in pairs:
        total = EXACT.add(total, EXACT.multiply(value, decimal.Decimal(weight)))
    return total


def sum_of(type: Type, count: int, total: Any) -> Any:
    """Return the sum of `count` values of a type, from their exact total; null if there are no values.

    Raises: DataError if the sum is out of the type's range.
    """
    if not count:
        return None
    if type.kind in {"bigint", "numeric"}:
        return CONTEXT.plus(decimal.Decimal(total))
    if type.floating or -LIMITS["bigint"] <= total < LIMITS["bigint"]:
        return total
    raise DataError("sum: bigint out of range; a wider type is needed. Cast its argument: sum(x::numeric)")


def average_of(type: Type, count: int, total: Any) -> Any:
    """Return the mean of `count` values of a type, from their exact total; null if there are no values."""
    if not count:
        return None
    return one_nan(total / count) if type.floating else CONTEXT.divide(decimal.Decimal(total), decimal.Decimal(count))


def _sum(type: Type) -> Callable[[Sequence[tuple[Any, int]]], Any]:
    total = _total(type)
    return lambda pairs: sum_of(type, len(pairs), total(pairs))


def _average(type: Type) -> Callable[[Sequence[tuple[Any, int]]], Any]:
    total = _total(type)
    return lambda pairs: average_of(type, sum(weight for _, weight in pairs), total(pairs))


def _order(type: Type) -> Callable[[Any], Any] | None:
    """Return a sort key that makes NaN the greatest value of a type; None if the type needs no sort key."""
    return (lambda value: (value != value, value)) if type.floating else None


def _minimum(type: Type) -> Callable[[_Pairs], Any]:
    key = _order(type)
    return lambda pairs: min((value for value, _ in pairs), key=key, default=None)


def _maximum(type: Type) -> Callable[[_Pairs], Any]:
    key = _order(type)
    return lambda pairs: max((value for value, _ in pairs), key=key, default=None)


def _all(type: Type) -> Callable[[Sequence[tuple[Any, int]]], Any]:
    return lambda pairs: all(value for value, _ in pairs) if pairs else None


def _any(type: Type) -> Callable[[Sequence[tuple[Any, int]]], Any]:
    return lambda pairs: any(value for value, _ in pairs) if pairs else None


def _only(type: Type) -> Callable[[Sequence[tuple[Any, int]]], Any]:
    """Return a function that returns the only value of a scalar subquery, or null, and raises DataError for several."""

    def only(pairs: Sequence[tuple[Any, int]]) -> Any:
        if sum(weight for _, weight in pairs) > 1:
            raise DataError("a scalar subquery has several rows; at most one is allowed. Aggregate it: max(…)")
        return pairs[0][0] if pairs else None

    return only


_FUNCTIONS: dict[str, Callable[[Type], Callable[[Any], Any]]] = {
    "count": _count,
    "sum": _sum,
    "avg": _average,
    "min": _minimum,
    "max": _maximum,
    "bool_and": _all,
    "bool_or": _any,
    "only": _only,
}
