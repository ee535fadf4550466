"""Lists the queries that are kept up to date now, with their clients, rows and memory, and the seconds they have cost.

A query is shown to callers that may read all rows of all its tables, since its text may have another caller's values.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from eddy.live.dataflow.dataflow import TableRows
from eddy.live.dataflow.held_bytes import held_bytes
from eddy.live.query.planning import tables_of
from eddy.live.query.query import Query
from eddy.live.query.renaming import renamed
from eddy.live.server.live_server import LiveServer
from eddy.live.server.live_view import LiveView
from eddy.live.streams.publisher import Published

__all__ = ["MAX_LISTED", "OpenQueries", "OpenQuery", "open_queries"]

MAX_LISTED = 200
"""The number of queries that are listed, those with the highest cost first."""


class OpenQuery(msgspec.Struct, frozen=True):
    """One query.

    Args:
        names: the names by which clients of streams have asked for it; none if they have asked by a text.
        text: the code that makes it.
        is_filtered: whether it is over a part of its tables: the rows that its callers may read.
        clients: the streams that follow it; `readers` are programs that have it open by `tables.live`.
        rows: its rows now, including its nests' rows.
        bytes: an estimate of the memory of its rows and of its operators, without the tables.
        opening_s: seconds from the request until its first rows.
        seconds: the seconds of work of its operators since then. A shared operator counts for each of its queries.
    """

    names: list[str]
    text: str
    tables: list[str]
    is_filtered: bool
    clients: int
    readers: int
    rows: int
    bytes: int
    opening_s: float
    seconds: float


class OpenQueries(msgspec.Struct, frozen=True):
    """The most expensive of the queries that a caller may see, and the number of all queries that it may see."""

    queries: list[OpenQuery]
    count: int


def open_queries(server: LiveServer, may_read_all: Callable[[str], bool]) -> OpenQueries:
    """Return the queries of a live server that a caller may see, sorted by their cost.

    A caller may see a query if it may read its tables as a whole. `may_read_all` is called without a lock, since it may
    be a user's function.
    """
    with server.lock:
        served = {live: _served(live, server) for live in server.readers()}
    allowed = {table: may_read_all(table) for table in {each for names in served.values() for each in names.values()}}
    shown = [live for live, names in served.items() if all(allowed[table] for table in names.values())]
    with server.lock:
        is_open = set(server.readers())
        found = sorted((live for live in shown if live in is_open), key=_seconds, reverse=True)
        hides = server.tables.hides_rows
        told = [_description(live, served[live], any(map(hides, served[live]))) for live in found[:MAX_LISTED]]
        return OpenQueries(told, len(found))


def _served(live: LiveView[Any], server: LiveServer) -> dict[str, str]:
    """Return the served tables that a query reads, by their names in the query."""
    return {name: server.tables.served_name(name) for name in sorted(tables_of(live.select))}


def _seconds(live: LiveView[Any]) -> float:
    assert live.view is not None
    return sum(operator.seconds for operator in {*live.view.operators, live.view.operator})


def _description(live: LiveView[Any], served: dict[str, str], is_filtered: bool) -> OpenQuery:
    assert live.view is not None
    subscribers = list(live.subscribers) if isinstance(live, Published) else []
    operators = {each for each in live.view.operators if not isinstance(each, TableRows)}
    return OpenQuery(
        names=sorted({each.asked.name for each in subscribers} - {""}),
        text=repr(Query(renamed(live.select, served))),
        tables=sorted(set(served.values())),
        is_filtered=is_filtered,
        clients=len({id(each.connection) for each in subscribers}),
        readers=0 if isinstance(live, Published) else 1,
        rows=sum(map(len, live.entries.values())),
        bytes=held_bytes(live.entries) + sum(operator.held_bytes() for operator in operators),
        opening_s=round(live.opening_s, 6),
        seconds=round(_seconds(live), 6),
    )
