"""Parts of an epoch: what is split, left out and cut by bytes holds every record once, in order."""

from hypothesis import given
from hypothesis import strategies as st

from eddy.connectors.log import Records
from eddy.errors import DataError
from eddy.runtime.decoding import Rejected
from eddy.runtime.isolation import Isolation, Part

lengths = st.lists(st.integers(0, 6), min_size=1, max_size=4).filter(any)


def polled(lengths: list[int]) -> list[Records]:
    """Records of so many partitions with offsets that have holes."""
    return [
        Records("t", p, *([f(i) for i in range(n)] for f in COLUMNS), None, 2 * n + 3)  # type: ignore[misc]
        for p, n in enumerate(lengths)
    ]


COLUMNS = (lambda i: 2 * i, lambda i: 5, lambda i: b"k%d" % i, lambda i: b"v%d" % i)


def places(parts: list[Part]) -> list[tuple[int, int]]:
    return [(r.partition, offset) for part in parts for r in part.records for offset in r.offsets]


@given(lengths, st.data())
def test_parts_hold_every_record_once_in_order_and_move_every_position_to_the_end(
    lengths: list[int], data: st.DataObject
) -> None:
    whole = Part(polled(lengths))
    at = sorted(data.draw(st.sets(st.integers(1, max(1, len(whole) - 1)))) - {len(whole)})
    parts = whole.split(*at)
    assert [len(part) for part in parts] == [b - a for a, b in zip([0, *at], [*at, len(whole)], strict=True)]
    assert places(parts) == places([whole])
    positions: dict[int, int] = {}
    for part in parts:
        for records in part.records:
            assert all(positions.get(records.partition, 0) <= offset for offset in records.offsets)
            assert all(offset < records.next_offset for offset in records.offsets)
            positions[records.partition] = records.next_offset
    assert positions == {r.partition: r.next_offset for r in whole.records}


@given(lengths, st.data())
def test_what_is_left_out_is_not_processed_in_any_part(lengths: list[int], data: st.DataObject) -> None:
    whole = Part(polled(lengths))
    gone = data.draw(st.sets(st.integers(0, len(whole) - 1), min_size=1))
    whole.leave_out({number: DataError(f"no {number}") for number in gone})
    assert whole.numbers() == [number for number in range(len(whole)) if number not in gone]
    assert [record.reason for record in whole.left_out.values()] == [f"no {number}" for number in sorted(gone)]
    halves = whole.split(len(whole) // 2) if len(whole) > 1 else [whole]
    assert sum(len(half.numbers()) for half in halves) == len(whole) - len(gone)


@given(st.integers(1, 3_000), st.sets(st.integers(0, 2_999), max_size=8))
def test_halving_finds_all_with_few_tries(n: int, bad: set[int]) -> None:
    bad = {number for number in bad if number < n}
    (records,) = polled([n])
    isolation, left_out, taken, failing = Isolation(Part([records]), 0.0), set[int](), 0, 0
    computed = 0
    while isolation:
        part = isolation.next
        computed += len(part.numbers())
        if any(part.records[0].offsets[number] // 2 in bad for number in part.numbers()):
            failing += 1
            alone = {number: DataError("bad") for number in part.numbers()} if len(part) == 1 else {}
            assert isolation.narrow(alone, True)
        else:
            left_out |= {record.offset // 2 for record in part.left_out.values()}
            taken += len(part)
            isolation.advance()
    assert (taken, left_out) == (n, bad)
    assert failing <= len(bad) * ((n - 1).bit_length() + 1)
    assert computed <= n * (1 + 2 * (len(bad).bit_length() + 1)) + 2 * failing


def test_where_none_may_be_left_out_those_before_the_first_are_tried_first() -> None:
    isolation = Isolation(Part(polled([5])), 0.0)
    assert isolation.narrow({3: DataError("bad"), 4: DataError("bad")}, False)
    assert [len(isolation.next)] == [3]
    isolation.advance()
    assert places([isolation.next]) == [(0, 6)]
    assert not isolation.narrow({0: DataError("bad")}, False)


def test_a_part_that_shows_one_bad_record_after_the_other_is_halved_in_the_end() -> None:
    isolation = Isolation(Part(polled([100])), 0.0)
    for number in range(50):
        if len(isolation.next) < 100:
            break
        assert isolation.narrow({number: DataError("bad")}, True)
    assert number < 10
    assert len(isolation.next.numbers()) < 50
    assert all(isinstance(record, Rejected) for record in isolation.next.left_out.values())
