"""Numbers that are sums over input rows, from which the receipts of a trace are made."""

from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple

from eddy.operators.batch import Row

__all__ = ["Addend", "mean_addends"]


class Addend(NamedTuple):
    """A number in a row's value that is a sum over the input rows of its key.

    Args:
        name: the name of the number; empty if the whole value is the number.
        of_row: the number that one copy of an input row adds.
        of_value: the number that is in the value, which is the sum.
    """

    name: str
    of_row: Callable[[Row], Any]
    of_value: Callable[[Any], Any]


def mean_addends(
    number: Callable[[Row], Any], counts: Callable[[Row], int], mean: Callable[[Any], Any]
) -> tuple[Addend, Addend]:
    """Return the addends "sum" and "count" of a mean, from the `number` of a row, and whether a row `counts`.

    A value has neither the sum nor the count, but the mean, which `mean` takes from it. An infinite or NaN mean has no
    addends.
    """

    def whole(value: Any) -> Any:
        found = mean(value)
        return 0 if found is not None and isfinite(found) else None

    return Addend("sum", number, whole), Addend("count", lambda row: int(counts(row)), whole)
