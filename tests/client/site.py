"""An application of folders, and its table server with named queries, for clients."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import eddy
from eddy.live.streams.limits import Limits
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_server import served
from tests.tables.conftest import produce

__all__ = ["Site", "folders_site", "queries"]

_LIMITS = Limits(rows=200_000)
folders = eddy.live_table("folders", key="id")
queries = eddy.Queries()


def children(folder: Any) -> eddy.Query:
    return folders.where(folders.parent == folder.id).order_by(folders.name).nest(children=children)


@queries.query
def tree() -> eddy.Query:
    """All folders, from the top."""
    return folders.where(folders.parent.is_null()).order_by(folders.name).nest(children=children)


@queries.query
def below(parent: str) -> eddy.Query:
    """The number of folders in a folder."""
    return folders.where(folders.parent == parent).count()


@queries.query
def sizes(least: int) -> eddy.Query:
    """The largest size that is not below `least`."""
    return folders.where(folders.size >= least).max("size")


@queries.query
def secret() -> eddy.Query:
    """Refused to everybody."""
    return eddy.live_table("nowhere", key="id")


class Site:
    """A topology that runs on a log in memory, and its table server, which may go and come back."""

    def __init__(self, stack: ExitStack, topology: eddy.Topology, queries: eddy.Queries | None = None) -> None:
        self.log = eddy.open_log()
        stack.callback(self.log.close)
        self.topology, self.queries = topology, queries
        eddy.create_topics(self.topology, self.log)
        stack.enter_context(eddy.run(self.topology, self.log))
        self.serving = stack.enter_context(ExitStack())
        self.port = 0
        self.token: Path | None = None

    def serve(self) -> str:
        """Serve, at the port of the last time; returns the address."""
        endpoint = endpoint_of(str(self.port), self.token)
        found = self.serving.enter_context(
            served(endpoint, self.topology, self.log, queries=self.queries, limits=_LIMITS)
        )
        self.port, self.tables = found.port, found.tables
        return f"http://127.0.0.1:{self.port}/"

    def write(self, rows: Mapping[str, Any]) -> None:
        """Write rows to the source, and wait until the server has them. Rows that are not text are written as JSON."""
        texts = {key: row if row is None or isinstance(row, str) else json.dumps(row) for key, row in rows.items()}
        (source,) = self.topology.plan.sources()
        pairs = {key: None if text is None else text.encode() for key, text in texts.items()}
        self.tables.wait(produce(self.log, source.topic, pairs), exact=True)


def folders_site(stack: ExitStack) -> Site:
    """A table of folders: {"name", "parent"}."""
    topology = eddy.Topology("folders")
    topology.table("folders", key=eddy.String, value=eddy.Json())
    return Site(stack, topology, queries)
