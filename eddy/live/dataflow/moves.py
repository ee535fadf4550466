"""Finds the rows that a patch has to move, among the rows that remain in a window but at other positions."""

from bisect import bisect_left

from eddy.live.dataflow.values import Flat
from eddy.live.dataflow.window import WindowDelta

__all__ = ["moves"]


def moves(delta: WindowDelta) -> list[tuple[int, int, Flat]]:
    """Return the rows that a patch has to move, as (old index, new index, position).

    A row need not be moved if the number of untouched rows ahead of it is the same as before. Among such rows, a
    longest sequence that keeps its order is not moved.
    """
    stayed, left, entered = delta.stayed, delta.left, delta.entered
    if len(stayed) == 1 and not left and not entered:
        return stayed if stayed[0][0] != stayed[0][1] else []
    befores = sorted([each[0] for each in left] + [each[0] for each in stayed])
    nows = sorted([each[0] for each in entered] + [each[1] for each in stayed])
    steady = [
        now
        for before, now, _ in sorted(stayed)
        if before - bisect_left(befores, before) == now - bisect_left(nows, now)
    ]
    in_place = set(_rising(steady) if len(steady) > 1 else steady)
    return [each for each in stayed if each[1] not in in_place]


def _rising(numbers: list[int]) -> list[int]:
    """Return a longest rising subsequence of different numbers.

    >>> _rising([3, 1, 2, 5, 4])
    [1, 2, 4]
    """
    ends: list[int] = []  # by length, the least number that ends a rising subsequence
    previous: dict[int, int | None] = {}
    for number in numbers:
        at = bisect_left(ends, number)
        previous[number] = ends[at - 1] if at else None
        ends[at : at + 1] = [number]
    run: list[int] = []
    last = ends[-1] if ends else None
    while last is not None:
        run.append(last)
        last = previous[last]
    return run[::-1]
