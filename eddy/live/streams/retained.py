"""The patches of one query that are kept for late and reconnecting clients, and the sum of several patches.

    patches after number n  =  the present rows  −  the rows at number n

The numbers count steps. In each step all queries change together.

`summed` makes one patch of several. The former rows of a bucket become places 0, 1, …, and the patches are applied to
the list of places. The places that remain and the rows that were inserted give the difference. Cost: O(rows of the
buckets that the patches touch).
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from eddy.json_text import encode
from eddy.live.dataflow.patch import Buckets, Drop, Entry, Insert, Move, Op, Remove, Set

__all__ = ["KeptPatch", "Retained", "data_of", "summed", "with_last"]


class KeptPatch:
    """A patch: the number of its step, its operations as JSON, and the number of rows of each bucket before it."""

    __slots__ = ("at_s", "data", "is_gone", "number", "ops", "sizes")

    def __init__(self, number: int, ops: tuple[Op, ...], sizes: Mapping[str, int], at_s: float) -> None:
        self.number, self.ops, self.sizes, self.at_s = number, ops, sizes, at_s
        self.data = encode(ops)
        self.is_gone = False


class Retained:
    """The latest patches of one query: all patches of the steps after `floor`, with at most `max_ops` operations."""

    def __init__(self, floor: int, buckets: Mapping[str, list[Entry]], max_ops: int) -> None:
        self.floor, self._max_ops, self._ops = floor, max_ops, 0
        self._sizes = {bucket: len(rows) for bucket, rows in buckets.items()}
        self._kept: deque[KeptPatch] = deque()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def latest(self) -> int:
        """The number of the latest patch; `floor` if there is none."""
        return self._kept[-1].number if self._kept else self.floor

    def add(self, number: int, ops: tuple[Op, ...], at_s: float) -> KeptPatch:
        """Keep a patch."""
        before: dict[str, int] = {}
        for op in ops:
            size = before.setdefault(op.bucket, self._sizes.get(op.bucket, 0))
            if isinstance(op, Drop):
                self._sizes.pop(op.bucket, None)
            elif not isinstance(op, Set | Move):
                step = 1 if isinstance(op, Insert) else -1
                self._sizes[op.bucket] = self._sizes.get(op.bucket, size) + step
        kept = KeptPatch(number, ops, before, at_s)
        self._kept.append(kept)
        self._ops += len(ops)
        while self._ops > self._max_ops:
            self.forget(self._kept[0])
        return kept

    def forget(self, kept: KeptPatch) -> None:
        """Drop the oldest patch. `kept` is this patch."""
        assert self._kept[0] is kept
        self._kept.popleft()
        self._ops -= len(kept.ops)
        self.floor = kept.number
        kept.is_gone = True

    def after(self, number: int, up_to: int) -> list[KeptPatch] | None:
        """Return the patches of the steps after `number`, up to `up_to`; None if some of them were dropped."""
        if number < self.floor:
            return None
        start = bisect_left(self._kept, number + 1, key=lambda kept: kept.number)
        return [kept for kept in _from(self._kept, start) if kept.number <= up_to]


def _from(kept: deque[KeptPatch], start: int) -> Iterator[KeptPatch]:
    """Yield the patches from index `start` on. The search begins at the end, since most readers miss few patches."""
    missing = len(kept) - start
    yield from reversed([patch for patch, _ in zip(reversed(kept), range(missing), strict=False)])


def with_last(kept: list[KeptPatch], last: KeptPatch) -> list[KeptPatch]:
    """Append a patch to others. Two patches of the same step become one."""
    if not kept or kept[-1].number != last.number:
        return [*kept, last]
    former = kept[-1]
    ops = summed((patch.ops, patch.sizes) for patch in (former, last))
    return [*kept[:-1], KeptPatch(last.number, tuple(ops), {**last.sizes, **former.sizes}, last.at_s)]


def data_of(kept: list[KeptPatch]) -> bytes:
    """Return the operations of several patches as those of one patch, in JSON."""
    if len(kept) == 1:
        return kept[0].data
    return encode(summed((patch.ops, patch.sizes) for patch in kept))


class _Touched:
    """A bucket while patches are applied to it.

    An item is the place of a row before the patches, an integer, or an inserted row with its nested rows, (row, below).
    """

    def __init__(self, size: int) -> None:
        self.size, self.is_dropped = size, False
        self.set: dict[int, Entry] = {}
        self.items: list[Any] = list(range(size))

    def drop(self) -> None:
        self.is_dropped, self.items, self.set = True, [], {}


def summed(patches: Iterable[tuple[Iterable[Op], Mapping[str, int]]]) -> list[Op]:
    """Return one patch that has the effect of several.

    Each patch comes with the number of rows of its buckets before it.
    """
    touched: dict[str, _Touched] = {}
    for ops, sizes in patches:
        by_bucket: dict[str, list[Op]] = {}
        for op in ops:
            bucket = touched.get(op.bucket)
            if bucket is None:
                bucket = touched[op.bucket] = _Touched(sizes[op.bucket])
            if isinstance(op, Drop):
                bucket.drop()
            else:
                by_bucket.setdefault(op.bucket, []).append(op)
        for name, found in by_bucket.items():
            _apply(touched[name], found)
    return [op for name, bucket in touched.items() for op in _difference(name, bucket)]


def _apply(bucket: _Touched, ops: list[Op]) -> None:
    """Apply one patch to the places, as `Buckets` does to rows. A row that is set keeps its place."""
    bucket.is_dropped = False
    plain = [op for op in ops if not isinstance(op, Set)]
    view = Buckets()
    view.entries = {ops[0].bucket: bucket.items}
    view.apply(plain)
    for op in ops:
        if isinstance(op, Set):
            place = bucket.items[op.index]
            if isinstance(place, int):
                bucket.set[place] = (op.row, op.below)
            else:
                bucket.items[op.index] = (op.row, op.below)


def _difference(name: str, bucket: _Touched) -> Iterator[Op]:
    """Yield the patch of one bucket. It removes missing places, inserts rows, moves places and sets rows."""
    if bucket.is_dropped:
        if bucket.size:
            yield Drop(name)
        return
    stays = [item for item in bucket.items if isinstance(item, int)]
    left = set(range(bucket.size)).difference(stays)
    yield from (Remove(name, place) for place in sorted(left))
    fixed = set(_rising(stays))
    for index, item in enumerate(bucket.items):
        if not isinstance(item, int):
            yield Insert(name, index, *item)
            continue
        if item not in fixed:
            yield Move(name, item, index)
        if item in bucket.set:
            yield Set(name, index, *bucket.set[item])


def _rising(places: list[int]) -> list[int]:
    """Return a longest rising subsequence of the places; the rows at these places need not move."""
    tails: list[int] = []
    ends: list[int] = []  # by length, the index of the place that ends a rising subsequence
    before: list[int] = []
    for index, place in enumerate(places):
        length = bisect_left(tails, place)
        before.append(ends[length - 1] if length else -1)
        if length == len(tails):
            tails.append(place)
            ends.append(index)
        else:
            tails[length], ends[length] = place, index
    found: list[int] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        found.append(places[index])
        index = before[index]
    return found
