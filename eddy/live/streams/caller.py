"""A caller of queries: the rows that it may read, and the queries that it requests."""

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from eddy.errors import QueryError
from eddy.live.query.named import Claims, Queries
from eddy.live.query.planning import selects_of
from eddy.live.query.query import Query
from eddy.live.query.query_text import query_of_text
from eddy.live.query.refusals import ForbiddenError, QueryArgumentError, QueryFailedError
from eddy.live.query.renaming import renamed
from eddy.live.query.syntax import QueriedTable
from eddy.live.server.live_server import LiveServer
from eddy.live.server.rows_apart import RowsApart
from eddy.live.streams.events import Asked

__all__ = ["Caller", "Headers", "MayRead", "rows_allowed"]

_log = logging.getLogger("eddy.live")
MayRead = Callable[[str], "bool | Callable[[Any, Any], bool]"]
"""For a table: False refuses, True allows all rows, a function (key, value) allows some."""


def rows_allowed(may_read: MayRead, table: str) -> Callable[[Any, Any], Any] | None:
    """Return a function of (key, value) that is true for the rows of a table that may be read.

    Returns None if all rows may be read.

    Raises: ForbiddenError, unless `may_read` returns True or a function; QueryFailedError if it fails.
    """
    try:
        allowed: object = may_read(table)
    except PermissionError as error:
        raise ForbiddenError(f"table '{table}': {error or 'it may not be read'}") from error
    except Exception as error:
        _log.error("authorize has failed for table '%s'", table, exc_info=error)
        raise QueryFailedError(f"table '{table}': authorize has failed; the server's log has the error") from error
    if allowed is True:
        return None
    if callable(allowed):
        return allowed
    if allowed:
        _log.error("authorize returned %r for table '%s'; a bool or a function (key, value) is needed", allowed, table)
    raise ForbiddenError(f"table '{table}': it may not be read")


class Headers(Mapping[str, str]):
    """The headers of a request, by names in lower case. `read` has the names that were looked up, `*` for all."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = {name.lower(): value for name, value in headers.items()}
        self.read: dict[str, None] = {}

    def __getitem__(self, name: str) -> str:
        self.read[name] = None
        return self._headers[name]

    def __iter__(self) -> Iterator[str]:
        self.read["*"] = None
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)


class Caller:
    """One caller, for one request or stream. It has to be closed.

    `of_texts` are the tables that queries as texts may read. None refuses such queries.
    """

    def __init__(
        self,
        queries: Queries,
        claims: Claims,
        may_read: MayRead,
        server: LiveServer,
        of_texts: Collection[str] | None = None,
    ) -> None:
        self._queries, self._claims, self._may_read, self._server = queries, claims, may_read, server
        self._of_texts = of_texts
        self._names: dict[QueriedTable | str, str] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def query(self, asked: Asked) -> Query:
        """Return the query that the caller requests. Raises: QueryError."""
        query, is_text = self._requested_query(asked), asked.text is not None
        if asked.skip is not None or asked.limit is not None:
            if query.syntax.aggregates and not query.syntax.group:
                raise QueryArgumentError(f"{asked.told}: it has one row, and no window to move")
            query = query if asked.skip is None else query.skip(asked.skip)
            query = query if asked.limit is None else query.limit(asked.limit)
        return self._allowed(query, is_text=is_text)

    def _requested_query(self, asked: Asked) -> Query:
        if asked.text is None:
            return self._queries[asked.name].bind(asked.args, self._claims)
        if asked.name or asked.args:
            raise QueryArgumentError("live queries: a query has a name with its args, or a text; one of both is needed")
        if self._of_texts is None:
            raise QueryArgumentError("live queries: a text is not read here. Ask for it at: /v1/live-text")
        return query_of_text(asked.text, self._of_texts)

    def of_text(self, name: str, given: Mapping[str, str]) -> Query:
        """Return the query of this name with arguments as text. Raises: QueryError."""
        return self._allowed(self._queries[name].bind(given, self._claims, as_text=True))

    def _allowed(self, query: Query, *, is_text: bool = False) -> Query:
        """Return the query, restricted to the rows of its tables that the caller may read. Raises: ForbiddenError."""
        select, names = query.syntax, dict[str, str]()
        tables = {each.table.name: each.table for each in selects_of(select)}
        with self._lock:
            if self._is_closed:
                raise QueryError("live query: its caller was closed")
            for name, table in sorted(tables.items()):
                asked = table if is_text else name
                if asked not in self._names:
                    self._names[asked] = self._name(name, table if is_text else None)
                names[name] = self._names[asked]
        filtered = {table: name for table, name in names.items() if name != table}
        return Query(renamed(select, filtered)) if filtered else query

    def _name(self, name: str, apart: QueriedTable | None) -> str:
        """Return the name for the rows of a table that the caller may read.

        If `apart` is given, the query is a text, and reads a table of its own.
        """
        allowed = rows_allowed(self._may_read, name)
        if apart is not None:
            return self._server.tables.filtered(name, RowsApart(apart.key, apart.value, allowed))
        return name if allowed is None else self._server.tables.filtered(name, allowed)

    def close(self) -> None:
        """Release the filtered tables that the caller's queries read."""
        with self._lock:
            self._is_closed = True
            names, self._names = self._names, {}
        for table, name in names.items():
            if name != table:  # always so for a query as a text
                self._server.tables.unfiltered(name)
