"""Global tables: topics that every worker reads whole, without a group, before it processes records.

    start     the rows of an earlier start are removed, and the topics are read to the ends that they have then
    later     each epoch begins with the records that have arrived since the last one
    deleted   if a topic was deleted and created again, the table is made anew as at the start

A table is in the worker's store and in no changelog, because it is restored from its topic. The offsets up to which it
is read are committed with each epoch. An epoch that is retried may see a later table. Every worker reads a record that
does not decode. The worker that leads reports it, and the same transaction notes that it was reported.

Invariant: the tables have exactly the records before `_positions`. After a failure the topics are read from these
positions again, so no record is skipped.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from eddy.connectors.log import Follower, Log, Records, TopicPartition
from eddy.runtime.decoded_columns import decoded, note_unhashable
from eddy.runtime.decoding import Place, Rejected, reject
from eddy.runtime.error_policy import ErrorPolicy
from eddy.state.spec import StateSpec
from eddy.state.store import Store
from eddy.state.table_state import Table
from eddy.topology.plan.global_steps import GlobalTable

__all__ = ["GlobalTables"]

_log = logging.getLogger("eddy.worker")
_POLLS = 8
"""The most polls at the beginning of an epoch."""


class GlobalTables:
    """The global tables of one worker. `tables` has, by topic, the step and its state.

    `policy` decides about records that do not decode: the table is built without them and they are reported, or they
    end the worker.
    """

    def __init__(
        self,
        log: Log,
        store: Store,
        tables: Mapping[str, tuple[GlobalTable, Table[object, object]]],
        partitions: Mapping[str, int],
        policy: ErrorPolicy,
    ) -> None:
        self._log, self._store, self._tables, self._policy = log, store, tables, policy
        self._partitions = [TopicPartition(topic, p) for topic in tables for p in range(partitions[topic])]
        self._follower: Follower | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        """The end offsets at the worker's start, for the partitions that are not read up to them yet."""
        self.topic_ids: Mapping[str, int] = {}
        """The ids of the topics that the tables were read from, by topic."""
        self._records = 0
        self._began_s = 0.0
        self._left_out: dict[Place, tuple[Rejected, bool]] = {}
        """Records left out and not known to be reported, each with whether to write it as a dead letter."""
        self._reported: set[Place] = set()

    @property
    def offsets(self) -> dict[str, list[int]]:
        """The offsets up to which the tables are read, by topic: one offset for each partition."""
        found: dict[str, list[int]] = {}
        for partition in self._partitions if self._positions else ():
            found.setdefault(partition.topic, []).append(self._positions[partition])
        return found

    @property
    def done(self) -> bool:
        """Whether the tables have all records that their topics had when the worker began."""
        return not self._tables or (bool(self._positions) and not self._ends)

    @property
    def left(self) -> int:
        """The number of offsets still to be read until the tables are `done`."""
        return sum(end - self._positions[place] for place, end in self._ends.items())

    def restore(self, max_records: int, reported: Iterable[Place] = ()) -> int:
        """Read one slice of the topics; `reported` are the rejected records that the application has reported.

        Returns the number of records in the slice. Raises: DataError; ConnectorError.
        """
        self.reported(reported)
        if self.done:
            return 0
        if not self._positions:
            self._begin()
        found = self._read(max_records, 0.1)
        self._ends = {place: end for place, end in self._ends.items() if self._positions[place] < end}
        self._records += (taken := sum(map(len, found)))
        if not self._ends:
            for _, table in self._tables.values():
                table.forget()
            seconds = time.monotonic() - self._began_s
            _log.info("global tables %s: %d records read in %.1f s", sorted(self._tables), self._records, seconds)
        return taken

    def look(self) -> None:
        """Make the tables anew if one of their topics was deleted and created again.

        No record of the new topic would remove the rows of the former topic.

        Raises: ConnectorError.
        """
        found = self._log.topic_ids(self.topic_ids)()
        if anew := [topic for topic, id_ in self.topic_ids.items() if found.get(topic, id_) != id_]:
            _log.warning("global table of topic '%s': it was deleted and made anew, and is read once more", anew[0])
            self.close()
            self._positions, self._ends = {}, {}

    def advance(self, max_records: int) -> None:
        """Update the tables with the records that have arrived since the last call.

        Raises: DataError; ConnectorError.
        """
        if self._positions:
            for _ in range(_POLLS):
                if not self._read(max_records, 0.0):
                    return

    @property
    def unreported(self) -> list[Rejected]:
        """The records that were left out and are not known to be reported."""
        return [record for record, _ in self._left_out.values()]

    @property
    def letters(self) -> list[Rejected]:
        """The unreported records for which the policy writes dead letters."""
        return [record for record, is_letter in self._left_out.values() if is_letter]

    def reported(self, places: Iterable[Place]) -> None:
        """Note that these records are reported already, as the application's metadata say."""
        self._reported.update(place for place in places if place[0] in self._tables)
        for place in self._reported & self._left_out.keys():
            del self._left_out[place]

    def close(self) -> None:
        """Release the client; the next read opens another one."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()

    def _begin(self) -> None:
        self._began_s = time.monotonic()
        for _, table in self._tables.values():
            self._store.delete_prefix(table.spec.name.encode() + b"\x00")
            table.forget()
        # Ids are read first, so that a topic that is made anew meanwhile is noticed by its other id.
        self.topic_ids = self._log.topic_ids(self._tables)()
        begins, ends = self._log.begin_offsets(self._partitions), self._log.end_offsets(self._partitions)
        self._ends = {place: end for place, end in ends.items() if end > begins[place]}
        self._positions = dict(begins)

    def _read(self, max_records: int, timeout_s: float) -> list[Records]:
        """Poll, and put the records into the tables: all of them, or none if there is an error."""
        follower = self._follower = self._follower or self._log.follower(self._positions)
        try:
            found = follower.poll(max_records, timeout_s)
            self._take(found)
        except BaseException:
            self.close()  # the client's position may be after records that were not taken
            raise
        return found

    def _take(self, found: Sequence[Records]) -> None:
        by_topic: dict[str, dict[object, object]] = {}
        for records in found:
            by_topic.setdefault(records.topic, {}).update(self._rows(records))
        for topic, news in by_topic.items():
            table = self._tables[topic][1]
            if self._ends:  # nobody reads the table before it is restored, so its memory need not have the rows
                self._store.write(_stored(table.spec, news))
                continue
            table.put_many(news, table.get_many(list(news)))
            try:
                self._store.write(table.spec.stored(table.changes()))
            except BaseException:
                table.rollback()
                raise
            table.commit()
        self._positions |= {TopicPartition(r.topic, r.partition): r.next_offset for r in found}

    def _rows(self, records: Records) -> dict[object, object]:
        node, _ = self._tables[records.topic]
        problems: dict[int, str] = {}
        keys = decoded(records.keys, node.topic_key, "key", problems, headers=records.headers)
        values = decoded(records.values, node.topic_value, "value", problems, headers=records.headers)
        if not node.topic_key.hashable:
            note_unhashable(keys, problems)
        if not problems and None not in keys:
            return dict(zip(keys, values, strict=True))
        for index, reason in problems.items():
            rejected = reject(records, index, reason)
            is_letter = self._policy.global_record(rejected)
            if rejected.place not in self._reported:
                self._left_out[rejected.place] = rejected, is_letter
            _log.warning("global table '%s': record left out: %s", node.name, rejected.error())
        return {
            key: value
            for index, (key, value) in enumerate(zip(keys, values, strict=True))
            if key is not None and index not in problems
        }


def _stored(spec: StateSpec, rows: Mapping[object, object]) -> list[tuple[bytes, bytes | None]]:
    """Encode rows for a store; the value None deletes a key."""
    prefix, keys, values = spec.prefix(0), spec.key.identify_many(list(rows)), list(rows.values())
    if None in values:
        data = [None if value is None else spec.value.encode(value) for value in values]
    else:
        data = list(spec.value.encode_many(values))
    return [(prefix + key, value) for key, value in zip(keys, data, strict=True)]
