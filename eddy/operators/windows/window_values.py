"""Aggregates of windows that need all values of each window: the number of different ones, and lists of all.

    distinct_count    Σ 1      over the different `of(value)` of a window
    collect           the values of a window in the order of `by(value)`, unless there are more than `max`

The values are rows of an arrangement beside the table, so that a record writes one row of it. A window has values until
nothing can be added to it: until it closes, or its row is removed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import Any, ClassVar, Protocol

from sortedcontainers import SortedKeyList

from eddy.errors import DataError
from eddy.operators.batch import Batch, Row, unhashable
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, refused, unwritten_keys
from eddy.operators.operator import Operator, State
from eddy.operators.top_k import Selection
from eddy.operators.upsert import by_key, replacement
from eddy.serde import Serde
from eddy.state.arrangement import pairs_of
from eddy.state.spec import StateSpec
from eddy.state.summarized_arrangement import SummarizedArrangement
from eddy.state.table_state import Table
from eddy.windows import Windowed

__all__ = ["CollectedValues", "DifferentValues", "ValuesOfWindows", "WindowedValues", "failures_of", "summary_of"]


class ValuesOfWindows(Protocol):
    """An aggregate as a function of the values of a window, in bytes. Its summaries are changed in place."""

    @property
    def verb(self) -> str:
        """The method of the DSL."""

    @property
    def kept(self) -> Serde[Any]:
        """The serde of the values."""

    def of_value(self, value: Any) -> Any:
        """What is kept of a record's value; None for nothing. Raises: DataError; any exception of the author's."""

    def data(self, kept: Any) -> bytes:
        """The bytes of what is kept."""

    def begin(self) -> Any:
        """The summary of no values."""

    def add(self, summary: Any, data: bytes, weight: int) -> None:
        """Add a value to a summary, so often."""

    def merge(self, summary: Any, other: Any) -> Any:
        """One summary of both; these are not used any more. Cost: linear in the smaller one."""

    def result(self, summary: Any) -> Any:
        """The aggregate; None for none."""


@dataclass(frozen=True)
class DifferentValues:
    """The number of different `of(value)`, or of different values. Values that are equal have the same bytes.

    None does not count. `required`: None is an error, as in sums of sessions.
    """

    name: str
    of: Callable[[Any], Any] | None
    kept: Serde[Any]
    required: bool = False

    verb: ClassVar[str] = "distinct_count"

    def of_value(self, value: Any) -> Any:
        """`of(value)`, or the value."""
        found = value if self.of is None else self.of(value)
        if found is None and self.required:
            raise DataError(
                f"distinct_count '{self.name}': of({value!r}) is None, and each record of a session needs a value. "
                "Filter the others out before windowed_by"
            )
        return found

    def data(self, kept: Any) -> bytes:
        """Bytes that equal values share."""
        return (self.kept.identify or self.kept.encode)(kept)

    def begin(self) -> set[bytes]:
        """No values."""
        return set()

    def add(self, summary: set[bytes], data: bytes, weight: int) -> None:
        """One value more."""
        summary.add(data)

    def merge(self, summary: set[bytes], other: set[bytes]) -> set[bytes]:
        """The union."""
        large, small = (summary, other) if len(summary) >= len(other) else (other, summary)
        large |= small
        return large

    def result(self, summary: set[bytes]) -> int | None:
        """Their number."""
        return len(summary) or None


@dataclass(frozen=True)
class CollectedValues:
    """All values in the order of a selection, as a tuple; None if there are more than its `n`."""

    selection: Selection

    verb: ClassVar[str] = "collect"

    @property
    def kept(self) -> Serde[Any]:
        """The serde of the values."""
        return self.selection.serde

    def of_value(self, value: Any) -> Any:
        """The value. Raises: as `Selection.position`."""
        self.selection.position(value)
        return value

    def data(self, kept: Any) -> bytes:
        """The value as it is written."""
        return self.kept.encode(kept)

    def begin(self) -> Any:
        """No values."""
        return SortedKeyList(key=itemgetter(0))

    def add(self, summary: Any, data: bytes, weight: int) -> None:
        """Add a value at its position."""
        value = self.kept.decode(data)
        summary.update(repeat((self.selection.position(value), value), weight))

    def merge(self, summary: Any, other: Any) -> Any:
        """All values of both."""
        large, small = (summary, other) if len(summary) >= len(other) else (other, summary)
        for entry in small:
            large.add(entry)
        return large

    def result(self, summary: Any) -> tuple[Any, ...] | None:
        """The tuple of the values."""
        if not 0 < len(summary) <= (self.selection.n or 1):
            return None
        return tuple(value for _, value in summary)


def summary_of(values: ValuesOfWindows, pairs: Iterable[tuple[bytes, int]]) -> Any:
    """The summary of values with their weights."""
    made = values.begin()
    for data, weight in pairs:
        values.add(made, data, weight)
    return made


def failures_of(values: ValuesOfWindows, rows: Iterable[Row], spec: StateSpec | None) -> dict[int, Exception]:
    """The rows of whose values nothing can be made, by index. With the spec of a table, a row whose value the table
    cannot write is set aside, too.
    """
    found: dict[int, Exception] = {}
    for index, (key, value) in enumerate(rows):
        try:
            kept = values.of_value(value)
            if kept is not None:
                alone = values.result(summary_of(values, [(values.data(kept), 1)]))
                if spec is not None and (error := refused(spec, (key, alone))) is not None:
                    found[index] = error
        except Exception as error:
            found[index] = error
    return found


class WindowedValues(Operator):
    """Input: records (Windowed K, V). Output: the delta of the table Windowed K → aggregate of all values.

    `values` has the values of each window. Cost: O(log n) for each record of a window with n values, and the result.
    """

    def __init__(
        self,
        name: str,
        table: Table[Any, Any],
        values: SummarizedArrangement[Windowed[Any], Any],
        aggregate: ValuesOfWindows,
    ) -> None:
        self.name, self.table, self.values, self._aggregate = name, table, values, aggregate
        self._come: list[Windowed[Any]] = []

    def states(self) -> Sequence[State]:
        """The table, and the values."""
        return (self.table, self.values)

    def end_epoch(self) -> None:
        """Drop what is reported."""
        self._come = []

    def moved(self, delta: Batch) -> tuple[list[Windowed[Any]], list[Windowed[Any]]]:
        """The windows that got their first value in the last step. The second list, of windows without values, is
        empty.
        """
        return self._come, []

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Add the values to their windows."""
        return self._step(inputs[0], None)

    def step_apart(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the records on which a function fails, and withhold a window whose aggregate cannot be written."""
        batch = aside.without_kept(inputs[0])
        batch = aside.without(batch, unwritten_keys(batch, self.table.spec))
        return self._step(aside.without(batch, failures_of(self._aggregate, batch.rows, None)), aside)

    def _step(self, batch: Batch, aside: Aside | None) -> Batch:
        aggregate = self._aggregate
        delta: dict[tuple[Any, bytes], int] = {}
        for (window, value), weight in zip(batch.rows, batch.weights, strict=True):
            kept = aggregate.of_value(value)
            if kept is not None:
                row = window, aggregate.data(kept)
                try:
                    delta[row] = delta.get(row, 0) + weight
                except TypeError as error:
                    raise unhashable([(window, None)], f"'{self.name}'") from error
        windows = list(dict.fromkeys(window for window, _ in delta))
        before = self.values.get_many(windows)
        self._come = [window for window, bag in zip(windows, before, strict=True) if bag is None]
        summaries = {window: self.values.summary(window) for window in windows}
        for (window, data), weight in delta.items():
            aggregate.add(summaries[window], data, weight)
        self.values.integrate(delta)
        news = {window: aggregate.result(summary) for window, summary in summaries.items()}
        if aside is not None:
            news = {window: aside.shown(self.table.spec, window, value) for window, value in news.items()}
        olds = self.table.get_many(windows)
        self.table.put_many(news, olds)
        return replacement(news, olds, batch.time, headers_of=by_key(batch, batch.headers))

    def forget(self, closed: Sequence[Windowed[Any]]) -> None:
        """Remove the values of windows that have closed."""
        bags = zip(closed, self.values.get_many(closed), strict=True)
        self.values.integrate({(window, data): -weight for window, bag in bags for data, weight in pairs_of(bag)})
        for window in closed:
            self.values.replace(window, {None: None})
