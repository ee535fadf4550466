"""Idle partitions: if a source partition has no record for a while, its event time advances with the wall clock.

    since     the wall-clock time of the last record, or of the last move of the event time, in this worker
    idle      all records are read, and `since` was `idle_after` ago
    advanced  to the wall clock minus `idle_after`, if this is later than the event time

The event time is committed as if a record had moved it. So a later record is judged by it, whichever worker reads it.
"""

from collections.abc import Collection, Iterable, Mapping

from eddy.connectors.log import Log, Records, TopicPartition

__all__ = ["IdlePartitions"]


class IdlePartitions:
    """The idle partitions of one worker. `after_ms` has `idle_after` by topic, in milliseconds."""

    def __init__(self, log: Log, after_ms: Mapping[str, int]) -> None:
        self._log, self._after = log, after_ms
        self._since: dict[TopicPartition, int] = {}

    def due(
        self, now_ms: int, positions: Mapping[TopicPartition, int], times: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, int]:
        """Return the new event times, in milliseconds, of the partitions that are idle. Raises: ConnectorError."""
        self._own(now_ms, positions)
        late = [tp for tp, since in self._since.items() if now_ms - since >= self._after[tp.topic]]
        if not late:
            return {}
        ends = self._log.end_offsets(late)
        moved = {tp: now_ms - self._after[tp.topic] for tp in late if positions[tp] >= ends[tp]}
        moved = {tp: time for tp, time in moved.items() if time > times.get(tp, -1)}
        self.seen(now_ms, (tp for tp in late if tp not in moved))
        return moved

    def read(self, now_ms: int, records: Iterable[Records]) -> None:
        """Note that records were read: their partitions are not idle."""
        self.seen(now_ms, (TopicPartition(found.topic, found.partition) for found in records if len(found)))

    def seen(self, now_ms: int, partitions: Iterable[TopicPartition]) -> None:
        """Start the idle times of partitions anew: they had a record, or their event time has moved."""
        self._since |= {tp: now_ms for tp in partitions if tp.topic in self._after}

    def next_ms(self, now_ms: int, positions: Collection[TopicPartition]) -> int | None:
        """Return the first wall-clock time at which a partition may be idle; None if no partition can be."""
        self._own(now_ms, positions)
        return min((since + self._after[tp.topic] for tp, since in self._since.items()), default=None)

    def _own(self, now_ms: int, positions: Collection[TopicPartition]) -> None:
        """Begin to measure the idle times of newly assigned partitions, and forget revoked partitions."""
        owned = {tp for tp in positions if tp.topic in self._after}
        if owned != self._since.keys():
            self._since = {tp: self._since.get(tp, now_ms) for tp in owned}
