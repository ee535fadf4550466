"""Functions of all values of a key: reduce, the first values in an order, the only value.

Each function takes a key and its values with their weights, all above 0, and returns values with weights. The order of
values:

    None < NaN < numbers < text < bytes < dates < times < times with a zone < tuples and structs

Values that are equal in this order are sorted by their bytes.
"""

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from eddy.serde import Serde

__all__ = ["FirstValues", "GroupedValues", "OnlyValue", "ReducedValues", "only_value"]

GroupedValues = Callable[[Any, Mapping[Any, int]], Mapping[Any, int]]


@dataclass(frozen=True)
class ReducedValues:
    """The values that the author's function returns, each as often as it is returned."""

    function: Callable[[Any, Mapping[Any, int]], Iterable[Any]]

    def __call__(self, key: Any, values: Mapping[Any, int]) -> Mapping[Any, int]:
        """Call the function."""
        return Counter(self.function(key, values))


@dataclass(frozen=True)
class FirstValues:
    """Selects the first `n` values by `by`, as a tuple; if `n` is None, the first value itself. Ignores values of None.

    With `whole`, there is no result if there are more than `n` values.
    """

    n: int | None
    descending: bool
    by: Callable[[Any], Any] | None
    serde: Serde[Any]
    whole: bool = False

    def __call__(self, key: Any, values: Mapping[Any, int]) -> Mapping[Any, int]:
        """Return the first values of a key."""
        there = [value for value, weight in values.items() for _ in range(min(weight, (self.n or 1) + 1))]
        found = self.of(there)
        return {} if found is None else {found: 1}

    def of(self, values: Iterable[Any]) -> Any:
        """Return the result for `values`, in which a value may occur several times; None if there is no result."""
        there = sorted((v for v in values if v is not None), key=self._place, reverse=self.descending)
        if not there or (self.whole and self.n is not None and len(there) > self.n):
            return None
        return there[0] if self.n is None else tuple(there[: self.n])

    def _place(self, value: Any) -> Any:
        identity = self.serde.identify_many([value])[0]
        return _order(value if self.by is None else self.by(value)), identity


def _order(value: Any) -> Any:
    """Return a tuple by which a value is sorted. Raises: TypeError for a value without an order."""
    match value:
        case None:
            return (0,)
        case int() | float() | Decimal():
            return (2, value) if value == value else (1,)
        case str():
            return (3, value)
        case bytes():
            return (4, value)
        case datetime.datetime():
            return (6 if value.tzinfo is None else 7, value)
        case datetime.date():
            return (5, value)
        case tuple():
            return (8, [_order(item) for item in value])
        case msgspec.Struct():
            return (8, [_order(getattr(value, name)) for name in value.__struct_fields__])
        case _:
            raise TypeError(f"{value!r} has no order; a number, text, bytes, a date, or a tuple or a struct is needed")


@dataclass(frozen=True)
class OnlyValue:
    """Selects the only value of a key. Several values are an error."""

    refusal: Callable[[Any, Mapping[Any, int]], Exception]

    def __call__(self, key: Any, values: Mapping[Any, int]) -> Mapping[Any, int]:
        """Return the value. Raises: the given error if there are several values."""
        if sum(values.values()) > 1:
            raise self.refusal(key, values)
        return only_value(key, values)


def only_value(key: Any, values: Mapping[Any, int]) -> Mapping[Any, int]:
    """Return the value of a key that has exactly one row; nothing for other keys.

    >>> only_value("k", {"v": 1}), only_value("k", {"v": 2}), only_value("k", {"v": 1, "w": 1})
    ({'v': 1}, {}, {})
    """
    (value, weight), *others = values.items()
    return {} if others or weight != 1 or value is None else {value: 1}
