"""Sums and means, from their definitions: fractions that are rounded once.

A worker also keeps the parts of a result: the numbers of values, floats, Decimals, NaNs and infinities, and the exact
sum as a numerator and a denominator. Floats that are whole numbers of 64 bits are ints.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from eddy.connectors.spark.sql_aggregates import all_digits
from eddy.errors import DataError

__all__ = ["ExactSums"]

_Pairs = Iterable[tuple[Any, int]]
_PARTS = ("values", "floats", "decimals", "nan", "inf", "-inf")


@dataclass(frozen=True)
class ExactSums:
    """Computes the sum, or the mean, of `of(value)` over a key's values.

    None is ignored, or an error with `required`.
    """

    mean: bool
    of: Callable[[Any], Any] | None
    type: Any
    required: bool = False

    def result(self, key: Any, pairs: _Pairs) -> Any:
        """Return the sum or the mean; None if there are no numbers."""
        parts, exact = self._added(pairs)
        if parts["values"] <= 0:
            return None
        special = {name for name in ("nan", "inf", "-inf") if parts[name]}
        if special:
            return float(special.pop()) if len(special) == 1 else math.nan
        if self.mean:
            return _nearest(exact / parts["values"])
        if self.type is Decimal or (self.type is None and parts["decimals"]):
            return all_digits(exact)
        if self.type is float or (self.type is None and parts["floats"]):
            return _nearest(exact)
        return int(exact)

    def parts(self, key: Any, pairs: _Pairs) -> str | None:
        """Return the text that a worker stores for a key: eight hexadecimal numbers.

        None if a worker stores nothing.
        """
        parts, exact = self._added(pairs)
        numbers = [*(parts[name] for name in _PARTS), exact.numerator]
        if not any(numbers):
            return None
        return " ".join([format(number, "x") for number in [*numbers, exact.denominator]])

    def _added(self, pairs: _Pairs) -> tuple[Counter[str], Fraction]:
        parts: Counter[str] = Counter()
        exact = Fraction(0)
        for value, weight in pairs:
            number = self.of(value) if self.of is not None and value is not None else value
            if number is None and not self.required:
                continue
            parts["values"] += weight
            match number:
                case int():
                    exact += weight * int(number)
                case Decimal() if number.is_finite():
                    parts["decimals"] += weight
                    exact += weight * Fraction(number)
                case float() if math.isfinite(number):
                    whole = number.is_integer() and -(2.0**63) <= number < 2.0**64
                    parts["floats"] += 0 if whole else weight
                    exact += weight * Fraction(number)
                case float():
                    parts[str(float(number))] += weight
                case _:
                    raise DataError(f"{number!r} is not a number; an int, a float or a finite Decimal is needed")
        return parts, exact


def _nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
