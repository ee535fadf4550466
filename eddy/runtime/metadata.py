"""The application's metadata, in a topic of its own.

    plan        the identity of the plan that writes the states
    set aside   rows that a step after an exchange could not process, and keys whose values cannot be written
    left out    records that the error policy kept out of tables, which a restore skips again
    life        the incarnation: a random name of the first run, stored in every store: after a reset
                there is a new one, and states of the old incarnation are refused
    start       the last start of a worker, by its name (`tenure`)
    held        messages about parts without a finite answer, by recursion and partition
    backfill    an unfinished backfill: until it has finished, a worker cannot use the states.
                After it has finished, a header has the offsets of its inputs and the files it read

Workers that start at the same time may each choose a name: all these names belong to one incarnation. The notes of
finished backfills, of held parts and of rows set aside are in headers, and not under keys of their own, so that an
earlier release can read the topic. The first release takes the record with such a header for a left-out record at an
offset that no record has.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from eddy.connectors.log import Headers, Log, Producer, TopicPartition
from eddy.operators.errors.set_aside import KeptRow, Located
from eddy.runtime.decoding import Rejected

__all__ = [
    "FilesRead",
    "Finished",
    "Metadata",
    "Unfinished",
    "read_metadata",
    "write_finished",
    "write_held",
    "write_left_out",
    "write_plan",
    "write_set_aside",
    "write_unfinished",
]

_PLAN = b"plan"
_LIFE = b"life "
_BACKFILL = b"backfill"
_LEFT_OUT = b"left out "
_SET_ASIDE = b"set aside "
_HELD = b"held "
_FINISHED = "eddy.finished"
_MESSAGE = "eddy.message"
_KEPT = "eddy.kept"
_NO_OFFSET = -1


class FilesRead(msgspec.Struct, frozen=True):
    """Describes the files whose rows a backfill read as a topic's earlier records, so that they are recognized later.

    `first` and `last` are the first and the last file in their order, `digest` is a hash of their rows. `empty` is the
    stated meaning of CSV's empty cells, `columns` are the columns that were named by their roles.
    """

    given: list[str]
    files: int
    first: str
    last: str
    rows: int
    digest: str
    empty: str = ""
    columns: dict[str, str] = {}

    def same_rows(self, other: "FilesRead") -> bool:
        """Whether `other` describes the same rows, even if its files are at other paths."""
        return (self.rows, self.digest) == (other.rows, other.digest)


class Unfinished(msgspec.Struct, frozen=True):
    """An unfinished backfill: the ends of its inputs, the beginnings of its outputs, and its plan.

    `files` are by topic; None if an earlier release began the backfill. `tick` is the wall-clock time of its results in
    milliseconds, -1 if no rows expire by it. `tables` are the offsets up to which it reads global tables, by topic.
    `topic_ids` are the ids of the topics of inputs and of global tables, as far as the log knows them.
    """

    inputs: dict[str, list[int]]
    outputs: dict[str, list[int]]
    plan: list[str]
    files: dict[str, FilesRead] | None = None
    tick: int = -1
    tables: dict[str, list[int]] = {}
    topic_ids: dict[str, int] = {}


class Finished(msgspec.Struct, frozen=True):
    """A finished backfill: the input offsets of its results, and its files by topic."""

    inputs: dict[str, list[int]]
    files: dict[str, FilesRead]


@dataclass(slots=True)
class Metadata:
    """The metadata of an application, as read from its topic.

    `plans` has the latest plan last. `left_out` are rejected records, as (topic, partition, offset). The last backfill
    is in `backfill` until it has finished, and in `finished` after that. `held` has messages by recursion and
    partition.
    """

    plans: list[list[str]] = field(default_factory=list)
    left_out: set[tuple[str, int, int]] = field(default_factory=set)
    incarnations: set[str] = field(default_factory=set)
    backfill: Unfinished | None = None
    finished: Finished | None = None
    set_aside: dict[Located, KeptRow] = field(default_factory=dict)
    held: dict[tuple[str, int], str] = field(default_factory=dict)

    @property
    def files(self) -> Mapping[str, FilesRead]:
        """The files that a backfill has read in addition to records, by topic."""
        return self.finished.files if self.finished else {}

    @property
    def plan(self) -> list[str] | None:
        """The lines of the plan that last wrote state, or None."""
        return self.plans[-1] if self.plans else None


def read_metadata(log: Log, topic: str) -> Metadata:
    """Read the metadata of an application from its topic."""
    metadata = Metadata()
    held: dict[bytes, tuple[tuple[str, int], str]] = {}
    for key, value, headers in _records(log, topic):
        if key is not None and key.startswith(_HELD):
            held.pop(key, None)
            if value is not None:
                name, partition, _ = msgspec.json.decode(value, type=tuple[str, int, int])
                held[key] = (name, partition), dict(headers)[_MESSAGE].decode()
        elif key is not None and key.startswith(_SET_ASIDE):
            where = msgspec.msgpack.decode(key[len(_SET_ASIDE) :], type=Located)
            metadata.set_aside.pop(where, None)
            if value is not None:
                metadata.set_aside[where] = msgspec.msgpack.decode(dict(headers)[_KEPT], type=KeptRow)
        elif value is None:
            continue
        elif key == _PLAN:
            metadata.plans.append(msgspec.json.decode(value, type=list[str]))
        elif key == _BACKFILL:
            metadata.backfill = msgspec.json.decode(value, type=Unfinished | None)
            note = dict(headers).get(_FINISHED)
            metadata.finished = None if note is None else msgspec.json.decode(note, type=Finished)
        elif key is not None and key.startswith(_LIFE):
            metadata.incarnations.add(value.decode())
        elif key is not None and key.startswith(_LEFT_OUT):
            metadata.left_out.add(msgspec.json.decode(value, type=tuple[str, int, int]))
    metadata.held = dict(sorted(held.values()))
    return metadata


def write_plan(producer: Producer, topic: str, lines: list[str], incarnation: str) -> None:
    """Send the plan's lines and the incarnation in the open transaction."""
    values = [msgspec.json.encode(lines), incarnation.encode()]
    producer.send(topic, 0, [_PLAN, _LIFE + incarnation.encode()], values, [0, 0])


def write_unfinished(producer: Producer, topic: str, unfinished: Unfinished) -> None:
    """Record, in the open transaction, that a backfill begins."""
    producer.send(topic, 0, [_BACKFILL], [msgspec.json.encode(unfinished)], [0])


def write_finished(producer: Producer, topic: str, finished: Finished) -> None:
    """Record, in the open transaction, that a backfill has finished."""
    headers: Headers = ((_FINISHED, msgspec.json.encode(finished)),)
    producer.send(topic, 0, [_BACKFILL], [msgspec.json.encode(None)], [0], [headers])


def write_set_aside(producer: Producer, topic: str, changes: Mapping[Located, KeptRow | None]) -> None:
    """Record, in the open transaction, rows that are set aside and keys that are withheld; None removes an entry."""
    for where, kept in changes.items():
        place = None if kept is None else msgspec.json.encode((where.step, where.partition, _NO_OFFSET))
        headers: Headers = () if kept is None else ((_KEPT, msgspec.msgpack.encode(kept)),)
        producer.send(topic, 0, [_SET_ASIDE + msgspec.msgpack.encode(where)], [place], [0], [headers])


def write_left_out(producer: Producer, topic: str, records: Iterable[Rejected]) -> None:
    """Record rejected records in the open transaction."""
    for record in records:
        where = msgspec.json.encode((record.topic, record.partition, record.offset))
        producer.send(topic, 0, [_LEFT_OUT + where], [where], [0])


def write_held(producer: Producer, topic: str, changes: Mapping[tuple[str, int], str | None]) -> None:
    """Record, in the open transaction, messages about held parts, by recursion and partition; None removes one."""
    for (name, partition), why in sorted(changes.items()):
        key = f"{name} {partition}".encode()
        place = None if why is None else msgspec.json.encode((name, partition, _NO_OFFSET))
        headers: Headers = () if why is None else ((_MESSAGE, why.encode()),)
        producer.send(topic, 0, [_HELD + key], [place], [0], [headers])


def _records(log: Log, topic: str) -> Iterator[tuple[bytes | None, bytes | None, Headers]]:
    if not log.topics([topic]):
        return
    partition = TopicPartition(topic, 0)
    position, end = log.begin_offsets([partition])[partition], log.end_offsets([partition])[partition]
    while position < end:
        records = log.read(partition, position, end, 1_000)
        headers = records.headers or [()] * len(records)
        yield from zip(records.keys, records.values, headers, strict=True)
        position = records.next_offset
