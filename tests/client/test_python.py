"""The Python client: rows by patches through broken connections, many queries on one, refusals."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from eddy.client import Client, ClientError
from eddy.client.connection import pause_s
from eddy.client.view import Version
from eddy.operators.views.patch import Insert
from tests.client.proxy import Proxy
from tests.client.site import Site, folders_site, tree
from tests.client.test_live_trees import storm
from tests.waiting import in_time

PATIENCE_S = 60.0

T = TypeVar("T")


def run(following: Coroutine[Any, Any, T]) -> T:
    """Run it; the end of an `asyncio.timeout` is that of a wait."""
    with in_time("the client"):
        return asyncio.run(following)


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        made = folders_site(stack)
        made.serve()
        yield made


def test_view_is_the_servers_after_a_storm_and_three_cuts(site: Site) -> None:
    site.write({f"f{number}": {"name": f"{number}"} for number in range(20)})
    proxy = Proxy(site.port)

    def changes() -> None:
        storm(site, proxy, 300)
        site.write({"last": {"name": "the last one"}})

    async def follow() -> object:
        async with Client(f"http://127.0.0.1:{proxy.port}", retry_s=0.01) as client, client.live("tree") as view:
            writer = threading.Thread(target=changes)
            writer.start()
            async with asyncio.timeout(PATIENCE_S):
                async for version in view:
                    if any(row["id"] == "last" for row in view.rows):
                        assert version == view.version
                        break
            await asyncio.to_thread(writer.join)
            return view.rows

    assert run(follow()) == site.views.read(tree())
    proxy.close()


def test_many_queries_share_a_connection_and_come_and_go(site: Site) -> None:
    site.write({"home": {"name": "home"}, "ada": {"name": "ada", "parent": "home"}, "eve": {"name": "eve"}})

    async def follow() -> None:
        async with Client(f"http://127.0.0.1:{site.port}") as client:
            async with client.live("tree", window=(0, 1)) as first:
                assert [row["name"] for row in first.rows] == ["eve"]
                async with client.live("below", parent="home") as number:
                    assert number.rows == 1
                    with pytest.raises(ClientError, match="nowhere"):
                        await client.live("secret").__aenter__()
                    await first.window(1, 1)
                    async with asyncio.timeout(PATIENCE_S):
                        async for _ in first:
                            if first.rows[0]["name"] == "home":
                                break
                assert number.state == "closed"
            async with client.live("below", parent="home") as again:
                assert again.rows == 1

    run(follow())


def test_refusal_of_the_connection_is_the_error_of_its_queries(tmp_path: Path) -> None:
    with ExitStack() as stack:
        site = folders_site(stack)
        site.token = tmp_path / "token"
        site.token.write_text("0123456789abcdef")
        url = site.serve()

        async def ask(token: str) -> object:
            async with Client(url, token=token) as client, client.live("tree") as view:
                return view.rows

        assert run(ask("0123456789abcdef")) == []
        with pytest.raises(ClientError, match="a token is needed") as caught:
            run(ask("another"))
        assert caught.value.code == "HTTP_401"


@asynccontextmanager
async def peer(answer: bytes) -> AsyncIterator[str]:
    """The address of a server that gives each connection this answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await reader.read()  # until the client goes

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
HELLO = b'event: hello\ndata: {"connection": "c", "server": "s", "heartbeat_s": 15}\n\n'


@pytest.mark.parametrize(
    ("said", "error"),
    [(b"event: snapshot\ndata: {not JSON}\n\n", ValueError), (b"event: state\ndata: {}\n\n", KeyError)],
)
def test_answer_that_is_not_of_the_protocol_is_the_error_of_the_queries(said: bytes, error: type[Exception]) -> None:
    async def ask() -> None:
        async with peer(EVENTS + HELLO + said) as url, Client(url) as client:
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(error):
                    await client.live("tree").__aenter__()

    run(ask())


def test_change_that_comes_between_reading_rows_and_waiting_is_told() -> None:
    shape = '"root": "r", "shape": [{"key": ["id"]}]'
    data = f'{{"query": "q1", "version": {{"token": "1", "exact": true}}, "ops": [], {shape}}}'
    snapshot = f"event: snapshot\ndata: {data}\n\n".encode()

    async def follow() -> None:
        async with peer(EVENTS + HELLO + snapshot) as url, Client(url) as client, client.live("tree") as view:
            assert view.rows == []
            await view.take_patch([Insert("r", 0, {"id": "a"}, {})], Version("2", True))
            async with asyncio.timeout(PATIENCE_S):
                async for version in view:
                    assert (version.token, view.rows) == ("2", [{"id": "a"}])
                    return

    run(follow())


def test_address_without_a_scheme_is_an_error_at_once() -> None:
    async def ask() -> None:
        async with Client("localhost:1") as client, asyncio.timeout(PATIENCE_S):
            with pytest.raises(httpx.UnsupportedProtocol):
                await client.live("tree").__aenter__()

    run(ask())


def test_server_that_is_away_for_a_day_is_tried_again_every_thirty_seconds() -> None:
    assert [pause_s(0.25, failures) for failures in (0, 1, 2, 10, 3_000)] == [0.25, 0.5, 1.0, 30.0, 30.0]


def test_query_that_is_opened_while_the_last_one_closes_has_its_rows(site: Site) -> None:
    async def follow() -> None:
        async with Client(f"http://127.0.0.1:{site.port}") as client, asyncio.timeout(PATIENCE_S):
            first = await client.live("tree").__aenter__()
            for _ in range(5):
                second = client.live("tree")
                await asyncio.gather(first.__aexit__(None, None, None), second.__aenter__())
                assert second.rows == []
                first = second

    run(follow())


def test_client_that_closes_ends_the_queries_that_wait_for_their_rows() -> None:
    async def ask() -> None:
        async with peer(EVENTS + HELLO) as url:
            client = Client(url)
            opening = asyncio.create_task(client.live("tree").__aenter__())
            await asyncio.sleep(0)
            async with client:
                pass
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(ClientError, match="closed before its rows came"):
                    await opening

    run(ask())
