"""Finds rows by their values: rows that contain a text, and the first rows by a column.

The rows of a table are read one after the other. One request reads rows for half a second at most, and answers how many
it has read and where the next request continues. So a search of any table consists of small answers, and its client
can show the progress. Each answer is of one version; the next answer may be of a later version.

    search=TEXT       rows whose key or value contains the text, in any case, in the order of keys
    order=[-]COLUMN   of the rows that this request reads, the first rows by a column, as `order_by` of a live query
                      sorts them; each with its position, by which a client merges the answers
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request

from eddy.errors import QueryError
from eddy.live.dataflow.values import order_of
from eddy.live.query.refusals import QueryLimitError
from eddy.live.server.naming import columns_of
from eddy.serve.answers import encode
from eddy.tables.key_text import text_of_key
from eddy.tables.open_table import OpenTable

__all__ = ["SEARCH_S", "Search", "search_of", "searched"]

SEARCH_S = 0.5
"""Seconds that one request reads rows."""
MAX_FOUND_BYTES = 16 << 20
LOOK_EVERY = 100
"""Rows between two looks at the clock."""

Allowed = Callable[[Any, Any], Any] | None


class Search(NamedTuple):
    """A text to look for, and the column to sort by. Each of them may be missing."""

    text: str
    column: str = ""
    falls: bool = False


class _Kept(NamedTuple):
    """A row that is found: its position by the column, and the row as JSON."""

    position: bytes
    data: bytes


def search_of(request: Request, table: OpenTable) -> Search | None:
    """Return the search that a request names by `search=` and `order=`; None without them. Raises: QueryError."""
    text, order = (request.query_params.get(name) for name in ("search", "order"))
    if text is None and order is None:
        return None
    if order is not None and order in {"", "-"}:
        raise QueryError(f"table '{table.table.name}': order={order!r}; a column is needed, as order=price or -price")
    order = order or ""
    return Search((text or "").casefold(), order.removeprefix("-"), order.startswith("-"))


def searched(table: OpenTable, rows: Iterator[tuple[Any, Any]], search: Search, limit: int, allowed: Allowed) -> Any:
    """Read rows until the time is over, all rows are read, or, without an order, `limit` rows are found.

    Returns {"rows", "searched", "next"}: `next` is the `after` of the next request, None at the end.
    Raises: QueryLimitError if the rows that are found have more than 16 MiB.
    """
    end = time.monotonic() + SEARCH_S
    kept, seen, last, more = _KeptRows(table.table.name, search, limit), 0, None, False
    for key, value in rows:
        if kept.is_full or (seen and not seen % LOOK_EVERY and time.monotonic() > end):
            more = True
            break
        seen, last = seen + 1, key
        if (allowed is None or allowed(key, value)) and _contains(table, search.text, key, value):
            kept.add(key, value)
    return {
        "rows": kept.rows(),
        "searched": seen,
        "next": text_of_key(table.table, last) if more else None,
    }


def _contains(table: OpenTable, text: str, key: Any, value: Any) -> bool:
    if not text or text in text_of_key(table.table, key).casefold():
        return True
    return text in (value if isinstance(value, str) else encode(value).decode()).casefold()


class _KeptRows:
    """Collects found rows, and from time to time drops all but the first `limit`."""

    def __init__(self, name: str, search: Search, limit: int) -> None:
        self._name, self._search, self._limit = name, search, limit
        self._position = order_of([(search.column, search.falls)]) if search.column else None
        self._kept: list[_Kept] = []
        self._worst: bytes | None = None
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the search may stop: no later row can be in the result."""
        return self._position is None and (len(self._kept) >= self._limit or self._bytes > MAX_FOUND_BYTES)

    def add(self, key: Any, value: Any) -> None:
        """Keep a row, unless `limit` rows are known to be before it."""
        position = b"" if self._position is None else self._position_of(key, value)
        if self._worst is not None and position >= self._worst:
            return
        kept = _Kept(position, encode({"key": key, "value": value}))
        self._kept.append(kept)
        self._bytes += len(kept.data) + 2 * len(position)
        if self._position is not None and (len(self._kept) >= 2 * self._limit or self._bytes > MAX_FOUND_BYTES):
            self._cut()

    def _position_of(self, key: Any, value: Any) -> bytes:
        assert self._position is not None
        try:
            return self._position(columns_of(value, "value"))
        except Exception as error:
            raise QueryError(
                f"table '{self._name}': the row of key {key!r} cannot be sorted by '{self._search.column}': {error!r}; "
                "a column of plain values is needed"
            ) from error

    def _cut(self) -> None:
        self._kept.sort(key=lambda kept: kept.position)  # stable: equal ones remain in the order of keys
        del self._kept[self._limit :]
        self._bytes = sum(len(kept.data) + 2 * len(kept.position) for kept in self._kept)
        if len(self._kept) == self._limit:
            self._worst = self._kept[-1].position
        if self._bytes > MAX_FOUND_BYTES:
            raise QueryLimitError(
                f"table '{self._name}': the first {len(self._kept):,} rows by '{self._search.column}' have more than "
                f"{MAX_FOUND_BYTES >> 20} MiB; a lower limit is needed, as limit={max(1, self._limit // 10)}"
            )

    def rows(self) -> list[Any]:
        """Return the rows that are found, as JSON; sorted rows with their positions."""
        if self._position is None:
            return [msgspec.Raw(kept.data) for kept in self._kept]
        self._cut()
        return [{"row": msgspec.Raw(kept.data), "position": kept.position.hex()} for kept in self._kept]
