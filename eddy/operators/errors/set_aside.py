"""Rows that a step after an exchange cannot process: they are *set aside*, and all other rows are processed.

    A = Σ of the weights of the rows that the step could not take      out = step(in - A)

A, the rows set aside with their weights, is stored in the application's metadata. A row is set aside at the step whose
function fails on it. So A is a function of the rows that reach the step: it does not matter which worker made them, in
which epochs, or whether they were sent through a topic. A retraction finds its row in A and cancels it there, even if
the function was corrected in between. Facts are never retracted, so they are reported and not stored in A. In a loop
by nested time A has weights by iteration, and a row stays in A until each of them is 0.

If one value is computed from all rows of a key (a fold's state, a table's sink), and this value cannot be written, the
key is *withheld*: it has no row downstream until its value can be written.

Invariant: `kept` has the rows set aside and the withheld keys as of the last commit; `found` and `_held` have the
changes of the current epoch.
"""

from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from eddy.errors import DataError, EddyError
from eddy.operators.batch import Batch, Row, keys_of, unhashable
from eddy.serde import Json, Native, Serde, reason_of
from eddy.source_lines import describe_exception
from eddy.state.row_layout import changelog_refusals
from eddy.state.spec import StateSpec

__all__ = [
    "Aside",
    "Care",
    "Found",
    "KeptRow",
    "Located",
    "netted",
    "only_written",
    "refused",
    "restored_by_text",
    "unwritten_keys",
    "written",
]

_ROW, _KEY = b"r", b"k"
_LONGEST_BYTES = 900_000
"""The longest identity in the metadata, whose records have a mebibyte."""

_LONGEST_TEXT = 1_000
_JSON: Serde[Any] = Json()


class Care:
    """Says whether the running epoch sets rows aside. If it does not, a row that fails undoes the epoch.

    `possible`: by the error policy, an undone epoch is run again, and then sets rows aside.
    """

    on = possible = False


class KeptRow(msgspec.Struct, frozen=True):
    """A row that is set aside, or a key that is withheld, as an entry of the application's metadata.

    `weight` is the row's weight; for a key it is 1. `body` has one of two contents. For a withheld key it is the fold's
    value that the state cannot write, as `repr`. In a loop by nested time it is the row's weights by iteration, whose
    sum is `weight`.
    """

    weight: int
    partition: int
    key: str
    reason: str
    body: str = ""


class Located(NamedTuple):
    """Identifies an entry of the metadata.

    The fields are the step, its number of partitions, the key's partition, and the bytes of the row or key.
    """

    step: str
    partitions: int
    partition: int
    identity: bytes


class Found(NamedTuple):
    """A row that an epoch has set aside, or the key whose value the epoch withholds.

    `time` is the row's time, 0 if the row was merged from several rows. `remembered`: the row is stored as an entry of
    the metadata; False for facts and for keys.
    """

    identity: bytes
    row: Row
    weight: int
    reason: str
    time: int
    remembered: bool
    iteration: Any = None


@dataclass(eq=False)
class Aside:
    """The rows that one step has set aside, and the keys that it withholds.

    `home` returns the partition of a key, or an owned partition if this worker does not own the key's partition. `key`
    and `value` are the serdes of the step's input rows. If the rows of several inputs have to be told apart, `rows` is
    the input's mark in identities, and `others` has the `Aside` of each further input. In a loop by nested time
    `iteration` is the time of the step; elsewhere it is None.
    """

    step: str
    partitions: int
    home: Callable[[bytes], int]
    key: Serde[Any]
    value: Serde[Any]
    care: Care
    facts: bool = False
    rows: bytes = _ROW
    others: Sequence["Aside"] = ()
    iteration: Any = None
    kept: dict[bytes, KeptRow] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)
    _held: dict[bytes, KeptRow | None] = field(default_factory=dict)

    def identity(self, row: Row) -> bytes:
        """Return the bytes that all rows equal to this row share; a digest if they are too long."""
        key = written(row[0], self.key)
        return _short(self.rows, len(key).to_bytes(4, "big") + key + written(row[1], self.value))

    def identity_of_key(self, key: Any) -> bytes:
        """Return the bytes that all keys equal to this withheld key share; a digest if they are too long."""
        return _short(_KEY, written(key, self.key))

    def reason_of(self, row: Row) -> str:
        """Return the reason why a row equal to this one is set aside; empty if none is."""
        kept = self.kept.get(self.identity(row)) if self.kept else None
        return kept.reason if kept else ""

    def without_kept(self, batch: Batch) -> Batch:
        """Return the batch without the rows that equal a row set aside, and add their weights to that row's weight."""
        if not self.kept:
            return batch
        reasons = list(map(self.reason_of, batch.rows))
        if not any(reasons):
            return batch
        times = batch.times_of_rows()
        for index, reason in enumerate(reasons):
            if reason:
                self._add(batch.rows[index], batch.weights[index], reason, times[index], not self.facts)
        return batch.select([not reason for reason in reasons])

    def without(self, batch: Batch, errors: Mapping[int, Exception]) -> Batch:
        """Set aside the rows at these indexes. Returns the batch without them. Raises: as `take`."""
        if not errors:
            return batch
        times = batch.times_of_rows()
        for index, error in errors.items():
            self.take(batch.rows[index], batch.weights[index], error, times[index])
        return batch.select([index not in errors for index in range(len(batch))])

    def take(self, row: Row, weight: int, error: Exception, time: int = 0) -> None:
        """Set a row aside. Raises: the error, if this epoch does not set rows aside."""
        if not self.care.on:
            raise error
        self._add(row, weight, reason_in(self.step, error), time, not self.facts)

    def add_weight(self, row: Row, weight: int) -> None:
        """Add `weight` to the weight of a row that is set aside already, since an equal row has arrived."""
        self._add(row, weight, self.reason_of(row), 0, not self.facts)

    def report(self, row: Row, weight: int, error: Exception, time: int = 0) -> None:
        """Report a row as rejected, without storing it. Raises: as `take`."""
        if not self.care.on:
            raise error
        self._add(row, weight, reason_in(self.step, error), time, False)

    def _add(self, row: Row, weight: int, reason: str, time: int, remembered: bool) -> None:
        if self.iteration is not None:
            time = 0  # a loop merges equal rows, and adds queued rows of earlier epochs
        self.found.append(Found(self.identity(row), row, weight, reason, time, remembered, self.iteration))

    # Keys

    def withheld(self, key: Any) -> KeptRow | None:
        """Return the entry of a withheld key, None for any other key."""
        return self.kept.get(self.identity_of_key(key)) if self.kept else None

    def withhold(self, key: Any, value: Any, error: Exception, body: str = "", time: int = 0) -> None:
        """Withhold a key whose value cannot be written, so that it has no row downstream.

        Raises: as `take`, for a key that is not withheld yet.
        """
        identity = self.identity_of_key(key)
        before = self.kept.get(identity)
        if before is None and not self.care.on:
            raise error
        reason = reason_in(self.step, error)
        self._held[identity] = KeptRow(1, self._home(key), _cut_text(repr(key)), _cut_text(reason), body)
        if before is None:
            self.found.append(Found(identity, (key, value), 1, reason, time, False))

    def release(self, key: Any) -> None:
        """Stop withholding a key, because its value can be written, or it has no value."""
        if self.kept or self._held:
            identity = self.identity_of_key(key)
            if identity in self.kept or identity in self._held:
                self._held[identity] = None

    def withhold_in_iteration(self, key: Any, value: Any, error: Exception) -> None:
        """Withhold a key in this iteration of nested time. Raises: as `withhold`."""
        identity = self.identity_of_key(key)
        before = self._held_now(identity)
        if before is None and not self.care.on:
            raise error
        reason = reason_in(self.step, error)
        times = {*(literal_eval(before.body) if before else ()), self.iteration}
        self._held[identity] = KeptRow(1, self._home(key), _cut_text(repr(key)), _cut_text(reason), repr(sorted(times)))
        if before is None:
            self.found.append(Found(identity, (key, value), 1, reason, 0, False))

    def release_in_iteration(self, key: Any) -> None:
        """Stop withholding a key in this iteration of nested time."""
        self.keep_iterations(key, lambda time: time != self.iteration)

    def keep_iterations(self, key: Any, keeps: Callable[[Any], bool]) -> None:
        """Withhold a key only in those of its iterations for which `keeps` is true."""
        if (self.kept or self._held) and (before := self._held_now(identity := self.identity_of_key(key))):
            times = list(filter(keeps, literal_eval(before.body)))
            if repr(times) != before.body:
                self._held[identity] = msgspec.structs.replace(before, body=repr(times)) if times else None

    def _held_now(self, identity: bytes) -> KeptRow | None:
        return self._held[identity] if identity in self._held else self.kept.get(identity)

    def withheld_anew(self) -> list[Any]:
        """The keys that the epoch has begun to withhold."""
        return [one.row[0] for one in self.found if one.identity.startswith(_KEY)]

    def shown(self, spec: StateSpec, key: Any, value: Any, time: int = 0) -> Any:
        """Return the value to write to a table. If the table cannot write `value`, withhold the key and return None.

        Raises: as `withhold`.
        """
        error = None if value is None else refused(spec, (key, value))
        if error is None:
            self.release(key)
            return value
        self.withhold(key, value, error, time=time)
        return None

    # Epochs

    @property
    def changed(self) -> bool:
        """Whether the epoch has set a row aside, withheld a key, or changed such an entry."""
        return bool(self.found or self._held)

    def new_rows(self) -> list[Found]:
        """Return the rows that the epoch has set aside or rejected, without the rows that it has also retracted."""
        weights: dict[bytes, int] = {}
        for one in self.found:
            weights[one.identity] = weights.get(one.identity, 0) + one.weight
        first = {one.identity: one for one in reversed(self.found) if one.remembered}
        merged = [one._replace(weight=weights[name]) for name, one in first.items() if weights[name] > 0]
        return [one for one in self.found if not one.remembered] + merged

    def changes(self) -> dict[Located, KeptRow | None]:
        """Return the epoch's changes of the entries in the application's metadata; None removes an entry."""
        changed = {}
        for identity, kept in self._changed_entries().items():
            partition = (kept or self.kept[identity]).partition
            changed[Located(self.step, self.partitions, partition, identity)] = kept
        return changed

    def _changed_entries(self) -> dict[bytes, KeptRow | None]:
        news = dict(self._held)
        for one in self.found:
            if one.remembered:
                before = news[one.identity] if one.identity in news else self.kept.get(one.identity)
                news[one.identity] = self._with(before, one)
        return {name: kept for name, kept in news.items() if kept != self.kept.get(name)}

    def _with(self, before: KeptRow | None, one: Found) -> KeptRow | None:
        """Return a row's entry after the epoch's weight in `one` was added to it; None if the weights add up to 0.

        `before` is the entry before the epoch; None if there was none.
        """
        weight = one.weight + (before.weight if before else 0)
        partition = before.partition if before else self._home(one.row[0])
        body = ""
        if one.iteration is not None:
            weights = Counter(dict(literal_eval(before.body)) if before and before.body else {})
            weights[one.iteration] += one.weight
            body = repr(sorted((time, n) for time, n in weights.items() if n))
        if not weight and body in ("", "[]"):
            return None
        return KeptRow(weight, partition, _cut_text(repr(one.row[0])), _cut_text(one.reason), body)

    def commit(self) -> None:
        """Apply the epoch's changes, which are in the log, to `kept`."""
        if self.found or self._held:
            for identity, kept in self._changed_entries().items():
                if kept is None:
                    self.kept.pop(identity, None)
                else:
                    self.kept[identity] = kept
            self.rollback()

    def rollback(self) -> None:
        """Drop the epoch's changes."""
        self.found, self._held = [], {}

    def recall(self, memories: Iterable[tuple[Located, KeptRow]]) -> None:
        """Replace all entries in memory by the metadata's entries for the owned partitions."""
        self.rollback()
        mine = (self.rows, _KEY) if self.rows == _ROW else (self.rows,)
        self.kept = {where.identity: kept for where, kept in memories if where.identity.startswith(mine)}

    def _home(self, key: Any) -> int:
        return self.home(written(key, self.key))


def _short(mark: bytes, encoded: bytes) -> bytes:
    """Return an identity as the metadata stores it: `mark` and the encoded bytes, or their digest if they are long."""
    identity = mark + encoded
    return identity if len(identity) <= _LONGEST_BYTES else mark + sha256(identity).digest()


def _cut_text(text: str) -> str:
    """Return the text for the metadata: only its beginning if it is long."""
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def written(value: Any, serde: Serde[Any]) -> bytes:
    """Return a key or value as bytes, also if its own serde cannot encode it. Equal values have equal bytes."""
    if value is None:
        return b""
    for one in (serde, Native, _JSON):
        try:
            return (one.identify or one.encode)(value)
        except Exception:
            continue
    return repr(value).encode()


def unwritten(spec: StateSpec, rows: Sequence[Row]) -> dict[int, Exception]:
    """Return the errors of the rows that the serdes of a state cannot write, by index. Cost: each is encoded once."""
    try:
        list(map(hash, keys_of(rows) if spec.kind == "table" else rows))
        spec.key.identify_many([row[0] for row in rows if row[0] is not None])
        spec.value.encode_many([row[1] for row in rows if row[1] is not None])
        return {}
    except Exception:
        found = ((index, _unfit(spec, row)) for index, row in enumerate(rows))
        return {index: error for index, error in found if error is not None}


def unwritten_keys(batch: Batch, spec: StateSpec) -> dict[int, Exception]:
    """Return the errors of the rows whose keys a state cannot write or look up, by index."""
    errors = ((index, refused(spec, (key, None))) for index, (key, _) in enumerate(batch.rows))
    return {index: error for index, error in errors if error is not None}


def restored_by_text(value: Any) -> bool:
    """Whether Python can read the value from its `repr`, as numbers of any size, texts, and tuples of these."""
    try:
        return bool(literal_eval(repr(value)) == value)
    except Exception:
        return False


def refused(spec: StateSpec, row: Row) -> Exception | None:
    """Return the error if a state, or its changelog, cannot write a row; None if they can."""
    return _unfit(spec, row) or changelog_refusals(spec, [row]).get(0)


def _unfit(spec: StateSpec, row: Row) -> Exception | None:
    """Return the error if the serdes cannot write a row."""
    try:
        hash(row if spec.kind != "table" else row[0])
    except TypeError:
        return unhashable([row], spec.name)
    for what, value, serde in (("key", row[0], spec.key), ("value", row[1], spec.value)):
        try:
            if value is not None:
                (serde.identify or serde.encode)(value)
                serde.encode(value)
        except Exception as error:
            told = DataError(
                f"state '{spec.name}': {what} {value!r} is not a valid {serde.name}: {reason_of(error)}. Name the "
                "serde where "
                f"the rows are made ({what}=)"
            )
            told.__cause__ = error
            return told
    return None


def only_written(aside: Aside, batch: Batch, spec: StateSpec) -> Batch:
    """Return the batch with the rows that a state can write, and set all other rows aside."""
    batch = aside.without_kept(batch)
    if not aside.care.on:
        return batch
    batch = aside.without(batch, unwritten(spec, batch.rows))
    return aside.without(batch, _too_large(aside, batch, spec))


def _too_large(aside: Aside, batch: Batch, spec: StateSpec) -> Mapping[int, Exception]:
    """Return the errors of the rows that the changelog does not accept, by index.

    A row that is retracted more often than inserted is in the state, since the changelog has accepted it before.
    """
    found = changelog_refusals(spec, batch.rows)
    weights: dict[bytes, int] = {}
    names = {index: aside.identity(batch.rows[index]) for index in found}
    for index, name in names.items():
        weights[name] = weights.get(name, 0) + batch.weights[index]
    return {index: error for index, error in found.items() if weights[names[index]] >= 0}


def netted(aside: Aside, batch: Batch) -> Batch:
    """Merge equal rows: return the first of them, with the sum of their weights. Rows whose sum is 0 are left out."""
    weights: dict[bytes, int] = {}
    names = list(map(aside.identity, batch.rows))
    for name, weight in zip(names, batch.weights, strict=True):
        weights[name] = weights.get(name, 0) + weight
    summed = [weights.pop(name, 0) for name in names]
    return Batch(batch.rows, summed, batch.time, batch.times, batch.headers).select(summed)


def reason_in(step: str, error: Exception) -> str:
    """Return the text of an error for dead letters and logs."""
    if isinstance(error, EddyError):
        return str(error)
    return f"step '{step}': the function raised {describe_exception(error)}"
