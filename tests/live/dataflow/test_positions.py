"""Sorted positions in runs: the same as a sorted list, with runs of any length."""

from bisect import bisect_left
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eddy.live.dataflow import row_positions as positions_module
from eddy.live.dataflow.row_positions import RowPositions

numbers = st.integers(0, 60)


def position(number: int) -> bytes:
    return b"%03d" % number


def runs_of(positions: RowPositions) -> Iterator[list[bytes]]:
    begin = 0
    while begin < len(positions):
        found = positions.run_with(begin, begin + 1)
        assert found is not None
        run, first = found
        assert first == begin
        yield run
        begin += len(run)


@settings(max_examples=200)
@given(st.sets(numbers), st.lists(numbers, max_size=150), st.sampled_from([2, 3, 8]))
def test_they_are_those_of_a_sorted_list(begun: set[int], turned: list[int], run: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(positions_module, "RUN", run)
        patch.setattr(positions_module, "SHORT_RUN", max(1, run // 4))
        expected = sorted(map(position, begun))
        found = RowPositions(list(expected))
        for each in map(position, turned):
            if each in expected:
                expected.remove(each)
                found.remove(each)
            else:
                expected.insert(bisect_left(expected, each), each)
                found.add(each)
            assert (len(found), bool(found)) == (len(expected), bool(expected))
            assert found.rank(each) == bisect_left(expected, each)
            assert found.between(0, len(expected)) == expected
        for begin in range(0, len(expected) + 2, 3):
            assert found.at(begin) == (expected[begin] if begin < len(expected) else None)
            for end in range(len(expected) + 2):
                assert found.between(begin, end) == expected[begin:end]
                one = found.run_with(begin, end)
                assert (one is not None) or len([*runs_of(found)]) > 1
                if one is not None:
                    listed, first = one
                    assert listed == expected[first : first + len(listed)]
                    assert expected[begin:end] == listed[max(0, begin - first) : max(0, end - first)]
                    assert first <= begin


def test_runs_are_split_and_joined() -> None:
    run = positions_module.RUN
    found = RowPositions([])
    for number in range(5 * run):
        found.add(b"%06d" % number)
    runs = [*runs_of(found)]
    assert len(runs) > 2
    assert all(run <= len(each) <= 2 * run for each in runs)
    for number in range(5 * run - 10):
        found.remove(b"%06d" % number)
    assert len([*runs_of(found)]) == 1
    assert found.between(0, 100) == [b"%06d" % number for number in range(5 * run - 10, 5 * run)]
