"""A calendar: the first keys in the order of their moments, also after undone epochs and restarts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.serde import Int64, String
from eddy.state.calendar import MOST_MS, Calendar
from eddy.state.memory import MemoryStore
from eddy.state.spec import StateSpec

SPEC = StateSpec("c", "calendar", String, Int64, 2, lambda key, count: ord(key.decode()) % count, "c-changelog")


def commit(calendar: Calendar[Any], store: MemoryStore | None) -> None:
    if store is not None:
        store.write(SPEC.stored(calendar.changes()))
    calendar.commit()


@pytest.mark.parametrize("stored", [True, False])
def test_keys_come_in_the_order_of_their_moments(stored: bool) -> None:
    store = MemoryStore() if stored else None
    calendar = Calendar[str](SPEC, store)
    calendar.move(["a", "b", "c"], [None] * 3, [30, 20, 10])
    commit(calendar, store)
    assert (calendar.first(0), calendar.first(1)) == (20, 10)
    assert calendar.due(1, 29, 5) == [(10, "c")]
    assert calendar.due(1, 30, 5) == [(10, "c"), (30, "a")]
    assert calendar.due(1, 30, 1) == [(10, "c")]
    calendar.move(["c"], [10], [None])
    assert calendar.due(1, 30, 1) == [(30, "a")]
    commit(calendar, store)
    assert calendar.first(1) == 30
    calendar.move(["c"], [None], [MOST_MS])
    calendar.move(["a"], [30], [5])
    commit(calendar, store)
    assert (calendar.first(1), calendar.due(1, MOST_MS, 9)) == (5, [(5, "a"), (MOST_MS, "c")])


def test_a_scan_begins_after_what_was_deleted_before() -> None:
    """A store passes over what was deleted: a calendar whose first entries go would be slower with each of them."""
    store = MemoryStore()
    calendar = Calendar[str](SPEC, store)
    starts: list[bytes] = []
    scan = store.scan_between
    store.scan_between = lambda start, *rest: starts.append(start) or scan(start, *rest)  # type: ignore[method-assign, func-returns-value]
    calendar.move(["a", "c"], [None] * 2, [1000, 2000])
    commit(calendar, store)
    assert calendar.first(1) == 1000
    calendar.move(["a"], [1000], [None])
    commit(calendar, store)
    assert calendar.first(1) == 2000
    calendar.due(1, 3000, 1)
    assert [int.from_bytes(start[-8:], "big") for start in starts] == [0, 1000, 2000]


def test_an_entry_that_comes_and_goes_in_an_epoch_is_not_deleted_from_a_store_without_it() -> None:
    store = MemoryStore()
    calendar = Calendar[str](SPEC, store)
    calendar.move(["a", "b"], [None, None], [10, 20])
    calendar.move(["a"], [10], [None])
    assert [(key[:8], value) for _, key, value in calendar.changes()] == [((20).to_bytes(8, "big"), b"\x01")]
    commit(calendar, store)
    calendar.move(["b"], [None], [20])  # it is there already
    calendar.move(["b"], [20], [None])
    assert [value for _, _, value in calendar.changes()] == [None]
    commit(calendar, store)
    assert list(calendar.items()) == []


moments = st.one_of(st.none(), st.integers(0, 9))


@given(
    st.lists(
        st.tuples(st.sampled_from(["commit", "undo", "restart"]), st.dictionaries(st.sampled_from("abcdef"), moments))
    )
)
def test_it_has_the_last_moment_of_each_key(story: list[tuple[str, dict[str, int | None]]]) -> None:
    store, there = MemoryStore(), dict[str, int]()
    calendar = Calendar[str](SPEC, store)
    for what, news in story:
        calendar.move(list(news), [there.get(key) for key in news], list(news.values()))
        if what == "undo":
            calendar.rollback()
        else:
            there = {key: moment for key, moment in {**there, **news}.items() if moment is not None}
            assert dict(calendar.items()) == dict.fromkeys(there.items(), 1)
            commit(calendar, store)
        if what == "restart":
            calendar = Calendar(SPEC, store)
        for partition in range(2):
            mine = sorted(
                (moment, key) for key, moment in there.items() if SPEC.partitions_of([key.encode()]) == [partition]
            )
            assert calendar.first(partition) == (mine[0][0] if mine else None)
            last = mine[-1][0] if mine else -1
            assert calendar.latest(partition) >= last
            assert Calendar[str](SPEC, store).latest(partition) == last
            for upto in (-1, 4, 9):
                assert calendar.due(partition, upto, 2) == [entry for entry in mine if entry[0] <= upto][:2]
