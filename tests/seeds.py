"""What rotates by the day, so that each day tries what the days before did not. EDDY_SEED=N repeats a day's."""

import datetime
import os
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, TypeVar

import pytest

__all__ = ["DAY", "EXAMPLES", "has_turn", "in_turn", "of_today", "on_days", "parts_of", "share"]

T = TypeVar("T", bound=Callable[..., Any])

EXAMPLES = int(os.environ.get("EDDY_EXAMPLES", "25"))
"""How many examples Hypothesis draws of a law, unless the law says otherwise; the long form draws 200."""

DAY = int(os.environ.get("EDDY_SEED", datetime.datetime.now(datetime.UTC).date().toordinal()))
"""Which day's seeds are tried. A failure prints the seed itself; this is for a run that is to be repeated whole."""


def share(part: int) -> int:
    """How many examples of a law that is tried so many times less, since each example takes its time."""
    return max(EXAMPLES // part, 4)


def of_today(count: int) -> range:
    """`count` seeds that no other day has.

    >>> len(of_today(3)), set(of_today(3)).isdisjoint(range(1_000))
    (3, True)
    """
    return range(DAY * count, (DAY + 1) * count)


def parts_of(seeds: range, number: int) -> Iterator[Any]:
    """Parameters of a test: the seeds in so many equal parts, which are all in the long form.

    >>> [part.values for part in parts_of(range(6), 2)]
    [(range(0, 3),), (range(3, 6),)]
    """
    size = len(seeds) // number
    return (pytest.param(seeds[at : at + size], marks=pytest.mark.long) for at in range(0, len(seeds), size))


def in_turn(values: Iterable[Any], days: int) -> Iterator[Any]:
    """Parameters of a test, each tried one day in so many `days`. The others of a day are in the long form.

    >>> sum(not one.marks for one in in_turn("abcdef", 3))
    2
    """
    for number, value in enumerate(values):
        marks = () if number % days == DAY % days else pytest.mark.long
        yield pytest.param(*value if isinstance(value, tuple) else (value,), marks=marks)


def has_turn(number: int, days: int) -> bool:
    """Whether one of many tests is tried today: one day in so many `days`, so that all are tried in that time.

    >>> [sum(has_turn(number, 5) for number in range(day, day + 5)) for day in range(3)]
    [1, 1, 1]
    """
    return (number + DAY) % days == 0


def on_days(chosen: Container[int], days: int) -> Callable[[T], T]:
    """A mark for a slow test, which is tried on the chosen ones of so many days, and in the long form on all.

    >>> on_days((), 7) == pytest.mark.long, on_days(range(7), 7)(len)
    (True, <built-in function len>)
    """
    mark: Callable[[T], T] = pytest.mark.long
    return (lambda test: test) if DAY % days in chosen else mark
