"""Event times that the author's functions read from records, in place of the timestamps of the log.

A source's function is called for each polled record before all other uses of its time: lateness, clocks, limits on
timestamps, and the timestamps of outputs. A record without a value keeps its timestamp, because it has no contents to
read a time from. If the function returns no valid time, the record is rejected like one whose bytes do not decode.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from eddy.connectors.log import Records
from eddy.operators.batch import Place
from eddy.operators.valid_rows import LATEST_MS
from eddy.runtime.decoded_columns import decoded
from eddy.source_lines import raised_at
from eddy.topology.plan.plan import Source

__all__ = ["TimestampExtractors", "extracted_times"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class TimestampExtractors:
    """Computes the event times of records, for the sources that have a function."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = {topic: source for topic, source in sources.items() if source.timestamp is not None}
        self.problems: dict[Place, str] = {}
        """For each record of the last poll that got no valid event time, the reason."""

    def polled(self, polled: list[Records]) -> list[Records]:
        """Return the records of a poll with their event times. Raises: ConnectorError, as serdes do."""
        self.problems = {}
        if not self._sources:
            return polled
        return [self.timed(records, self.problems) for records in polled]

    def timed(self, records: Records, problems: dict[Place, str] | None = None) -> Records:
        """Return the records of a partition with their event times; without a valid one they keep their timestamps."""
        source = self._sources.get(records.topic)
        if source is None or not len(records):
            return records
        unreadable: dict[int, str] = {}
        keys = decoded(records.keys, source.topic_key, "key", unreadable, headers=records.headers)
        values = decoded(records.values, source.topic_value, "value", unreadable, headers=records.headers)
        assert source.timestamp is not None
        wrong: dict[int, str] = {}
        times = extracted_times(source.timestamp, keys, values, records.timestamps, unreadable, wrong)
        if problems is not None:
            place = (records.topic, records.partition)
            problems.update({(*place, records.offsets[index]): reason for index, reason in wrong.items()})
        return replace(records, timestamps=times)


def extracted_times(
    function: Callable[[Any, Any], Any],
    keys: Sequence[Any],
    values: Sequence[Any],
    timestamps: Sequence[int],
    without: Iterable[int],
    problems: dict[int, str],
) -> list[int]:
    """Return the event time of each record in milliseconds, as a source's `function` of key and value returns it.

    Records with an index in `without`, records without a value and records for which the function fails keep the
    timestamp of the log. Failures are stored in `problems`, by index.
    """
    times, left_out = list(timestamps), set(without)
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        if value is None or index in left_out:
            continue
        try:
            time = function(key, value)
        except Exception as error:
            problems[index] = f"timestamp raised {type(error).__name__}: {error}{raised_at(error)}"
            continue
        if isinstance(time, datetime) and time.tzinfo is not None:
            time = (time - _EPOCH) // _MS
        if why := _refusal(time):
            problems[index] = f"timestamp returned {time!r}: {why}"
        else:
            times[index] = time
    return times


def _refusal(time: Any) -> str:
    """Return the reason why `time` is not an event time; empty if it is one."""
    if isinstance(time, datetime):
        return "without a time zone it is another moment on each machine; give it one: .replace(tzinfo=datetime.UTC)"
    if type(time) is not int:
        return "whole milliseconds since 1970, or a datetime with a time zone, are needed"
    if not 0 <= time <= LATEST_MS:
        return "a time from 1970 to the year 9999, in milliseconds, is needed"
    return ""
