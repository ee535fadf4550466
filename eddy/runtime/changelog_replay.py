"""Restore: updates the store from changelogs to the group's committed positions.

A changelog has a state's latest rows, so a replay that begins at an earlier offset ends with the same rows. A table
whose source topic is compacted is replayed from that topic, up to the group's committed position: later records belong
to the next epochs.

A changelog drops its tombstones after a while. A store that was not written for half of that time may hold rows whose
deletion it would never see, so its outdated states are restored from empty.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eddy.connectors.log import Log, Records, TopicPartition
from eddy.errors import StateError
from eddy.operators.operator import State
from eddy.runtime.decoded_columns import decoded, note_unhashable
from eddy.runtime.own_positions import committed
from eddy.state.offsets import encode_offset, offset_key, read_offsets
from eddy.state.partitioned_map import PartitionedMap
from eddy.state.spec import StateSpec
from eddy.state.store import Store

__all__ = ["TOMBSTONES_LAST_S", "Restore", "restores"]

TOMBSTONES_LAST_S = 24 * 3600
"""Seconds for which a changelog keeps a tombstone, by its `delete.retention.ms`."""


@dataclass(slots=True)
class Restore:
    """The restore of one partition of one state, from `position` to `end`.

    `anew`: the partition's rows are deleted first. `own` is the state's own store, if its rows are kept in memory only.
    """

    spec: StateSpec
    partition: TopicPartition
    position: int
    end: int
    left_out: frozenset[int] = frozenset()
    anew: bool = False
    own: Store | None = None

    @property
    def done(self) -> bool:
        """Whether the restore is complete."""
        return self.position >= self.end

    def step(self, log: Log, store: Store, max_records: int) -> int:
        """Read up to `max_records` and write them to the store. Returns their number.

        There is no progress while an open transaction blocks later records.
        """
        store = self.own or store
        if self.anew:
            # The offset is written first, so that after a crash a state that is half deleted is restored again.
            store.write([(offset_key(*self.partition), encode_offset(0))])
            store.delete_prefix(self.spec.prefix(self.partition.partition))
            self.anew = False
        records = log.read(self.partition, self.position, self.end, max_records)
        if records.next_offset == self.position:
            return 0
        changes = self._changes(records)
        offset = (offset_key(*self.partition), encode_offset(records.next_offset))
        store.write([*changes, offset])
        self.position = records.next_offset
        return len(records)

    def _changes(self, records: Records) -> list[tuple[bytes, bytes | None]]:
        if self.spec.source is not None:
            return list(self._table_rows(records))
        # A key that changed several times is written once.
        latest = dict(zip(records.keys, records.values, strict=True))
        if None in latest:
            raise StateError(
                f"changelog '{self.partition.topic}' partition {self.partition.partition}: a record without a key; "
                "it was not written by eddy. No row of the state is lost, but the record must not be there: "
                "find its producer, and make the states anew: eddy backfill … --replace"
            )
        prefix = self.spec.prefix(self.partition.partition)
        return [(prefix + key, value) for key, value in latest.items()]  # type: ignore[operator]

    def _table_rows(self, records: Records) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the keys and values to store for a source's records, without rejected records."""
        problems: dict[int, str] = {}
        topic = self.partition.topic
        keys = decoded(records.keys, self.spec.key.in_topic(topic, "key"), "key", problems, headers=records.headers)
        values = decoded(
            records.values, self.spec.value.in_topic(topic, "value"), "value", problems, headers=records.headers
        )
        if not self.spec.key.hashable:
            note_unhashable(keys, problems)
        rows = [
            (key, value)
            for index, (offset, key, value) in enumerate(zip(records.offsets, keys, values, strict=True))
            if index not in problems and key is not None and offset not in self.left_out
        ]
        encoded = self.spec.key.identify_many([key for key, _ in rows])
        encode = self.spec.value.encode
        for home, key, (_, value) in zip(self.spec.partitions_of(encoded), encoded, rows, strict=True):
            yield self.spec.prefix(home) + key, None if value is None else encode(value)


def restores(
    log: Log,
    store: Store,
    group: str,
    states: Iterable[State],
    owned: dict[int, frozenset[int]],
    left_out: Iterable[tuple[str, int, int]] = (),
    age_s: float = 0.0,
) -> list[Restore]:
    """Compare the store with the log, and return the restores that the owned partitions need.

    `left_out` are records, as (topic, partition, offset), that the error policy rejected before they reached tables;
    `age_s` is the number of seconds since the store was written.
    """
    skipped: dict[tuple[str, int], set[int]] = {}
    for name, number, offset in left_out:
        skipped.setdefault((name, number), set()).add(offset)
    stored = read_offsets(store)
    found: list[tuple[State, TopicPartition]] = [
        (state, TopicPartition(topic, partition))
        for state in states
        if (topic := state.spec.changelog or state.spec.source) is not None
        for partition in sorted(owned.get(state.spec.partitions, range(state.spec.partitions)))
    ]
    partitions = [partition for _, partition in found]
    begins, ends = log.begin_offsets(partitions), log.end_offsets(partitions)
    positions = committed(log, group, [partition for state, partition in found if state.spec.source is not None])
    todo = []
    for state, partition in found:
        spec, own = state.spec, state.own if isinstance(state, PartitionedMap) else None
        start, end = 0 if own else stored.get(partition, 0), ends[partition]
        if spec.source is not None:
            start = max(start, begins[partition])
            end = positions[partition].offset if partition in positions else start
        elif begins[partition] > 0:
            raise StateError(
                f"state '{spec.name}': changelog '{partition.topic}' partition {partition.partition} begins at offset "
                f"{begins[partition]}; from 0 on is needed: a changelog is compacted, and its beginning is "
                f"never deleted. Another program has deleted records. Start anew from the input: eddy reset …"
            )
        elif start > end:
            raise StateError(
                f"state '{spec.name}': the store is at offset {start} of '{partition.topic}' partition "
                f"{partition.partition}, which ends at {end}; it belongs to another log, or the topic was made "
                f"anew. Check that the log and --state belong together; if the topic was made anew, its rows "
                f"are lost: then start anew from the input: eddy reset …"
            )
        if start < end:
            anew = spec.source is None and start > 0 and age_s > TOMBSTONES_LAST_S / 2
            kept = frozenset(skipped.get(partition, ()))
            todo.append(Restore(spec, partition, 0 if anew else start, end, kept, anew or own is not None, own))
    return todo
