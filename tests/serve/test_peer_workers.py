"""All workers of an application on the page of one: their partitions, lag and state, and one that is away."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.errors import ConfigurationError
from eddy.serve.endpoint import endpoint_of
from eddy.serve.monitor import Monitor, monitored
from tests.client.axe import check_accessible
from tests.client.conftest import browser, screenshots, visit
from tests.serve.conftest import fetch
from tests.topology.programs import family
from tests.waiting import PATIENCE_S, wait_for

__all__ = ["browser", "screenshots", "visit"]

TOKEN = "0123456789abcdef0123456789abcdef"


class Crew:
    """Workers of one application with a page each, stepped by turns."""

    def __init__(self, stack: ExitStack, token: Path | None = None) -> None:
        self.stack, self.token = stack, token
        self.log = stack.enter_context(closing(LocalLog(None)))
        self.log.create_topics(TopicSpec(name, 4) for name in ("nodes", "descendants"))
        self.workers: list[eddy.Worker] = []
        self.monitors: list[Monitor] = []

    def add(self, *peers: object) -> int:
        """One worker more; the port of its page."""
        number, topology = len(self.workers), family()
        endpoint = endpoint_of("0", self.token)
        serving = monitored(endpoint, topology, lag_interval_s=0.0, peers=[f"127.0.0.1:{port}" for port in peers])
        monitor = self.stack.enter_context(serving)
        worker = eddy.Worker(topology, self.log, member=str(number))
        self.stack.enter_context(closing(worker))
        self.stack.enter_context(monitor.watching(worker))
        self.workers.append(worker)
        self.monitors.append(monitor)
        assert monitor.port is not None
        return monitor.port

    def step(self) -> None:
        for worker, monitor in zip(self.workers, self.monitors, strict=True):
            worker.step()
            monitor.refresh()

    def told(self, port: int) -> list[dict[str, Any]]:
        headers = {} if self.token is None else {"Authorization": f"Bearer {TOKEN}"}
        found: list[dict[str, Any]] = fetch(port, "/workers", headers=headers).json["workers"]
        return found


@pytest.fixture
def crew() -> Iterator[Crew]:
    with ExitStack() as stack:
        yield Crew(stack)


def partitions(told: dict[str, Any], topic: str = "nodes") -> list[int]:
    return [each["partition"] for each in told["partitions"] if each["topic"] == topic]


def settled(crew: Crew, port: int) -> bool:
    crew.step()
    return all(each["state"] == "RUNNING" and partitions(each) for each in crew.told(port))


def test_each_worker_is_shown_with_its_partitions_and_lag(crew: Crew) -> None:
    second = crew.add()
    first = crew.add(second)
    wait_for(lambda: settled(crew, first))
    own, other = crew.told(first)
    assert (own["member"], own["address"], own["away_s"]) == ("1", "", None)
    assert (other["member"], other["address"], other["away_s"]) == ("0", f"127.0.0.1:{second}", None)
    assert sorted(partitions(own) + partitions(other)) == [0, 1, 2, 3]
    assert {len(partitions(own)), len(partitions(other))} == {2}
    for partition in range(4):
        with closing(crew.log.producer(None)) as producer:
            producer.begin()
            count = partition + 1
            producer.send("nodes", partition, [b"a"] * count, [b"b"] * count, [1] * count)
            producer.commit({}, None)
    expected = {0: 2, 1: 3, 2: 4, 3: 5}  # in offsets: the end of a transaction has one, too

    def lags() -> dict[int, int]:
        for monitor in crew.monitors:
            monitor.refresh()  # it reads the log no more often than it may
        owned = [each for told in crew.told(first) for each in told["partitions"] if each["topic"] == "nodes"]
        return {each["partition"]: each["lag"] for each in owned}

    wait_for(lambda: lags() == expected)
    assert len(crew.told(second)) == 1  # it was given no peers


def test_worker_that_is_its_own_peer_is_listed_once(crew: Crew) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    second = crew.add()
    topology = family()
    peers = [f"127.0.0.1:{port}", f"localhost:{port}", f"127.0.0.1:{second}", f"localhost:{second}"]
    crew.stack.enter_context(monitored(endpoint_of(str(port)), topology, peers=peers))
    crew.step()
    assert [told["address"] for told in crew.told(port)] == ["", f"127.0.0.1:{second}"]


def test_worker_that_is_away_is_said_with_the_reason(crew: Crew) -> None:
    with ExitStack() as other:
        guest = Crew(other)
        second = guest.add()
        first = crew.add(second)
        crew.step()
        guest.step()
        assert [told["away_s"] for told in crew.told(first)] == [None, None]
    away = crew.told(first)[1]
    assert (away["address"], away["member"]) == (f"127.0.0.1:{second}", None)
    assert away["away_s"] >= 0
    assert "refused" in away["reason"]
    wait_for(lambda: crew.told(first)[1]["away_s"] > away["away_s"])


def dripping(connection: socket.socket, stop: threading.Event) -> None:
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while not stop.wait(0.2):
            connection.sendall(b"X: 1\r\n")


def saying(said: bytes) -> Callable[[socket.socket, threading.Event], None]:
    return lambda connection, stop: connection.sendall(said)


def of_body(body: bytes, status: int = 200) -> Callable[[socket.socket, threading.Event], None]:
    return saying(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (of_body(b"[]"), "Expected `object`"),
        (of_body(b"no json"), "JSON is malformed"),
        (of_body(b"", 418), "status 418"),
        (of_body(b'{"status": "ok"}'), "is not a worker"),
        (of_body(b'{"member": "\xff"}'), "can't decode byte 0xff"),
        (of_body(b'{"a":' * 100_000), "nested lists without end"),
        (saying(b"\x00\xff\r\n\r\n"), "illegal"),
        (saying(b""), "closed the connection without an answer"),
        (saying(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (3 << 20)), "without end"),
        (saying(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/worker\r\n\r\n"), "status 302"),
        (lambda connection, stop: stop.wait(), "not answered within 2 seconds"),
        (dripping, "not answered within 2 seconds"),
    ],
)
def test_what_answers_there_and_is_no_worker_is_said(
    crew: Crew, other: Callable[[socket.socket, threading.Event], None], reason: str
) -> None:
    """Whatever it does, the other workers are shown, within the seconds that an answer has."""
    stop = threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            other(connection, stop)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        try:
            second = crew.add()
            first = crew.add(listener.getsockname()[1], second)
            crew.step()
            own, stranger, friend = crew.told(first)
        finally:
            stop.set()
            thread.join()
    assert reason in stranger["reason"]
    assert stranger["away_s"] < 8
    assert (own["member"], friend["member"]) == ("1", "0")


@pytest.mark.parametrize("host", ["a..b", "a b"])
def test_peer_with_a_name_that_is_none_is_away(crew: Crew, host: str) -> None:
    serving = monitored(endpoint_of("0"), family(), peers=[f"{host}:80"])
    monitor = crew.stack.enter_context(serving)
    assert monitor.port is not None
    assert crew.told(monitor.port)[1]["reason"]


def test_token_is_needed_and_is_shown_to_the_others(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with ExitStack() as stack:
        crew = Crew(stack, tmp_path / "token")
        second = crew.add()
        first = crew.add(second)
        wait_for(lambda: settled(crew, first))
        for path in ("/worker", "/workers"):
            assert fetch(first, path).status == 401


@pytest.mark.parametrize("peer", ["", "host", "host:", "host:0", "host:99999", "http://host:80/x"])
def test_peer_that_is_no_address_is_refused(peer: str) -> None:
    with pytest.raises(ConfigurationError, match=r"http peer .*is needed, as --http-peer host:8081"):  # noqa: SIM117
        with monitored(endpoint_of("0"), family(), peers=[peer]):
            pass


def test_page_shows_all_workers(crew: Crew, visit: Callable[..., Any], screenshots: Callable[[Any, str], None]) -> None:
    second = crew.add()
    gone = crew.add()
    first = crew.add(second, 1)
    del gone
    wait_for(lambda: [crew.step(), all(len(partitions(told)) for told in crew.told(first)[:2])][1])
    page = visit(f"http://127.0.0.1:{first}/", viewport={"width": 1280, "height": 800})
    lines = page.locator("section:has(h2:has-text('Workers')) summary")
    for line in (
        "this one worker 2: running, ",
        f"127.0.0.1:{second} worker 0: running, ",
        "127.0.0.1:1 away for ",
    ):
        lines.filter(has_text=line).wait_for()
    assert lines.count() == 3
    shown = "details[open] dt:text-matches('^nodes [0-3]$')"
    page.locator("summary:has-text('worker 0')").click()
    page.wait_for_selector(f"{shown}:visible")
    with page.expect_response("**/workers"):
        pass
    wait_for(lambda: page.locator(shown).first.is_visible(), PATIENCE_S)
    check_accessible(page)
    screenshots(page, "workers")
