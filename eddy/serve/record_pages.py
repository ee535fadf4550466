"""Records over HTTP: dead letters, and the record of a source table's row. One request is answered at a time.

/v1/dead-letters?before=OFFSET&limit=                   dead letters, the latest first
/v1/records/TABLE?key=KEY&before={"0": OFFSET}          the latest record of a row's key
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from eddy.errors import EddyError, NotReadyError, QueryError
from eddy.program.latest_records import dead_letters, record_of_row
from eddy.program.open_tables import Tables
from eddy.serve.answers import answer, refused, whole_number
from eddy.topology.topology import Topology

__all__ = ["record_routes"]

_LETTERS, _MOST_LETTERS = 50, 500


def record_routes(topology: Topology, tables: Callable[[], Tables | None]) -> list[BaseRoute]:
    """Return the routes of records. Like the routes of traces, they are for callers that may read all data."""
    one_at_a_time = asyncio.Lock()

    async def read(request: Request, function: Callable[[Request, Tables], Any]) -> Response:
        try:
            served = tables()
            if served is None:
                raise NotReadyError("records: tables are not served here, or not yet. Try again later")
            async with one_at_a_time:
                if await request.is_disconnected():
                    return Response(status_code=408)  # the client does not wait any more
                return answer(await asyncio.to_thread(function, request, served))
        except EddyError as error:
            return await refused(request, error)

    async def letters(request: Request) -> Response:
        return await read(request, _letters)

    async def record(request: Request) -> Response:
        return await read(request, lambda request, served: _record(request, served, topology))

    return [Route("/v1/dead-letters", letters), Route("/v1/records/{name}", record)]


def _letters(request: Request, tables: Tables) -> Any:
    limit = min(whole_number(request, "limit") or _LETTERS, _MOST_LETTERS)
    return dead_letters(tables, _offset(request), limit)


def _offset(request: Request) -> int | None:
    text = request.query_params.get("before")
    if text is not None and not (text.isdecimal() and len(text) <= 18):
        raise QueryError(f"before={text[:20]!r}; an offset is needed, such as the one of the answer before")
    return None if text is None else int(text)


def _record(request: Request, tables: Tables, topology: Topology) -> Any:
    text = request.query_params.get("before", "{}")
    try:
        before = msgspec.json.decode(text, type=dict[int, int])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise QueryError(f'before={text[:80]!r}: {error}; offsets by partition are needed, as {{"0": 5}}') from error
    key = request.query_params.get("key")
    if key is None:
        raise QueryError("records: key= is needed")
    return record_of_row(tables, topology.plan, request.path_params["name"], key, before)
