"""Checked by mypy, not run: what an editor knows of a topology's types."""

from datetime import timedelta
from typing import TypeGuard, assert_type

import msgspec
from typing_extensions import TypeIs

import eddy


class Event(msgspec.Struct, frozen=True):
    number: int


class Order(Event, frozen=True):
    country: str


def is_order(value: Event) -> TypeIs[Order]:
    return isinstance(value, Order)


def is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and value > 0


def has_key(key: str | None, value: object) -> TypeGuard[str]:
    return key is not None


def offset_of(value: bytes, record: eddy.RecordContext) -> int:
    return record.offset


def partition_of(value: bytes, *, record: eddy.RecordContext) -> int:
    return record.partition


async def called(value: bytes) -> int:
    return len(value)


async def called_with_record(key: str, value: bytes, record: eddy.RecordContext) -> int:
    return record.offset


async def called_by_name(value: bytes, *, record: eddy.RecordContext) -> float:
    return record.offset / 2


def program() -> None:
    topology = eddy.Topology("family")

    parents = topology.table("nodes", key=eddy.String, value=eddy.String)
    assert_type(parents, eddy.KTable[str, str])

    updates = parents.to_relation().map(lambda node, parent: (parent, 1))
    assert_type(parents.map_values(len), eddy.KTable[str, int])
    assert_type(parents.map_values(lambda key, parent: (key, parent)), eddy.KTable[str, tuple[str, str]])
    assert_type(parents.join(parents, lambda one, other: one + other), eddy.KTable[str, str])
    assert_type(parents.left_join(parents, lambda key, one, other: len(key + one)), eddy.KTable[str, int])
    assert_type(updates, eddy.Relation[str, int])

    ancestors = updates.recursively(
        lambda rows: rows.join(parents, lambda _, one, parent: (parent, one + 1)), name="ancestors"
    )
    assert_type(ancestors, eddy.RecursiveRelation[str, int])
    assert_type(ancestors.errors, eddy.Relation[str, str])
    assert_type(ancestors.group_by_key(), eddy.KGroupedTable[str, int])

    descendants = ancestors.group_by_key().count("descendants")
    assert_type(descendants, eddy.KTable[str, int])
    assert_type(descendants.to_stream(), eddy.KStream[str, int])
    descendants.to("descendants", value=eddy.Int64)
    descendants.to("wrong", value=eddy.String)  # type: ignore[arg-type]

    words = topology.stream("words", key=eddy.String, value=eddy.Bytes)
    assert_type(words, eddy.KStream[str, bytes])
    assert_type(words.map_values(len), eddy.KStream[str, int])
    assert_type(words.filter(lambda key, value: value.startswith(key.encode())), eddy.KStream[str, bytes])
    assert_type(words.flat_map(lambda key, value: [(1, key)]), eddy.KStream[int, str])
    assert_type(words.select_key(lambda key, value: len(value)), eddy.KStream[int, bytes])
    assert_type(words.join(parents, lambda word, parent: (word, parent)), eddy.KStream[str, tuple[bytes, str]])
    assert_type(words.left_join(parents, lambda word, parent: parent), eddy.KStream[str, str | None])
    assert_type(words.group_by(lambda key, value: len(value)).count("lengths"), eddy.KTable[int, int])
    assert_type(words.split(all=lambda key, value: True), dict[str, eddy.KStream[str, bytes]])
    assert_type(words.map_values(offset_of), eddy.KStream[str, int])
    assert_type(words.filter(lambda key, value, record: record.headers == ()), eddy.KStream[str, bytes])
    assert_type(words.select_key(lambda key, value, record: record.partition), eddy.KStream[int, bytes])
    assert_type(words.map_values(lambda key, value: (key, value)), eddy.KStream[str, tuple[str, bytes]])
    assert_type(words.flat_map_values(lambda key, value: [key]), eddy.KStream[str, str])
    assert_type(
        words.map_values(lambda key, value, record: (value, record.offset)), eddy.KStream[str, tuple[bytes, int]]
    )
    assert_type(words.map_values(lambda value, record: (value, record.offset)), eddy.KStream[str, tuple[bytes, int]])
    assert_type(words.map_values(partition_of), eddy.KStream[str, int])
    assert_type(
        words.flat_map_values(lambda value, record: [(value, record.topic)]), eddy.KStream[str, tuple[bytes, str]]
    )
    assert_type(words.flat_map_values(lambda value, record: value), eddy.KStream[str, int])
    assert_type(words.map_values_async(called), eddy.KStream[str, int])
    assert_type(words.map_values_async(called_with_record), eddy.KStream[str, int])
    assert_type(words.map_values_async(called_by_name), eddy.KStream[str, float])
    words.to("words", partitioner=lambda key, value, partitions: (len(key) + len(value)) % partitions)
    words.to("words", partitioner=lambda key, value, partitions: key)  # type: ignore[arg-type, return-value]
    words.map_values(lambda value, record: value.offset)  # type: ignore[arg-type, misc]
    words.map_values(lambda value, other: other)  # type: ignore[arg-type, misc]
    words.filter(lambda key, value: value.upper() + key)  # type: ignore[operator]
    near = eddy.JoinWindows(timedelta(minutes=5))
    assert_type(words.join(words, lambda one, other: (one, other), near), eddy.KStream[str, tuple[bytes, bytes]])
    assert_type(words.left_join(words, lambda one, other: other, near), eddy.KStream[str, bytes | None])
    assert_type(
        words.outer_join(words, lambda one, other: (one, other), near, name="near"),
        eddy.KStream[str, tuple[bytes | None, bytes | None]],
    )
    then = eddy.AsOf(timedelta(hours=1))
    assert_type(words.join(words, lambda one, other: (one, other), then), eddy.KStream[str, tuple[bytes, bytes]])
    assert_type(words.left_join(words, lambda one, other: other, then), eddy.KStream[str, bytes | None])
    words.join(words, lambda one, other: one)  # type: ignore[call-overload]

    sizes = words.group_by_key().aggregate(lambda: 0, lambda key, value, size: size + len(value), "sizes")
    assert_type(sizes, eddy.KTable[str, int])
    assert_type(
        parents.outer_join(sizes, lambda parent, size: (parent, size)), eddy.KTable[str, tuple[str | None, int | None]]
    )

    events = topology.stream("events", key=eddy.String, value=eddy.Struct(Event))
    assert_type(events.filter(is_order), eddy.KStream[str, Order])
    assert_type(events.filter(is_order).map_values(lambda order: order.country), eddy.KStream[str, str])
    assert_type(topology.table("latest", eddy.String, eddy.Struct(Event)).filter(is_order), eddy.KTable[str, Order])
    assert_type(events.to_table("kept").to_relation().filter(is_order), eddy.Relation[str, Order])
    assert_type(words.filter(is_whole), eddy.KStream[str, int])
    assert_type(words.filter(has_key), eddy.KStream[str, bytes])
    assert_type(events.filter(lambda key, value: isinstance(value, Order)), eddy.KStream[str, Event])
    words.filter(is_order)  # type: ignore[arg-type]
    words.filter(lambda value: value == b"")  # type: ignore[arg-type, misc]
