"""Turns records of a table's topic into rows of the store: keys become bytes that sort as keys; values are unchanged.

A row of table T is stored under  T 00 ordered-key . The records that the worker rejected are ignored here, too: records
that do not decode, records without a key, and records in the application's notes.
"""

import logging
from collections.abc import Collection, Sequence

from eddy.connectors.log import Records
from eddy.runtime.decoded_columns import decoded, note_unhashable
from eddy.tables.catalog import ServedTable
from eddy.tables.ordering import encode_key, encoder_of

__all__ = ["Intake", "table_prefix"]

_log = logging.getLogger("eddy.tables")


def table_prefix(name: str) -> bytes:
    """Return the bytes with which the keys of a table's rows begin in the store."""
    return name.encode() + b"\x00"


class Intake:
    """Turns the records of one table into rows. `left_out` counts the ignored records."""

    def __init__(self, table: ServedTable) -> None:
        self.table = table
        self.left_out = 0
        self._prefix = table_prefix(table.name)
        self._encode = encoder_of(table.key, table.topic_key)

    def rows(self, records: Records, noted: Collection[int] = ()) -> dict[bytes, bytes | None]:
        """Return the last value of each key in the records, None for a deletion.

        Records at the offsets `noted` are ignored.
        """
        keys: Sequence[bytes | None] = records.keys
        values: Sequence[bytes | None] = records.values
        if not self.table.internal:
            keys = self.table.topic_key.with_ids(keys, records.headers)
            values = self.table.value.with_ids(values, records.headers)
        if noted and not set(noted).isdisjoint(records.offsets):
            keep = [offset not in noted for offset in records.offsets]
            self.left_out += keep.count(False)
            keys = [key for key, kept in zip(keys, keep, strict=True) if kept]
            values = [value for value, kept in zip(values, keep, strict=True) if kept]
        try:
            return self._whole(keys, values)
        except Exception:
            return self._one_by_one(records, keys, values)

    def _whole(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> dict[bytes, bytes | None]:
        if not self.table.key.hashable:
            raise TypeError("keys have to be looked at one by one")
        ordered = self._encode(keys)  # type: ignore[arg-type]  # None in it raises
        if not self.table.internal:
            self.table.value.decode_many([value for value in values if value is not None])
        prefix = self._prefix
        return dict(zip([prefix + key for key in ordered], values, strict=True))

    def _one_by_one(
        self, records: Records, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> dict[bytes, bytes | None]:
        problems: dict[int, str] = {}
        found = decoded(keys, self.table.topic_key, "key", problems, headers=None)
        if not self.table.key.hashable:
            note_unhashable(found, problems)
        decoded(values, self.table.value, "value", problems, headers=None)
        rows: dict[bytes, bytes | None] = {}
        for index, (key, value) in enumerate(zip(found, values, strict=True)):
            if index not in problems and key is not None:
                rows[self._prefix + encode_key(self.table.key, key)] = value
        if problems:
            if not self.left_out:
                where = f"table '{self.table.name}': topic '{records.topic}' partition {records.partition}"
                _log.warning(
                    "%s: a record is left out: %s; more of them are only counted", where, min(problems.items())[1]
                )
            self.left_out += len(problems)
        return rows
