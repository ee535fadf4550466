"""generate_series: the whole numbers from a first to a last number, as rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from eddy.errors import DataError
from eddy.topology.sql.expressions import Written
from eddy.topology.sql.value_limits import MOST_NUMBERS

__all__ = ["SeriesBounds", "series_function"]


@dataclass(frozen=True, slots=True)
class SeriesBounds:
    """The attribute `written` of a series's function: the bounds of the series."""

    bounds: Written


def series_function(bounds: Callable[[Any], tuple[Any, Any, Any]]) -> Callable[[Any], Iterator[Any]]:
    """Return a function that yields a row with each number of its series appended; no row if a bound is null."""

    def series(row: Any) -> Iterator[Any]:
        first, last, step = bounds(row)
        if first is None or last is None or step is None:
            return
        if step == 0:
            raise DataError("generate_series by steps of 0; another number is needed")
        numbers = range(first, last + (1 if step > 0 else -1), step)
        if (many := (last - first) // step + 1) > MOST_NUMBERS:
            raise DataError(f"generate_series has {many:,} numbers; at most {MOST_NUMBERS:,} are possible")
        for number in numbers:
            yield (*row, number)

    made: Any = series
    made.written = SeriesBounds(bounds.written)  # type: ignore[attr-defined]
    return made
