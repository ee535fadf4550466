"""The Python client: rows by patches through broken connections, many queries on one, refusals."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from eddy.client import Client, ClientError
from eddy.client.connection import pause_s
from eddy.client.remote_view import ViewVersion
from eddy.errors import ConfigurationError
from eddy.live.dataflow.patch import Insert
from tests.client.proxy import Proxy
from tests.client.site import Site, folders, folders_site, tree
from tests.client.test_live_trees import storm
from tests.waiting import PATIENCE_S, in_time

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

    assert run(follow()) == site.tables.read(tree())
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
async def peer(
    answer: bytes, *later: bytes, posted: str = "204 No Content", ends: asyncio.Queue[bytes] | None = None
) -> AsyncIterator[str]:
    """The address of a server that gives each stream an answer, the last one to all further ones.

    `posted` is the status of its answers to changes. The heads of streams that clients have ended are put into `ends`.
    """
    answers = [answer, *later]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError, EOFError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):
                _, _, length = head.lower().partition(b"content-length: ")
                await reader.readexactly(int(length.split(b"\r\n")[0]))
                writer.write(f"HTTP/1.1 {posted}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                return
            told = answers[0] if len(answers) == 1 else answers.pop(0)
            writer.write(told)
            if BYE in told:
                return
            await reader.read()  # until the client goes
            if ends is not None:
                ends.put_nowait(head)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
BYE = b"event: bye\ndata: {}\n\n"
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


def snapshot_of(query: str) -> bytes:
    """No rows, at version 1."""
    shape = '"root": "r", "shape": [{"key": ["id"]}]'
    data = f'{{"query": "{query}", "version": {{"token": "1", "exact": true}}, "ops": [], {shape}}}'
    return f"id: i\nevent: snapshot\ndata: {data}\n\n".encode()


def patch_to(version: str) -> bytes:
    """A version without changes."""
    data = f'{{"version": {{"token": "{version}", "exact": true}}, "queries": {{}}}}'
    return f"event: patch\ndata: {data}\n\n".encode()


def test_change_that_comes_between_reading_rows_and_waiting_is_told() -> None:
    async def follow() -> None:
        async with peer(EVENTS + HELLO + snapshot_of("q1")) as url, Client(url) as client, client.live("tree") as view:
            assert view.rows == []
            assert view.take_patch([Insert("r", 0, {"id": "a"}, {})], ViewVersion("2", True))
            view.tell(view.state)
            async with asyncio.timeout(PATIENCE_S):
                async for version in view:
                    assert (version.token, view.rows) == ("2", [{"id": "a"}])
                    return

    run(follow())


def test_while_rows_are_unknown_their_version_is_that_of_before() -> None:
    async def follow() -> None:
        async with peer(EVENTS + HELLO + snapshot_of("q1")) as url, Client(url) as client, client.live("tree") as view:
            view.take_state("unknown")
            view.take_patch(None, ViewVersion("2", True))
            assert (view.version, view.rows) == (ViewVersion("1", True), [])
            view.take_patch([Insert("r", 0, {"id": "a"}, {})], ViewVersion("3", True))
            assert (view.version, view.rows) == (ViewVersion("3", True), [{"id": "a"}])
            view.take_state("complete")
            view.take_patch(None, ViewVersion("4", True))
            assert view.version == ViewVersion("4", True)

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
                with pytest.raises(ClientError, match="closed before the query's rows arrived"):
                    await opening

    run(ask())


def test_connection_whose_changes_fail_is_made_again_after_longer_and_longer_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = []

    def noted(first_s: float, count: int) -> float:
        failures.append(count)
        return pause_s(first_s, 0)

    monkeypatch.setattr("eddy.client.connection.pause_s", noted)

    async def follow() -> None:
        ends = asyncio.Queue[bytes]()
        stream = EVENTS + HELLO + snapshot_of("q1")
        async with (
            asyncio.timeout(PATIENCE_S),
            peer(stream, posted="503 Service Unavailable", ends=ends) as url,
            Client(url, retry_s=0.001) as client,
            client.live("tree"),
        ):
            opening = asyncio.create_task(client.live("tree").__aenter__())  # the change that fails
            for _ in range(4):
                await ends.get()
            opening.cancel()

    run(follow())
    assert failures[:3] == [1, 2, 3]


def test_change_that_is_refused_is_the_error_of_its_query_alone() -> None:
    async def follow() -> None:
        rows = EVENTS + HELLO + snapshot_of("q1") + snapshot_of("q2")
        async with (
            asyncio.timeout(PATIENCE_S),
            peer(rows, posted="429 Too Many Requests") as url,
            Client(url) as client,
        ):
            one, other = client.live("tree"), client.live("tree")
            await asyncio.gather(one.__aenter__(), other.__aenter__())
            await one.window(1, 2)
            with pytest.raises(ClientError) as caught:
                async for _ in one:
                    pass
            assert caught.value.code == "HTTP_429"
            assert (other.state, other.rows) == ("complete", [])

    run(follow())


@pytest.mark.parametrize("hangs", [True, False])
def test_opening_has_a_deadline_and_names_the_last_attempt(hangs: bool) -> None:
    async def ask() -> None:
        async with peer(EVENTS + HELLO) as url:
            silent = url if hangs else "http://127.0.0.1:1"
            async with Client(silent, retry_s=0.01, open_timeout_s=0.3) as client, asyncio.timeout(PATIENCE_S):
                view = client.live("tree")
                with pytest.raises(ClientError) as caught:
                    await view.__aenter__()
        said = f"live query 'tree': {silent} has sent no rows within 0.3 s"
        assert str(caught.value).startswith(said if hangs else f"{said}, the last attempt: ConnectError: ")
        assert "Client(url, open_timeout_s=…)" in str(caught.value)
        assert caught.value.code == "OPEN_TIMEOUT"

    run(ask())


def test_timeout_of_the_caller_is_the_callers() -> None:
    async def ask() -> None:
        async with peer(EVENTS + HELLO) as url, Client(url) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.live("tree").__aenter__()

    run(ask())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"url": 8080}, "client: url=8080; an address is needed"),
        ({"token": b"x"}, "client: token=b'x'"),
        ({"retry_s": "1"}, "client: retry_s='1'; a number of seconds"),
        ({"open_timeout_s": -1}, "client: open_timeout_s=-1; a number of seconds"),
        ({"texts": "folders"}, "client: texts='folders'; True or False is needed"),
    ],
)
def test_argument_of_a_client_that_cannot_work_is_refused(wrong: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"url": "http://127.0.0.1:1"} | wrong
    with pytest.raises(ConfigurationError, match=said):
        Client(given.pop("url"), **given)


def test_question_that_no_server_would_take_is_refused_where_it_is_asked() -> None:
    async def ask() -> None:
        async with peer(EVENTS + HELLO + snapshot_of("q1")) as url, Client(url) as client, client.live("tree") as view:
            with pytest.raises(ValueError, match="0 or more"):
                client.live("tree", window=(-1, None))
            with pytest.raises(ValueError, match="0 or more"):
                await view.window(0, -1)
            with pytest.raises(TypeError, match="set"):
                client.live("tree", names={"ann"})
            with pytest.raises(ValueError, match="not JSON compliant"):
                client.live("tree", most=float("nan"))
            assert view.rows == []

    run(ask())


def test_text_is_followed_beside_named_queries(site: Site) -> None:
    site.write({"home": {"name": "home"}, "ada": {"name": "ada", "parent": "home"}})

    async def follow() -> None:
        async with (
            Client(f"http://127.0.0.1:{site.port}", texts=True) as client,
            client.live("below", parent="home") as named,
        ):
            async with client.live_text("folders.order_by(folders.name)", window=(1, 1)) as view:
                assert (view.text, view.name, view.args) == ("folders.order_by(folders.name)", "", {})
                assert (named.rows, [row["key"] for row in view.rows]) == (1, ["home"])
                await asyncio.to_thread(site.write, {"abe": {"name": "abe", "parent": "home"}})
                async with asyncio.timeout(PATIENCE_S):
                    async for _ in view:
                        if view.rows[0]["key"] == "ada":
                            break
                assert (named.rows, named.version) == (2, view.version)
            with pytest.raises(ClientError, match=r"line 1, column 1: .*nowhere"):
                await client.live_text("nowhere.limit(1)").__aenter__()
            assert named.state == "complete"

    run(follow())


def test_text_is_for_a_client_of_texts() -> None:
    async def ask() -> None:
        async with (
            peer(EVENTS + HELLO) as url,
            Client(url) as named,
            Client(url, texts=True, open_timeout_s=0.1) as all_,
        ):
            with pytest.raises(ConfigurationError, match=r"Write Client\(url, texts=True\)"):
                named.live_text("folders")
            for wrong in ("", None, folders):
                with pytest.raises(ConfigurationError, match="the text of a query is needed"):
                    all_.live_text(wrong)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="0 or more"):
                all_.live_text("folders", window=(-1, None))
            with pytest.raises(ClientError, match="live query 'folders': http"):
                await all_.live_text("folders").__aenter__()

    run(ask())


def test_connection_ends_with_the_refusal_of_its_last_query() -> None:
    async def ask() -> None:
        ends = asyncio.Queue[bytes]()
        refusal = b'event: error\ndata: {"query": "q1", "error": {"code": "C", "message": "no"}}\n\n'
        async with peer(EVENTS + HELLO + refusal, ends=ends) as url, Client(url) as client:
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(ClientError, match="no"):
                    await client.live("tree").__aenter__()
                await ends.get()

    run(ask())


def test_version_of_a_query_that_is_opened_anew_is_that_of_its_rows() -> None:
    """The second query has no place in the URL, so that it is opened after the connection has been made again."""

    async def follow() -> None:
        first = EVENTS + HELLO + snapshot_of("q1") + snapshot_of("q2") + BYE
        second = EVENTS + HELLO + patch_to("2") + patch_to("3")
        async with (
            asyncio.timeout(PATIENCE_S),
            peer(first, second) as url,
            Client(url, retry_s=0.001) as client,
        ):
            one, other = client.live("tree", root="r" * 7_000), client.live("tree", root="s" * 7_000)
            await asyncio.gather(one.__aenter__(), other.__aenter__())
            async for version in one:
                if version.token == "3":
                    break
            assert other.version == ViewVersion("1", True)

    run(follow())


def test_program_that_is_cancelled_while_it_closes_a_query_is_cancelled() -> None:
    async def ask() -> None:
        async with peer(EVENTS + HELLO + snapshot_of("q1")) as url, Client(url) as client:
            view = await client.live("tree").__aenter__()
            closing = asyncio.create_task(view.__aexit__(None, None, None))
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing

    run(ask())
