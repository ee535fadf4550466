"""A batch: rows (key, value) with weights and event times. Operators exchange only batches.

The three kinds of collection give a batch its meaning:

    KStream     weight > 0    this happened, weight times
    KTable      -1 then +1    the row of a key is replaced: at most one -1 and one +1 a key
    Relation    any weight    the row's weight rises or falls by that much

`time` is the latest event time in the batch, in milliseconds. Some columns have an entry for each row, or are None:

- `times` and `headers`, as long as records are not merged. None: every row has `time`, and no headers. Consolidating
  merges equal rows, so it drops `times`, and keeps the headers of the last of the equal rows.
- `places`, from the source to the first exchange: the topic, partition and offset of the row's record.
- `event_times`, from an exchange to the step that assigns windows: the event time of the source partition when the
  row's record was read, None where it is unknown; a `PlacedTime` if a later step needs the order of records.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress, repeat
from operator import is_, itemgetter
from typing import Any

from eddy.errors import DataError

__all__ = [
    "EMPTY",
    "Batch",
    "Place",
    "PlacedTime",
    "Row",
    "ZSet",
    "concat",
    "consolidate",
    "first_unhashable",
    "keys_of",
    "merge_into",
    "repeated",
    "retracted",
    "unhashable",
]

Row = tuple[Any, Any]
"""(key, value)."""

ZSet = dict[Row, int]
"""Rows to weights, none of them 0: a consolidated batch."""

Place = tuple[str, int, int]
"""The topic, partition and offset of a source's record."""


class PlacedTime(int):
    """The event time of a source partition just after a record was read, and where this record is in the source."""

    place: Place

    @classmethod
    def at(cls, time: int, place: Place) -> "PlacedTime":
        """Make the event time `time` just after the record at `place`."""
        made = cls(time)
        made.place = place
        return made


keys_of: Callable[[Iterable[Row]], "map[Any]"] = lambda rows: map(itemgetter(0), rows)  # noqa: E731


class Batch:
    """Columns of equal length. A batch is never changed after it was passed on."""

    __slots__ = ("event_times", "headers", "places", "rows", "time", "times", "weights")

    def __init__(
        self,
        rows: list[Row],
        weights: list[int],
        time: int = 0,
        times: list[int] | None = None,
        headers: list[Any] | None = None,
        places: list[Place | None] | None = None,
        event_times: list[int | None] | None = None,
    ) -> None:
        self.rows = rows
        self.weights = weights
        self.time = time
        self.times = times
        self.headers = headers
        self.places = places
        self.event_times = event_times

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Batch({dict(zip(self.rows, self.weights, strict=True))}, time={self.time})"

    @classmethod
    def of(cls, zset: ZSet, time: int) -> "Batch":
        """Make a batch of the rows and weights of a Z-set."""
        return cls(list(zset), list(zset.values()), time)

    def select(self, mask: Sequence[Any]) -> "Batch":
        """Return the batch with only the rows for which `mask` is true."""
        return Batch(
            list(compress(self.rows, mask)),
            list(compress(self.weights, mask)),
            self.time,
            None if self.times is None else list(compress(self.times, mask)),
            None if self.headers is None else list(compress(self.headers, mask)),
            None if self.places is None else list(compress(self.places, mask)),
            None if self.event_times is None else list(compress(self.event_times, mask)),
        )

    def at(self, places: Sequence[int]) -> "Batch":
        """Return the rows at these indexes, in this order."""

        def column(values: list[Any]) -> list[Any]:
            return list(map(values.__getitem__, places))

        return Batch(
            column(self.rows),
            column(self.weights),
            self.time,
            None if self.times is None else column(self.times),
            None if self.headers is None else column(self.headers),
            None if self.places is None else column(self.places),
            None if self.event_times is None else column(self.event_times),
        )

    def with_rows(self, rows: list[Row]) -> "Batch":
        """Return the batch with `rows` in place of its rows, one by one; all other columns are the same."""
        return Batch(rows, self.weights, self.time, self.times, self.headers, self.places, self.event_times)

    def without_places(self) -> "Batch":
        """Return the batch without `places` and `event_times`, for steps that may move rows to other partitions."""
        if self.places is None and self.event_times is None:
            return self
        return Batch(self.rows, self.weights, self.time, self.times, self.headers)

    def with_event_times(self, event_times: list[int | None] | None) -> "Batch":
        """Return the batch with `event_times` and without `places`."""
        return Batch(self.rows, self.weights, self.time, self.times, self.headers, None, event_times)

    def spread(self, many: Sequence[Sequence[Row]]) -> "Batch":
        """Return the batch with the row at each index replaced by the rows at this index of `many`.

        Each new row has the weight and the time of the row that it replaces.
        """
        counts = list(map(len, many))

        def column(values: list[Any]) -> list[Any]:
            return list(chain.from_iterable(map(repeat, values, counts)))

        return Batch(
            list(chain.from_iterable(many)),
            column(self.weights),
            self.time,
            None if self.times is None else column(self.times),
            None if self.headers is None else column(self.headers),
            None if self.places is None else column(self.places),
            None if self.event_times is None else column(self.event_times),
        )

    def times_of_rows(self) -> list[int]:
        """The event time of each row."""
        return [self.time] * len(self.rows) if self.times is None else self.times

    def headers_of_rows(self) -> list[Any]:
        """The headers of each row."""
        return [()] * len(self.rows) if self.headers is None else self.headers

    def places_of_rows(self) -> list[Place | None]:
        """Return the topic, partition and offset of each row's record; None where they are not known."""
        return [None] * len(self.rows) if self.places is None else self.places

    def event_times_of_rows(self) -> list[int | None]:
        """Return the event time of the source partition of each row; None where it is not known."""
        return [None] * len(self.rows) if self.event_times is None else self.event_times

    def consolidated(self, where: str) -> "Batch":
        """Merge equal rows, and drop rows of weight 0. Raises: DataError as `zset` does."""
        if len(self.rows) > 1:
            if len(self.rows) >= _MANY_OF_ONE and self.headers is None and _have_one_value(self.rows, self.weights):
                return self._counted(where)
            zset = consolidate(self.rows, self.weights, where)
            whole = Batch.of(zset, self.time)
            if self.headers is not None:
                whole.headers = list(map(dict(zip(self.rows, self.headers, strict=True)).__getitem__, zset))
            return whole
        if not self.rows or not self.weights[0]:
            return EMPTY
        try:
            hash(self.rows[0])
        except TypeError as error:
            raise unhashable(self.rows, where) from error
        return self

    def _counted(self, where: str) -> "Batch":
        """Merge equal rows if all rows have the same value and weight: only the keys are counted and hashed."""
        value, weight = self.rows[0][1], self.weights[0]
        try:
            hash(value)
            counts = Counter(keys_of(self.rows))
        except TypeError as error:
            raise unhashable(self.rows, where) from error
        weights = [weight * count for count in counts.values()]
        return Batch(list(zip(counts, repeat(value), strict=False)), weights, self.time)

    def zset(self, where: str) -> ZSet:
        """Merge equal rows. Raises: DataError naming `where` and the row that cannot be hashed.

        Cost: as `consolidate`. If there are many rows and all differ, they are hashed in one C loop.
        """
        rows, weights = self.rows, self.weights
        try:
            if len(rows) >= _MANY and 0 not in weights and len(set(rows[:_MANY])) == _MANY:
                zset: ZSet = dict(zip(rows, weights, strict=True))
                if len(zset) == len(rows):
                    return zset
        except TypeError as error:
            raise unhashable(rows, where) from error
        return consolidate(rows, weights, where)


_MANY = 16  # the number of rows from which a C loop is faster
_MANY_OF_ONE = 10_000  # the number of rows from which `consolidated` checks whether all have one value

EMPTY = Batch([], [])
"""The batch without rows."""


def concat(batches: Sequence[Batch]) -> Batch:
    """Return one batch with all rows of `batches`, in their order."""
    batches = [batch for batch in batches if batch.rows]
    if len(batches) < 2:
        return batches[0] if batches else EMPTY
    stamped = any(batch.times is not None for batch in batches)
    headed = any(batch.headers is not None for batch in batches)
    placed = any(batch.places is not None for batch in batches)
    timed = any(batch.event_times is not None for batch in batches)
    return Batch(
        list(chain.from_iterable(batch.rows for batch in batches)),
        list(chain.from_iterable(batch.weights for batch in batches)),
        max(batch.time for batch in batches),
        list(chain.from_iterable(batch.times_of_rows() for batch in batches)) if stamped else None,
        list(chain.from_iterable(batch.headers_of_rows() for batch in batches)) if headed else None,
        list(chain.from_iterable(batch.places_of_rows() for batch in batches)) if placed else None,
        list(chain.from_iterable(batch.event_times_of_rows() for batch in batches)) if timed else None,
    )


def consolidate(rows: Sequence[Row], weights: Sequence[int], where: str) -> ZSet:
    """Merge equal rows, add their weights, drop rows whose weights add up to 0.

    Cost: one hash a row; if all weights are equal, the counting runs in C.
    Raises: DataError naming `where` and the row that cannot be hashed.
    """
    try:
        if len(rows) == 1:
            return {rows[0]: weights[0]} if weights[0] else {}
        if len(rows) >= _MANY and weights.count(weights[0]) == len(weights):
            zset: ZSet = Counter(rows)
            first = weights[0]
            if first == 1:
                return zset
            return {row: first * count for row, count in zset.items()} if first else {}
        # Most changes of live data replace one row by another.
        if len(rows) == 2 and 0 not in weights and rows[0] != rows[1]:
            return {rows[0]: weights[0], rows[1]: weights[1]}
        zset = {}
        merge_into(zset, rows, weights)
        return zset
    except TypeError as error:
        raise unhashable(rows, where) from error


def _have_one_value(rows: Sequence[Row], weights: Sequence[int]) -> bool:
    """Return whether all rows are pairs with the same value object, and have the same weight, which is not 0.

    Such rows are equal if their keys are equal. Cost: 0.1 µs a row; next to nothing if the first rows differ.
    """
    value, weight = rows[0][1], weights[0]
    return (
        weight != 0
        and weights.count(weight) == len(weights)
        and all(map(is_, map(itemgetter(1), rows), repeat(value)))
        and set(map(type, rows)) == {tuple}
        and set(map(len, rows)) == {2}
    )


def merge_into(zset: ZSet, rows: Iterable[Row], weights: Iterable[int]) -> None:
    """Add rows with their weights to `zset`, in place. Cost: proportional to the added rows."""
    get = zset.get
    zeros = []
    for row, weight in zip(rows, weights, strict=True):
        total = get(row, 0) + weight
        zset[row] = total
        if not total:
            zeros.append(row)
    for row in zeros:
        if get(row) == 0:
            del zset[row]


def unhashable(rows: Iterable[Row], where: str) -> DataError:
    """The error for the first of `rows` that cannot be hashed."""
    if (row := first_unhashable(rows)) is None:
        return DataError(f"{where}: a row cannot be hashed")
    return DataError(
        f"{where}: row {row!r} cannot be hashed; merged, joined and grouped rows have to be. "
        "Make it a tuple or a frozen struct: class Node(msgspec.Struct, frozen=True)"
    )


def first_unhashable(values: Iterable[Any]) -> Any:
    """Return the first of `values` that cannot be hashed; None if all can."""
    for value in values:
        try:
            hash(value)
        except TypeError:
            return value
    return None


def retracted(row: Row, weight: int, where: str) -> DataError:
    """The error for a row whose weight fell below 0."""
    return DataError(
        f"{where}: row {row!r} is there {weight} times; only present rows can be retracted. "
        "Use minus() for a difference"
    )


_MOST_EQUAL = 10_000_000


def repeated(row: Row, weight: int, where: str) -> range:
    """Return a range that has |weight| items, to call a function once for each of several equal rows.

    Raises: DataError if there are too many equal rows, such as the paths of a graph, whose number multiplies at each
    fork.
    """
    if abs(weight) > _MOST_EQUAL:
        raise DataError(
            f"{where}: row {row!r} is there {abs(weight):,} times, and is folded once for each; at most "
            f"{_MOST_EQUAL:,} are. Use count(), which adds up, or distinct() before it"
        )
    return range(abs(weight))
