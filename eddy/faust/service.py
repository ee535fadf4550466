"""The service that runs eddy's worker in a Faust process, on a thread of its own.

    Faust's loop     on_start ─▶ thread starts            crash ◀─ call_soon_threadsafe      on_stop: asks, waits
    the thread                   Worker → step, step, …  ── an error ends it ──┘              finishes the epoch, closes

Faust starts it after its tables are recovered. The loop is never blocked: it waits for the thread's end in an
executor. An error of the worker ends the app, too (`Service.crash`), since the app would otherwise look alive and
process no records; Faust's supervisor, or the pod's, then starts it again.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from mode import Service
from mode.utils.logging import get_logger

from eddy.faust.hosted import HostedTopology, WorkerMaker
from eddy.faust.sensors import reports
from eddy.serve.monitor import Monitor
from eddy.serve.worker_watch import WorkerWatch

__all__ = ["service_class"]

_POLL_S = 0.1
_PUSH_S = 10.0


class WorkerService(Service):
    """Runs the worker of one hosted topology, from the app's start to its stop."""

    hosted: HostedTopology
    logger = get_logger("eddy.faust")

    def __post_init__(self) -> None:
        self._asked = threading.Event()
        self._thread: threading.Thread | None = None
        self._reports = contextlib.ExitStack()

    async def on_start(self) -> None:
        """Start the thread. Raises: ConfigurationError."""
        self._asked = asked = threading.Event()
        watch = self.hosted.watch = WorkerWatch(asked.is_set)
        push = self._reports.enter_context(reports(self.hosted.app, watch, self.hosted.registry))
        if push is not None:
            self.add_future(self._push(push))
        make, fail = self.hosted.worker_maker(), self._failing(asyncio.get_running_loop())
        name = f"eddy-worker-{self.hosted.topology.name}"
        self._thread = threading.Thread(
            target=_work, args=(make, watch, asked, fail, self.hosted.ended), name=name, daemon=True
        )
        self._thread.start()

    async def on_stop(self) -> None:
        """Let the worker finish its epoch and close."""
        self._asked.set()
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        self._reports.close()

    async def _push(self, push: Callable[[], None]) -> None:
        while not self.should_stop:
            push()
            await self.sleep(_PUSH_S)

    def _failing(self, loop: asyncio.AbstractEventLoop) -> Callable[[BaseException], None]:
        """Return a function that the worker's thread calls with an error, to end the app."""

        def fail(error: BaseException) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the app has ended
                asyncio.run_coroutine_threadsafe(self.crash(error), loop)

        return fail


def _work(
    make: WorkerMaker,
    watch: WorkerWatch,
    asked: threading.Event,
    fail: Callable[[BaseException], None],
    ended: Callable[[], None],
) -> None:
    """Make a worker, and let it step until `asked` is set: the code of the worker's thread. Errors go to `fail`."""
    try:
        with contextlib.ExitStack() as ends:
            ends.callback(ended)
            ends.callback(watch.close)
            log, worker = make()
            ends.callback(log.close)
            ends.callback(worker.close)
            monitor = Monitor(watch)
            with monitor.watching(worker):
                while not asked.is_set():
                    worker.step(_POLL_S)
                    monitor.refresh()
    except BaseException as error:
        watch.end(error)
        fail(error)


def service_class(hosted: HostedTopology) -> type[Service]:
    """Return the service class for one topology, from which Faust creates the service."""
    attributes: dict[str, Any] = {"hosted": hosted, "__module__": __name__, "__doc__": WorkerService.__doc__}
    return type(f"EddyWorker({hosted.topology.name})", (WorkerService,), attributes)
