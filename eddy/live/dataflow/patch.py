"""Patches: the changes of a view by bucket. `Buckets` builds a copy of a view from patches alone.

A view is a set of buckets: lists of rows, by an id. A row refers to the buckets below it by their ids, so that rows
below two parents are in one bucket, which is changed once, and a subtree moves with the one row at its top.

In one patch the indexes of rows that are removed from a bucket (`Remove`, `Move.before`) are the indexes before the
patch; the indexes of rows that are inserted or set (`Insert`, `Move.index`, `Set`) are the indexes after it. Apply it
to each bucket in three steps: remove rows, by falling index; insert rows, by rising index; set the rows that change. A
bucket that is dropped has no other change in the patch.
"""

from collections.abc import Iterable
from operator import itemgetter

import msgspec

from eddy.live.dataflow.values import Row

__all__ = ["Buckets", "Drop", "Entry", "Insert", "Move", "Op", "Remove", "Set"]


class Insert(msgspec.Struct, frozen=True, tag="insert"):
    """A row is added to a bucket. `below` has, for each nest, the id of the bucket below; None if a column is null."""

    bucket: str
    index: int
    row: Row
    below: dict[str, str | None] = {}


class Remove(msgspec.Struct, frozen=True, tag="remove"):
    """A row is removed from a bucket."""

    bucket: str
    index: int


class Set(msgspec.Struct, frozen=True, tag="set"):
    """A row of a bucket is replaced by another row, which stays at the same index."""

    bucket: str
    index: int
    row: Row
    below: dict[str, str | None] = {}


class Move(msgspec.Struct, frozen=True, tag="move"):
    """A row of a bucket is moved to another place."""

    bucket: str
    before: int
    index: int


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """A bucket, with all its rows, is no longer part of the view."""

    bucket: str


_place = itemgetter(0)

Op = Insert | Remove | Set | Move | Drop
Entry = tuple[Row, dict[str, str | None]]
"""A row, and the id of the bucket below the row for each nest."""


class Buckets:
    """The buckets of a view, built from patches alone."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Entry]] = {}

    def apply(self, ops: Iterable[Op]) -> None:
        """Apply one patch."""
        entries = self.entries
        leaving: list[tuple[int, str, int | None]] = []
        arriving: list[tuple[int, str, Entry]] = []
        setting: list[Set] = []
        for op in ops:  # `type(op) is` takes a third of the time of `isinstance` for these classes
            if type(op) is Insert:
                arriving.append((op.index, op.bucket, (op.row, op.below)))
            elif type(op) is Set:
                setting.append(op)
            elif type(op) is Remove:
                leaving.append((op.index, op.bucket, None))
            elif type(op) is Move:
                leaving.append((op.before, op.bucket, op.index))
            else:
                entries.pop(op.bucket, None)
        if len(leaving) > 1:
            leaving.sort(key=_place, reverse=True)
        for before, bucket, index in leaving:
            entry = entries[bucket].pop(before)
            if index is not None:
                arriving.append((index, bucket, entry))
        if len(arriving) > 1:
            arriving.sort(key=_place)
        for index, bucket, entry in arriving:
            entries.setdefault(bucket, []).insert(index, entry)
        for op in setting:
            entries[op.bucket][op.index] = (op.row, op.below)
