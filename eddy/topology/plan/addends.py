"""Numbers that are sums over input rows, for the receipts of a trace."""

from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple

from eddy.operators.batch import Row

__all__ = ["Addend", "mean_addends"]


class Addend(NamedTuple):
    """A number in a row's value that is a sum over the input rows of its key.

    Args:
        name: its name; empty if the value is the number.
        of_row: the number that one copy of an input row adds.
        of_value: the number in the value.
    """

    name: str
    of_row: Callable[[Row], Any]
    of_value: Callable[[Any], Any]


def mean_addends(
    number: Callable[[Row], Any], counts: Callable[[Row], int], mean: Callable[[Any], Any]
) -> tuple[Addend, Addend]:
    """The sum and the count of a mean: `number` of a row, whether it `counts`, and the `mean` in a value.

    Neither number is in the value. A mean that is infinite or NaN has none, since infinity has no parts.
    """

    def whole(value: Any) -> Any:
        found = mean(value)
        return 0 if found is not None and isfinite(found) else None

    return Addend("sum", number, whole), Addend("count", lambda row: int(counts(row)), whole)
