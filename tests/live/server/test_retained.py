"""The sum of patches leads to the same buckets as the patches one after the other."""

import random
from typing import Any

import pytest

from eddy.live.dataflow.patch import Buckets, Drop, Insert, Move, Op, Remove, Set
from eddy.live.streams.retained import Retained, summed
from tests.seeds import of_today


def _step(draw: random.Random, buckets: dict[str, list[Any]], fresh: list[int]) -> list[Op]:
    """A patch that the buckets, which are lists of rows, allow."""
    ops: list[Op] = []
    for name in draw.sample(["", "a", "b", "c"], 2):
        rows = buckets.get(name, [])
        if rows and draw.random() < 0.2 and name:
            ops.append(Drop(name))
            del buckets[name]
            continue
        leaving = sorted(draw.sample(range(len(rows)), draw.randint(0, len(rows) // 2)))
        moved = [place for place in leaving if draw.random() < 0.5]
        kept = [row for place, row in enumerate(rows) if place not in leaving]
        new = [{"id": fresh.pop()} for _ in range(draw.randint(0 if rows else 1, 3))]
        final = list(kept)
        for row in [*new, *(rows[place] for place in moved)]:
            final.insert(draw.randint(0, len(final)), row)
        for place in leaving:
            ops.append(Move(name, place, final.index(rows[place])) if place in moved else Remove(name, place))
        ops += [Insert(name, final.index(row), row, {"x": f"x{row['id']}"}) for row in new]
        for index in draw.sample(range(len(final)), draw.randint(0, len(final) // 3)):
            final[index] = {"id": fresh.pop()}
            ops.append(Set(name, index, final[index]))
        buckets[name] = final
    return ops


@pytest.mark.parametrize("seed", of_today(30))
def test_sum_of_patches_is_as_all_of_them(seed: int) -> None:
    draw, fresh = random.Random(seed), list(range(10_000))
    rows: dict[str, list[Any]] = {"": [], "a": [{"id": -1}, {"id": -2}]}
    buckets = Buckets()
    buckets.apply([Insert(name, n, row) for name, found in rows.items() for n, row in enumerate(found)])
    retained = Retained(0, buckets.entries, max_ops=10_000)
    late, at = Buckets(), 0
    late.entries = {name: list(found) for name, found in buckets.entries.items()}
    for number in range(1, 13):
        ops = _step(draw, rows, fresh)
        buckets.apply(ops)
        retained.add(number, tuple(ops), 0.0)
        shown = {name: [row for row, _ in found] for name, found in buckets.entries.items() if found}
        assert shown == {name: found for name, found in rows.items() if found}
        if draw.random() < 0.3 or number == 12:
            kept = retained.after(at, number)
            assert kept is not None
            late.apply(summed((each.ops, each.sizes) for each in kept))
            at = number
            assert {n: e for n, e in late.entries.items() if e} == {n: e for n, e in buckets.entries.items() if e}


def test_what_is_kept_is_bounded_and_says_where_it_begins() -> None:
    retained = Retained(5, {}, max_ops=3)
    for number in range(6, 12):
        retained.add(number, (Insert("", 0, {"n": number}),), 0.0)
    assert (len(retained), retained.floor) == (3, 8)
    assert retained.after(7, 11) is None
    found = retained.after(8, 10)
    assert found is not None
    assert [kept.number for kept in found] == [9, 10]
    assert retained.after(11, 11) == []
