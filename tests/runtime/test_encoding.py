"""From batches to records: each row in the partition of its key, and records that do not fit a serde."""

from collections.abc import Callable

import pytest

from eddy.connectors.local import LocalLog
from eddy.errors import DataError
from eddy.operators.batch import Batch
from eddy.operators.circuit import Output
from eddy.operators.context import OUTSIDE
from eddy.operators.exchange import Gate, Outgoing, Ownership
from eddy.partitioner import partition_of
from eddy.runtime.decoding import Rejected
from eddy.runtime.encoding import DeadRow, Encoder, SinkTopic
from eddy.runtime.origins import HEADER, Origins
from eddy.serde import Int64, String
from eddy.state.spec import Changes
from tests.runtime.logs import begun, log_of, read
from tests.runtime.row_wire_format import packed


@pytest.fixture
def log() -> LocalLog:
    return log_of({"out": 3, "loop": 3, "changelog": 2, "dead": 1})


def sent(log: LocalLog, write: Callable[[Encoder], object]) -> object:
    """Call `write` in a transaction, and return its result."""
    producer = begun(log)
    result = write(Encoder(producer, partition_of, latest_ms=1_000_000))
    producer.commit({}, None)
    producer.close()
    return result


def output(batch: Batch) -> Output:
    found = Output("out")
    found.step(OUTSIDE, batch)
    return found


def sink(facts: bool, partitions: int = 3) -> SinkTopic:
    return SinkTopic("out", String, Int64, partitions, facts)


def pairs(log: LocalLog, topic: str, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    records = read(log, topic, partition)
    return list(zip(records.keys, records.values, strict=True))


def test_facts_are_written_as_often_as_their_weight_with_their_times(log: LocalLog) -> None:
    batch = Batch([("a", 1), ("b", 2)], [2, 1], 9, [5, 6])
    assert sent(log, lambda to: to.sink(sink(True, 1), output(batch))) == 3
    records = read(log, "out")
    assert list(zip(records.keys, records.timestamps, strict=True)) == [(b"a", 5), (b"a", 5), (b"b", 6)]


def test_a_table_has_its_new_values_and_tombstones(log: LocalLog) -> None:
    batch = Batch([("a", 1), ("a", 2), ("b", 3)], [-1, 1, -1], 9)
    assert sent(log, lambda to: to.sink(sink(False, 1), output(batch))) == 2
    assert sorted(pairs(log, "out")) == [(b"a", Int64.encode(2)), (b"b", None)]


def test_records_go_to_the_partitions_of_their_keys(log: LocalLog) -> None:
    keys = [f"key-{n}" for n in range(20)]
    batch = Batch([*((key, 1) for key in keys), (None, 0)], [1] * 21, 0)
    sent(log, lambda to: to.sink(sink(True), output(batch)))
    for partition in range(3):
        found = [key.decode() for key, _ in pairs(log, "out", partition) if key is not None]
        assert found == [key for key in keys if partition_of(key.encode(), 3) == partition] != []
    assert pairs(log, "out")[-1] == (None, Int64.encode(0))


def test_a_value_that_does_not_fit_is_named_with_the_serde_that_would(log: LocalLog) -> None:
    batch = Batch([("a", 1), ("b", "two")], [1, 1], 0)
    with pytest.raises(
        DataError, match=r"sink 'out': value 'two' is not a valid int64: .* Name it in to\(.*value=eddy.String"
    ):
        sent(log, lambda to: to.sink(sink(True), output(batch)))


def test_rows_that_leave_have_weights_iterations_and_the_records_they_come_from(log: LocalLog) -> None:
    gate = Gate("loop", String, Int64, 3, partition_of, Ownership())
    outgoing = [
        Outgoing(Batch([("a", 1), ("b", None)], [1, -2], 7), [0, 2], 4),
        Outgoing(Batch([("c", 3)], [1], 8), [0], 5),
    ]
    origins = Origins([("in", 0, 3, 4)])
    assert sent(log, lambda to: to.exchange(gate, outgoing, origins)) == 3
    assert pairs(log, "loop", 0) == [
        (b"a", packed(1, 4, Int64.encode(1))),
        (b"c", packed(1, 5, Int64.encode(3))),
    ]
    assert pairs(log, "loop", 2) == [(b"b", packed(-2, 4))]
    assert list(read(log, "loop", 0).headers or []) == [(origins.header(2),), ()]  # of all rows of the partition
    assert list(read(log, "loop", 2).headers or []) == [(origins.header(1),)]
    assert origins.header(1)[0] == HEADER


def test_changed_rows_of_a_state_go_to_their_partitions(log: LocalLog) -> None:
    sent(log, lambda to: to.changelog("changelog", Changes([1, 0], [b"k", b"l"], [b"v", None]), 12))
    assert (pairs(log, "changelog", 0), pairs(log, "changelog", 1)) == ([(b"l", None)], [(b"k", b"v")])
    assert list(read(log, "changelog", 1).timestamps) == [12]


def test_dead_letters_are_the_records_with_their_places(log: LocalLog) -> None:
    record = Rejected("in", 1, 7, 99, b"k", None, (("h", b"x"),), "it fails")
    row = DeadRow(b"r", b"v", "step", -2, "it fails, too", Origins([("in", 0, 3, 3)]), 5)
    sent(log, lambda to: (to.dead_letters("dead", [record]), to.dead_rows("dead", [row])))
    records = read(log, "dead")
    columns = zip(records.keys, records.values, records.timestamps, strict=True)
    assert list(columns) == [(b"k", None, 99), (b"r", b"v", 5)]
    place = {"eddy.topic": b"in", "eddy.partition": b"1", "eddy.offset": b"7"}
    letter, dead = map(dict, records.headers or [])
    assert letter == {"h": b"x", **place, "eddy.error": b"it fails"}
    assert dead.pop(HEADER) == b"'in' partition 0 offset 3"
    assert dead == place | {
        "eddy.partition": b"0",
        "eddy.offset": b"3",
        "eddy.step": b"step",
        "eddy.weight": b"-2",
        "eddy.error": b"it fails, too",
    }
