"""The event time of the source partition of each row, up to and with the row's record.

    a row in its source's partition        the greatest timestamp up to its record, by its place
    a row received through an exchange     the event time in the row; its own timestamp if the row has none

Rows without an event time are from an earlier release, or from a plan without windows after the exchange. Such rows are
never late.
"""

from collections.abc import Mapping
from itertools import accumulate

from eddy.operators.batch import Batch, Place, PlacedTime
from eddy.operators.context import Context, TimesRead

__all__ = ["event_times", "placed_times", "timestamps"]


def timestamps(context: Context, batch: Batch) -> list[int]:
    """The timestamp of each row's record, also in an epoch whose rows have numbers of records as their times."""
    stamps = batch.times_of_rows()
    if context.timestamps is None:
        return stamps
    return [context.timestamps[number - 1] for number in stamps]


def event_times(context: Context, batch: Batch) -> list[int]:
    """The event times. Cost: proportional to the rows, and to the records that the epoch has read."""
    if batch.event_times is not None:
        return _carried(context, batch)
    if batch.places is None:
        return timestamps(context, batch)
    if len(context.read) == 1:
        (read,) = context.read.values()
        if read.offsets == [place[2] for place in batch.places if place is not None]:  # a row for each record
            return _times_of(read)
    times = _by_place(context)
    return [times[topic, partition][offset] for topic, partition, offset in batch.places]  # type: ignore[misc]


def placed_times(context: Context, batch: Batch) -> list[int]:
    """The event times, each with the place of its record. A row that was sent without its place is without it."""
    rows = zip(event_times(context, batch), batch.places_of_rows(), strict=True)
    return [time if place is None else PlacedTime.at(time, place) for time, place in rows]


def _carried(context: Context, batch: Batch) -> list[int]:
    """The event times of a batch in which some rows, or all, have come through exchanges."""
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
    """The event time of a partition with each of its records."""
    return list(accumulate(read.timestamps, max, initial=read.before))[1:]
