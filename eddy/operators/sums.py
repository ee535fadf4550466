"""The sum or the mean of each key's numbers: exact until it is rounded once.

    total(A)   Σ weight · (1, is a float, is a Decimal, is NaN, is ∞, is -∞, its finite value)     of the rows of A

Every part is linear, and the last one is a fraction of whole numbers, so `total(A + ΔA) = total(A) + total(ΔA)` holds
without any rounding: the result is a function of the rows, whatever their order and the cut into epochs.

A float that is a whole number of 64 bits counts as an int: 1, 1.0 and True are equal rows (ADR 7). None does not count.
"""

import decimal
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import Batch, unhashable
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, unwritten_keys
from eddy.operators.keyed import Keyed
from eddy.operators.operator import State
from eddy.operators.upsert import by_key, replacement
from eddy.state.table_state import Table

__all__ = ["ExactTotal", "Sum", "Summation"]

_COUNT, _FLOATS, _DECIMALS, _NANS, _UPS, _DOWNS = range(6)
_LEAST_INT, _MOST_INT = -(2**63), 2**64 - 1
_MOST_PLACES = 6176
"""The decimal places of a Decimal before and after its point: those of IEEE 754's 128 bits."""
_ALL_DIGITS = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)

Number = int | float | Decimal


class ExactTotal:
    """The exact total of numbers with weights.

    States store a total as text: the six counts of the formula, then the numerator and the denominator of the sum of
    the finite values as a reduced fraction, all in hexadecimal. Equal totals have equal texts.
    """

    __slots__ = ("_counts", "_numerators")

    def __init__(self, text: str | None = None) -> None:
        self._counts, self._numerators = [0] * 6, {1: 0}
        if text is not None:
            *self._counts, numerator, denominator = [int(part, 16) for part in text.split()]
            self._numerators = {denominator: numerator}

    def add(self, number: Number, weight: int) -> None:
        """Add a number `weight` times."""
        self._counts[_COUNT] += weight
        if isinstance(number, float) and not math.isfinite(number):
            self._counts[_NANS if math.isnan(number) else _UPS if number > 0 else _DOWNS] += weight
            return
        numerator, denominator = number.as_integer_ratio()
        if isinstance(number, Decimal):
            self._counts[_DECIMALS] += weight
        elif denominator != 1 or (isinstance(number, float) and not _LEAST_INT <= numerator <= _MOST_INT):
            self._counts[_FLOATS] += weight
        self._numerators[denominator] = self._numerators.get(denominator, 0) + weight * numerator

    def merge(self, other: "ExactTotal") -> None:
        """Add another total."""
        self._counts = [one + more for one, more in zip(self._counts, other._counts, strict=True)]
        for denominator, numerator in other._numerators.items():
            self._numerators[denominator] = self._numerators.get(denominator, 0) + numerator

    def text(self) -> str | None:
        """Return the total as text; None if all its parts are 0."""
        numerator, denominator = self._fraction()
        if not numerator and not any(self._counts):
            return None
        return " ".join([f"{part:x}" for part in (*self._counts, numerator, denominator)])

    def result(self, mean: bool, type: Any) -> Any:
        """Return the sum, or with `mean` the mean; None if there are no numbers.

        A sum is of the type `type`. If that is None, the sum is a Decimal if a Decimal was added, else a float if a
        float was added that is not a whole number of 64 bits, else an int. A mean is a float. A float is the nearest
        one to the exact result, and may be infinite.
        """
        count, floats, decimals, nans, ups, downs = self._counts
        if count <= 0:
            return None
        if nans or (ups and downs):
            return math.nan
        if ups or downs:
            return math.inf if ups else -math.inf
        numerator, denominator = self._fraction()
        if mean:
            return _nearest(numerator, denominator * count)
        kind = type or (Decimal if decimals else float if floats else int)
        return _CONVERTED[kind](numerator, denominator)

    def _fraction(self) -> tuple[int, int]:
        """Return the sum of the finite values as a reduced fraction: numerator and denominator."""
        numerators = self._numerators
        whole = math.lcm(*numerators)
        numerator = sum([n * (whole // d) for d, n in numerators.items()])
        common = math.gcd(numerator, whole)
        self._numerators = {whole // common: numerator // common}
        return numerator // common, whole // common


def _nearest(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def _all_digits(numerator: int, denominator: int) -> Decimal:
    """Return the fraction as a Decimal without rounding; it has finitely many decimal places."""
    twos = (denominator & -denominator).bit_length() - 1
    fives, left = 0, denominator >> twos
    while left > 1:
        fives, left = fives + 1, left // 5
    places = max(twos, fives)
    return Decimal(numerator * 10**places // denominator).scaleb(-places, _ALL_DIGITS)


_CONVERTED: dict[Any, Callable[[int, int], Any]] = {int: int.__floordiv__, float: _nearest, Decimal: _all_digits}
_NUMBERS = (int, float, Decimal)


@dataclass(frozen=True)
class Summation:
    """Says which numbers to sum: `of(value)`, or the values themselves if `of` is None. `mean`: the result is the mean.

    `type` is the type of the results, int, float or Decimal, or None if it is unknown. `required`: a value whose number
    is None is an error. Called as a function, a summation takes all values of a key.
    """

    name: str
    mean: bool
    of: Callable[[Any], Any] | None
    type: Any = None
    required: bool = False

    @property
    def verb(self) -> str:
        """The method of the DSL."""
        return "avg" if self.mean else "sum"

    def number(self, key: Any, value: Any) -> Number | None:
        """Return the number of a value, or None. Raises: DataError if it is not a number; any exception of `of`."""
        number = value if value is None or self.of is None else self.of(value)
        if number is None and not self.required:
            return number
        if isinstance(number, _NUMBERS) and not (why := self._refusal(number)):
            return number
        fix = "Name the number of a value: of=lambda value: …"
        if number is None:
            why = "is not a number, and each record of a session needs one"
            fix = "Filter the others out before windowed_by"
        elif not isinstance(number, _NUMBERS):
            why = "is not a number; an int, a float, a Decimal or None is needed"
        where = f"{self.verb} '{self.name}': {number!r}" + ("" if self.of is None else f" of the value {value!r}")
        raise DataError(f"{where} in the group {key!r} {why}. {fix}")

    def _refusal(self, number: Number) -> str:
        """Return the reason why a number cannot be added; empty if it can be added."""
        if isinstance(number, Decimal) and not _is_short(number):
            return f"is not finite, or has more than {_MOST_PLACES} digits; a shorter Decimal is needed"
        if self.type is int and not (math.isfinite(number) and number == int(number)):
            return "is not a whole number, and the serde of the sums is of int; another one is needed (value=)"
        return ""

    def __call__(self, key: Any, values: Mapping[Any, int]) -> dict[Any, int]:
        """Return the result for all values of a key, as {result: 1}; empty if no value has a number."""
        total = ExactTotal()
        for value, weight in values.items():
            number = self.number(key, value)
            if number is not None:
                total.add(number, weight)
        result = self.result(total)
        return {} if result is None else {result: 1}

    def result(self, total: ExactTotal) -> Any:
        """Return the sum or mean of a total; None if it has no numbers."""
        return total.result(self.mean, self.type)


def _is_short(number: Decimal) -> bool:
    exponent = number.as_tuple().exponent
    return isinstance(exponent, int) and exponent >= -_MOST_PLACES and number.adjusted() <= _MOST_PLACES


class Sum(Keyed):
    """Input: rows of (K, V), or `facts`. Output: the delta of the table K -> sum or mean.

    Invariant: `totals` has the total of each key, unless it is zero in all parts; a key without numbers is not in
    `table`. Weights are factors, so equal rows cost as much as one.
    Cost: O(1) for each changed row, and the digits of the totals.
    """

    def __init__(
        self,
        name: str,
        table: Table[Any, Any],
        totals: Table[Any, str],
        summation: Summation,
        facts: bool = False,
    ) -> None:
        self.name, self.table, self.totals = name, table, totals
        self._summation, self._facts = summation, facts

    def states(self) -> Sequence[State]:
        """The table of results, and the exact totals."""
        return (self.table, self.totals)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Add the rows to the totals of their keys."""
        return self._step(self._grouped(inputs[0]), None)

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows that have no number, and withhold a key whose result the table cannot write."""
        batch = aside.without_kept(self._grouped(inputs[0]))
        batch = aside.without(batch, unwritten_keys(batch, self.table.spec))
        return self._step(aside.without(batch, self._without_number(batch)), aside)

    @property
    def tells_failures(self) -> bool:
        """True, because a row without a number fails in every batch."""
        return True

    def failures(self, *inputs: Batch) -> Mapping[int, Exception]:
        """The rows without a number."""
        return {at: error for at, error in self._without_number(inputs[0]).items() if inputs[0].rows[at][0] is not None}

    def _grouped(self, batch: Batch) -> Batch:
        return self.with_both(batch) if self._facts else self.with_keys(batch)

    def _without_number(self, batch: Batch) -> dict[int, Exception]:
        found: dict[int, Exception] = {}
        for index, row in enumerate(batch.rows):
            try:
                self._summation.number(*row)
            except Exception as error:
                found[index] = error
        return found

    def _step(self, batch: Batch, aside: Aside | None) -> Batch:
        changes = self._changes(batch)
        keys = list(changes)
        before = self.totals.get_many(keys)
        totals = {key: self._plus(text, changes[key]) for key, text in zip(keys, before, strict=True)}
        news = {key: self._summation.result(total) for key, total in totals.items()}
        if aside is not None:
            news = {key: aside.shown(self.table.spec, key, value) for key, value in news.items()}
        olds = self.table.get_many(keys)
        self.totals.put_many({key: total.text() for key, total in totals.items()}, before)
        self.table.put_many(news, olds)
        return replacement(news, olds, batch.time, headers_of=by_key(batch, batch.headers))

    def _changes(self, batch: Batch) -> dict[Any, list[tuple[Number, int]]]:
        """The numbers of each key, with their weights."""
        changes: dict[Any, list[tuple[Number, int]]] = {}
        number_of = self._summation.number
        for (key, value), weight in zip(batch.rows, batch.weights, strict=True):
            number = number_of(key, value)
            if number is not None:
                try:
                    changes.setdefault(key, []).append((number, weight))
                except TypeError as error:
                    raise unhashable([(key, None)], f"{self._summation.verb} '{self.name}'") from error
        return changes

    def _plus(self, text: str | None, numbers: list[tuple[Number, int]]) -> ExactTotal:
        total = ExactTotal(text)
        for number, weight in numbers:
            total.add(number, weight)
        return total
