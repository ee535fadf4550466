"""Checks that the keys of a source are in the partitions that Java's producers choose.

One worker owns partition i of all topics with equal partition counts, so rows of one key meet there if all producers
use the same hash. Producers of librdkafka (Python, Go, .NET, C) use CRC32 by default; with two workers or more, joins
then miss rows, without an error. So the first records of each source are checked.

    Java, eddy    murmur2(key) & 0x7fffffff mod partitions
    librdkafka    crc32(key) mod partitions                    partitioner=consistent_random
"""

import logging
import zlib
from collections.abc import Callable, Iterable, Mapping

from eddy.connectors.log import Records, TopicPartition
from eddy.errors import ConfigurationError
from eddy.partitioner import Partitioner, partitions_of

__all__ = ["PartitionerCheck", "refuse_growth"]

_log = logging.getLogger("eddy.worker")
_LOOKED_AT = 1_000


class PartitionerCheck:
    """Checks the first keys of each source.

    `counts` are partition counts by topic, `count_now` returns the present count of a topic.

    `tables` are the topics of tables, `tails` the bytes of keys that do not count for the partition, see `Serde.tail`.
    """

    def __init__(
        self,
        counts: Mapping[str, int],
        tables: frozenset[str],
        tails: Mapping[str, int],
        partitioner: Partitioner,
        count_now: Callable[[str], int],
    ) -> None:
        self._tables, self._tails, self._partitioner = tables, tails, partitioner
        self._counts, self._count_now = counts, count_now
        self._left = {topic: _LOOKED_AT for topic, count in counts.items() if count > 1}

    def check(self, records: Records) -> None:
        """Check the keys of records, until enough keys of their topic were checked.

        Raises: ConfigurationError for a misplaced key of a table, and if the topic has grown.
        """
        left = self._left.get(records.topic, 0)
        if left <= 0:
            return
        count = self._counts[records.topic]
        tail = self._tails.get(records.topic, 0)
        for key, offset in zip(records.keys[:left], records.offsets, strict=False):
            if key is None:
                continue
            (home,) = partitions_of([key], count, self._partitioner, tail)
            if home != records.partition:
                self._report(records, key, offset, home, count)
                break
        else:
            self._left[records.topic] = left - len(records)

    def _report(self, records: Records, key: bytes, offset: int, home: int, count: int) -> None:
        last = self._count_now(records.topic) - 1
        refuse_growth([TopicPartition(records.topic, last)], self._counts)
        hashed = zlib.crc32(key) % count == records.partition
        why = "hashes keys by CRC32, librdkafka's default" if hashed else "uses another hash of keys"
        text = (
            f"source '{records.topic}' partition {records.partition} offset {offset}: key {key[:80]!r} belongs "
            f"to partition {home} of {count} by murmur2, Kafka's own partitioner; its producer {why}. Set "
            "partitioner=murmur2_random in the producer and write the topic anew"
        )
        if records.topic in self._tables:
            raise ConfigurationError(text)
        self._left[records.topic] = 0
        _log.warning("%s, or re-key the stream before it is joined or grouped", text)


def refuse_growth(owned: Iterable[TopicPartition], counts: Mapping[str, int]) -> None:
    """Refuse partitions added to a topic since the start. Raises: ConfigurationError."""
    for topic, partition in owned:
        if partition >= counts[topic]:
            raise ConfigurationError(
                f"topic '{topic}' has grown: it has a partition {partition} now, and had {counts[topic]} partitions "
                "when this worker started; keys are no longer where their states are. Start the workers again: "
                "they continue if there are no states, or print the remedy"
            )
