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
from tests.waiting import PATIENCE_S, Deadline, WaitTimeoutError, wait_for

STACKS_END = "TASK _stop_on_signal"
"""Among the stacks of a worker that is told to stop."""


class FaustWorker:
    """`faust -A MODULE worker` in a folder, with what it says in a file. It is killed if it is not stopped."""

    def __init__(self, folder: Path, module: str, home: Path, broker: str, **environment: str) -> None:
        self.module, self.home = module, home
        self.port = free_port()
        self.said = home / f"faust-{self.port}.txt"
        self.environment = os.environ | environment | {"BROKER": f"kafka://{broker}", "PYTHONPATH": str(folder)}
        self.process = self._start()

    def _faust(self, *arguments: str) -> list[str]:
        # the folder of the data is not the place where modules are looked for
        return [sys.executable, "-m", "faust", "-A", self.module, "--datadir", str(self.home / "data"), *arguments]

    def _start(self) -> "subprocess.Popen[bytes]":
        with self.said.open("ab") as out:
            arguments = self._faust("worker", "-l", "info", "--web-bind", "127.0.0.1", "--web-port", str(self.port))
            return subprocess.Popen(arguments, cwd=self.home, env=self.environment, stdout=out, stderr=out)

    def restart(self) -> None:
        """Start it again, after its end."""
        self.process = self._start()

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
        deadline, answer = Deadline(PATIENCE_S), (0, "")
        while not holds(*(answer := self.get(path))):
            assert self.process.poll() is None, self.said.read_text()
            deadline.check(f"{path}: {answer}\n{self.said.read_text()[-4_000:]}")
        return answer[1]

    def wait_for_json(self, path: str, expected: Any) -> None:
        """Wait until a page is this JSON."""
        self.wait_for_page(path, lambda status, text: status == 200 and json.loads(text) == expected)

    def stop(self) -> int:
        """Ask it to stop. Returns: its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end. Returns: its exit status."""
        try:
            wait_for(lambda: self.process.poll() is not None, missing="the end of the Faust worker")
        except WaitTimeoutError as late:
            raise WaitTimeoutError(f"{late}\n{self._stacks()}") from None
        assert self.process.returncode is not None
        return self.process.returncode

    def _stacks(self) -> str:
        """What its threads and tasks are at, which Faust says at this signal."""
        self.process.send_signal(signal.SIGUSR1)
        wait_for(lambda: STACKS_END in self.said.read_text(), missing="its stacks")
        return self.said.read_text()[-40_000:]

    def demand_end(self) -> None:
        """Stop it. Fails if its exit status is not 0."""
        assert (status := self.stop()) == 0, f"exit status {status}\n{self.said.read_text()[-6_000:]}"

    def kill(self) -> None:
        """End it at once, and wait for that."""
        self.process.kill()
        self.process.wait()


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
