"""What stands before the values of rows in internal topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.errors import DataError
from eddy.operators.batch import Place, PlacedTime
from eddy.runtime.row_wire_format import row_heads
from tests.runtime.row_wire_format import of_version_1, packed

iterations = st.integers(-(2**31), 2**31 - 1)
bodies = st.none() | st.binary(max_size=40)
weights = st.integers() | st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**300, -(10**300)])
old_weights = st.integers(-(2**40), 2**40)


def read(*values: bytes) -> list[tuple[int, int, bytes | None]]:
    heads = row_heads(values)
    return [
        (head.weight, head.iteration, None if head.size is None else value[head.size :])
        for head, value in zip(heads, values, strict=True)
    ]


@given(st.lists(st.tuples(weights, iterations, bodies), max_size=5))
def test_a_row_of_any_weight_is_read_as_it_was_written(rows: list[tuple[int, int, bytes | None]]) -> None:
    assert read(*(packed(*row) for row in rows)) == rows


@given(st.lists(st.tuples(st.booleans(), old_weights, iterations, bodies), max_size=5))
def test_rows_of_earlier_versions_are_read_beside_others(rows: list[tuple[bool, int, int, bytes | None]]) -> None:
    values = [(of_version_1 if old else packed)(*row) for old, *row in rows]
    assert read(*values) == [tuple(row) for _, *row in rows]


@given(st.lists(st.tuples(weights, iterations, bodies, st.none() | st.integers(-1, 2**62)), max_size=5))
def test_a_row_carries_an_event_time(rows: list[tuple[int, int, bytes | None, int | None]]) -> None:
    values = [packed(*row) for row in rows]
    assert read(*values) == [row[:3] for row in rows]
    assert [head.event_time for head in row_heads(values)] == [row[3] for row in rows]


places = st.tuples(st.text(max_size=5), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))


@given(st.lists(st.tuples(weights, iterations, bodies, st.integers(-1, 2**62), st.none() | places), max_size=5))
def test_a_row_carries_the_place_of_its_record(rows: list[tuple[int, int, bytes | None, int, Place | None]]) -> None:
    times = [time if place is None else PlacedTime.at(time, place) for *_, time, place in rows]
    values = [packed(*row[:3], time) for row, time in zip(rows, times, strict=True)]
    assert read(*values) == [row[:3] for row in rows]
    found = [head.event_time for head in row_heads(values)]
    assert found == [row[3] for row in rows]
    assert [getattr(time, "place", None) for time in found] == [row[4] for row in rows]


def test_a_row_of_a_later_version_is_refused() -> None:
    value = bytearray(packed(1, 0, b"value"))
    value[1] |= 4
    with pytest.raises(DataError, match="a later version has written it"):
        row_heads([bytes(value)])
