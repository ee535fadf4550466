"""Knows the event times of source partitions at a trace's version, which decide whether rows of windows still wait.

The event time of a partition is the greatest event time of its records; -1 if it has no records.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eddy.partitioner import Partitioner, partition_of
from eddy.topology.plan.bags import Row
from eddy.topology.plan.facts import Fact, moment_text
from eddy.topology.plan.row_closing import Closing
from eddy.unlimited_windows import FOREVER_MS

__all__ = ["Slowest", "SourceClocks"]

Slowest = tuple[int, str, int]
"""The event time, topic and number of the partition with the least event time."""


@dataclass
class SourceClocks:
    """The clocks of a plan's sources. `partitions` has the number of partitions of each topic."""

    partitions: Mapping[str, int]
    partitioner: Partitioner = partition_of
    _times: dict[tuple[str, int], int] = field(default_factory=dict)

    def see(self, facts: Iterable[Row]) -> None:
        """Advance the clocks by the event times of a source's records."""
        for row in facts:
            if isinstance(row, Fact):
                place = row.record.topic, row.record.partition
                self._times[place] = max(self._times.get(place, -1), row.record.event_time_ms)

    def slowest(self, closing: Closing) -> Slowest:
        """Return the source partition of the row that is furthest behind in time, as (event time, topic, number)."""
        places = [
            (topic, partition)
            for topic in closing.topics
            for partition in range(self.partitions[topic])
            if topic in closing.sent or partition == self.partitioner(closing.key, self.partitions[topic])
        ]
        return min((self._times.get(place, -1), *place) for place in places)

    def waits(self, closing: Closing) -> str:
        """Return what a row waits for, as a verb and its object; empty if it does not wait."""
        time, topic, partition = self.slowest(closing)
        if time >= closing.at_ms:
            return ""
        if closing.at_ms >= FOREVER_MS:
            return "has no end"
        stands = f"has no record yet, and {moment_text(closing.at_ms)} is needed" if time < 0 else ""
        return f"waits for the time of '{topic}': partition {partition} " + (
            stands or f"is at {moment_text(time)}, and {moment_text(closing.at_ms)} is needed"
        )

    def has_removed(self, closing: Closing) -> bool:
        """Return whether the step's table has removed the row."""
        return self.slowest(closing)[0] >= closing.removed_at_ms
