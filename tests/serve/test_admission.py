"""Clients that say little or nothing shut nobody out; requests beyond a number are refused at once, probes are not."""

import random
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from eddy.errors import ConfigurationError
from eddy.serve import admission
from eddy.serve.endpoint import check_proxies, endpoint_of, listen
from eddy.serve.http_server import HttpServer
from tests.serve.conftest import Page, fetch
from tests.waiting import PATIENCE_S, wait_for, wait_for_async

REQUESTS = 20


class Site:
    """A server whose answer is the client's address; `/slow` and slow probes are answered once it is let go."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.inside = 0
        self.are_probes_slow = False
        self.port = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.inside += 1
        while (await receive()).get("more_body"):
            pass
        await wait_for_async(lambda: self.may_end.is_set() or not (scope["path"] == "/slow" or self.are_probes_slow))
        self.inside -= 1
        body = scope["client"][0].encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    def get(self, path: str = "/", **headers: str) -> Page:
        return fetch(self.port, path, headers=headers)

    def begin(self, path: str) -> threading.Thread:
        """Ask from a thread."""
        inside = self.inside
        thread = threading.Thread(target=self.get, args=[path])
        thread.start()
        wait_for(lambda: self.inside > inside, PATIENCE_S)
        return thread

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)


@contextmanager
def serving(**options: Any) -> Iterator[Site]:
    site = Site()
    listener = listen(endpoint_of("0"))
    site.port = listener.getsockname()[1]
    server = HttpServer(site, listener, **{"requests": REQUESTS, "keep_alive": True, **options})
    server.start()
    try:
        yield site
    finally:
        site.may_end.set()
        server.stop()


def is_ended(connection: socket.socket) -> bool:
    with suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


@pytest.mark.parametrize("seed", range(4))
def test_whoever_asks_is_answered_among_any_number_of_clients_that_do_not(seed: int) -> None:
    draw = random.Random(seed)
    begun = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "
    bodies = [b"Content-Length: 9\r\n\r\n", b"Content-Length: 9\r\n\r\nbody", b"Transfer-Encoding: chunked\r\n\r\n"]
    with serving() as site, ExitStack() as stack:
        for _ in range(150):
            kind = draw.randrange(8)
            if kind == 0:
                assert site.get(draw.choice(["/", "/healthz"])).status == 200
                continue
            idle = stack.enter_context(closing(site.connect()))
            said = b"POST / HTTP/1.1\r\nHost: localhost\r\n" + draw.choice(bodies) if kind < 6 else b""
            with suppress(ConnectionError):
                idle.sendall(begun[: draw.randrange(len(begun))] if kind < 4 else said)
        assert site.get().status == 200


def test_request_has_to_come_within_its_time_whether_it_begins_or_not() -> None:
    with serving(request_s=0.2) as site:
        silent, slow, idle = (site.connect() for _ in range(3))
        slow.sendall(b"GET / HT")
        idle.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(1 << 16).startswith(b"HTTP/1.1 200")
        half = site.connect()
        half.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nbody")
        for connection in (silent, slow, idle, half):
            with closing(connection):
                while not is_ended(connection):
                    pass
        held = site.begin("/slow")  # a request that has come whole may take longer
        silent = site.connect()
        with closing(silent):
            assert is_ended(silent)
        assert held.is_alive()
        site.may_end.set()
        held.join()


def test_connection_lasts_as_long_as_each_request_has_its_answer_in_time() -> None:
    with serving(answer_s=0.4) as site, closing(site.connect()) as connection:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
            answers = b""
            while answers.count(b"127.0.0.1") < 2:
                came = connection.recv(1 << 16)
                assert came
                answers += came
        connection.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert is_ended(connection)


def test_bodies_that_have_not_come_whole_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_BYTES", 100_000)
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000\r\n\r\n"
    with serving() as site, ExitStack() as stack:
        held = [stack.enter_context(closing(site.connect())) for _ in range(3)]
        for each in held:
            each.sendall(head + b"x" * 49_000)
        refused, _, _ = select.select(held, [], [], PATIENCE_S)
        assert [each.recv(1 << 16).split()[1] for each in refused] == [b"503"]
        for each in held:
            if each not in refused:
                each.sendall(b"x" * 1_000)
                assert each.recv(1 << 16).startswith(b"HTTP/1.1 200")


def check_budgets() -> None:
    with serving(requests=3) as site:
        slow = [site.begin("/slow") for _ in range(3)]
        refused = site.get()
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert "3 requests are being answered" in refused.text
        assert (site.get("/healthz").status, site.get("/readyz").status) == (200, 200)
        site.may_end.set()
        for thread in slow:
            thread.join()
        site.may_end.clear()
        site.are_probes_slow = True
        probes = [site.begin("/healthz") for _ in range(16)]
        assert site.get("/healthz").status == 503
        site.are_probes_slow = False
        for thread in probes:
            thread.join()
        assert (site.get().status, site.get("/healthz").status) == (200, 200)


def test_requests_and_probes_have_numbers_of_their_own() -> None:
    check_budgets()


def test_probes_that_count_with_the_rest_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "PROBES", frozenset())
    with pytest.raises(AssertionError):
        check_budgets()


@pytest.mark.parametrize(
    ("proxies", "said", "client"),
    [
        ([], "10.1.2.3", "127.0.0.1"),
        (["192.0.2.1"], "10.1.2.3", "127.0.0.1"),
        (["127.0.0.1"], "10.1.2.3", "10.1.2.3"),
        (["127.0.0.0/8"], "10.9.9.9, 10.1.2.3", "10.1.2.3"),
        (["127.0.0.1", "10.0.0.0/8"], "192.0.2.7, 10.1.2.3", "192.0.2.7"),
    ],
)
def test_client_is_who_a_named_proxy_says(proxies: list[str], said: str, client: str) -> None:
    with serving(proxies=proxies) as site:
        assert site.get(**{"X-Forwarded-For": said}).text == client


def test_proxy_that_is_no_address_is_refused() -> None:
    check_proxies(["10.0.0.7", "fd00::/8"])
    with pytest.raises(ConfigurationError, match=r"proxy 'front.example': .* an address or a network is needed"):
        check_proxies(["10.0.0.7", "front.example"])
