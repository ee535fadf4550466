"""Finds the event time that each row's source partition has reached with the row's record.

    a row in its source's partition        the greatest timestamp up to and including its record, found by its place
    a row received through an exchange     the event time that the row carries; its own timestamp if it carries none

Rows without an event time are from an earlier release, or from a plan without windows after the exchange. Such rows are
never late.
"""

from collections.abc import Mapping
from itertools import accumulate

from eddy.operators.batch import Batch, Place, PlacedTime
from eddy.operators.context import Context, TimesRead

__all__ = ["event_times", "placed_times", "timestamps"]


def timestamps(context: Context, batch: Batch) -> list[int]:
    """Return the timestamp of each row's record, also in an epoch whose rows have record numbers instead of times."""
    stamps = batch.times_of_rows()
    if context.timestamps is None:
        return stamps
    return [context.timestamps[number - 1] for number in stamps]


def event_times(context: Context, batch: Batch) -> list[int]:
    """Return the event time of each row. Cost: proportional to the rows, and to the records that the epoch has read."""
    if batch.event_times is not None:
        return _carried(context, batch)
    if batch.places is None:
        return timestamps(context, batch)
    if len(context.read) == 1:
        (read,) = context.read.values()
        if read.offsets == [place[2] for place in batch.places if place is not None]:  # one row for each record
            return _times_of(read)
    times = _by_place(context)
    return [times[topic, partition][offset] for topic, partition, offset in batch.places]  # type: ignore[misc]


def placed_times(context: Context, batch: Batch) -> list[int]:
    """Return the event times of the rows as `PlacedTime`, with the places of their records.

    A row that was sent without its place has a plain event time.
    """
    rows = zip(event_times(context, batch), batch.places_of_rows(), strict=True)
    return [time if place is None else PlacedTime.at(time, place) for time, place in rows]


def _carried(context: Context, batch: Batch) -> list[int]:
    """Return the event times of a batch in which some rows, or all, were received through exchanges."""
    found = batch.event_times_of_rows()
    if None not in found:
        return found  # type: ignore[return-value]
    times = _by_place(context) if batch.places is not None else {}
    rows = zip(found, batch.places_of_rows(), timestamps(context, batch), strict=True)
    return [_time_of(time, place, stamp, times) for time, place, stamp in rows]


def _time_of(
    time: int | None, place: Place | None, stamp: int, times: Mapping[tuple[str, int], Mapping[int, int]]
) -> int:
    if time is not None:
        return time
    return stamp if place is None else times[place[0], place[1]][place[2]]


def _by_place(context: Context) -> dict[tuple[str, int], dict[int, int]]:
    return {place: dict(zip(read.offsets, _times_of(read), strict=True)) for place, read in context.read.items()}


def _times_of(read: TimesRead) -> list[int]:
    """Return the event time that a partition has reached with each of its records."""
    return list(accumulate(read.timestamps, max, initial=read.before))[1:]
