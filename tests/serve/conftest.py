"""A worker on a log in memory, stepped by the test, and a browser of what its monitor says meanwhile."""

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.serve.endpoint import Endpoint, endpoint_of
from eddy.serve.monitor import Monitor, monitored
from tests.topology.programs import family
from tests.waiting import PATIENCE_S, in_time


@pytest.fixture(autouse=True)
def patient_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection may last for longer than this process is held up."""
    monkeypatch.setattr("eddy.serve.http_server.ANSWER_S", 300.0)


class Page(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def fetch(
    port: int, path: str, method: str = "GET", headers: dict[str, str] | None = None, host: str = "127.0.0.1"
) -> Page:
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    with closing(connection), in_time(f"an answer to {path}"):
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return Page(answer.status, answer.headers, answer.read())


def produce(log: LocalLog, rows: dict[str, str | None], topic: str = "nodes") -> None:
    with closing(log.producer(None)) as producer:
        producer.begin()
        values = [None if value is None else value.encode() for value in rows.values()]
        producer.send(topic, 0, [key.encode() for key in rows], values, [0] * len(rows))
        producer.commit({}, None)


@dataclass
class Ward:
    """The worker under observation. `now` is the time of its clock."""

    log: LocalLog
    endpoint: Endpoint = field(default_factory=lambda: endpoint_of("0"))
    config: eddy.Config = field(default_factory=eddy.Config)
    topology: eddy.Topology = field(default_factory=family)
    observe: Callable[[str], None] = lambda step: None
    now: float = 1_000.0
    asked_to_stop: bool = False
    monitor: Monitor = field(init=False)
    worker: eddy.Worker = field(init=False)
    ends: ExitStack = field(default_factory=ExitStack)

    def open(self) -> "Ward":
        """Serve, without a worker."""
        serving = monitored(
            self.endpoint, self.topology, lambda: self.asked_to_stop, clock=lambda: self.now, lag_interval_s=0.0
        )
        self.monitor = self.ends.enter_context(serving)
        return self

    def admit(self) -> "Ward":
        """Make the worker and watch it."""
        self.worker = eddy.Worker(self.topology, self.log, self.config, clock=lambda: self.now, observe=self.observe)
        self.ends.enter_context(closing(self.worker))
        self.ends.enter_context(self.monitor.watching(self.worker))
        return self

    def step(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.worker.step()
            self.monitor.refresh()

    def settle(self) -> None:
        """Step until all is taken in."""
        self.step()
        while self.worker.restoring or not self.worker.positions.entry.positions or not self.worker.quiescent():
            self.step()
        self.step()

    def get(self, path: str, method: str = "GET", **headers: str) -> Page:
        assert self.monitor.port is not None
        return fetch(self.monitor.port, path, method, headers)

    def says(self, path: str) -> tuple[int, str, str]:
        page = self.get(path)
        return page.status, page.json["state"], page.json["reason"]


@pytest.fixture
def log() -> Iterator[LocalLog]:
    with closing(LocalLog(None, busy_timeout_s=0.0)) as made:
        made.create_topics(TopicSpec(name, 1) for name in ("nodes", "descendants"))
        yield made


@pytest.fixture
def admit(log: LocalLog) -> Iterator[Callable[..., Ward]]:
    """Make a ward, with settings of its own."""
    with ExitStack() as ends:

        def make(**settings: Any) -> Ward:
            ward = Ward(log, **settings)
            ends.push(lambda *error: ward.ends.__exit__(*error))
            return ward.open()

        yield make


@pytest.fixture
def ward(admit: Callable[..., Ward]) -> Ward:
    """A worker that was watched, but has not taken a step."""
    return admit().admit()
