"""The records that the application leaves out, as its metadata notes them."""

from collections.abc import Set

from eddy.connectors.log import Log, TopicPartition
from eddy.runtime.metadata import Metadata, read_metadata
from eddy.tables.stored import Place, noted_row

__all__ = ["LeftOut"]


class LeftOut:
    """What the topic of an application's metadata says. `unwritten` is a row for the store, to be written next."""

    def __init__(self, log: Log, topic: str) -> None:
        self._log, self._topic = log, topic
        self.places: set[Place] = set()
        self.unwritten: tuple[bytes, bytes] | None = None
        self._by_partition: dict[TopicPartition, set[int]] = {}
        self._end = 0

    def read(self) -> Metadata:
        """The metadata as of now. Notes that are written meanwhile are read again by `read_on`."""
        self._end = self._end_now()
        metadata = read_metadata(self._log, self._topic)
        self._take(metadata.left_out)
        return metadata

    def read_on(self) -> tuple[Metadata, set[Place]] | None:
        """The metadata and the places that are new in it; None if nothing was written since."""
        if (end := self._end_now()) == self._end:
            return None
        metadata = read_metadata(self._log, self._topic)
        new, self._end = metadata.left_out - self.places, end
        if new:
            self._take(metadata.left_out)
        return metadata, new

    def of(self, tp: TopicPartition) -> Set[int]:
        """The offsets that are left out in a partition."""
        return self._by_partition.get(tp, frozenset())

    def _take(self, places: set[Place]) -> None:
        self.places, self.unwritten = places, noted_row(places)
        self._by_partition = {}
        for topic, partition, offset in places:
            self._by_partition.setdefault(TopicPartition(topic, partition), set()).add(offset)

    def _end_now(self) -> int:
        tp = TopicPartition(self._topic, 0)
        return self._log.end_offsets([tp])[tp]
