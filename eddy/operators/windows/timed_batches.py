"""The records that arrive in an epoch for a state of timed rows, and the rows that a join makes of them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

from eddy.operators.batch import EMPTY, Batch, Row, keys_of
from eddy.operators.errors.set_aside import refused
from eddy.state.timed_rows import EncodedRows, TimedRows
from eddy.windows import Windowed

__all__ = ["Arrived", "ByKey", "JoinedRows"]

ByKey = Mapping[tuple[int, bytes], list[tuple[Windowed[Any], Any, int, int]]]
"""The key, value, weight and time of each record, by its partition and the key's bytes."""


class Arrived(NamedTuple):
    """Records that arrive in an epoch for a state, with their encoded rows."""

    batch: Batch
    keys: list[Windowed[Any]]
    encoded: EncodedRows

    @classmethod
    def at(cls, state: TimedRows[Any, Any], batch: Batch) -> "Arrived":
        """Encode the records of a batch for a state. Raises: the error of the first record that it cannot write."""
        try:
            keys = list(keys_of(batch.rows))
            list(map(hash, keys))
            return cls(batch, keys, state.encoded(batch.rows))
        except Exception:
            for error in cls.errors(state, batch).values():
                raise error from None
            raise

    @staticmethod
    def errors(state: TimedRows[Any, Any], batch: Batch) -> dict[int, Exception]:
        """Return the errors of the records that the state cannot write, by index."""
        spec = replace(state.spec, kind="table")  # values need no hash
        found = ((index, refused(spec, row)) for index, row in enumerate(batch.rows))
        return {index: error for index, error in found if error is not None}

    def by_key(self) -> ByKey:
        """Group the records by partition and key."""
        found: dict[tuple[int, bytes], list[tuple[Windowed[Any], Any, int, int]]] = defaultdict(list)
        for key, value, weight, time, home, plain in self.rows():
            found[home, plain].append((key, value, weight, time))
        return found

    def rows(self) -> Iterator[Any]:
        """Yield (key, value, weight, time, partition, bytes of the key) of each record."""
        batch, encoded = self.batch, self.encoded
        values = map(itemgetter(1), batch.rows)
        times = batch.times_of_rows()
        return zip(self.keys, values, batch.weights, times, encoded.homes, encoded.plain, strict=True)


class JoinedRows:
    """Collects the rows that a join makes, which are records (K, (V, W)).

    `numbered`: the times of rows are numbers of records. Then a row that derives from no record of the epoch has 0.
    """

    def __init__(self, numbered: bool) -> None:
        self.rows: list[Row] = []
        self.weights: list[int] = []
        self.times: list[int] = []
        self.numbered = numbered

    def add(self, key: Any, values: tuple[Any, Any], weight: int, time: int) -> None:
        """Add a row."""
        self.rows.append((key, values))
        self.weights.append(weight)
        self.times.append(time)

    def batch(self) -> Batch:
        """Return all rows as a batch."""
        return Batch(self.rows, self.weights, max(self.times), self.times) if self.rows else EMPTY
