"""Aggregates of windows that need all values of each window: the number of different values, and lists of all values.

    distinct_count    Σ 1      over the different `of(value)` of a window
    collect           the values of a window in the order of `by(value)`, unless there are more than `max`

The values are rows of an arrangement beside the table, so a record writes one row of the arrangement. The values of a
window are stored as long as values can be added: until the window closes, or its row is removed.
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
    """The interface of an aggregate of all values of a window.

    Values are given as bytes, and summaries change in place.
    """

    @property
    def verb(self) -> str:
        """The method of the DSL."""

    @property
    def kept(self) -> Serde[Any]:
        """The serde of the values."""

    def of_value(self, value: Any) -> Any:
        """Return the object to store for a record's value; None if the value does not count.

        Raises: DataError; any exception of `of`.
        """

    def data(self, kept: Any) -> bytes:
        """Encode an object that `of_value` has returned."""

    def begin(self) -> Any:
        """Make the summary of no values."""

    def add(self, summary: Any, data: bytes, weight: int) -> None:
        """Add a value to a summary, `weight` times."""

    def merge(self, summary: Any, other: Any) -> Any:
        """Merge two summaries into one; the two are not used any more. Cost: linear in the smaller one."""

    def result(self, summary: Any) -> Any:
        """Return the aggregate for a summary; None if the window is to have no row."""


@dataclass(frozen=True)
class DifferentValues:
    """Counts the different `of(value)`, or the different values if `of` is None. Equal values have the same bytes.

    None does not count. `required`: None is an error, as in sums of sessions.
    """

    name: str
    of: Callable[[Any], Any] | None
    kept: Serde[Any]
    required: bool = False

    verb: ClassVar[str] = "distinct_count"

    def of_value(self, value: Any) -> Any:
        """Return `of(value)`, or the value itself if `of` is None."""
        found = value if self.of is None else self.of(value)
        if found is None and self.required:
            raise DataError(
                f"distinct_count '{self.name}': of({value!r}) is None, and each record of a session needs a value. "
                "Filter the others out before windowed_by"
            )
        return found

    def data(self, kept: Any) -> bytes:
        """Encode a value, so that equal values have the same bytes."""
        return (self.kept.identify or self.kept.encode)(kept)

    def begin(self) -> set[bytes]:
        """No values."""
        return set()

    def add(self, summary: set[bytes], data: bytes, weight: int) -> None:
        """Add a value to the set."""
        summary.add(data)

    def merge(self, summary: set[bytes], other: set[bytes]) -> set[bytes]:
        """Return the union of two sets."""
        large, small = (summary, other) if len(summary) >= len(other) else (other, summary)
        large |= small
        return large

    def result(self, summary: set[bytes]) -> int | None:
        """Return the number of values; None for 0."""
        return len(summary) or None


@dataclass(frozen=True)
class CollectedValues:
    """Collects all values in the order of a selection, as a tuple; None if there are more than the selection's `n`."""

    selection: Selection

    verb: ClassVar[str] = "collect"

    @property
    def kept(self) -> Serde[Any]:
        """The serde of the values."""
        return self.selection.serde

    def of_value(self, value: Any) -> Any:
        """Return the value itself. Raises: as `Selection.position`."""
        self.selection.position(value)
        return value

    def data(self, kept: Any) -> bytes:
        """Encode the value by its serde."""
        return self.kept.encode(kept)

    def begin(self) -> Any:
        """No values."""
        return SortedKeyList(key=itemgetter(0))

    def add(self, summary: Any, data: bytes, weight: int) -> None:
        """Add a value at its position."""
        value = self.kept.decode(data)
        summary.update(repeat((self.selection.position(value), value), weight))

    def merge(self, summary: Any, other: Any) -> Any:
        """Return one sorted list with all values of two lists."""
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
    """Make the summary of values with their weights."""
    made = values.begin()
    for data, weight in pairs:
        values.add(made, data, weight)
    return made


def failures_of(values: ValuesOfWindows, rows: Iterable[Row], spec: StateSpec | None) -> dict[int, Exception]:
    """Return the errors of the rows whose values cannot be aggregated, by the row's index.

    If `spec` is the spec of a table, a row whose aggregate the table cannot write also has an error.
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

    `values` has the values of each window. Cost: O(log n) for each record of a window with n values, plus the size of
    the result.
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
        """Drop the list for `moved`."""
        self._come = []

    def moved(self, delta: Batch) -> tuple[list[Windowed[Any]], list[Windowed[Any]]]:
        """Return two lists: the windows that got their first value in the last step, and an empty list.

        The second list is for windows that have lost all values; here no window loses them.
        """
        return self._come, []

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Add the values to their windows."""
        return self._step(inputs[0], None)

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
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
