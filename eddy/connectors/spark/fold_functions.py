"""Aggregates over all rows of a key, in Python workers, over rows sorted by key.

    FoldFunction    an aggregate: the adder for inserted rows, the subtractor for retracted ones
    GroupFunction   any function of a key's values with their weights

All rows of a key are in one task and adjacent, possibly across Arrow batches. A fold holds one aggregate at a time,
a group function all values of one key.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from eddy.connectors.spark.arrow_functions import ROWS, arrow_schema, encode_rows, record_batch
from eddy.errors import DataError, EddyError
from eddy.operators.aggregate import Aggregate
from eddy.operators.batch import Row, retracted
from eddy.operators.errors.set_aside import reason_in
from eddy.operators.reduce import Function
from eddy.serde import Serde
from eddy.state.spec import StateSpec
from eddy.state.table_state import Table

__all__ = ["FOLDED", "FoldFunction", "GroupFunction"]

FOLDED = f"{ROWS}, n long"
"""Rows with the number of rows folded, 0 if the group is empty; no value if the function returned None."""
_ROWS_A_BATCH = 10_000


@dataclass(frozen=True)
class _ByKey:
    name: str
    key: Serde[Any]
    value: Serde[Any]
    out_key: Serde[Any]
    out_value: Serde[Any]

    def _rows(self, batches: Iterable[Any]) -> Iterator[tuple[bytes | None, Any, Any, int]]:
        """Yield (identity of the key, key, value, weight)."""
        for arrived in batches:
            columns = dict(zip(arrived.schema.names, (c.to_pylist() for c in arrived.columns), strict=True))
            for k, kc, v, vc, w in zip(*(columns[name] for name in ("k", "kc", "v", "vc", "w")), strict=True):
                key = None if k is None else self.key.decode(k if kc is None else kc)
                value = None if v is None else self.value.decode(v if vc is None else vc)
                yield k, key, value, w

    def _encoded(self, made: Iterable[tuple[Row, int, int]], schema: str, nulls: bool = False) -> Iterator[Any]:
        """Arrow batches of rows with weights, and numbers if the schema has them; with `nulls` None is no value."""
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


@dataclass(frozen=True)
class FoldFunction(_ByKey):
    """Rows sorted by key, and within a key in the order of folding → one `FOLDED` row a key."""

    initial: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any] | None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Fold each key's rows. Raises: DataError naming the aggregate."""
        yield from self._encoded(self._folded(batches), FOLDED, nulls=True)

    def _folded(self, batches: Iterable[Any]) -> Iterator[tuple[Row, int, int]]:
        spec = StateSpec(self.name, "table", self.key, self.value, 1, lambda key, count: 0)
        fold = Aggregate(self.name, Table[Any, Any](spec), self.initial, self.adder, self.subtractor)
        last: Any = None
        group: dict[Any, Any] = {}
        number, began = 0, False
        for identity, key, value, weight in self._rows(batches):
            if not began or identity != last:
                if began:
                    yield next(iter(group.items())), 1, number
                last, group, number, began = identity, {key: None}, 0, True
            here = next(iter(group))
            try:
                fold._fold([((here, value), weight)], group)
            except EddyError:
                raise
            except Exception as error:
                raise DataError(reason_in(self.name, error)) from error
            number += weight
        if began:
            yield next(iter(group.items())), 1, number


@dataclass(frozen=True)
class GroupFunction(_ByKey):
    """Consolidated rows sorted by key → the rows that `function` returns for each key's values."""

    function: Function

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Call the function once a key. Raises: DataError naming the step."""
        yield from self._encoded(self._made(batches), ROWS)

    def _made(self, batches: Iterable[Any]) -> Iterator[tuple[Row, int, int]]:
        last: Any = None
        here: Any = None
        values: dict[Any, int] = {}
        for identity, key, value, weight in self._rows(batches):
            if values and identity != last:
                yield from self._of(here, values)
                values = {}
            if not values:
                last, here = identity, key
            values[value] = values.get(value, 0) + weight
        if values:
            yield from self._of(here, values)

    def _of(self, key: Any, values: dict[Any, int]) -> Iterator[tuple[Row, int, int]]:
        if min(values.values()) < 0:
            value, weight = min(values.items(), key=lambda item: item[1])
            raise retracted((key, value), weight, f"'{self.name}'")
        try:
            made = self.function(key, values)
        except EddyError:
            raise
        except Exception as error:
            raise DataError(reason_in(self.name, error)) from error
        for value, weight in made.items():
            if weight:
                yield (key, value), weight, 0
