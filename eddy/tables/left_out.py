"""Reads from an application's metadata which records it has rejected, and which of its results it holds."""

from collections.abc import Mapping, Set

from eddy.connectors.log import Log, TopicPartition
from eddy.runtime.metadata import Metadata, read_metadata
from eddy.tables.stored import Place, noted_row

__all__ = ["LeftOut"]


class LeftOut:
    """The notes of rejected records in an application's metadata topic.

    `unwritten` is a row with these notes, for the store's next batch; None if the store has the notes already. `held`
    has the messages about results without a finite answer, by recursion and partition.
    """

    def __init__(self, log: Log, topic: str) -> None:
        self._log, self._topic = log, topic
        self.places: set[Place] = set()
        self.held: Mapping[tuple[str, int], str] = {}
        self.unwritten: tuple[bytes, bytes] | None = None
        self._by_partition: dict[TopicPartition, set[int]] = {}
        self._end = 0

    def read(self) -> Metadata:
        """Read the present metadata. Notes that are written meanwhile are read again by `read_on`."""
        self._end = self._end_now()
        metadata = read_metadata(self._log, self._topic)
        self._take(metadata.left_out)
        self.held = metadata.held
        return metadata

    def read_on(self) -> tuple[Metadata, set[Place]] | None:
        """Return the metadata and its new notes; None if nothing was written since the last call."""
        if (end := self._end_now()) == self._end:
            return None
        metadata = read_metadata(self._log, self._topic)
        new, self._end = metadata.left_out - self.places, end
        self.held = metadata.held
        if new:
            self._take(metadata.left_out)
        return metadata, new

    def of(self, tp: TopicPartition) -> Set[int]:
        """Return the offsets of a partition's rejected records."""
        return self._by_partition.get(tp, frozenset())

    def _take(self, places: set[Place]) -> None:
        self.places, self.unwritten = places, noted_row(places)
        self._by_partition = {}
        for topic, partition, offset in places:
            self._by_partition.setdefault(TopicPartition(topic, partition), set()).add(offset)

    def _end_now(self) -> int:
        tp = TopicPartition(self._topic, 0)
        return self._log.end_offsets([tp])[tp]
