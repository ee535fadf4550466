"""Comparison of a worker's stores on disk with its changelogs. It needs no Spark and no worker.

A store holds the rows of its changelogs up to the offset X that is stored with them. With E, the end of a changelog:

    expected    the last value of each key among the records [0, E)
    found       the rows of the store
    newer       the keys of the records [X, E): a worker replaces their rows as it starts; they are not compared

All other keys have to be equal. If X < E and the store was not written for as long as tombstones last, rows that only
the store has may have been deleted: such a state is not compared.

The records are replayed into a temporary store. The rows of both stores are merged in key order, so that memory is
independent of the number of rows. A table that its own compacted topic restores is replayed by the worker's code, which
decodes records; changelogs are replayed here (ADR 68).

Invariant: a store that is in use is not read. When a store is opened, its write-ahead log is replayed, as at a worker's
start; no row is changed.
"""

import heapq
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from eddy.connectors.log import Log, Records, TopicPartition
from eddy.connectors.spark.readable import Readable
from eddy.connectors.spark.verification.disk_verdict import DiskVerdict, StoreVerdict
from eddy.connectors.spark.verification.verdict import Compared, Example
from eddy.errors import ConfigurationError, StateError
from eddy.runtime.changelog_replay import TOMBSTONES_LAST_S, Restore
from eddy.runtime.compiled_topology import UserTopics
from eddy.runtime.internal_topics import metadata_topic
from eddy.runtime.metadata import Metadata, read_metadata
from eddy.runtime.own_positions import committed
from eddy.state.offsets import read_offsets, read_stamp
from eddy.state.rocksdb import RocksDBStore
from eddy.state.spec import StateSpec
from eddy.state.store_directory import CONFIG
from eddy.topology.plan.identity import check_identity, identity, optional_states, states_of
from eddy.topology.topology import Topology

__all__ = ["DiskComparison"]

_EXAMPLES = 10
_RECORDS = 10_000
_POLL_S = 0.2
_PASSES = 10
_PARTITION_BYTES = 2
_NEWER = b"\xfenewer\x00"
"""The prefix of the keys of newer records. No state's name begins with its first byte, which UTF-8 does not have."""
_FOUND, _EXPECTED, _IS_NEWER = range(3)


class _NotComparedError(Exception):
    """A state cannot be compared, for this reason. `harmless`: a worker restores the state anew anyway."""

    def __init__(self, reason: str, harmless: bool = False) -> None:
        super().__init__(reason)
        self.harmless = harmless


@dataclass
class DiskComparison:
    """One comparison of the stores in `folder`: the folder of states, an application's folder in it, or one store.

    `wait_s` is the number of seconds for which an open transaction in a changelog may last. `wall` returns the seconds
    since 1970.
    """

    topology: Topology
    log: Log
    folder: Path
    wait_s: float = 60.0
    wall: Callable[[], float] = time.time
    _metadata: Metadata = field(init=False)

    def run(self) -> DiskVerdict:
        """Compare the stores. Raises: ConfigurationError; StateInUseError; StateError if a store cannot be read."""
        specs, name = self._specs(), self.topology.name
        compared = []
        for path in self._paths():
            with closing(RocksDBStore(path, name)) as store:
                compared.append(self._compared(path, store, specs))
        return DiskVerdict(name, compared)

    def _specs(self) -> list[StateSpec]:
        """Return the application's states. Raises: ConfigurationError; PlanChangedError; TopologyError."""
        name, topics = self.topology.name, UserTopics.of(self.topology, self.log)
        self._metadata = read_metadata(self.log, metadata_topic(name))
        plan = self._metadata.plan
        if plan is None:
            raise ConfigurationError(
                f"verify of application '{name}': it has not run on this log; there is nothing to verify. Start it: "
                "eddy run …"
            )
        circuit = topics.compiled(written=frozenset(states_of(plan))).circuit
        check_identity(name, plan, identity(self.topology.plan, circuit), optional=optional_states(circuit))
        return [state.spec for state in circuit.states.values()]

    def _paths(self) -> list[Path]:
        """Return the directories of stores. Raises: ConfigurationError if there is none."""
        own = self.folder / self.topology.name
        found = [path for path in (self.folder, own) if (path / CONFIG).is_file()]
        for folder in (own, self.folder):
            if not found and folder.is_dir():
                found = sorted(path for path in folder.iterdir() if (path / CONFIG).is_file())
        if not found:
            raise ConfigurationError(
                f"verify of application '{self.topology.name}': there is no store of states in '{self.folder}'; the "
                "folder that eddy run keeps states in is needed, or a copy of one store. Name it: --disk DIR"
            )
        return found

    def _compared(self, path: Path, store: RocksDBStore, specs: Iterable[StateSpec]) -> StoreVerdict:
        age_s, verdict = self._age_s(path, store), StoreVerdict(path)
        stored = read_offsets(store)
        for spec in specs:
            named, topic = f"store '{spec.name}'", spec.changelog or spec.source
            if topic is None:
                verdict.notes[named] = "not compared: it has no changelog"
            elif spec.memory:
                verdict.notes[named] = "not compared: its rows are in the worker's memory"
            elif starts := _starts(store, spec, topic, stored):
                try:
                    verdict.compared.append(self._of_state(store, spec, starts, age_s))
                except _NotComparedError as why:
                    (verdict.notes if why.harmless else verdict.undetermined)[named] = str(why)
        return verdict

    def _age_s(self, path: Path, store: RocksDBStore) -> float:
        """Return the seconds since the store was written. Raises: StateError if it belongs to another incarnation."""
        stamp = read_stamp(store)
        if stamp is None:
            return 0.0
        if stamp.incarnation not in self._metadata.incarnations:
            raise StateError(
                f"state '{path}': it belongs to another incarnation of application '{self.topology.name}', before a "
                "reset or on another log; states of this log are needed. Name them: --disk DIR"
            )
        return self.wall() - stamp.written_s

    def _of_state(
        self, store: RocksDBStore, spec: StateSpec, starts: Mapping[TopicPartition, int], age_s: float
    ) -> Compared:
        """Replay the log into a temporary store, and compare the state with that store."""
        begins, ends = self.log.begin_offsets(starts), self._ends(spec, starts)
        with (
            tempfile.TemporaryDirectory(prefix="eddy-verify-") as folder,
            closing(_Replayed(Path(folder) / "rows", self.topology.name)) as replayed,
        ):
            for partition, start in starts.items():
                end = ends.get(partition, start)
                _check(spec, partition, begins[partition], start, end)
                if spec.source is None:
                    self._replay_changelog(spec, partition, start, end, replayed)
                else:
                    self._replay_table(spec, partition, begins[partition], start, end, replayed)
            compared = _merged(spec, store, replayed)
        went_on = spec.source is None and any(start < ends[partition] for partition, start in starts.items())
        if compared.extra and went_on and age_s > TOMBSTONES_LAST_S:
            raise _NotComparedError(
                f"not compared: it was not written for {age_s / 3600:.0f} h, so that tombstones of its rows may be "
                "gone from the changelog; a worker restores it anew",
                True,
            )
        return compared

    def _ends(self, spec: StateSpec, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets up to which a worker restores: ends of changelogs, and committed positions in sources."""
        if spec.source is None:
            return dict(self.log.end_offsets(partitions))
        positions = committed(self.log, self.topology.name, partitions)
        return {partition: position.offset for partition, position in positions.items()}

    def _replay_changelog(
        self, spec: StateSpec, partition: TopicPartition, start: int, end: int, into: "_Replayed"
    ) -> None:
        """Replay the records of a changelog into a temporary store.

        Another worker may write meanwhile, and compaction may then drop records that were not read yet. So records that
        arrive during a pass are read as well, and their keys count as newer.
        """
        prefix, position = spec.prefix(partition.partition), 0
        for _ in range(_PASSES):
            while position < end:
                records = self._read(partition, position, end)
                if None in records.keys:
                    raise _NotComparedError(f"a record of '{partition.topic}' has no key: another program wrote it")
                rows = [(prefix + (key or b""), value) for key, value in zip(records.keys, records.values, strict=True)]
                newer = [key for (key, _), at in zip(rows, records.offsets, strict=True) if at >= start]
                into.put(rows, newer)
                position = records.next_offset
            if (end := self.log.end_offsets([partition])[partition]) <= position:
                return
        raise _NotComparedError(f"'{partition.topic}' is written to faster than it is read; stop its worker")

    def _replay_table(
        self, spec: StateSpec, partition: TopicPartition, begin: int, start: int, end: int, into: "_Replayed"
    ) -> None:
        """Replay a table that its own topic restores into a temporary store, by the worker's code."""
        left_out = frozenset(offset for topic, p, offset in self._metadata.left_out if (topic, p) == partition)
        for first, last, newer in ((begin, min(start, end), False), (max(begin, start), end, True)):
            restore, into.newer = Restore(spec, partition, first, last, left_out), newer
            while not restore.done:
                self._read(partition, restore.position, last, 1)  # waits for open transactions
                restore.step(self.log, into, _RECORDS)

    def _read(self, partition: TopicPartition, position: int, end: int, count: int = _RECORDS) -> Records:
        """Read the next records, and wait for a transaction that is open."""
        deadline = time.monotonic() + self.wait_s
        while (records := self.log.read(partition, position, end, count)).next_offset == position:
            if time.monotonic() > deadline:
                raise _NotComparedError(
                    f"a transaction in '{partition.topic}' partition {partition.partition} is open at offset "
                    f"{position}; it ends by its producer or by its time limit"
                )
            time.sleep(_POLL_S)
        return records


class _Replayed(RocksDBStore):
    """A temporary store of the rows that changelogs give, under their keys in a worker's store.

    It also has the keys of newer records, whose rows are not compared.
    """

    newer = False

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Store the rows that a restore writes, without the offsets among them."""
        rows = [(key, value) for key, value in changes if key < _NEWER]
        self.put(rows, [key for key, _ in rows] if self.newer else [])

    def put(self, rows: list[tuple[bytes, bytes | None]], newer: Iterable[bytes]) -> None:
        """Put or delete rows, and note the `newer` ones."""
        super().write([*rows, *((_NEWER + key, b"") for key in newer)])


def _starts(
    store: RocksDBStore, spec: StateSpec, topic: str, stored: Mapping[tuple[str, int], int]
) -> dict[TopicPartition, int]:
    """Return the partitions of a state that a store has, each with the changelog offset up to which it has the rows."""
    return {
        TopicPartition(topic, p): stored.get((topic, p), 0)
        for p in range(spec.partitions)
        if (topic, p) in stored or next(store.scan(spec.prefix(p)), None) is not None
    }


def _check(spec: StateSpec, partition: TopicPartition, begin: int, start: int, end: int) -> None:
    """Check that a store's rows follow from the log. Raises: _NotComparedError."""
    where = f"'{partition.topic}' partition {partition.partition}"
    if start > end:
        raise _NotComparedError(
            f"it is at offset {start} of {where}, which ends at {end}: it belongs to another log, or the topic was "
            "made anew"
        )
    if spec.source is None and begin:
        raise _NotComparedError(f"{where} begins at offset {begin}: records were deleted")


def _merged(spec: StateSpec, store: RocksDBStore, replayed: _Replayed) -> Compared:
    """Compare the rows of a state in both stores, in key order."""
    prefix, readable = spec.name.encode() + b"\x00", Readable.of_state(spec)
    rows = heapq.merge(
        ((key, _FOUND, value) for key, value in store.scan(prefix)),
        ((key, _EXPECTED, value) for key, value in replayed.scan(prefix)),
        ((key[len(_NEWER) :], _IS_NEWER, value) for key, value in replayed.scan(_NEWER + prefix)),
    )
    keys = newer = missing = extra = different = 0
    examples: list[Example] = []
    for key, group in groupby(rows, key=itemgetter(0)):
        sides = {side: value for _, side, value in group}
        expected, found = sides.get(_EXPECTED), sides.get(_FOUND)
        keys += not (expected is None and found is None)
        if _IS_NEWER in sides:
            newer += not (expected is None and found is None)
            continue
        if expected == found:
            continue
        missing, extra = missing + (found is None), extra + (expected is None)
        different += expected is not None and found is not None
        if len(examples) < _EXAMPLES:
            examples.append(_example(spec, readable, key[len(prefix) :], expected, found))
    differing = missing + extra + different
    return Compared("store", spec.name, keys, differing, newer, examples, missing=missing, extra=extra)


def _example(spec: StateSpec, readable: Readable, row: bytes, expected: bytes | None, found: bytes | None) -> Example:
    partition, key = int.from_bytes(row[:_PARTITION_BYTES], "big"), row[_PARTITION_BYTES:]
    one, other = (readable.value(key, side, int(side is not None)) for side in (expected, found))
    where = f", in partition {partition}" if spec.partitions > 1 else ""
    return Example(readable.key(key), one, other + where, expected is not None, found is not None, where)
