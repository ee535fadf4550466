"""The monitor of a worker: what is noted after each step, and the server that tells it.

    with monitored(endpoint, topology, stopping) as monitor, closing(Worker(…)) as worker, monitor.watching(worker):
        while not stopping():
            worker.step()
            monitor.refresh()

It begins before the worker is made, so that a port which is taken is known before anything else is done, and ends
after it is closed, so that it tells the truth about that, too.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eddy.monitor.endpoint import Endpoint, listen
from eddy.monitor.watch import Watch
from eddy.topology.topology import Topology
from eddy.worker import Worker

__all__ = ["Monitor", "monitored"]

_log = logging.getLogger("eddy.monitor")


class Monitor:
    """What the worker's thread has to do with the monitor; without an endpoint it does nothing."""

    def __init__(self, watch: Watch | None, port: int | None = None) -> None:
        self._watch = watch
        self.port = port

    @contextmanager
    def watching(self, worker: Worker) -> Iterator[None]:
        """While entered the worker takes its steps; what it raises ends it."""
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

    def refresh(self) -> None:
        """To be called after each step, by the worker's thread. Raises nothing because of the log."""
        if self._watch is not None:
            self._watch.refresh()


@contextmanager
def monitored(
    endpoint: Endpoint | None,
    topology: Topology,
    stopping: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    lag_interval_s: float = 5.0,
) -> Iterator[Monitor]:
    """While entered the endpoint is served; with None there is none, and nothing is noted.

    `stopping` tells whether the worker was asked to stop, and is asked from another thread; `clock` is the
    worker's.
    Raises: ConnectorError, ConfigurationError where it cannot listen there.
    """
    if endpoint is None:
        yield Monitor(None)
        return
    from eddy.monitor.pages import pages  # its packages are there only with the extra `http`
    from eddy.monitor.server import Server

    watch = Watch(stopping, clock, lag_interval_s)
    app = pages(watch, topology, endpoint)
    listener = listen(endpoint)
    host, port = listener.getsockname()[:2]
    server = Server(app, listener)
    server.start()
    _log.info("health and metrics on http://%s", Endpoint(host, port))
    try:
        yield Monitor(watch, port)
    finally:
        watch.close()
        server.stop()
