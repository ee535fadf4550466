"""From records to batches: rows, rejected records with their reasons, and rows from other workers."""

from collections.abc import Sequence
from typing import Any

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Headers, Records
from eddy.errors import DataError
from eddy.operators.exchange import Gate, Ownership, Received
from eddy.partitioner import partition_of
from eddy.runtime.decoding import Decoder, reject
from eddy.runtime.origins import Origins, Senders
from eddy.runtime.partitioner_check import PartitionerCheck
from eddy.serde import Int64, Serde, String
from tests.runtime.logs import log_of, read, send
from tests.runtime.row_wire_format import packed

Record = tuple[bytes | None, bytes | None]


def decoder(log: LocalLog, key: Serde[Any] = String) -> Decoder:
    """For the table "in" of numbers, and the topic "loop" of rows between workers."""
    topology = eddy.Topology("app")
    topology.table("in", key=key, value=Int64)
    check = PartitionerCheck({"in": 1}, frozenset({"in"}), {}, partition_of, lambda topic: 1)
    gate = Gate("loop", String, Int64, 1, partition_of, Ownership())
    sources = {source.topic: source for source in topology.plan.sources()}
    return Decoder(sources, {"loop": gate}, check, Senders(log, {"loop"}))


def number(value: int) -> bytes:
    return Int64.encode(value)


def source(records: Sequence[Record], headers: Sequence[Headers] | None = None) -> tuple[LocalLog, Records]:
    """The records, read from a log."""
    log = log_of({"in": 1, "loop": 1})
    send(log, ("in", 0), records, headers=headers)
    return log, read(log, "in")


def test_records_are_rows_with_their_times_and_headers() -> None:
    log, records = source([(b"a", number(1)), (b"b", None)], [(("h", b"1"),), ()])
    batch = decoder(log).decode([records])["in"]
    assert (batch.rows, batch.weights) == ([("a", 1), ("b", None)], [1, 1])
    assert (batch.time, batch.times, batch.headers) == (1, [0, 1], [(("h", b"1"),), ()])


def test_records_that_do_not_decode_are_rejected_with_the_reason() -> None:
    log, records = source([(b"a", number(1)), (b"\xff", number(2)), (b"c", b"short"), (b"d", number(4))])
    decoding = decoder(log)
    assert decoding.decode([records])["in"].rows == [("a", 1), ("d", 4)]
    assert [(r.offset, r.key, r.value) for r in decoding.rejected] == [(1, b"\xff", number(2)), (2, b"c", b"short")]
    assert [reason.split(":")[0] for reason in (r.reason for r in decoding.rejected)] == [
        "the key b'\\xff' is not a valid string",
        "the value b'short' is not a valid int64",
    ]
    assert str(decoding.rejected[1].error()).startswith("topic 'in' partition 0 offset 2 key b'c': the value b'short'")


def test_records_that_are_left_out_are_rejected_again() -> None:
    log, records = source([(b"a", number(1)), (b"b", number(2)), (b"c", b"short")])
    decoding = decoder(log)
    failing = reject(records, 0, "it fails")
    elsewhere = failing._replace(offset=77)
    left_out = {record.place: record for record in (failing, elsewhere)}
    assert decoding.decode([records], left_out)["in"].rows == [("b", 2)]
    assert [record.offset for record in decoding.rejected] == [0, 2]
    assert decoding.decode([records])["in"].rows == [("a", 1), ("b", 2)]


def test_keys_that_cannot_be_hashed_are_rejected() -> None:
    log, records = source([(b"[1]", number(1)), (b"2", number(2))])
    decoding = decoder(log, eddy.Json())
    assert decoding.decode([records])["in"].rows == [(2, 2)]
    assert decoding.rejected[0].reason.startswith("the key [1] cannot be hashed")


def loop_rows(*records: tuple[bytes | None, bytes], origins: Origins | None = None) -> tuple[LocalLog, Records]:
    """Records of a loop topic."""
    log = log_of({"in": 1, "loop": 1})
    headers: list[Headers] = [()] * len(records)
    if origins is not None:
        headers[0] = (origins.header(len(records)),)
    send(log, ("loop", 0), records, headers=headers)
    return log, read(log, "loop")


def test_rows_of_other_workers_have_weights_and_iterations() -> None:
    log, records = loop_rows((b"a", packed(-2, 3, number(5))), (None, packed(1, 0)), (b"c", packed(1, 3)))
    batch = decoder(log).decode([records])["loop"]
    assert isinstance(batch, Received)
    assert (batch.rows, batch.weights) == ([("a", 5), (None, None), ("c", None)], [-2, 1, 1])
    assert batch.iterations == [3, 0, 3]


def test_rows_of_several_partitions_are_one_batch() -> None:
    log, records = loop_rows((b"a", packed(1, 3)), (b"b", packed(1, 4)))
    batch = decoder(log).decode([records.slice(0, 1), records.slice(2, 2), records.slice(1, 2)])["loop"]
    assert isinstance(batch, Received)
    assert (batch.rows, batch.iterations) == ([("a", None), ("b", None)], [3, 4])


def test_a_failing_row_of_another_worker_is_named_with_the_records_it_comes_from() -> None:
    origins = Origins([("in", 0, 7, 9)])
    log, records = loop_rows((b"a", packed(2, 0, number(5))), origins=origins)
    decoding = decoder(log)
    assert decoding.decode([records])["loop"].headers is None  # that of the origins is eddy's own
    error = decoding.refusal(records, 0, DataError("it fails"))
    assert "topic 'loop' partition 0 offset 0 key b'a': it fails" in str(error)
    assert "(row 'a': 5 of weight 2, of 'in' partition 0 offsets 7 to 9)" in str(error)


def test_empty_polls_make_no_batch() -> None:
    log, records = source([(b"a", number(1))])
    assert decoder(log).decode([records.slice(1, 1)]) == {}
