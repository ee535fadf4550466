"""A worker's tenure of its name: if two workers have one name, the earlier worker ends.

A worker may be paused for longer than its session, while a successor joins under its name. When it resumes, its client
takes the name back by itself. So each start is noted in the metadata topic before the worker joins the group. The order
of these notes is the order of the starts; the worker of the last note keeps the name.

Invariant: once a later start was noted, a worker takes over no partition.

On the embedded log no start is noted: a name ends with its process, and the last member that joins under it has it.
"""

import uuid

from eddy.connectors.log import Log, Producer, TopicPartition
from eddy.errors import FencedError, SlotTakenError
from eddy.runtime.producers import OwnProducer

__all__ = ["Tenure"]

_START = "start "
_TRIES = 5
_AT_ONCE = 1_000


class Tenure:
    """The tenure of `member` of an application, as noted in its metadata topic."""

    def __init__(self, log: Log, application: str, metadata_topic: str, member: str) -> None:
        self._log, self._partition = log, TopicPartition(metadata_topic, 0)
        self._who = f"worker '{member}' of '{application}'"
        self._key, self._token = f"{_START}{member}".encode(), uuid.uuid4().hex.encode()
        self._noted = log.session_s != 0.0
        self._at = 0
        self._ended = False

    def begin(self, producer: OwnProducer) -> None:
        """End earlier transactions under this name, and note the start.

        An earlier worker that resumes at this moment may fence the producer once; it then reads this note, and ends.
        Raises: ConnectorError.
        """
        for left in reversed(range(_TRIES)):
            try:
                current = producer.ready()
                if self._noted:
                    self._at = self._note(current)
                return
            except FencedError:
                producer.drop()
                if not left:
                    raise

    def _note(self, producer: Producer) -> int:
        """Write the note. Returns the offset after it."""
        producer.begin()
        producer.send(*self._partition, [self._key], [self._token], [0])
        end = producer.flush()[self._partition]
        producer.commit({}, None)
        return end

    def lasts(self) -> bool:
        """Whether no later start of a worker with this name is noted.

        Cost: one request, if nothing was written to the metadata since the last time.
        """
        if not self._noted or self._ended:
            return not self._ended
        end = self._log.end_offsets([self._partition])[self._partition]
        while self._at < end and not self._ended:  # an open transaction blocks the read until it ends or times out
            records = self._log.read(self._partition, self._at, end, _AT_ONCE)
            self._ended = any(
                key == self._key and value != self._token
                for key, value in zip(records.keys, records.values, strict=True)
            )
            self._at = records.next_offset
        return not self._ended

    def check(self) -> None:
        """Check that no later worker has the name. Raises: SlotTakenError."""
        if not self.lasts():
            raise SlotTakenError(
                f"{self._who}: another worker has started later with this name; the earlier worker ends. If "
                f"both are to run, give each a name of its own: --member NAME"
            )
