"""Different bytes with the same meaning: two encodings of one value, and floats whose last digits depend on order.

    alike    equal values, encoded differently: 1, 1.0 and true are one value wherever eddy stores them (ADR 7)
    near     numbers that differ by at most  tolerance × max(1, |a|, |b|);  everything else is equal

Floats are added in the order in which changes arrive, which the input does not determine, and (a + b) + c is not
a + (b + c). So results downstream of a fold over a table or a relation are compared with a tolerance, integers exactly.

A row of a relation has its value in its key, so rows that differ have no common key. Expected rows without a match are
paired with found rows without a match, in the order of their numbers.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import msgspec

from eddy.connectors.spark.arrow_functions import arrow_schema, record_batch
from eddy.connectors.spark.verification.diff import DIFF
from eddy.errors import ConnectorError
from eddy.serde import Float64, Int64, Native, Plain, Serde
from eddy.state.row_layout import split, weighted

__all__ = ["CLASSIFIED", "Classifying", "RowFormat", "WithCanonicalKeys"]

CLASSIFIED = f"{DIFF}, how string"
"""`how` is `differs`, `alike` or `near`."""
_WEIGHT_BYTES = 8
_ROWS_A_BATCH = 10_000
_LARGEST_PLAIN = 2.0**100


@dataclass(frozen=True)
class RowFormat:
    """The format of a topic's bytes: keys and values, or the rows of a state of another `kind`.

    `near`: numbers are compared with the tolerance.
    """

    key: Serde[Any]
    value: Serde[Any]
    kind: str = "table"
    near: bool = False

    @property
    def rows(self) -> bool:
        """Whether the records are rows of a relation, whose key includes the value."""
        return self.kind not in {"table", "calendar"}

    @property
    def has_canonical_keys(self) -> bool:
        """Whether equal keys may have different bytes, so that they have to be compared in a canonical form."""
        return not self.rows and (self.key.identify is not None or self.key.name == Plain.name)

    def canonical_key(self, key: bytes) -> bytes:
        """Return bytes that are equal for equal keys. Bytes that the serde cannot read are returned unchanged."""
        try:
            value = _read(self.key, key)
            return (Native if self.key.name == Plain.name else self.key).identify_many([value])[0]
        except ConnectorError:
            raise
        except Exception:
            return key

    def how(self, expected: bytes, found: bytes, tolerance: float) -> str:
        """Return how two values with different bytes differ: `differs`, `alike` or `near`."""
        try:
            one, other = _read(self.value, expected), _read(self.value, found)
            identify = (Native if self.value.name == Plain.name else self.value).identify_many
            if identify([one]) == identify([other]):
                return "alike"
        except ConnectorError:
            raise
        except Exception:
            return "differs"
        return "near" if self.near and _near([one], [other], tolerance) else "differs"


def _read(serde: Serde[Any], data: bytes) -> Any:
    """Read a value.

    Bytes of the plain serde are read as a number if no other reading is possible, otherwise as bytes.
    """
    if serde.name != Plain.name:
        return serde.decode(data)
    if len(data) != _WEIGHT_BYTES or _printable(data):
        return data
    number = Float64.decode(data)
    # If the bytes of an integer up to 4.1e18, such as an identifier, are read as a float, it is implausibly close to 0.
    plausible = number == 0 or 1 / _LARGEST_PLAIN <= abs(number) <= _LARGEST_PLAIN
    return number if plausible else Int64.decode(data)


def _printable(data: bytes) -> bool:
    try:
        return data.decode().isprintable()
    except UnicodeDecodeError:
        return False


@dataclass(frozen=True)
class WithCanonicalKeys:
    """Adds a column `known` to rows of one topic: bytes that are equal for equal keys."""

    form: RowFormat
    schema: str

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Add `known` as the last column to columns that include `k`."""
        schema = arrow_schema(f"{self.schema}, known binary")
        for arrived in batches:
            keys = arrived.column("k").to_pylist()
            known = [None if key is None else self.form.canonical_key(key) for key in keys]
            yield record_batch([*arrived.columns, known], schema)


@dataclass(frozen=True)
class Classifying:
    """Decides of each row with other bytes whether it is alike, near or different. Rows of one key are adjacent."""

    forms: Mapping[str, RowFormat]
    tolerance: float

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Turn `DIFF` rows into `CLASSIFIED` rows."""
        schema = arrow_schema(CLASSIFIED)
        rows = (row for batch in batches for row in batch.to_pylist())
        classified = (
            (*row.values(), how)
            for (topic, _), group in groupby(rows, key=self._group)
            for row, how in self._classified(self.forms[topic], group)
        )
        while some := list(islice(classified, _ROWS_A_BATCH)):
            yield record_batch(list(zip(*some, strict=True)), schema)

    def _group(self, row: dict[str, Any]) -> tuple[str, bytes | None]:
        key = row["k"]
        return row["topic"], split(key)[0] if self.forms[row["topic"]].rows and key is not None else key

    def _classified(self, form: RowFormat, rows: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
        lonely: list[dict[str, Any]] = []
        for row in rows:
            expected, found = row["expected"], row["found"]
            if row["misplaced"] is not None or row["times_expected"] + row["times_found"] > 2:
                yield row, "differs"
            elif expected is not None and found is not None:
                yield row, self._how_row(form, row) if form.rows else form.how(expected, found, self.tolerance)
            elif form.rows and form.near:
                lonely.append(row)
            else:
                yield row, "differs"
        near = _paired(form, lonely, self.tolerance)
        yield from ((row, "near" if at in near else "differs") for at, row in enumerate(lonely))

    def _how_row(self, form: RowFormat, row: dict[str, Any]) -> str:
        """Classify a row of a relation that is expected and found: as its value is equal, the weights are compared."""
        expected, found = row["expected"], row["found"]
        if expected[:_WEIGHT_BYTES] != found[:_WEIGHT_BYTES]:
            return "differs"
        value = split(row["k"])[1]
        one, other = (weighted(value, data)[0] for data in (expected, found))
        return "alike" if one == other else form.how(one, other, 0.0)


def _paired(form: RowFormat, rows: list[dict[str, Any]], tolerance: float) -> set[int]:
    """Pair rows of one key that were only expected with rows only found; return the indices of rows that are near."""
    sides: dict[Any, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for at, row in enumerate(rows):
        data = row["expected"] or row["found"]
        try:
            value = form.value.decode(weighted(split(row["k"])[1], data)[0])
        except Exception:
            continue
        numbers: list[float] = []
        skeleton = _flat(value, numbers)
        sides[data[:_WEIGHT_BYTES], repr(skeleton)][row["expected"] is None].append((numbers, at))
    found: set[int] = set()
    for expected, others in sides.values():
        expected.sort(key=itemgetter(0))
        others.sort(key=itemgetter(0))
        while expected and others:
            (one, at), (other, beside) = expected[-1], others[-1]
            if _numbers_near(one, other, tolerance):
                found |= {at, beside}
                expected.pop(), others.pop()
            else:
                (expected if one > other else others).pop()
    return found


def _near(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two values are equal except for numbers that are near each other."""
    ours: list[float] = []
    theirs: list[float] = []
    return repr(_flat(one, ours)) == repr(_flat(other, theirs)) and _numbers_near(ours, theirs, tolerance)


def _numbers_near(one: list[float], other: list[float], tolerance: float) -> bool:
    return all(_number_near(a, b, tolerance) for a, b in zip(one, other, strict=True))


def _number_near(a: float, b: float, tolerance: float) -> bool:
    if a == b or (a != a and b != b):
        return True
    if isinstance(a, int) and isinstance(b, int):
        return False
    try:
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # an integer beyond all floats
        return False


def _flat(value: Any, numbers: list[float]) -> Any:
    """Return a value with `_NUMBER` in place of its numbers, which are appended to `numbers` in order."""
    if type(value) in {int, float}:
        numbers.append(value)
        return _NUMBER
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, [_flat(getattr(value, name), numbers) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return [(repr(key), _flat(value[key], numbers)) for key in sorted(value, key=repr)]
    if isinstance(value, list | tuple):
        return [_flat(item, numbers) for item in value]
    return value


_NUMBER = ...
"""The placeholder of a number in the structure of a value."""
