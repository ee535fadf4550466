"""Arrangements: bags by key, exact under rollback, the same from the store as from memory."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eddy.serde import Float64, Json, Native, Serde
from eddy.state.arrangement import Arrangement
from eddy.state.memory import MemoryStore
from eddy.state.spec import StateSpec
from tests import oracle

Rows = Arrangement[Any, Any]


def spec(key: Serde[Any] = Native, value: Serde[Any] = Native, partitions: int = 1) -> StateSpec:
    return StateSpec("a", "arrangement", key, value, partitions, lambda data, count: sum(data) % count)


def write(rows: Rows, store: MemoryStore) -> list[Any]:
    """What a worker does at the end of an epoch."""
    changes = rows.changes()
    store.write([(rows.spec.prefix(partition) + key, value) for partition, key, value in changes])
    rows.commit()
    return list(changes)


def test_a_bag_is_looked_up_by_key() -> None:
    rows: Rows = Arrangement(spec())
    rows.integrate({("a", 1): 1, ("a", 2): 3, ("b", 1): -1})
    assert rows.get_many(["a", "b", "c"]) == [{1: 1, 2: 3}, (1, -1), None]
    assert rows.weights([("a", 2), ("a", 9), ("b", 1), ("c", 1)]) == [3, 0, -1, 0]


@pytest.mark.parametrize("first", [0, 300])
@given(
    story=st.lists(
        st.tuples(
            st.sampled_from(["commit", "undo", "age"]),
            st.lists(
                st.dictionaries(
                    st.tuples(st.integers(0, 4), st.integers(0, 3)), st.integers(-2, 2).filter(bool), max_size=6
                ),
                max_size=3,
            ),
        ),
        max_size=6,
    )
)
def test_shift_gives_the_weights_before_and_changes_gives_those_after(first: int, story: Any) -> None:
    store = MemoryStore()
    rows: Rows = Arrangement(spec(), store)
    before: dict[Any, int] = {}
    start = {(key, 9): 1 for key in range(first)}
    for what, deltas in [("commit", [start]), *story]:
        now = dict(before)
        for delta in deltas:
            assert rows.shift(delta) == [now.get(row, 0) for row in delta]
            for row, weight in delta.items():
                now[row] = now.get(row, 0) + weight
        touched = {row for delta in deltas for row in delta}
        if what == "undo":
            rows.rollback()
        else:
            changes = write(rows, store)
            weights = {row: now[row] for row in touched if now[row] != before.get(row, 0)}
            assert len(changes) == len(weights)
            assert sorted(data is None for _, _, data in changes) == sorted(not w for w in weights.values())
            before = now
            if what == "age":
                rows.age()
        assert dict(rows.items()) == {row: weight for row, weight in before.items() if weight}
    assert dict(Arrangement[Any, Any](spec(), store).items()) == {
        row: weight for row, weight in before.items() if weight
    }


def test_a_row_goes_when_its_weight_comes_to_zero() -> None:
    rows: Rows = Arrangement(spec())
    rows.integrate({("a", 1): 1, ("a", 2): 1})
    rows.integrate({("a", 1): -1})
    assert rows.get("a") == (2, 1)
    rows.integrate({("a", 2): -1})
    assert rows.get("a") is None


def test_one_new_row_of_a_large_bag_writes_one_row() -> None:
    store = MemoryStore()
    rows: Rows = Arrangement(spec(), store)
    rows.integrate({("hub", n): 1 for n in range(1000)})
    write(rows, store)
    rows.integrate({("hub", 1000): 1})
    assert len(rows.changes()) == 1


def test_what_is_undone_within_an_epoch_is_not_written() -> None:
    rows: Rows = Arrangement(spec(), MemoryStore())
    rows.integrate({("a", 1): 1})
    rows.integrate({("a", 1): -1})
    assert not rows.changes()


@pytest.mark.parametrize(
    ("serde", "values"),
    [
        (Native, [1, 1.0, True]),
        (Native, [0.0, -0.0, 0, False]),
        (Native, [(1, "x"), (1.0, "x")]),
        (Float64, [0.0, -0.0]),
    ],
)
def test_equal_rows_are_one_row_however_they_are_written(serde: Serde[Any], values: list[Any]) -> None:
    """1 and 1.0 and True are one key to a dict; in the store they once were three."""
    store = MemoryStore()
    rows: Rows = Arrangement(spec(value=serde), store)
    for value in values:
        rows.integrate({("a", value): 1})
        write(rows, store)
    assert dict(Arrangement(spec(value=serde), store).items()) == {("a", values[0]): len(values)}
    for value in reversed(values):
        rows.integrate({("a", value): -1})
        write(rows, store)
    assert list(store.scan(b"")) == []


def test_equal_json_rows_are_one_row() -> None:
    store = MemoryStore()
    rows: Rows = Arrangement(spec(value=Json()), store)
    rows.integrate({("a", 1): 1, ("a", 2): 1})
    write(rows, store)
    rows.integrate({("a", 1.0): -1})
    write(rows, store)
    assert dict(Arrangement(spec(value=Json()), store).items()) == {("a", 2): 1}


@pytest.mark.parametrize("values", [1, 2])
def test_the_first_rows_of_many_keys_can_be_changed_and_undone(values: int) -> None:
    """Many first rows enter at once, if each has a key of its own."""
    store = MemoryStore()
    rows: Rows = Arrangement(spec(), store)
    first = {(n // values, n % values): n + 1 for n in range(600)}
    rows.integrate(first)
    assert dict(rows.items()) == first
    rows.rollback()
    assert dict(rows.items()) == {}
    rows.integrate(first)
    rows.integrate({(0, 0): -1, (1, 0): 4, (0, 7): 2})
    write(rows, store)
    expected = oracle.plus(oracle.bag(first.items()), oracle.bag([((0, 0), -1), ((1, 0), 4), ((0, 7), 2)]))
    assert dict(rows.items()) == dict(Arrangement(spec(), store).items()) == expected


def test_rows_lie_in_the_partition_of_their_key() -> None:
    rows: Rows = Arrangement(spec(partitions=5))
    rows.integrate({(n, "v"): 1 for n in range(20)})
    for partition, key, _ in rows.changes():
        length = int.from_bytes(key[:4], "big")
        assert partition == sum(key[4 : 4 + length]) % 5


keys, values = st.sampled_from("ab"), st.sampled_from([1, 2, 3])
deltas = st.lists(st.tuples(st.tuples(keys, values), st.integers(-2, 2)), max_size=5)
ends = st.sampled_from(["commit", "commit", "rollback", "go on"])


@pytest.mark.parametrize("ages", [0, 1, 2])
@given(story=st.lists(st.tuples(deltas, ends), max_size=8))
@example(story=[([(("a", 1), 1)], "commit"), ([(("a", 1), -1)], "rollback"), ([(("a", 2), 1)], "commit")])
def test_an_arrangement_is_the_sum_of_what_was_committed(ages: int, story: Any) -> None:
    store = MemoryStore()
    rows: Rows = Arrangement(spec(), store)
    committed = running = oracle.bag([])
    for delta, end in story:
        rows.integrate(oracle.bag(delta))
        running = oracle.plus(running, oracle.bag(delta))
        assert dict(rows.items()) == running
        assert rows.weights([("a", 1), ("b", 3)]) == [running["a", 1], running["b", 3]]
        if end == "commit":
            write(rows, store)
            committed = running
            for _ in range(ages):
                rows.age()
        elif end == "rollback":
            rows.rollback()
            running = committed
        assert dict(Arrangement(spec(), store).items()) == committed
        assert dict(rows.items()) == running
