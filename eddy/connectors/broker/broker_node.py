"""The broker: a node of Kafka that is started, found again, stopped, and, for tests, killed and paused."""

import base64
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from eddy.connectors.broker import process
from eddy.connectors.broker.home import LOG_PROPERTIES, SERVER_PROPERTIES, Home
from eddy.connectors.broker.jars import Jars, find_jars
from eddy.connectors.broker.java_runtime import find_java
from eddy.connectors.broker.ports import HOST, free_port, is_free, listens
from eddy.connectors.broker.server_settings import STARTED, server_settings
from eddy.errors import ConnectorError

__all__ = ["Broker"]

_POLL_S, _STILL_S = 0.05, 0.001
_DIES_S = 60.0
_TAKEN = b"Address already in use"
_QUICK_TO_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Broker:
    """A node of Kafka; all its files are in `folder`.

    The folder identifies the broker: any process can start, find and stop the broker that runs there.
    As a context manager it runs within the block; its data is kept. `settings` override the
    settings of `server_settings.py`.

    Without `port` it uses the port of the last run, or a free one. Without `voters` the node is a cluster by itself; a
    node of a larger cluster names the controller ports of all nodes, and the same `cluster_id` as the others.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        heap_mib: int = 512,
        settings: Mapping[str, str] | None = None,
        jars: Path | None = None,
        node_id: int = 1,
        voters: Mapping[int, int] | None = None,
        cluster_id: str | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self.folder = folder.absolute()
        self._home = Home(self.folder)
        self._port, self._heap_mib, self._settings = port, heap_mib, settings or {}
        self._node_id, self._voters, self._cluster_id = node_id, voters, cluster_id
        named = os.environ.get("EDDY_KAFKA_JARS")
        self._jars = jars or (Path(named) if named else None)
        self._java_options = java_options

    @property
    def running(self) -> bool:
        """Whether the broker runs, or is being started."""
        return process.held(self.folder)

    @property
    def pid(self) -> int | None:
        """The id of the broker's process; None if it does not run."""
        return process.process_id(self.folder)

    @property
    def port(self) -> int:
        """The port of the broker for clients; if it does not run, the port of its next start.

        Raises: ConnectorError if no port was given, and no earlier start has chosen one.
        """
        last = self._home.about().get("port")
        port = (last or self._port) if self.running else (self._port or last)
        if port is None:
            raise ConnectorError(f"broker {self.folder}: has no port yet; a first start chooses one. Call start()")
        return int(port)

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers` for clients."""
        return f"{HOST}:{self.port}"

    @property
    def version(self) -> str | None:
        """The version of Kafka that was started last."""
        return self._home.about().get("version")

    def start(self, timeout_s: float = 60.0) -> bool:
        """Start the broker, unless it runs, and wait until it serves clients. Returns whether this call has started it.

        Raises: ConnectorError if Java or the jars are missing, the port is taken, or Kafka ends or takes too long.
        """
        port = self._chosen_port
        try:
            return self._start(port, timeout_s)
        except ConnectorError:
            if not self._home.says(_TAKEN):
                raise
            # The chosen port was free, but was taken since then: start on another port.
            return self._start(port, timeout_s)

    def launch(self) -> bool:
        """Start the broker, unless it runs, without waiting: the nodes of a cluster wait for each other."""
        return self._launch(self._chosen_port)

    @property
    def _chosen_port(self) -> int | None:
        """The port that the user gave, otherwise the port of the last run; None if any free port can be taken."""
        return self._port or self._home.about().get("port")

    def _start(self, port: int | None, timeout_s: float) -> bool:
        started = self._launch(port)
        try:
            self.wait(timeout_s)
        except BaseException:
            if started:
                self.kill()
            raise
        return started

    def _launch(self, port: int | None) -> bool:
        """Start the broker, unless it runs, on `port`, or on a free port if `port` is None.

        Returns whether it was started.
        """
        if self.running:
            return False
        self._home.make()
        java, jars = find_java(), find_jars(self._jars)
        with process.claimed(self.folder) as lock:
            if lock is None:
                return False
            port, settings = self._settings_for(port)
            self._home.prepare(port, jars.version, settings)
            if not self._home.formatted:
                self._format(java, jars)
            command = self._command(java, jars, *self._java_options, words=["kafka.Kafka", SERVER_PROPERTIES])
            process.launch(command, self.folder, lock)
        return True

    def wait(self, timeout_s: float = 60.0) -> None:
        """Wait until a launched broker serves clients. Raises: ConnectorError if it ends, or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not (self._home.says(STARTED) and listens(self.port)):
            if not self.running:
                raise ConnectorError(
                    f"broker {self.folder}: Kafka ended while it started, with {self._home.last_words()!r}; "
                    f"settings and data that it can run on are needed. See {self._home.log}"
                )
            if time.monotonic() >= deadline:
                raise ConnectorError(
                    f"broker {self.folder}: Kafka was not ready after {timeout_s:g} s, last with "
                    f"{self._home.last_words()!r}; an answer is needed. Try again, or see {self._home.log}",
                    retriable=True,
                )
            time.sleep(_POLL_S)

    def stop(self, timeout_s: float = 30.0) -> bool:
        """Let the broker close its data and end; kill it after `timeout_s`. Returns whether it ran."""
        if not self.running:
            return False
        deadline = time.monotonic() + timeout_s
        # Another process may be starting the broker at this moment: then the lock is held, but there is no process id
        # yet.
        while self.pid is None and self.running and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        process.send_signal(self.folder, signal.SIGTERM)
        self.resume()
        if not process.gone(self.folder, deadline - time.monotonic()):
            self.kill()
        return True

    def kill(self) -> None:
        """Kill the broker, so that it ends as after a crash."""
        process.send_signal(self.folder, signal.SIGKILL)
        if not process.gone(self.folder, _DIES_S):
            raise ConnectorError(
                f"broker {self.folder}: process {self.pid} did not end after a kill. Find out why it hangs",
                retriable=True,
            )

    def pause(self) -> None:
        """Stop all threads of the broker until `resume`: it answers no request and closes no connection.

        Raises: ConnectorError if its threads do not stop.
        """
        process.send_signal(self.folder, signal.SIGSTOP)
        deadline = time.monotonic() + _DIES_S
        # The system stops each thread only when it schedules the thread next.
        while (pid := self.pid) is not None and not process.stands_still(pid):
            if time.monotonic() >= deadline:
                raise ConnectorError(
                    f"broker {self.folder}: process {pid} was not paused within {_DIES_S:g} s. Try again",
                    retriable=True,
                )
            time.sleep(_STILL_S)

    def resume(self) -> None:
        """Let the broker continue after `pause`."""
        process.send_signal(self.folder, signal.SIGCONT)

    def restart(self, timeout_s: float = 60.0) -> None:
        """Stop the broker if it runs, and start it again on the same port."""
        self.stop()
        self.start(timeout_s)

    def remove(self) -> None:
        """Remove the data and all other files of the broker. Raises: ConnectorError if it runs."""
        self._home.remove()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _settings_for(self, port: int | None) -> tuple[int, dict[str, str]]:
        """Return the port of the next run, after a check that it is free, and the settings of the run."""
        port = port or free_port()
        if not is_free(port):
            raise ConnectorError(
                f"broker {self.folder}: port {port} of {HOST} is taken by another process; a free one is needed. "
                f"Name one: --port {free_port()}"
            )
        own = server_settings(self._node_id, port, self._voters or {self._node_id: free_port()})
        return port, {**own, **self._settings}

    def _format(self, java: str, jars: Jars) -> None:
        """Make Kafka's storage in the folder."""
        cluster = self._cluster_id or base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        words = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", SERVER_PROPERTIES]
        with self._home.log.open("wb") as log:
            command = self._command(java, jars, *_QUICK_TO_START, words=words)
            status = subprocess.run(command, cwd=self.folder, stdout=log, stderr=log).returncode
        if status:
            raise ConnectorError(
                f"broker {self.folder}: Kafka did not format its storage, with {self._home.last_words()!r}; "
                f"settings that Kafka accepts are needed. See {self._home.log}"
            )

    def _command(self, java: str, jars: Jars, *options: str, words: Sequence[str]) -> list[str]:
        """Return the command that runs a program of Kafka in the folder."""
        heap = [f"-Xmx{self._heap_mib}m", f"-Xms{min(64, self._heap_mib)}m", "-XX:+ExitOnOutOfMemoryError"]
        path = os.pathsep.join(map(str, jars.files))
        logs = f"-Dlog4j2.configurationFile={LOG_PROPERTIES}"
        return [java, *heap, *options, "-Djava.awt.headless=true", logs, "-cp", path, *words]
