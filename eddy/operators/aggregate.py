"""Aggregates by key, updated by inserted and retracted rows.

    count      a + Σ weight
    aggregate  fold `adder` over inserted rows, `subtractor` over retracted rows

Invariant: a group is in the table while it has rows, unless its function returned None for it. To know whether a group
has rows, an aggregate over retractable rows counts them in a second table. It subtracts before it adds, as Kafka
Streams does.

Rows without a key, and facts without a value, are in no group. A group's row has the headers of its last record in the
epoch.
"""

from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter, length_hint
from typing import Any

from eddy.errors import DataError, RecordRefusedError
from eddy.operators.batch import Batch, Row, keys_of, repeated, unhashable
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, netted, refused, restored_by_text, unwritten_keys
from eddy.operators.keyed import Keyed
from eddy.operators.operator import State
from eddy.operators.upsert import by_key, replacement
from eddy.state.table_state import Table

__all__ = ["Aggregate", "Count", "check_new"]


_SAMPLE = 64
"""The number of keys that are compared first. If these differ, as often after a recursion, all keys are compared."""


def weight_by_key(batch: Batch, where: str) -> dict[Any, int]:
    """Return the sum of the weights of each key's rows. Raises: DataError if a key cannot be hashed."""
    try:
        if batch.weights.count(1) == len(batch.weights):
            return Counter(keys_of(batch.rows))
        keys = list(keys_of(batch.rows))
        if len(set(keys[:_SAMPLE])) == len(keys[:_SAMPLE]):
            sums = dict(zip(keys, batch.weights, strict=True))
            if len(sums) == len(keys):
                return sums
        sums = {}
        get = sums.get
        for key, weight in zip(keys, batch.weights, strict=True):
            sums[key] = get(key, 0) + weight
        return sums
    except TypeError as error:
        raise unhashable(batch.rows, where) from error


def add_counts(table: Table[Any, int], deltas: dict[Any, int]) -> tuple[Mapping[Any, int | None], list[int | None]]:
    """Add `deltas` to the counts in `table`. Returns two values: the new count of each key, and the old counts.

    None stands for a count of 0. The old counts are in the order of the keys in `deltas`.
    """
    olds = table.get_many(list(deltas))
    if olds.count(None) == len(olds) and 0 not in deltas.values():
        table.put_many(deltas, olds)
        return deltas, olds
    news = {
        key: (delta if old is None else old + delta) or None
        for (key, delta), old in zip(deltas.items(), olds, strict=True)
    }
    table.put_many(news, olds)
    return news, olds


class Count(Keyed):
    """Input: rows of (K, V), or `facts`. Output: the delta of the table K -> number of rows."""

    def __init__(self, name: str, table: Table[Any, int], facts: bool = False) -> None:
        self.name, self.table, self._facts = name, table, facts

    def states(self) -> Sequence[State]:
        """The table of counts."""
        return (self.table,)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Add each key's weights to its count."""
        batch = self.with_both(inputs[0]) if self._facts else self.with_keys(inputs[0])
        deltas = weight_by_key(batch, f"count '{self.name}'")
        news, olds = add_counts(self.table, deltas)
        return replacement(news, olds, batch.time, headers_of=by_key(batch, batch.headers))

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows whose keys the table cannot write."""
        batch = aside.without_kept(inputs[0])
        return self.step(context, aside.without(batch, unwritten_keys(batch, self.table.spec)))


_SIGNED = itemgetter(1)
_ONCE = range(1)
_MUTABLE = (list, dict, set, bytearray)


class Aggregate(Keyed):
    """Input: rows of (K, V). Output: the delta of the table K -> aggregate.

    `initial()` starts a group; `adder(key, value, aggregate)` and `subtractor` return the next aggregate. None removes
    the group from the table, and the next row starts it again. A subtractor needs `counts`. Without a subtractor the
    input has to be facts, which are never retracted. With `checked`, a function that returns the same list or dict that
    it was given is refused, because it may have changed this object.
    """

    def __init__(
        self,
        name: str,
        table: Table[Any, Any],
        initial: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any] | None = None,
        counts: Table[Any, int] | None = None,
        checked: bool = True,
    ) -> None:
        self.name, self.table, self.counts = name, table, counts
        self._checked = checked
        self._initial, self._adder, self._subtractor = initial, adder, subtractor

    def states(self) -> Sequence[State]:
        """The table of aggregates, and the table of their row counts."""
        return (self.table,) if self.counts is None else (self.table, self.counts)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Fold the rows of the batch into their groups, group by group, in the order of the rows."""
        batch = self.with_both(inputs[0]) if self.counts is None else self.with_keys(inputs[0])
        deltas = weight_by_key(batch, f"aggregate '{self.name}'")
        keys = list(deltas)
        olds = self.table.get_many(keys)
        groups = dict(zip(keys, olds, strict=True))
        signed: Iterable[tuple[Row, int]] = zip(batch.rows, batch.weights, strict=True)
        if self.counts is None:
            self._fold(signed, groups)
        else:
            counts, before = add_counts(self.counts, deltas)
            # A delta may have +row and -row in any order. An empty group adds first: it has nothing to subtract from.
            empty = {key for key, count in zip(keys, before, strict=True) if count is None}
            self._fold(sorted(signed, key=lambda item: (item[1] > 0) is not (item[0][0] in empty)), groups)
            groups |= dict.fromkeys(key for key, count in counts.items() if count is None)
        self.table.put_many(groups, olds)
        return replacement(groups, olds, batch.time, headers_of=by_key(batch, batch.headers))

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows on which a function fails, and withhold a group whose aggregate cannot be written."""
        batch = self.with_both(inputs[0]) if self.counts is None else self.with_keys(inputs[0])
        batch = aside.without_kept(batch if self.counts is None else netted(aside, batch))
        batch = aside.without(batch, unwritten_keys(batch, self.table.spec))
        keys = list(dict.fromkeys(keys_of(batch.rows)))
        olds = self.table.get_many(keys)
        groups = {key: self._withheld(aside, key, old) for key, old in zip(keys, olds, strict=True)}
        empty = set() if self.counts is None else {k for k in keys if self.counts.get(k) is None}
        indexes: Iterable[int] = range(len(batch))
        if self.counts is not None:
            indexes = sorted(indexes, key=lambda i: (batch.weights[i] > 0) is not (batch.rows[i][0] in empty))
        batch = aside.without(batch, self._fold_each(batch, indexes, groups))
        if self.counts is not None and batch.rows:
            counts, _ = add_counts(self.counts, weight_by_key(batch, self.name))
            groups |= dict.fromkeys(key for key, count in counts.items() if count is None)
        groups = {key: self._shown(aside, key, value) for key, value in groups.items()}
        self.table.put_many(groups, olds)
        return replacement(groups, olds, batch.time, headers_of=by_key(batch, batch.headers) if batch.rows else None)

    def _fold_each(self, batch: Batch, indexes: Iterable[int], groups: dict[Any, Any]) -> dict[int, Exception]:
        """Fold the rows at `indexes`, in this order. Returns the errors of those that cannot be folded, by index.

        A group that is too large for the changelog is folded once more, without the rows that make the group too large.
        """
        indexes, begun, errors = list(indexes), dict(groups), dict[int, Exception]()
        for index in indexes:
            self._fold_one(batch, index, groups, errors)
        large = {key for key, value in groups.items() if value is not None and self._too_large(key, value)}
        groups |= {key: begun[key] for key in large}
        for index in indexes if large else ():
            if (key := batch.rows[index][0]) in large and index not in errors:
                before = groups[key]
                self._fold_one(batch, index, groups, errors)
                value = groups[key]
                if value is not None and (refusal := self._too_large(key, value)) is not None:
                    groups[key], errors[index] = before, refusal
        return errors

    def _fold_one(self, batch: Batch, index: int, groups: dict[Any, Any], errors: dict[int, Exception]) -> None:
        try:
            self._fold([(batch.rows[index], batch.weights[index])], groups)
        except Exception as error:
            errors[index] = error

    def _too_large(self, key: Any, value: Any) -> Exception | None:
        error = refused(self.table.spec, (key, value))
        return error if isinstance(error, RecordRefusedError) else None

    def _withheld(self, aside: Aside, key: Any, old: Any) -> Any:
        kept = aside.withheld(key)
        return old if kept is None else literal_eval(kept.body)

    def _shown(self, aside: Aside, key: Any, value: Any) -> Any:
        """Return the value to write to the table.

        If the table cannot write `value`, `aside` stores the value and withholds the key, and None is returned.
        """
        error = None if value is None else refused(self.table.spec, (key, value))
        if error is None:
            aside.release(key)
            return value
        if not restored_by_text(value):
            raise error
        aside.withhold(key, value, error, repr(value))
        return None

    @property
    def tells_failures(self) -> bool:
        """Whether `failures` can find the failing rows: only if rows are facts.

        Retractable rows are folded in another order than they arrived in.
        """
        return self.counts is None

    def failures(self, *inputs: Batch) -> Mapping[int, Exception]:
        """Find the rows that fail: fold again, and leave out each row that fails.

        If several rows derive from one record, only the first failure is returned. All rows of the failing record will
        be rejected, and without them the later rows may not fail.
        """
        (batch,) = inputs
        keys = list(dict.fromkeys(key for key in keys_of(batch.rows) if key is not None))
        groups = dict(zip(keys, self.table.get_many(keys), strict=True))
        found: dict[int, Exception] = {}
        alone = batch.times is not None and len(set(batch.times)) == len(batch.times)
        numbered = enumerate(zip(batch.rows, batch.weights, strict=True))
        folded = [item for item in numbered if item[1][0][0] is not None and item[1][0][1] is not None]
        left = iter(folded)
        while True:
            try:
                self._fold(map(_SIGNED, left), groups)
                return found
            except Exception as error:
                found[folded[-1 - length_hint(left)][0]] = error
                if not alone:
                    return found

    def _fold(self, signed: Iterable[tuple[Row, int]], groups: dict[Any, Any]) -> None:
        for (key, value), weight in signed:
            function = self._adder if weight > 0 else self._subtractor
            assert function is not None
            aggregate = groups[key]
            for _ in _ONCE if weight == 1 else repeated((key, value), weight, f"aggregate '{self.name}'"):
                old = self._initial() if aggregate is None else aggregate
                aggregate = function(key, value, old)
                if self._checked:
                    check_new(self.name, aggregate, old, key)
            groups[key] = aggregate


def check_new(name: str, new: Any, old: Any, key: Any) -> None:
    """Raise DataError if a function returned the list or dict that it was given, which it may have changed."""
    if new is old and isinstance(new, _MUTABLE):
        raise DataError(
            f"aggregate '{name}': the function changed its argument in place at key {key!r}; "
            "the old value is still needed to undo an epoch. Return a new value: aggregate + [value]"
        )
