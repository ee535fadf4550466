"""Aggregates over all rows of a key, in Python workers, over rows sorted by key.

    FoldFunction    a fold: row by row, each as often as its weight
    GroupFunction   a function of all values of a key with their weights
    ValueFunction   a function like `GroupFunction`, for values that need not be hashable, with at most one result

All rows of a key are in one task and adjacent, possibly across Arrow batches. A fold holds one aggregate at a time,
a group function all values of one key.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Protocol

from eddy.connectors.spark.arrow_functions import ROWS, arrow_schema, columns_of, encode_rows, record_batch
from eddy.connectors.spark.decoded_rows import Row, calling
from eddy.connectors.spark.grouped_values import FirstValues, GroupedValues
from eddy.errors import DataError
from eddy.serde import Serde

__all__ = [
    "FOLDED",
    "AuthorsFold",
    "FirstFold",
    "FoldForm",
    "FoldFunction",
    "GroupFunction",
    "ReducingFold",
    "ValueFunction",
]

FOLDED = f"{ROWS}, n long"
"""Rows with the number of rows folded, 0 if the group is empty; no value if the function returned None."""
_ROWS_A_BATCH = 10_000
_Columns = tuple[bytes | None, bytes | None, bytes | None, bytes | None, int]
_MOST_EQUAL = 10_000_000
"""The most equal rows, which are folded one by one as in a worker; more would take too long."""


class FoldForm(Protocol):
    """The functions of a fold: add a row, remove a row, return the value.

    Before the first row the aggregate is None.
    """

    def add(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Return the aggregate with one row more."""

    def subtract(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Return the aggregate with one row less."""

    def result(self, aggregate: Any) -> Any:
        """Return the value of the table; None if the table has no row."""


@dataclass(frozen=True)
class AuthorsFold:
    """The author's fold. If one of its functions returns None, the next row begins the group anew."""

    initial: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any] | None

    def add(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Call the adder."""
        return self.adder(key, value, self.initial() if aggregate is None else aggregate)

    def subtract(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Call the subtractor."""
        assert self.subtractor is not None
        return self.subtractor(key, value, self.initial() if aggregate is None else aggregate)

    def result(self, aggregate: Any) -> Any:
        """Return the aggregate."""
        return aggregate


@dataclass(frozen=True)
class ReducingFold:
    """The author's reducer: a group's first value is its first aggregate."""

    reducer: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any] | None

    def add(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Call the reducer."""
        return value if aggregate is None else self.reducer(aggregate, value)

    def subtract(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Call the subtractor."""
        assert self.subtractor is not None
        return None if aggregate is None else self.subtractor(aggregate, value)

    def result(self, aggregate: Any) -> Any:
        """Return the aggregate."""
        return aggregate


@dataclass(frozen=True)
class FirstFold:
    """A fold to the first values of facts in an order. Its aggregate is the list of all values."""

    first: FirstValues

    def add(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Append a value to the aggregate."""
        values: list[Any] = [] if aggregate is None else aggregate
        values.append(value)
        return values

    def subtract(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Fail, because facts are never retracted."""
        raise AssertionError(value)

    def result(self, aggregate: Any) -> Any:
        """Return the first values of the aggregate."""
        return self.first.of(aggregate or ())


@dataclass(frozen=True)
class _ByKey:
    name: str
    key: Serde[Any]
    value: Serde[Any]
    out_key: Serde[Any]
    out_value: Serde[Any]

    def _groups(self, batches: Iterable[Any]) -> Iterator[tuple[Any, Iterable[tuple[Any, int]]]]:
        """Yield each key, in the form of its first row, with its values and their weights."""
        for _, rows in groupby(_rows(batches), itemgetter(0)):
            group = iter(rows)
            first = k, kc, *_ = next(group)
            data = k if kc is None else kc
            yield None if data is None else self.key.decode(data), map(self._valued, chain((first,), group))

    def _valued(self, row: _Columns) -> tuple[Any, int]:
        _, _, v, vc, weight = row
        data = v if vc is None else vc
        return None if data is None else self.value.decode(data), weight

    def _encoded(self, made: Iterable[tuple[Row, int, int]], schema: str, nulls: bool = False) -> Iterator[Any]:
        """Yield Arrow batches of rows with weights and numbers; the numbers are dropped if `schema` has none.

        With `nulls` a value of None is encoded as null.
        """
        arrow = arrow_schema(schema)
        pending: list[tuple[Row, int, int]] = []

        def batch() -> Any:
            columns = encode_rows([row for row, _, _ in pending], self.out_key, self.out_value, self.name, nulls)
            columns += [[weight for _, weight, _ in pending], [number for _, _, number in pending]][: len(arrow) - 4]
            return record_batch(columns, arrow)

        for item in made:
            pending.append(item)
            if len(pending) >= _ROWS_A_BATCH:
                yield batch()
                pending = []
        if pending:
            yield batch()


def _rows(batches: Iterable[Any]) -> Iterator[_Columns]:
    for arrived in batches:
        columns = columns_of(arrived)
        yield from zip(*(columns[name] for name in ("k", "kc", "v", "vc", "w")), strict=True)


@dataclass(frozen=True)
class FoldFunction(_ByKey):
    """Turns rows, sorted by key and then in the order of folding, into one `FOLDED` row for each key."""

    fold: FoldForm

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Fold each key's rows. Raises: DataError naming the aggregate."""
        yield from self._encoded(self._folded(batches), FOLDED, nulls=True)

    def _folded(self, batches: Iterable[Any]) -> Iterator[tuple[Row, int, int]]:
        for key, values in self._groups(batches):
            aggregate, number = None, 0
            for value, weight in values:
                if abs(weight) > _MOST_EQUAL:
                    raise DataError(
                        f"aggregate '{self.name}': row {(key, value)!r} is there {abs(weight):,} times, and is folded "
                        f"once for each; at most {_MOST_EQUAL:,} are. Use count(), or distinct() before it"
                    )
                step = self.fold.add if weight > 0 else self.fold.subtract
                with calling(self.name):
                    for _ in range(abs(weight)):
                        aggregate = step(key, value, aggregate)
                number += weight
            with calling(self.name):
                result = self.fold.result(aggregate)
            yield (key, result), 1, number


@dataclass(frozen=True)
class GroupFunction(_ByKey):
    """Turns consolidated rows, sorted by key, into the rows that `function` returns for each key's values."""

    function: GroupedValues

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Call the function once a key. Raises: DataError naming the step."""
        yield from self._encoded(self._made(batches), ROWS)

    def _made(self, batches: Iterable[Any]) -> Iterator[tuple[Row, int, int]]:
        for key, rows in self._groups(batches):
            values: dict[Any, int] = {}
            for value, weight in rows:
                if weight < 0:
                    raise DataError(
                        f"'{self.name}': row {(key, value)!r} is there {weight} times; only present rows can be "
                        "retracted. Use minus() for a difference"
                    )
                values[value] = values.get(value, 0) + weight
            with calling(self.name):
                made = self.function(key, values)
            for value, weight in made.items():
                if weight:
                    yield (key, value), weight, 0


@dataclass(frozen=True)
class ValueFunction(_ByKey):
    """Turns rows, sorted by key, into the value that `function(key, (value, weight) pairs)` returns for each key.

    None makes no row. The function has to read all pairs.
    """

    function: Callable[[Any, Iterable[tuple[Any, int]]], Any]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Call the function once a key. Raises: DataError naming the step."""
        yield from self._encoded(self._made(batches), ROWS)

    def _made(self, batches: Iterable[Any]) -> Iterator[tuple[Row, int, int]]:
        for key, rows in self._groups(batches):
            with calling(self.name):
                value = self.function(key, rows)
            if value is not None:
                yield (key, value), 1, 0
