"""A store is brought to the committed positions: from changelogs, and from the topics of source tables."""

from dataclasses import replace

import pytest

from eddy.connectors.local import LocalLog
from eddy.connectors.log import Position, TopicPartition
from eddy.errors import StateError
from eddy.partitioner import partition_of
from eddy.runtime.changelog_replay import TOMBSTONES_LAST_S, Restore, restores
from eddy.serde import Int64, String
from eddy.state.memory import MemoryStore
from eddy.state.offsets import read_offsets
from eddy.state.spec import StateSpec
from eddy.state.table_state import Table
from tests.runtime.logs import begun, log_of, send

COUNTS = StateSpec("counts", "table", String, Int64, 2, partition_of, "app-counts-changelog")
NAMES = replace(COUNTS, name="names", changelog=None, source="names")


@pytest.fixture
def log() -> LocalLog:
    return log_of({"app-counts-changelog": 2, "names": 2})


def number(value: int | None) -> bytes | None:
    return None if value is None else Int64.encode(value)


def write(log: LocalLog, topic: str, rows: dict[str, int | None]) -> None:
    """Write rows to the partitions of their keys."""
    for key, value in rows.items():
        send(log, (topic, partition_of(key.encode(), 2)), [(key.encode(), number(value))])


def needed(
    log: LocalLog, store: MemoryStore, spec: StateSpec, owned: set[int] | None = None, **more: object
) -> list[Restore]:
    partitions = {} if owned is None else {2: frozenset(owned)}
    return restores(log, store, "app", [Table(spec, store)], partitions, **more)  # type: ignore[arg-type]


def restored(log: LocalLog, store: MemoryStore, spec: StateSpec, **more: object) -> dict[str, int]:
    """The rows after a restore by steps of two records."""
    for restore in needed(log, store, spec, **more):  # type: ignore[arg-type]
        while not restore.done:
            before = restore.position
            restore.step(log, store, 2)
            assert restore.position > before
    return dict(Table(spec, store).items())


def test_a_store_is_restored_from_its_changelog_and_not_again(log: LocalLog) -> None:
    write(log, "app-counts-changelog", {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})
    write(log, "app-counts-changelog", {"a": None, "b": 20})
    store = MemoryStore()
    assert restored(log, store, COUNTS) == {"b": 20, "c": 3, "d": 4, "e": 5}
    ends = log.end_offsets([TopicPartition("app-counts-changelog", p) for p in (0, 1)])
    assert read_offsets(store) == ends
    assert needed(log, store, COUNTS) == []
    write(log, "app-counts-changelog", {"c": 30})
    (rest,) = needed(log, store, COUNTS)
    assert (rest.position, rest.end) == (ends[rest.partition], ends[rest.partition] + 2)
    assert restored(log, store, COUNTS)["c"] == 30


def test_only_owned_partitions_are_restored(log: LocalLog) -> None:
    write(log, "app-counts-changelog", {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})
    assert {restore.partition.partition for restore in needed(log, MemoryStore(), COUNTS)} == {0, 1}
    assert [restore.partition.partition for restore in needed(log, MemoryStore(), COUNTS, {1})] == [1]


def test_a_store_that_is_older_than_tombstones_is_restored_from_empty(log: LocalLog) -> None:
    """A row whose tombstone was compacted away would stay for ever."""
    store = MemoryStore()
    write(log, "app-counts-changelog", {"a": 1})
    restored(log, store, COUNTS)
    (home,) = COUNTS.partitions_of([b"a"])
    store.write([(COUNTS.prefix(home) + b"compacted away", number(9))])
    write(log, "app-counts-changelog", {"a": 2})
    (young,) = needed(log, store, COUNTS, age_s=TOMBSTONES_LAST_S / 4)
    (old,) = needed(log, store, COUNTS, age_s=TOMBSTONES_LAST_S)
    assert young.position > 0 == old.position
    assert restored(log, store, COUNTS, age_s=TOMBSTONES_LAST_S) == {"a": 2}


def test_a_source_table_is_restored_up_to_the_committed_position(log: LocalLog) -> None:
    member = log.consumer("app", ["names"], "only")
    member.poll(0, 0)
    write(log, "names", {"a": 1, "b": 2, "c": 3})
    partitions = [TopicPartition("names", p) for p in (0, 1)]
    committed = {tp: Position(end) for tp, end in log.end_offsets(partitions).items()}
    producer = begun(log)
    producer.commit(committed, member.group_metadata())
    write(log, "names", {"a": 10, "d": 4})
    assert restored(log, MemoryStore(), NAMES) == {"a": 1, "b": 2, "c": 3}


def test_a_source_table_is_restored_without_rejected_records(log: LocalLog) -> None:
    member = log.consumer("app", ["names"], "only")
    member.poll(0, 0)
    records = [(b"a", number(1)), (b"\xff", number(2)), (b"a", b"short"), (None, number(3)), (b"b", number(4))]
    send(log, ("names", 0), [*records, (b"a", number(5))])
    end = log.end_offsets([TopicPartition("names", 0)])
    producer = begun(log)
    producer.commit({tp: Position(at) for tp, at in end.items()}, member.group_metadata())
    spec = replace(NAMES, partitioner=lambda key, count: 0)
    assert restored(log, MemoryStore(), spec, left_out=[("names", 0, 5), ("names", 1, 0)]) == {"a": 1, "b": 4}


def test_a_changelog_that_was_cut_off_is_refused(log: LocalLog) -> None:
    send(log, ("app-counts-changelog", 1), [(b"a", number(1))] * 3)
    log.delete_records({TopicPartition("app-counts-changelog", 1): 2})
    with pytest.raises(StateError, match="changelog 'app-counts-changelog' partition 1 begins at offset 2; from 0 on"):
        needed(log, MemoryStore(), COUNTS)


def test_a_store_of_another_log_is_refused(log: LocalLog) -> None:
    store = MemoryStore()
    write(log, "app-counts-changelog", {"a": 1})
    restored(log, store, COUNTS)
    another = log_of({"app-counts-changelog": 2})
    with pytest.raises(StateError, match="which ends at 0; it belongs to another log, or the topic was made anew"):
        needed(another, store, COUNTS)


def test_a_record_without_a_key_in_a_changelog_is_refused(log: LocalLog) -> None:
    send(log, ("app-counts-changelog", 0), [(None, b"by hand")])
    (restore,) = needed(log, MemoryStore(), COUNTS)
    with pytest.raises(StateError, match="a record without a key; it was not written by eddy"):
        restore.step(log, MemoryStore(), 10)
