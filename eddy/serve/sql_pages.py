"""SQL over HTTP, answered by the engine of `eddy sql` over the tables as they are.

GET  /v1/sql    the tables with their columns, for completion
POST /v1/sql    {"sql": "SELECT …"}: the answer

It reads, and nothing else. A query reads MAX_READ rows of its tables at most, those that its caller may read, has some
seconds, and 1,000 rows of its answer are sent. One is answered at a time.
"""

import asyncio
import re
from collections.abc import Callable
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

__all__ = ["MAX_READ", "SqlPages"]

MAX_READ = 100_000
"""The rows that one query reads."""
SECONDS = 10.0
_SAMPLE = 100
_WAIT_S = 80.0
"""Seconds that a connection waits for its turn, and then for its answer."""
_NAME = "query"
Allowed = Callable[[Any, Any], Any] | None


class _SqlRequest(msgspec.Struct):
    sql: str


class SqlPages:
    """The handlers of these routes. `stop` ends what they have begun."""

    def __init__(self, tables: Tables, authorize: Authorize) -> None:
        self._tables, self._authorize = tables, authorize
        self._processes = SqlProcesses(SECONDS)
        self._one_at_a_time = asyncio.Lock()

    def routes(self) -> list[Route]:
        """The routes of the answers."""
        return [Route("/v1/sql", self.columns), Route("/v1/sql", self.answered, methods=["POST"])]

    def stop(self) -> None:
        """End the process that waits for a query."""
        self._processes.close()

    async def columns(self, request: Request) -> Response:
        """The tables that the caller may read, with the columns of their first rows."""
        allowed = self._allowed(request)
        found = await asyncio.to_thread(self._sampled, allowed)
        return answer({"tables": found})

    def _sampled(self, allowed: dict[str, Allowed]) -> list[dict[str, Any]]:
        self._processes.begin()
        found = []
        with self._tables.snapshot(timeout_s=0.0) as snapshot:
            for name, may_read in allowed.items():
                table = _table(snapshot, name, may_read, _SAMPLE, cut=True)
                columns = [{"name": column.name, "type": str(column.type)} for column in table.columns]
                found.append({"name": name, "columns": columns})
        return found

    async def answered(self, request: Request) -> Response:
        """The answer to a query, with the version of the tables."""
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            # A page of another origin can send other types without asking this server.
            return answer({"code": QueryError.code, "error": "sql: Content-Type: application/json is needed"}, 415)
        data = await body_of(request)
        if data is None:
            raise QueryLimitError("sql: the query is too long; one of less than 1 MiB is needed")
        try:
            asked = msgspec.json.decode(data, type=_SqlRequest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise QueryError(f'sql: this is no request: {error}; {{"sql": "SELECT …"}} is needed') from error
        allowed = self._allowed(request)
        _renew(request)
        async with self._one_at_a_time:
            _renew(request)
            if await request.is_disconnected():
                return Response(status_code=408)  # the client does not wait any more
            return await asyncio.to_thread(self._answer, asked.sql, allowed)

    def _answer(self, text: str, allowed: dict[str, Allowed]) -> Response:
        with self._tables.snapshot(timeout_s=0.0) as snapshot:
            tables = self._read(snapshot, text, allowed)
            version = snapshot.version
        found = self._processes.ask(Question(text, _NAME, tables))
        self._processes.begin()
        return answer({"answer": msgspec.Raw(found), "version": version.token, "exact": version.exact})

    def _read(self, snapshot: TablesSnapshot, text: str, allowed: dict[str, Allowed]) -> dict[str, AnswerTable]:
        """The tables that a text names with their rows, and the other tables without, so that errors name them."""
        found = {}
        left = MAX_READ
        for name, may_read in allowed.items():
            is_named = re.search(re.escape(name.replace('"', '""')), text, re.IGNORECASE) is not None
            count = snapshot[name].count()
            if is_named and count > left:
                raise QueryLimitError(
                    f"sql '{_NAME}': table '{name}' has {count:,} rows; {left:,} more can be read here. Read more "
                    "with: eddy sql, or keep the answer up to date with: topology.sql(…)"
                )
            left -= count if is_named else 0
            found[name] = _table(snapshot, name, may_read, None if is_named else 0)
        return found

    def _allowed(self, request: Request) -> dict[str, Allowed]:
        """The tables that the caller may read, each with the function that decides about its rows, if any."""
        found: dict[str, Allowed] = {}
        for name in self._tables.names:
            try:
                found[name] = rows_allowed(lambda table: self._authorize(request, table), name)
            except ForbiddenError:
                continue
        return found


def _renew(request: Request) -> None:
    """Extend the connection's time limit, which is shorter than a query's at a worker's page."""
    renew = request.scope.get("state", {}).get(RENEW)
    if renew is not None:
        renew(_WAIT_S)


def _table(
    snapshot: TablesSnapshot, name: str, may_read: Allowed, limit: int | None, *, cut: bool = False
) -> AnswerTable:
    """The rows of a table that may be read, as SQL has them. `cut`: without rows, if SQL cannot have one of them."""
    rows = () if limit == 0 else snapshot[name].range(limit=limit)
    shown = [(key, value) for key, value in rows if may_read is None or may_read(key, value)]
    found = [(f"table '{name}' key {key!r}", row_of(key, value)) for key, value in shown]
    try:
        return named_rows(found, None, ["key"] if found else ["key", "value"])
    except EddyError:
        if not cut:
            raise
        return named_rows([], None, list(dict.fromkeys(column for _, row in found for column in row)))
