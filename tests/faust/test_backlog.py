"""The records of a partition that were read and not yet committed."""

from eddy.connectors.log import Records, TopicPartition
from eddy.faust.backlog import Backlog

WHERE = TopicPartition("in", 0)


def records(*offsets: int) -> Records:
    return Records(*WHERE, offsets, offsets, [b"k"] * len(offsets), [b"%d" % o for o in offsets], None, offsets[-1] + 1)


def backlog(*offsets: int, start: int = 0) -> Backlog:
    made = Backlog(WHERE, start)
    for offset in offsets:
        made.add(records(offset))
    return made


def returned(found: Backlog, room: int = 100) -> list[int]:
    records = found.first(room)
    if records is None:
        return []
    found.advance(records)
    return list(records.offsets)


def test_records_at_or_below_the_stored_position_and_known_ones_are_left_out() -> None:
    assert returned(backlog(3, 4, 5, 4, 5, 6, start=5)) == [5, 6]


def test_known_records_at_the_start_of_a_batch_are_left_out() -> None:
    found = backlog(0, 1)
    found.add(records(0, 1, 2, 3))
    found.add(records(1, 2))
    assert returned(found) == [0, 1, 2, 3]


def test_records_come_once_in_parts_until_a_seek_brings_them_back() -> None:
    found = backlog(0, 1, 2, 3)
    assert (returned(found, 3), returned(found), returned(found)) == ([0, 1, 2], [3], [])
    found.seek(1)
    assert returned(found) == [1, 2, 3]


def test_what_is_committed_is_forgotten_and_the_rest_comes_back() -> None:
    found = backlog(0, 1, 2, 3)
    returned(found)
    found.forget(2)
    found.seek(2)
    assert returned(found) == [2, 3]


def test_a_seek_to_what_was_forgotten_begins_anew_there() -> None:
    found = backlog(0, 1, 2)
    returned(found)
    found.forget(3)
    found.seek(1)
    assert (found.next_offset, found.joined, returned(found)) == (1, False, [])


def test_a_seek_to_the_committed_position_keeps_the_records_after_control_records() -> None:
    found = backlog(0, 2, 3)
    returned(found, 1)
    found.forget(1)
    assert returned(found) == [2, 3]
    found.seek(1)
    assert (found.joined, returned(found)) == (True, [2, 3])


def test_what_a_seek_drops_is_read_from_the_log() -> None:
    found = backlog(0, 1, 2)
    returned(found)
    found.forget(3)
    found.seek(1)
    assert found.wanted == 3
    found.add(records(6))
    found.seek(0)
    assert (found.wanted, len(found)) == (7, 0)


def test_control_records_move_the_position_without_a_record() -> None:
    found = backlog(0)
    returned(found)
    found.extend(Records("in", 0, [], [], [], [], None, 5))
    records = found.first(100)
    assert records is not None
    assert (len(records), records.next_offset) == (0, 5)
    found.seek(5)
    assert found.first(100) is None


def test_records_after_a_hole_at_the_beginning_wait_until_it_is_read() -> None:
    found = backlog(3, 4)
    assert (returned(found), found.wanted) == ([], 3)
    found.extend(Records("in", 0, [0, 1], [0, 1], [b"k"] * 2, [b"v"] * 2, None, 2))
    assert (returned(found), found.kept) == ([0, 1], 2)
    found.add(records(6))
    found.extend(Records("in", 0, [2], [2], [b"k"], [b"v"], None, 3))
    assert returned(found) == [2, 3, 4, 6]
