"""The monitor of a worker: it records the worker's figures after each step, and serves them.

    with monitored(endpoint, topology, stopping) as monitor, closing(Worker(…)) as worker, monitor.watching(worker):
        while not stopping():
            worker.step()
            monitor.refresh()

The monitor starts before the worker is created, so that an occupied port is detected first. It ends after the worker is
closed, so that it shows this state, too.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eddy.program.open_tables import Tables
from eddy.runtime.worker import Worker
from eddy.serve.endpoint import Endpoint, listen
from eddy.serve.worker_watch import WorkerWatch
from eddy.topology.topology import Topology

if TYPE_CHECKING:
    from eddy.serve.table_pages import TablesLater

__all__ = ["Monitor", "monitored"]

_log = logging.getLogger("eddy.monitor")


class Monitor:
    """The monitor, as the worker's thread calls it; without an endpoint its methods do nothing."""

    def __init__(self, watch: WorkerWatch | None, port: int | None = None, tables: "TablesLater | None" = None) -> None:
        self._watch, self._tables = watch, tables
        self.port = port

    @contextmanager
    def watching(self, worker: Worker) -> Iterator[None]:
        """Watch a worker within the block, in which it takes its steps; an exception ends the block."""
        if self._watch is None:
            yield
            return
        self._watch.attach(worker)
        try:
            yield
        except BaseException as error:
            self._watch.end(error)
            raise
        self._watch.end()

    def serve_tables(self, tables: Tables) -> None:
        """Serve these tables, too, below /v1; without an endpoint, do nothing."""
        if self._tables is not None:
            self._tables.serve(tables)

    def refresh(self) -> None:
        """Record the figures. The worker's thread calls it after each step. Errors of the log are not raised."""
        if self._watch is not None:
            self._watch.refresh()


@contextmanager
def monitored(
    endpoint: Endpoint | None,
    topology: Topology,
    stopping: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    lag_interval_s: float = 5.0,
    peers: Sequence[str] = (),
) -> Iterator[Monitor]:
    """Serve the endpoint within the block; if it is None, serve and record nothing.

    `stopping` returns whether the worker was asked to stop; another thread calls it. `clock` is the worker's clock.
    `peers` has the addresses of the application's other workers, which the page shows, too. Raises: ConnectorError,
    ConfigurationError if it cannot listen there.
    """
    if endpoint is None:
        yield Monitor(None)
        return
    from eddy.serve.http_server import HttpServer
    from eddy.serve.peer_workers import check_peers
    from eddy.serve.table_pages import TablesLater
    from eddy.serve.worker_pages import pages  # its packages are installed only with the extra `http`

    check_peers(peers)
    watch = WorkerWatch(stopping, clock, lag_interval_s)
    tables = TablesLater()
    app = pages(watch, topology, endpoint, tables, peers)
    listener = listen(endpoint)
    host, port = listener.getsockname()[:2]
    server = HttpServer(app, listener)
    server.start()
    _log.info("health and metrics on http://%s", Endpoint(host, port))
    try:
        yield Monitor(watch, port, tables)
    finally:
        watch.close()
        tables.stop()
        server.stop()
