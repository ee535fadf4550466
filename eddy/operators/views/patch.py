"""Patches: the changes of a view, bucket by bucket, and the copy of a view that is made of patches alone.

A view is a set of buckets: lists of rows, by an id. A row refers to the buckets below it by their ids, so that rows
below two parents are in one bucket, which is changed once, and a subtree moves with the one row at its top.

In one patch the indexes of rows that leave a bucket (`Remove`, `Move.before`) are those before the patch, the indexes
of rows that arrive or change (`Insert`, `Move.index`, `Set`) those after it. Apply it to each bucket in three turns:
take out the rows that leave, by falling index; put in those that arrive, by rising index; set those that change.
A bucket that is dropped has no other change in the patch.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from eddy.operators.views.values import Row

__all__ = ["Buckets", "Drop", "Entry", "Insert", "Move", "Op", "Remove", "Set"]


class Insert(msgspec.Struct, frozen=True, tag="insert"):
    """A row arrives in a bucket. `below` has the id of a bucket for each nest, None where a column is null."""

    bucket: str
    index: int
    row: Row
    below: dict[str, str | None] = {}


class Remove(msgspec.Struct, frozen=True, tag="remove"):
    """A row leaves a bucket."""

    bucket: str
    index: int


class Set(msgspec.Struct, frozen=True, tag="set"):
    """A row of a bucket is another, at the same place."""

    bucket: str
    index: int
    row: Row
    below: dict[str, str | None] = {}


class Move(msgspec.Struct, frozen=True, tag="move"):
    """A row of a bucket goes to another place."""

    bucket: str
    before: int
    index: int


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """A bucket is no longer part of the view, with all its rows."""

    bucket: str


Op = Insert | Remove | Set | Move | Drop
Entry = tuple[Row, dict[str, str | None]]
"""A row, and the buckets below it."""


class Buckets:
    """The buckets of a view, made of patches alone."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Entry]] = {}

    def apply(self, ops: Iterable[Op]) -> None:
        """Apply one patch."""
        by_bucket: dict[str, list[Op]] = {}
        for op in ops:
            if isinstance(op, Drop):
                self.entries.pop(op.bucket, None)
            else:
                by_bucket.setdefault(op.bucket, []).append(op)
        for bucket, found in by_bucket.items():
            _apply(self.entries.setdefault(bucket, []), found)


def _apply(entries: list[Entry], ops: list[Op]) -> None:
    leaving: dict[int, int | None] = {}
    arriving: list[tuple[int, Any]] = []
    for op in ops:
        if isinstance(op, Remove):
            leaving[op.index] = None
        elif isinstance(op, Move):
            leaving[op.before] = op.index
        elif isinstance(op, Insert):
            arriving.append((op.index, (op.row, op.below)))
    for before in sorted(leaving, reverse=True):
        entry, index = entries.pop(before), leaving[before]
        if index is not None:
            arriving.append((index, entry))
    for index, entry in sorted(arriving, key=lambda pair: pair[0]):
        entries.insert(index, entry)
    for op in ops:
        if isinstance(op, Set):
            entries[op.index] = (op.row, op.below)
