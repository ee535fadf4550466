"""SQL over HTTP, answered by the engine of `eddy sql` over the tables as they are.

GET  /v1/sql    the tables with their columns, for completion
POST /v1/sql    {"sql": "SELECT …"}: the answer

Queries only read. A query reads at most MAX_READ rows, among the rows that its caller may read, and may take some
seconds; 1,000 rows of its answer are sent. One query is answered at a time, and a few may wait. No error tells the
number of rows that its caller may not read.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eddy.errors import EddyError, QueryError
from eddy.live.query.refusals import ForbiddenError, QueryLimitError
from eddy.live.streams.caller import rows_allowed
from eddy.program.open_tables import Tables, TablesSnapshot
from eddy.program.sql_process import Question, SqlProcesses
from eddy.program.sql_rows import named_rows, row_of
from eddy.serve.answers import answer
from eddy.serve.http_server import RENEW
from eddy.serve.live_pages import Authorize, body_of
from eddy.topology.sql.answer import AnswerTable

__all__ = ["MAX_READ", "MAX_WAITING", "SqlPages"]

MAX_READ = 100_000
"""The most rows that one query reads."""
SECONDS = 10.0
MAX_WAITING = 8
"""The most queries that may wait for their turn. Each counts as one of the server's open requests."""
_SAMPLE = 100
_WAIT_S = 80.0
"""Seconds that a connection waits for its turn, and then for its answer."""
_LOOK = 1_000
_NAME = "query"
Allowed = Callable[[Any, Any], Any] | None


class _SqlRequest(msgspec.Struct):
    sql: str


class SqlPages:
    """Answers the requests for SQL. `stop` ends the process that computes answers."""

    def __init__(self, tables: Tables, authorize: Authorize) -> None:
        self._tables, self._authorize = tables, authorize
        self._processes = SqlProcesses(SECONDS)
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    def routes(self) -> list[Route]:
        """Return the routes of the answers."""
        return [Route("/v1/sql", self.columns), Route("/v1/sql", self.answered, methods=["POST"])]

    def stop(self) -> None:
        """End the process that waits for a query."""
        self._processes.close()

    async def columns(self, request: Request) -> Response:
        """Return the tables that the caller may read, with the columns of their first rows."""
        allowed = self._allowed(request)
        found = await asyncio.to_thread(self._sampled, allowed)
        return answer({"tables": found})

    def _sampled(self, allowed: dict[str, Allowed]) -> list[dict[str, Any]]:
        self._processes.begin()
        found = []
        with self._tables.snapshot(timeout_s=0.0) as snapshot:
            for name, may_read in allowed.items():
                rows = [row for row in snapshot[name].range(limit=_SAMPLE) if may_read is None or may_read(*row)]
                table = _table(name, rows, cut=True)
                columns = [{"name": column.name, "type": str(column.type)} for column in table.columns]
                found.append({"name": name, "columns": columns})
        return found

    async def answered(self, request: Request) -> Response:
        """Return the answer to a query, with the version of the tables."""
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            # A page of another origin can send other types without asking this server.
            return answer({"code": QueryError.code, "error": "sql: Content-Type: application/json is needed"}, 415)
        data = await body_of(request)
        if data is None:
            raise QueryLimitError("sql: the query is too long; one of less than 1 MiB is needed")
        try:
            asked = msgspec.json.decode(data, type=_SqlRequest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise QueryError(f'sql: this is not a request: {error}; {{"sql": "SELECT …"}} is needed') from error
        allowed = self._allowed(request)
        async with self._turn(request):
            if await request.is_disconnected():
                return Response(status_code=408)  # the client does not wait any more
            return await asyncio.to_thread(self._answer, asked.sql, allowed)

    @asynccontextmanager
    async def _turn(self, request: Request) -> AsyncIterator[None]:
        """Wait until no other query is answered. Raises: QueryLimitError if too many wait already."""
        if self._waiting >= MAX_WAITING:
            raise QueryLimitError(
                f"sql: {self._waiting} queries wait for their turn, which is the limit; one place is needed. Try again "
                "later"
            )
        _renew(request)
        self._waiting += 1
        try:
            await self._one_at_a_time.acquire()
        finally:
            self._waiting -= 1
        try:
            _renew(request)
            yield
        finally:
            self._one_at_a_time.release()

    def _answer(self, text: str, allowed: dict[str, Allowed]) -> Response:
        with self._tables.snapshot(timeout_s=0.0) as snapshot:
            tables = self._read(snapshot, text, allowed)
            version = snapshot.version
        found = self._processes.ask(Question(text, _NAME, tables))
        self._processes.begin()
        return answer({"answer": msgspec.Raw(found), "version": version.token, "exact": version.exact})

    def _read(self, snapshot: TablesSnapshot, text: str, allowed: dict[str, Allowed]) -> dict[str, AnswerTable]:
        """Return all tables by name. Tables that the text names have their rows; others are for error messages."""
        found = {}
        left = MAX_READ
        for name, may_read in allowed.items():
            is_named = re.search(re.escape(name.replace('"', '""')), text, re.IGNORECASE) is not None
            rows = _readable(snapshot, name, may_read, left) if is_named else []
            left -= len(rows)
            found[name] = _table(name, rows)
        return found

    def _allowed(self, request: Request) -> dict[str, Allowed]:
        """Return the tables that the caller may read, each with the function that decides about its rows, if any."""
        found: dict[str, Allowed] = {}
        for name in self._tables.names:
            try:
                found[name] = rows_allowed(lambda table: self._authorize(request, table), name)
            except ForbiddenError:
                continue
        return found


def _renew(request: Request) -> None:
    """Extend the connection's time limit, which at a worker's page is shorter than the time limit of a query."""
    renew = request.scope.get("state", {}).get(RENEW)
    if renew is not None:
        renew(_WAIT_S)


def _readable(snapshot: TablesSnapshot, name: str, may_read: Allowed, most: int) -> list[tuple[Any, Any]]:
    """Return the rows of a table that may be read.

    Raises: QueryLimitError if there are more than `most`, or if finding them takes too long.
    """
    if may_read is None and (count := snapshot[name].count()) > most:
        raise _too_many(f"table '{name}' has {count:,} rows", most)
    end, rows = time.monotonic() + SECONDS, []
    for number, row in enumerate(snapshot[name].range()):
        if may_read is None or may_read(*row):
            rows.append(row)
        if len(rows) > most:
            raise _too_many(f"table '{name}' has more rows that may be read", most)
        if number % _LOOK == 0 and time.monotonic() > end:
            raise QueryLimitError(
                f"sql '{_NAME}': the rows of table '{name}' that may be read were not found in {SECONDS:g} seconds, "
                "which is the limit; a smaller table is needed"
            )
    return rows


def _too_many(what: str, most: int) -> QueryLimitError:
    return QueryLimitError(
        f"sql '{_NAME}': {what}; {most:,} more can be read here. Read more with: eddy sql, or keep the answer up to "
        "date with: topology.sql(…)"
    )


def _table(name: str, rows: Iterable[tuple[Any, Any]], *, cut: bool = False) -> AnswerTable:
    """Return rows as a table of SQL.

    A row that SQL cannot represent is an error; with `cut` the table then has no rows.
    """
    found = [(f"table '{name}' key {key!r}", row_of(key, value)) for key, value in rows]
    try:
        return named_rows(found, None, ["key"] if found else ["key", "value"])
    except EddyError:
        if not cut:
            raise
        return named_rows([], None, list(dict.fromkeys(column for _, row in found for column in row)))
