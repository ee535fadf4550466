"""Faust workers as processes of their own, on the broker that the tests share."""

import http.client
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from eddy.connectors.broker import free_port
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from tests.children import ROOT, Child
from tests.waiting import WaitTimeoutError

STACKS_END = "TASK _stop_on_signal"
"""Among the stacks of a worker that is told to stop."""


class FaustWorker:
    """`faust -A MODULE worker` in a folder. It is killed if it is not stopped."""

    def __init__(self, folder: Path, module: str, home: Path, broker: str, **environment: str) -> None:
        self.module, self.home = module, home
        self.port = free_port()
        path = os.pathsep.join(map(str, (folder, ROOT)))
        self.environment = os.environ | environment | {"BROKER": f"kafka://{broker}", "PYTHONPATH": path}
        self.restart()

    def _faust(self, *arguments: str) -> list[str]:
        # the folder of the data is not the place where modules are looked for
        return [sys.executable, "-m", "faust", "-A", self.module, "--datadir", str(self.home / "data"), *arguments]

    def restart(self) -> None:
        """Start it, at first and after its end."""
        arguments = self._faust("worker", "-l", "info", "--web-bind", "127.0.0.1", "--web-port", str(self.port))
        self.child = Child(self.home, arguments, cwd=self.home, env=self.environment)

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """`faust -A MODULE eddy …`."""
        return subprocess.run(
            self._faust("eddy", *arguments), cwd=self.home, env=self.environment, capture_output=True, text=True
        )

    def get(self, path: str) -> tuple[int, str]:
        """A page; status 0 while nobody listens."""
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
                connection.request("GET", path, headers={"Host": f"localhost:{self.port}"})
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
        except OSError:
            return 0, ""

    def wait_for_page(self, path: str, holds: Any = lambda status, text: status == 200) -> str:
        """Wait until a page answers as wanted. Returns: its text."""
        answers: list[tuple[int, str]] = []

        def shown() -> object:
            answers[:] = [self.get(path)]
            return holds(*answers[0])

        self.child.wait_for(shown, (path, answers))
        return answers[0][1]

    def wait_for_json(self, path: str, expected: Any) -> None:
        """Wait until a page is this JSON."""
        self.wait_for_page(path, lambda status, text: status == 200 and json.loads(text) == expected)

    def stop(self) -> int:
        """Ask it to stop. Returns: its exit status."""
        self.child.signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end. Returns: its exit status."""
        try:
            return self.child.ended()
        except WaitTimeoutError as late:
            raise WaitTimeoutError(f"{late}\n{self._stacks()}") from None

    def _stacks(self) -> str:
        """What its threads and tasks are at, which Faust says at this signal."""
        self.child.signal(signal.SIGUSR1)
        self.child.wait_to_say(STACKS_END)
        return "".join(self.child.said())[-40_000:]

    def demand_end(self) -> None:
        """Stop it. Fails if its exit status is not 0."""
        assert (status := self.stop()) == 0, f"exit status {status}\n{self.child.last_words()}"

    def kill(self) -> None:
        """End it at once, and wait for that."""
        self.child.kill()


class Topics:
    """The topics of a test, written and read with eddy's own client."""

    def __init__(self, broker: str) -> None:
        self.log = KafkaLog(KafkaSettings.of(broker))
        self.writer = self.log.producer(None)

    def close(self) -> None:
        self.writer.close()
        self.log.close()

    def make(self, partitions: int, *names: str) -> None:
        self.log.create_topics(TopicSpec(name, partitions) for name in names)

    def write(self, topic: str, rows: Mapping[bytes, bytes | None], partitions: int = 1, abort: bool = False) -> None:
        """Write rows in one transaction, which is aborted if asked for."""
        self.writer.begin()
        for key, value in rows.items():
            self.writer.send(topic, partition_of(key, partitions), [key], [value], [0])
        if abort:
            self.writer.flush()
            self.writer.abort()
        else:
            self.writer.commit({}, None)

    def read(self, topic: str, partitions: int = 1) -> list[tuple[bytes | None, bytes | None]]:
        """All committed records."""
        found: list[tuple[bytes | None, bytes | None]] = []
        for number in range(partitions):
            partition, position = TopicPartition(topic, number), 0
            end = self.log.end_offsets([partition])[partition]
            while position < end:
                records = self.log.read(partition, position, end, 10_000)
                found += zip(records.keys, records.values, strict=True)
                position = records.next_offset
        return found


def unique(name: str) -> str:
    """A name that no other test has."""
    return f"{name}-{uuid.uuid4().hex[:8]}"
