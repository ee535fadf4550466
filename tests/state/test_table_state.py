"""Tables: the latest value by key, exact under rollback, the same from the store as from memory."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eddy.serde import Native
from eddy.state.memory import MemoryStore
from eddy.state.spec import StateSpec
from eddy.state.table_state import Table
from tests import oracle

SPEC = StateSpec("t", "table", Native, Native, 1, lambda data, count: 0)
Values = Table[Any, Any]


def put(table: Values, news: dict[Any, Any]) -> None:
    table.put_many(news, table.get_many(list(news)))


def write(table: Values, store: MemoryStore) -> list[Any]:
    """What a worker does at the end of an epoch."""
    changes = table.changes()
    store.write([(SPEC.prefix(partition) + key, value) for partition, key, value in changes])
    table.commit()
    return list(changes)


def test_values_are_looked_up_by_key() -> None:
    table: Values = Table(SPEC)
    put(table, {"a": 1, "b": 2})
    put(table, {"a": None, "c": 3})
    assert table.get_many(["a", "b", "c", "d"]) == [None, 2, 3, None]


def test_changes_are_those_of_the_epoch_with_tombstones_for_what_went() -> None:
    store = MemoryStore()
    table: Values = Table(SPEC, store)
    put(table, {"a": 1, "b": 2})
    write(table, store)
    put(table, {"a": None})
    put(table, {"c": 3})
    put(table, {"c": 4})
    assert sorted(write(table, store)) == [
        (0, Native.encode("a"), None),
        (0, Native.encode("c"), Native.encode(4)),
    ]
    assert not table.changes()


def test_what_came_and_went_in_an_epoch_has_no_tombstone() -> None:
    store = MemoryStore()
    table: Values = Table(SPEC, store)
    put(table, {"a": 1})
    write(table, store)
    put(table, {"a": None, "b": 2})
    put(table, {"a": 3, "b": None, "c": 4})
    put(table, {"a": None, "b": None, "d": None})
    assert sorted(write(table, store)) == [
        (0, Native.encode("a"), None),
        (0, Native.encode("c"), Native.encode(4)),
    ]
    assert dict(table.items()) == {"c": 4}


def test_rollback_restores_what_was_changed_several_times() -> None:
    table: Values = Table(SPEC, MemoryStore())
    put(table, {"a": 1})
    table.commit()
    put(table, {"a": 2, "b": 1})
    put(table, {"a": None})
    put(table, {"a": 3, "b": None})
    table.rollback()
    assert dict(table.items()) == {"a": 1}


def test_a_table_without_a_store_forgets_nothing() -> None:
    table: Values = Table(SPEC, None)
    for n in range(10):
        put(table, {n: n + 1})
        table.commit()
        assert table.age() == 0
    assert dict(table.items()) == {n: n + 1 for n in range(10)}


def test_ageing_forgets_the_older_half() -> None:
    store = MemoryStore()
    table: Values = Table(SPEC, store)
    for n in range(8):
        put(table, {n: n + 1})
        write(table, store)
    left = []
    for _ in range(4):
        table.age()
        left.append(table.cells)
    assert left == [4, 2, 1, 0]
    table.get_many([7, 3])
    assert table.cells == 2
    table.age()
    assert (table.cells, dict(table.items())) == (1, {n: n + 1 for n in range(8)})


def test_a_key_of_none_is_nowhere_even_when_the_store_has_to_be_asked() -> None:
    store = MemoryStore()
    table: Values = Table(SPEC, store)
    put(table, {"a": 1, "b": 2, "c": 3})
    write(table, store)
    table.age()
    assert table.get_many([None, "b"]) == [None, 2]


def test_equal_keys_are_one_key_however_they_are_written() -> None:
    store = MemoryStore()
    table: Values = Table(SPEC, store)
    for key in (1, 1.0, True):
        put(table, {key: str(key)})
        write(table, store)
    assert dict(Table[Any, Any](SPEC, store).items()) == {1: "True"}


keys = st.sampled_from("abc")
records = st.dictionaries(keys, st.none() | st.integers(1, 3), max_size=3)
ends = st.sampled_from(["commit", "commit", "rollback", "go on"])


@pytest.mark.parametrize("ages", [0, 1, 2])
@given(story=st.lists(st.tuples(records, ends), max_size=8))
@example(story=[({"a": 1}, "commit"), ({"a": None}, "rollback"), ({"a": None}, "go on"), ({"a": 2}, "rollback")])
def test_a_table_is_what_was_committed_last(ages: int, story: Any) -> None:
    store = MemoryStore()
    table: Values = Table(SPEC, store)
    committed: dict[Any, Any] = {}
    running = committed
    for news, end in story:
        put(table, news)
        running = oracle.latest(news.items(), running)
        assert dict(table.items()) == running
        assert table.get_many(["a", "b"]) == [running.get("a"), running.get("b")]
        if end == "commit":
            write(table, store)
            committed = running
            for _ in range(ages):
                table.age()
        elif end == "rollback":
            table.rollback()
            running = committed
        assert dict(Table[Any, Any](SPEC, store).items()) == committed
        assert dict(table.items()) == running
