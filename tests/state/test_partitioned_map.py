"""A map for each partition: what a dict for each would hold, through records taken back, epochs undone and restarts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.errors import DataError
from eddy.serde import Int64, Json, Native, Serde, String
from eddy.state.memory import MemoryStore
from eddy.state.partitioned_map import PartitionedMap
from eddy.state.spec import StateSpec


def spec_of(value: Serde[Any]) -> StateSpec:
    return StateSpec("m", "key-value", String, value, 2, lambda key, count: 0, "m-changelog")


def commit(made: PartitionedMap[Any, Any], store: MemoryStore | None) -> None:
    if store is not None:
        store.write(made.spec.stored(made.changes()))
    made.commit()


keys = st.sampled_from(["a", "b", "ba", "c", "ü"])
turns = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 1), keys, st.one_of(st.none(), st.integers(-3, 3))),
        st.tuples(st.sampled_from(["accept", "take back", "commit", "rollback", "forget", "age"])),
        st.tuples(st.just("count"), st.integers(0, 1)),
    ),
    max_size=40,
)


@given(turns=turns, own=st.booleans(), value=st.sampled_from([Int64, Native, Json()]))
def test_it_is_a_dict_for_each_partition(turns: list[Any], own: bool, value: Serde[Any]) -> None:
    store = None if own else MemoryStore()
    made = PartitionedMap[str, Any](spec_of(value), store)
    committed: list[dict[str, int]] = [{}, {}]
    accepted, now = [dict(one) for one in committed], [dict(one) for one in committed]
    for turn in turns:
        match turn:
            case ("put", partition, key, number):
                made.partition(partition).put(key, number)
                now[partition].pop(key, None) if number is None else now[partition].update({key: number})
            case ("accept",):
                [made.partition(p).accept() for p in (0, 1)]
                accepted = [dict(one) for one in now]
            case ("take back",):
                [made.partition(p).take_back() for p in (0, 1)]
                now = [dict(one) for one in accepted]
            case ("commit",):
                commit(made, store)
                committed, accepted = [dict(one) for one in now], [dict(one) for one in now]
            case ("count", partition):
                assert made.partition(partition).count() == len(now[partition])
            case _:
                made.rollback()
                now, accepted = [dict(one) for one in committed], [dict(one) for one in committed]
                if turn[0] == "forget":
                    made.forget()
                elif turn[0] == "age":
                    made.age()
        for partition, expected in enumerate(now):
            part = made.partition(partition)
            assert list(part.between(b"", None)) == sorted(expected.items(), key=lambda item: item[0].encode())
            assert [part.value(key) for key in "abc"] == [expected.get(key) for key in "abc"]
    assert dict(made.items([0, 1])) == now[0] | now[1]


def test_a_range_reads_pages_of_the_store() -> None:
    store = MemoryStore()
    made = PartitionedMap[str, int](spec_of(Int64), store)
    part = made.partition(1)
    names = [f"{number:05}" for number in range(2_500)]
    for number, name in enumerate(names):
        part.put(name, number)
    commit(made, store)
    part.put("00001", None)
    part.put("00001+", 7)
    expected = [("00000", 0), ("00001+", 7), *((name, int(name)) for name in names[2:])]
    assert list(part.between(b"", None)) == expected
    assert list(part.between(b"00001", b"00003")) == [("00001+", 7), ("00002", 2)]
    assert list(made.partition(0).between(b"", None)) == []


def test_rows_of_one_partition_are_not_those_of_the_next() -> None:
    store = MemoryStore()
    made = PartitionedMap[str, int](spec_of(Int64), store)
    made.partition(0).put("a", 1)
    made.partition(1).put("a", 2)
    changes = made.changes()
    assert list(changes) == [(0, b"a", Int64.encode(1)), (1, b"a", Int64.encode(2))]
    commit(made, store)
    assert (made.partition(0).value("a"), made.partition(1).value("a")) == (1, 2)
    assert (made.get("a", [0, 1]), made.get("a", [1]), made.get("a", [])) == (1, 2, None)


def test_a_value_is_what_its_serde_returns() -> None:
    made = PartitionedMap[str, Any](spec_of(Json()), None)
    part = made.partition(0)
    given = {"a": [1]}
    part.put("k", given)
    given["a"].append(2)
    part.value("k")["a"].append(3)
    assert part.value("k") == {"a": [1]}
    whole = PartitionedMap[str, Any](spec_of(Int64), None).partition(0)
    whole.put("k", True)
    assert type(whole.value("k")) is int


def test_what_a_serde_refuses_is_refused_at_once() -> None:
    part = PartitionedMap[Any, Any](spec_of(Int64), None).partition(0)
    for use in (
        lambda: part.put(1, 1),
        lambda: part.put("k", "x"),
        lambda: part.put("k", 2**63),
        lambda: part.value(1),
    ):
        with pytest.raises(DataError, match=r"store 'm': the (key|value)"):
            use()
    assert part.changes() == ([], [])
