"""Makes rows of queries from the rows of a served table, with columns for items of the key and members of the value.

    key        its column, or a column for each item of a tuple
    value      the fields of a struct, the members of a JSON object; any other value is the column `value`, or the one
               that the query names

Rows are plain data, as in JSON: dates are text. Bytes and decimals are not converted. A string with a lone surrogate is
refused: UTF-8 cannot encode it.
"""

import decimal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from eddy.errors import NotReadyError, QueryError
from eddy.live.dataflow.values import Flat, Row, flat_key
from eddy.live.query.columns import is_text
from eddy.live.query.columns_read import columns_read
from eddy.live.query.syntax import QueriedTable, Select
from eddy.state.pages import pages
from eddy.tables.catalog import ServedTable
from eddy.tables.intake import table_prefix
from eddy.tables.open_table import end_of
from eddy.tables.ordering import decode_key
from eddy.tables.served_rows import RowsSnapshot

__all__ = ["PAGE_ROWS", "Naming", "check_columns", "columns_of"]

_KEPT = (bytes, decimal.Decimal)
PAGE_ROWS = 5_000
"""The number of rows that are read at a time."""
_NESTED = (dict, list, tuple)
_MAX_DEPTH = 200
"""The most levels of lists and objects in a value, since comparing or encoding a deeper one would fail in a batch."""


class Naming:
    """Names the columns of one table's rows."""

    def __init__(
        self, served: ServedTable, table: QueriedTable, allowed: Callable[[Any, Any], object] | None = None
    ) -> None:
        """Only rows for which `allowed` of key and value is true are shown; None shows all rows."""
        self.table, self._served, self._allowed = table, served, allowed
        self._skip = len(table_prefix(served.name))
        self._value = table.value or "value"
        self.key_of = flat_key(table.key)

    def delta(self, changes: Iterable[tuple[bytes, bytes | None]]) -> Iterator[tuple[Flat, Row | None]]:
        """Yield the changed rows as rows of queries: pairs (key, row). The row is None if it is removed or not allowed.

        Raises: QueryError if a key does not fit the key's columns.
        """
        for stored, data in changes:
            try:
                yield self._changed(decode_key(self._served.key, stored[self._skip :]), data)
            except QueryError:
                raise
            except Exception as error:
                raise QueryError(
                    f"table '{self.table.name}': a record cannot be a row of queries: {error!r}; keys and "
                    f"values that JSON can represent are needed"
                ) from error

    def rows(self, snapshot: RowsSnapshot) -> Iterator[tuple[Flat, Row]]:
        """Yield all rows of a snapshot, with their keys, page by page. The snapshot is closed at the end.

        Raises: NotReadyError if the snapshot has ended; QueryError if a key does not fit the key's columns.
        """
        start = table_prefix(self._served.name)
        stop = end_of(start)
        try:
            for page in pages(lambda first, limit: snapshot.between(first, stop, limit), start, PAGE_ROWS):
                for key, row in self.delta(page):
                    if row is not None:
                        yield key, row
        except QueryError as error:
            if snapshot.ended:
                raise NotReadyError(f"live query: {snapshot.ended} meanwhile. Try again") from error
            raise
        finally:
            snapshot.close()

    def _changed(self, key: Any, data: bytes | None) -> tuple[Flat, Row | None]:
        row = self._key(key)
        if data is None:
            return self.key_of(row), None
        value = self._served.value.decode(data)
        if not self._is_allowed(key, value):
            return self.key_of(row), None
        named = row | columns_of(value, self._value) | row
        if (flaw := _flaw(named)) is not None:
            raise QueryError(
                f"table '{self.table.name}': the row of key {key!r} {flaw}, which queries cannot read; another "
                f"value is needed"
            )
        return self.key_of(row), named

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


def columns_of(value: Any, name: str) -> Row:
    """Return the columns of a value: a struct's fields, an object's members, otherwise one column called `name`."""
    plain = _plain(value)
    return plain if type(plain) is dict else {name: plain}


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is int or kind is float or value is None:
        return value
    return msgspec.to_builtins(value, builtin_types=_KEPT, str_keys=True)


def _flaw(row: Row) -> str | None:
    """Return the reason why queries cannot read a row; None if they can.

    The reason is too many levels of lists and objects, or a string that UTF-8 cannot encode.
    """
    level: list[Any] = [row]
    for _ in range(_MAX_DEPTH + 1):
        nested, texts = [], []
        for each in level:
            if type(each) is dict:
                texts += [name for name in each if not name.isascii()]
                each = each.values()
            for item in each:
                kind = type(item)
                if kind is str:
                    if not item.isascii():
                        texts.append(item)
                elif kind in _NESTED:
                    nested.append(item)
        if texts and not is_text("".join(texts)):
            return "has a string with a lone surrogate"
        if not nested:
            return None
        level = nested
    return f"is nested more than {_MAX_DEPTH} levels deep"


def check_columns(select: Select, served: dict[str, ServedTable]) -> None:
    """Raise QueryError for a column that no row of its table can have, because its values are structs or plain."""
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
