"""The table server: the tables of an application, served over HTTP."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.connectors.log import Log
from eddy.live.query.named import Queries
from eddy.live.streams.limits import Limits
from eddy.program.open_tables import Tables
from eddy.serve.endpoint import Endpoint, check_proxies, check_tls, listen
from eddy.topology.topology import Topology

if TYPE_CHECKING:
    from eddy.serve.live_pages import LivePages

__all__ = ["Served", "served"]

_log = logging.getLogger("eddy.tables")
_ANSWER_S = 90.0


class Served:
    """Open tables, the pages of live queries over them, and the port where they are served."""

    def __init__(self, tables: Tables, live: "LivePages", port: int) -> None:
        self.tables, self.live, self.port = tables, live, port

    @property
    def views(self) -> Tables:
        """Deprecated: the former name of `tables`."""
        warnings.warn("the `views` of a server are called `tables`", DeprecationWarning, stacklevel=2)
        return self.tables


@contextmanager
def served(
    endpoint: Endpoint,
    topology: Topology,
    log: Log,
    state_dir: Path | None = None,
    max_wait_s: float = 2.0,
    cors: list[str] | None = None,
    tls: tuple[Path, Path] | None = None,
    queries: Queries | None = None,
    limits: Limits | None = None,
    proxies: Sequence[str] = (),
    own_page: Path | None = None,
) -> Iterator[Served]:
    """Serve the tables and the named queries of an application within the block.

    `tls` has the files of a certificate and its key, in PEM. `limits` bounds requests and live queries. `proxies` has
    addresses and networks whose `X-Forwarded-For` names the client. The files of the folder `own_page` are at /page/.

    Raises: ConnectorError, ConfigurationError if it cannot listen there; the errors of `Tables`.
    """
    from starlette.middleware.cors import CORSMiddleware
    from starlette.types import ASGIApp

    from eddy.serve.access import Guard
    from eddy.serve.http_server import HttpServer
    from eddy.serve.own_page import check_own_page, with_own_page
    from eddy.serve.page.routes import with_page
    from eddy.serve.table_pages import METHODS, tables_app

    check_tls(tls)
    check_proxies(proxies)
    check_own_page(own_page)
    listener = listen(endpoint)
    try:
        bounds = limits or Limits()
        sizes = {"table_rows": bounds.table_rows, "recent_bytes": bounds.recent_bytes}
        tables = Tables(topology, log, state_dir=state_dir, max_wait_s=max_wait_s, queries=queries, **sizes)
    except BaseException:
        listener.close()
        raise
    with tables:
        host, port = listener.getsockname()[:2]
        pages = tables_app(tables, limits=limits)
        app: ASGIApp = Guard(with_own_page(with_page(pages, topology, tables), own_page), endpoint)
        if cors:  # outside of the guard: a browser sends its preflight request without the token
            app = CORSMiddleware(app, allow_origins=cors, allow_methods=METHODS, allow_headers=["*"])
        server = HttpServer(
            app,
            listener,
            requests=bounds.connections + bounds.requests,
            answer_s=_ANSWER_S,
            request_s=bounds.request_s,
            keep_alive=True,
            proxies=proxies,
            tls=tls,
        )
        server.start()
        _log.info("page on %s://%s/", "http" if tls is None else "https", Endpoint(host, port))
        _log.info("tables on %s://%s/v1/tables", "http" if tls is None else "https", Endpoint(host, port))
        try:
            yield Served(tables, pages.state.live, port)
        finally:
            pages.state.live.stop()
            server.stop()
