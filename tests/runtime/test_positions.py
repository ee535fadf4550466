"""A worker's positions and counters: as committed, after an epoch, and at a quiescent moment."""

import pytest

from eddy.connectors.local import LocalLog
from eddy.connectors.log import Consumer, Position, Records, TopicPartition
from eddy.errors import InvariantError
from eddy.operators.context import Context
from eddy.runtime.positions import Positions
from eddy.runtime.quiescence import Counters, Cut
from tests.runtime.logs import begun, log_of, send

IN0, IN1 = TopicPartition("in", 0), TopicPartition("in", 1)
LOOP0, LOOP1 = TopicPartition("loop", 0), TopicPartition("loop", 1)
OUT = TopicPartition("out", 0)
ALL = [IN0, IN1, LOOP0, LOOP1]


@pytest.fixture
def log() -> LocalLog:
    return log_of({"in": 2, "loop": 2, "out": 1})


def positions(log: LocalLog) -> Positions:
    return Positions(log, "app", {"in": 2}, {"loop": 2}, {"out": 1})


def member(log: LocalLog) -> Consumer:
    """The only member of the group, which owns everything."""
    consumer = log.consumer("app", ["in", "loop"], "only")
    consumer.poll(0, 0)
    return consumer


def commit(log: LocalLog, consumer: Consumer, moves: dict[TopicPartition, Position]) -> None:
    producer = begun(log)
    producer.commit(moves, consumer.group_metadata())
    producer.close()


def test_clocks_are_in_the_note_of_a_position() -> None:
    for counters, note in [
        (Counters(3, 2), "3 2"),
        (Counters(3, 2, {"loop": 1}, 7), "3 2 loop=1 @event=7"),
        (Counters(0, 0, {}, 0, 9, 1), "0 0 @event=0 @tick=9 @overdue=1"),
        (
            Counters(3, 1, {"a": 1}, tables={"t": 8}, offsets_hash=7, versions=2, since=0),
            "3 1 a=1 @offsets=7 @versions=2 @since=0 @table:t=8",
        ),
        (Counters(0, 0, topic=2**127, anew=1), f"0 0 @topic={2**127} @anew=1"),
    ]:
        assert counters.note() == note
        assert Counters.of(Position(0, note)) == counters
        assert counters.under_way == counters.emitted + len(counters.elsewhere) - counters.consumed + counters.overdue


def polled(at: TopicPartition, first: int, count: int) -> Records:
    column = [b"x"] * count
    return Records(*at, range(first, first + count), [0] * count, column, column, None, first + count)


def test_positions_begin_where_the_topic_begins() -> None:
    log = log_of({"in": 2, "loop": 2, "out": 1})
    send(log, IN1, [(b"k", b"v")] * 3)
    log.delete_records({IN1: 2})
    assert positions(log).reread(ALL) == {IN0: 0, IN1: 2, LOOP0: 0, LOOP1: 0}


def test_positions_and_counters_are_committed_and_read_again(log: LocalLog) -> None:
    mine = positions(log)
    mine.reread(ALL)
    entry = mine.after([polled(IN0, 0, 5), polled(LOOP1, 0, 2)], {"loop": 7})
    moves = mine.moves(entry)
    assert {tp: at.offset for tp, at in moves.items()} == {IN0: 5, IN1: 0, LOOP0: 0, LOOP1: 2}
    consumer = member(log)
    commit(log, consumer, moves)
    another = positions(log)
    assert another.reread(ALL) == {IN0: 5, IN1: 0, LOOP0: 0, LOOP1: 2}
    assert another.entry.counters[LOOP0] == Counters(emitted=7)
    assert another.entry.counters[LOOP1] == Counters(consumed=2)
    assert another.entry.in_loops == 5


def test_an_epoch_takes_effect_when_it_is_adopted(log: LocalLog) -> None:
    mine = positions(log)
    before = mine.entry
    mine.reread(ALL)
    entry = mine.after([polled(IN0, 0, 1)], {"loop": 1})
    assert mine.entry.positions[IN0] == 0
    assert mine.entry.counters[LOOP0] == Counters()
    mine.adopt(entry, {})
    assert mine.entry is entry is not before
    assert mine.moves(entry) == {}


def test_rows_are_counted_elsewhere_by_a_worker_without_a_partition_of_the_loop(log: LocalLog) -> None:
    mine = positions(log)
    mine.reread([IN0, IN1])
    entry = mine.after([], {"loop": 3})
    assert entry.counters[IN0] == Counters(elsewhere={"loop": 3}, topic=1)
    assert Counters.of(mine.moves(entry)[IN0]) == entry.counters[IN0]
    mine.adopt(entry, {})
    assert mine.after([], {"loop": -3}).counters[IN0] == Counters(topic=1)


def test_rows_of_loops_that_were_deleted_unread_are_reported(log: LocalLog) -> None:
    commit(log, member(log), {LOOP1: Position(0)})
    send(log, LOOP1, [(b"k", b"v")] * 4)
    log.delete_records({LOOP1: 3})
    with pytest.raises(InvariantError, match="'loop' partition 1 begins at offset 3, and rows from 0 on"):
        positions(log).reread(ALL)


def test_partitions_drain_until_the_rows_sent_to_them_are_read(log: LocalLog) -> None:
    send(log, LOOP1, [(b"k", b"v")] * 4)
    mine = positions(log)
    mine.reread(ALL)
    mine.reread_ends()
    end = log.end_offsets([LOOP1])[LOOP1]
    assert mine.draining([]) == {"loop": frozenset({1})}
    assert mine.draining([polled(LOOP1, 0, 2)]) == {"loop": frozenset({1})}
    assert mine.draining([polled(LOOP1, 0, end)]) == {"loop": frozenset()}
    mine.adopt(mine.after([polled(LOOP1, 0, end)], {}), {LOOP0: 9})
    assert mine.draining([]) == {"loop": frozenset({0})}


def test_it_is_quiescent_when_all_is_read_and_no_row_is_in_a_loop(log: LocalLog) -> None:
    send(log, IN0, [(b"k", b"v")] * 2)
    mine = positions(log)
    mine.reread(ALL)
    assert (mine.quiescent(), mine.lags()) == (False, {"in": log.end_offsets([IN0])[IN0], "loop": 0})
    consumer, end = member(log), log.end_offsets([IN0])[IN0]
    sent = mine.after([polled(IN0, 0, end)], {"loop": 1})
    commit(log, consumer, mine.moves(sent))
    mine.adopt(sent, {})
    assert (mine.lag(), mine.quiescent(), mine.quiescent_cut()) == (0, False, None)
    back = mine.after([polled(LOOP0, 0, 0)], {"loop": -1})
    commit(log, consumer, mine.moves(back))
    assert mine.quiescent()
    assert mine.quiescent_cut() == Cut({"in": [end, 0]}, {"out": [0]})


def test_a_cut_has_the_offsets_of_inputs_and_the_ends_of_outputs(log: LocalLog) -> None:
    send(log, OUT, [(b"k", b"v")])
    mine = positions(log)
    mine.reread(ALL)
    mine.reread_ends()
    end = log.end_offsets([OUT])[OUT]
    entry = mine.after([polled(IN1, 0, 6), polled(LOOP0, 0, 1)], {})
    assert mine.cut(entry, {}) == Cut({"in": [0, 6]}, {"out": [end]})
    assert mine.cut(entry, {OUT: end + 3, LOOP0: 1}) == Cut({"in": [0, 6]}, {"out": [end + 3]})
    mine.adopt(entry, {OUT: end + 3})
    assert mine.cut(entry, {}).outputs == {"out": [end + 3]}


def test_a_cut_has_the_clocks_of_all_positions_if_there_are_any(log: LocalLog) -> None:
    mine = positions(log)
    mine.reread(ALL)
    entry = mine.after([], {}, clocks=Context(event_time={IN1: 7}, tick=9))
    cut = mine.cut(entry, {})
    assert (cut.event_times, cut.ticks) == ({"in": [-1, 7]}, [[9, 9]])
    assert Cut.decode(cut.encode()) == cut
    assert mine.cut(mine.after([], {}), {}).encode() == b'{"inputs":{"in":[0,0]},"outputs":{}}'
    commit(log, member(log), mine.moves(entry))
    quiescent = mine.quiescent_cut()
    assert quiescent is not None
    assert (quiescent.event_times, quiescent.ticks) == (cut.event_times, cut.ticks)


def test_a_cut_without_clocks_is_not_made_twice() -> None:
    cut = Cut({"in": [1, 1]}, {})
    assert cut.with_clocks({IN0: Counters(1, 1), IN1: Counters()}) is cut


def test_the_owner_of_the_first_source_partition_leads(log: LocalLog) -> None:
    one, other = positions(log), positions(log)
    one.reread([IN0, LOOP0])
    other.reread([IN1, LOOP1])
    assert (one.leads(), other.leads()) == (True, False)


def test_a_constant_counts_as_sent_and_read(log: LocalLog) -> None:
    mine = positions(log)
    mine.reread(ALL)
    entry = mine.after([], {}, ["loop"])
    assert entry.counters[LOOP0] == Counters(emitted=1, consumed=1)
    assert entry.in_loops == 0


def test_other_offsets_of_a_global_table_are_a_version_also_with_the_same_sum(log: LocalLog) -> None:
    send(log, IN1, [(b"k", b"v")] * 3)
    mine, consumer = positions(log), member(log)
    mine.reread([IN0, IN1])
    first = mine.after([], {}, tables={"t": [5, 3]})
    told = [(version.partition, version.position, version.number, version.tables) for version in mine.versions(first)]
    assert told == [(0, 0, 1, {"t": [5, 3]}), (1, 0, 1, {"t": [5, 3]})]
    commit(log, consumer, mine.moves(first))
    mine.adopt(first, {})
    same = mine.after([polled(IN1, 0, 2)], {}, tables={"t": [5, 3]})
    assert mine.versions(same) == []
    commit(log, consumer, mine.moves(same))
    another = positions(log)  # of a worker that has read other offsets
    another.reread([IN0, IN1])
    other = another.after([], {}, tables={"t": [4, 4]})
    told = [
        (version.partition, version.position, version.number, version.tables) for version in another.versions(other)
    ]
    assert told == [(0, 0, 1, {"t": [4, 4]}), (1, 2, 2, {"t": [4, 4]})]
