"""A processor that does with its store what the value of each record says: the same as in `StoreOperations.java`.

It forwards each row that it reads, under a key that names the call, the row's number and the row.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import eddy

__all__ = ["OPERATIONS", "StoreOperations", "encoded"]

OPERATIONS = 16
Rows = Iterable[tuple[Any, int]]


def encoded(operation: int, key: int, other: int, a: int, b: int, value: int) -> int:
    """The value of a record: an operation, two of eight keys, two times below 128, and a value."""
    return operation + 16 * (key + 8 * (other + 8 * (a + 128 * (b + 128 * value))))


class StoreOperations:
    """`kind` is the kind of the store; every `every_ms` of event time it tells all rows, and deletes the first one."""

    def __init__(self, store: str, kind: str, every_ms: int) -> None:
        self._name, self._kind, self._every_ms = store, kind, every_ms

    def init(self, context: eddy.ProcessorContext) -> None:
        self._context, self._calls = context, context.store(f"{self._name}-calls")
        self._store: Any = getattr(context, f"{self._kind}_store")(self._name)
        if self._every_ms:
            context.schedule(timedelta(milliseconds=self._every_ms), "event time", self._punctuate)

    def process(self, record: eddy.Record[Any, Any]) -> None:
        left, operation = divmod(record.value, 16)
        left, key = divmod(left, 8)
        left, other = divmod(left, 8)
        left, a = divmod(left, 128)
        value, b = divmod(left, 128)
        if self._kind == "versioned":
            self._tell([self._of_versions(operation, f"k{key}", a, value)])
            return
        call = self._of_windows if self._kind == "window" else self._of_sessions
        self._tell(call(operation, f"k{key}", f"k{other}", a, b, value))

    def _punctuate(self, time_ms: int) -> None:
        if self._kind == "versioned":
            self._delete_first_version()
            return
        rows = list(self._store.all())
        self._tell(rows)
        if not rows:
            return
        first = rows[0][0]
        if self._kind == "window":
            self._store.delete(first.key, first.start_ms)
        else:
            self._store.remove(first.key, first.start_ms, first.end_ms)

    def _delete_first_version(self) -> None:
        found = {key: self._store.get(key) for key in ("k0", "k1", "k2", "k3")}
        first = next(((key, version) for key, version in found.items() if version), None)
        rows = list(found.values())
        if first:
            rows.append(self._store.delete(first[0], first[1].timestamp_ms))
        self._tell(map(_told, rows))

    def _of_windows(self, operation: int, key: str, other: str, a: int, b: int, value: int) -> Rows:
        store = self._store
        match operation:
            case 4:
                store.delete(key, a)
                return []
            case 5:
                return [("", store.fetch(key, a))]
            case 6 | 7:
                return store.fetch_range(key, a, b, operation == 7)
            case 8 | 9:
                return store.fetch_keys(key, other, a, b, operation == 9)
            case 10 | 11:
                return store.fetch_all(a, b, operation == 11)
            case 12 | 13:
                return store.all(operation == 13)
            case 14:
                return store.fetch_keys(None, other, a, b)
            case 15:
                return store.fetch_keys(key, None, a, b, True)
        store.put(key, value, a)
        return []

    def _of_sessions(self, operation: int, key: str, other: str, a: int, b: int, value: int) -> Rows:
        store, span = self._store, (min(a, b), max(a, b))
        match operation:
            case 4:
                store.remove(key, *span)
                return []
            case 5:
                return [("", store.fetch_session(key, *span))]
            case 6 | 7:
                return store.find_sessions(key, a, b, operation == 7)
            case 8 | 9:
                return store.fetch_keys(key, other, a, b, operation == 9)
            case 10 | 11:
                return store.fetch(key, operation == 11)
            case 12 | 13:
                return store.fetch_keys(key, other, backward=operation == 13)
            case 14:
                return store.fetch_keys(None, other)
            case 15:
                return store.fetch_keys(key, None, a, b)
        store.put(key, value, *span)
        return []

    def _of_versions(self, operation: int, key: str, a: int, value: int) -> tuple[Any, int]:
        match operation:
            case 5 | 6:
                return _told(self._store.get(key))
            case 7 | 8 | 9 | 10 | 11 | 12:
                return _told(self._store.get(key, a))
            case 13 | 14 | 15:
                return _told(self._store.delete(key, a))
        return "put", self._store.put(key, None if operation == 4 else value, a)

    def _tell(self, rows: Rows) -> None:
        calls = self._calls.get("calls") or 0
        self._calls.put("calls", calls + 1)
        for number, (row, value) in enumerate(list(rows)):
            text = f"{row.key}@{row.start_ms}-{row.end_ms}" if isinstance(row, eddy.Windowed) else str(row)
            self._context.forward(eddy.Record(f"{calls}:{number} {text}", -1 if value is None else value))


def _told(version: eddy.VersionedRecord[int] | None) -> tuple[Any, Any]:
    if version is None:
        return "", None
    return f"{version.timestamp_ms}-{'' if version.valid_to_ms is None else version.valid_to_ms}", version.value
