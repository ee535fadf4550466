"""From the rows of a served table to rows of queries: the key by the names that the query gives it, values by member.

    key        its column; a tuple's items one by one
    value      the fields of a struct, the members of a JSON object; any other value is the column `value`, or the one
               that the query names

Rows are plain data, as JSON has it: dates are text. Bytes and decimals stay as they are.
"""

import decimal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from eddy.errors import QueryError
from eddy.operators.views.values import Flat, Row, flat_key
from eddy.serve.views.catalog import ServedTable
from eddy.serve.views.intake import table_prefix
from eddy.serve.views.ordering import decode_key
from eddy.topology.queries.columns_read import columns_read
from eddy.topology.queries.syntax import Select, Table

__all__ = ["Naming", "check_columns"]

_KEPT = (bytes, decimal.Decimal)


class Naming:
    """Names the columns of one table's rows."""

    def __init__(self, served: ServedTable, table: Table, allowed: Callable[[Any, Any], object] | None = None) -> None:
        """`allowed` of a key and a value says whether the row is there for the queries; None: all are."""
        self.table, self._served, self._allowed = table, served, allowed
        self._skip = len(table_prefix(served.name))
        self._value = table.value or "value"
        self.key_of = flat_key(table.key)

    def delta(self, changes: Iterable[tuple[bytes, bytes | None]]) -> Iterator[tuple[Flat, Row | None]]:
        """Stored rows as rows of queries by key, None where a row goes. Raises: QueryError where a key does not fit."""
        decode = self._served.value.decode
        for stored, data in changes:
            stored_key = decode_key(self._served.key, stored[self._skip :])
            row = self._key(stored_key)
            key = self.key_of(row)
            value = None if data is None else decode(data)
            is_there = data is not None and self._is_allowed(stored_key, value)
            yield key, row | self._values(value) | row if is_there else None

    def _is_allowed(self, key: Any, value: Any) -> bool:
        if self._allowed is None:
            return True
        try:
            return bool(self._allowed(key, value))
        except Exception as error:
            raise QueryError(
                f"table '{self.table.name}': the function of the rows that may be read has failed: {error!r}"
            ) from error

    def _key(self, key: Any) -> Row:
        names = self.table.key
        if len(names) == 1:
            return {names[0]: _plain(key)}
        if not isinstance(key, tuple | list) or len(key) != len(names):
            raise QueryError(
                f"table '{self.table.name}': its keys, such as {key!r}, are not {len(names)} items, as "
                f"key={self.table.key!r} says; a name for each item is needed"
            )
        return dict(zip(names, map(_plain, key), strict=True))

    def _values(self, value: Any) -> Row:
        plain = _plain(value)
        return plain if type(plain) is dict else {self._value: plain}


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is int or kind is float or value is None:
        return value
    return msgspec.to_builtins(value, builtin_types=_KEPT, str_keys=True)


def check_columns(select: Select, served: dict[str, ServedTable]) -> None:
    """Raises: QueryError for a column that no row of its table can have, because its values are structs or plain."""
    for table, columns in columns_read(select).items():
        kind = served[table.name].value.type
        if isinstance(kind, msgspec.StructMeta):
            known = {*kind.__struct_encode_fields__, *table.key}
        elif kind in {str, int, float, bytes}:
            known = {table.value or "value", *table.key}
        else:
            continue
        if missing := sorted(columns - known):
            raise QueryError(
                f"table '{table.name}': there is no column '{missing[0]}'; one of {', '.join(sorted(known))} is needed"
            )
