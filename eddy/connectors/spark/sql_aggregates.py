"""SQL's aggregates for `verify`, apart from a worker's code: over all rows of a group, and as folds."""

import decimal
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from eddy.connectors.spark.sql_numbers import FLOATS, fitted, nearest, place
from eddy.errors import DataError
from eddy.topology.sql.aggregates import Grouped

__all__ = ["Aggregates", "SqlFold", "all_digits"]


@dataclass(frozen=True)
class _Aggregate:
    """One aggregate. `kind` is the type of its argument; None if rows are counted."""

    function: str
    distinct: bool
    kind: str | None

    @property
    def totalled(self) -> bool:
        """Whether the state of a fold has a total after the count."""
        return self.function in {"sum", "avg"}

    @property
    def zero(self) -> Any:
        """The total of no values, in the type that the state has."""
        return 0 if self.kind in {"smallint", "integer"} else decimal.Decimal(0)


@dataclass(frozen=True)
class Aggregates:
    """Computes the aggregates of a group, as a function for `reduce`.

    A row with the value None only shows that the group exists.
    """

    aggregates: tuple[_Aggregate, ...]

    @classmethod
    def of(cls, written: Grouped) -> "Aggregates":
        """Return the aggregates of a compiled function, from its attribute `written`."""
        pairs = zip(written.aggregates, written.types, strict=True)
        return cls(tuple(_Aggregate(a.function, a.distinct, None if type is None else type.kind) for a, type in pairs))

    def __call__(self, key: Any, values: Mapping[Any, int]) -> list[Any]:
        """Compute the row of a group."""
        rows = [(value, weight) for value, weight in values.items() if value is not None]
        made = (
            _aggregated(aggregate, [(value[number], weight) for value, weight in rows])
            for number, aggregate in enumerate(self.aggregates)
        )
        return [(*key, *made)]

    def row(self, key: Any, state: tuple[Any, ...]) -> tuple[Any, Any]:
        """Compute the row of a group, under the empty key, from the state of a fold: counts and totals."""
        made, at = list(key), 0
        for aggregate in self.aggregates:
            count, at = state[at], at + 1
            if aggregate.totalled:
                made.append(_of_total(aggregate, count, Fraction(state[at])))
                at += 1
            else:
                made.append(count)
        return (), tuple(made)


def _aggregated(aggregate: _Aggregate, given: list[tuple[Any, int]]) -> Any:
    if aggregate.kind is None:
        return sum(weight for _, weight in given)
    pairs = [(value, weight) for value, weight in given if value is not None]
    if aggregate.distinct:
        pairs = [(value, 1) for value in {value: None for value, _ in pairs}]
    count = sum(weight for _, weight in pairs)
    match aggregate.function:
        case "count":
            return count
        case "sum" | "avg":
            if aggregate.kind in FLOATS:
                total = _float_total(pairs)
                return None if not pairs else total if aggregate.function == "sum" else total / count
            return _of_total(aggregate, count, sum((Fraction(value) * weight for value, weight in pairs), Fraction(0)))
        case "min":
            return min((value for value, _ in pairs), key=place, default=None)
        case "max":
            return max((value for value, _ in pairs), key=place, default=None)
        case "bool_and":
            return None if not pairs else False not in [value for value, _ in pairs]
        case "bool_or":
            return None if not pairs else True in [value for value, _ in pairs]
        case "only":
            if count > 1:
                raise DataError("a scalar subquery has several rows; one is needed. Aggregate it: max(…)")
            return pairs[0][0] if pairs else None
        case _:
            raise AssertionError(aggregate.function)


def _float_total(pairs: list[tuple[Any, int]]) -> float:
    """Return the sum of floats with weights, rounded once."""
    if all(math.isfinite(value) for value, _ in pairs):
        try:
            return float(sum((Fraction(value) * weight for value, weight in pairs), Fraction(0)))
        except OverflowError:
            return math.nan
    total = sum(value for value, _ in pairs)
    return math.nan if math.isnan(total) else total


def _of_total(aggregate: _Aggregate, count: int, total: Fraction) -> Any:
    """Return a sum or an average of exact numbers from their count and total; None if there are no numbers."""
    if not count:
        return None
    if aggregate.function == "avg":
        return nearest(total / count)
    if aggregate.kind in {"bigint", "numeric"}:
        return nearest(total)
    return fitted(int(total), "bigint")


@dataclass(frozen=True)
class SqlFold:
    """The fold of a group: for each aggregate a count, and for sums and averages also the exact total."""

    aggregates: Aggregates

    def add(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Return the aggregate with one row more."""
        return self._moved(value, aggregate, 1)

    def subtract(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Return the aggregate with one row less."""
        return self._moved(value, aggregate, -1)

    def result(self, aggregate: Any) -> Any:
        """Return counts and totals, in the types of the state."""
        made: list[Any] = []
        for one, (count, total) in zip(self.aggregates.aggregates, aggregate, strict=True):
            made.append(count)
            if one.totalled:
                made.append(int(total) if one.zero == 0 and isinstance(one.zero, int) else all_digits(total))
        return tuple(made)

    def _moved(self, value: Any, aggregate: Any, sign: int) -> Any:
        parts = aggregate or tuple((0, Fraction(0)) for _ in self.aggregates.aggregates)
        if value is None:
            return parts
        moved = []
        for (count, total), one, argument in zip(parts, self.aggregates.aggregates, value, strict=True):
            counts = one.kind is None or argument is not None
            added = Fraction(argument) if counts and one.totalled else 0
            moved.append((count + sign * counts, total + sign * added))
        return tuple(moved)


def all_digits(total: Fraction) -> decimal.Decimal:
    """Convert a fraction that is a finite decimal, exactly."""
    places = 0
    while total.denominator != 1:
        total *= 10
        places += 1
    return decimal.Decimal(total.numerator).scaleb(-places, decimal.Context(prec=decimal.MAX_PREC))
