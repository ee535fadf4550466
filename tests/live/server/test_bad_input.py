"""Requests that make no sense, and clients that ask for too much or take nothing: clear errors, nobody disturbed."""

import asyncio
import http.client
import json
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import quote

import pytest
from msgspec import structs

import eddy
from eddy.live.query.named import Queries
from eddy.live.streams.limits import Limits
from eddy.serve import live_pages as http_module
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_pages import tables_app
from eddy.serve.table_server import served
from tests.live.server.families import nodes
from tests.live.server.sse import Client, asked
from tests.live.server.test_http import Site, queries
from tests.serve.conftest import Page, fetch
from tests.tables.conftest import produce
from tests.waiting import PATIENCE_S, wait_for

LIMITS = Limits(connection_queries=50, client_queries=60, client_connections=5, rows=20_000, linger_s=0.0, retain_s=0.0)


@queries.query
def all_nodes() -> eddy.Query:
    return nodes.order_by(nodes.id)


@queries.query
def broken(how: str) -> Any:
    if how == "raise":
        raise RuntimeError("a secret")
    if how == "value":
        raise ValueError("how must be known")
    if how == "forbid":
        raise PermissionError
    if how == "table":
        return eddy.live_table("nothing")
    if how == "column":
        return nodes.where(eddy.live_table("nodes", key="id").nothing == 1)
    return how


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def site(stack: ExitStack) -> Site:
    return Site(stack, LIMITS)


def code(page: Page) -> tuple[int, str]:
    return page.status, page.json["code"]


def refused(site: Site, *questions: Any, **headers: str) -> tuple[int, str]:
    """The answer to a stream that is not begun."""
    client = Client(site.server.port, PATIENCE_S, headers)
    client.asked.update((str(n), each) for n, each in enumerate(questions))
    with pytest.raises(AssertionError) as error:
        client.connect()
    status, body = error.value.args[0]
    return status, json.loads(body)["code"]


def test_single_requests_are_refused_one_by_one(site: Site) -> None:
    assert code(site.get("/v1/queries/nothing")) == (404, "QUERY_UNKNOWN")
    assert code(site.get("/v1/queries/below")) == (400, "QUERY_ARGUMENT")
    assert code(site.get("/v1/queries/below?parent=a&top=many")) == (400, "QUERY_ARGUMENT")
    assert code(site.get("/v1/queries/below?parent=a&top=-1")) == (400, "QUERY_ARGUMENT")
    assert code(site.get("/v1/queries/below?parent=a&depth=1")) == (400, "QUERY_ARGUMENT")
    assert code(site.get("/v1/queries/tree?at_least=nonsense")) == (400, "QUERY")
    assert code(site.get("/v1/queries/tree?at_least=x&wait=long")) == (400, "QUERY")
    assert code(site.get("/v1/queries/tree", {"X-Nobody": "1"})) == (403, "QUERY_FORBIDDEN")
    assert code(site.get("/v1/queries", {"X-Nobody": "1"})) == (403, "QUERY_FORBIDDEN")
    errors = {how: site.get(f"/v1/queries/broken?how={how}") for how in ("raise", "value", "forbid", "table", "column")}
    assert {how: code(page) for how, page in errors.items()} == {
        "raise": (500, "QUERY_FAILED"),
        "value": (400, "QUERY_ARGUMENT"),
        "forbid": (403, "QUERY_FORBIDDEN"),
        "table": (404, "QUERY_TABLE"),
        "column": (400, "QUERY_ARGUMENT"),
    }
    assert "secret" not in errors["raise"].text
    assert "how must be known" in errors["value"].text
    assert code(site.get("/v1/queries/broken?how=none")) == (500, "QUERY_FAILED")
    for path in ("/v1/queries", "/v1/queries/tree", "/v1/live"):
        assert fetch(site.server.port, path, "DELETE").status == 405


def test_streams_that_make_no_sense_do_not_begin(site: Site) -> None:
    assert refused(site, {"name": "tree"}) == (400, "QUERY_ARGUMENT")
    assert refused(site, {"id": "", "name": "tree"}) == (400, "QUERY_ARGUMENT")
    assert refused(site, {"id": "a", "name": "tree", "more": 1}) == (400, "QUERY_ARGUMENT")
    assert refused(site, {"id": "a", "name": "tree", "limit": -1}) == (400, "QUERY_ARGUMENT")
    assert refused(site, asked("a", "tree"), asked("a", "tree")) == (400, "QUERY_ARGUMENT")
    assert refused(site, asked("a", "tree"), **{"X-Nobody": "1"}) == (403, "QUERY_FORBIDDEN")
    assert refused(site, *(asked(str(n), "tree") for n in range(51))) == (429, "QUERY_LIMIT")
    assert fetch(site.server.port, "/v1/live?query=%7B").status == 400
    for last in ("nonsense", "a.b.c.d.e", "x.y.z.1.1", "é" * 10):
        client = Client(site.server.port, PATIENCE_S)
        client.asked["t"], client.last_id = asked("t", "tree"), last
        client.connect()
        client.until(lambda: "t" in client.whole)  # noqa: B023
        client.close()


def test_one_query_that_fails_ends_alone(site: Site) -> None:
    client = site.client(
        asked("t", "tree"),
        asked("unknown", "nothing"),
        asked("argument", "below", parent=7),
        asked("failed", "broken", how="raise"),
        asked("column", "broken", how="column"),
    )
    client.until(lambda: len(client.errors) == 4 and "t" in client.whole)
    assert {id_: error["code"] for id_, error in client.errors.items()} == {
        "unknown": "QUERY_UNKNOWN",
        "argument": "QUERY_ARGUMENT",
        "failed": "QUERY_FAILED",
        "column": "QUERY_ARGUMENT",
    }
    client.ask(asked("unknown", "all_nodes"))  # the id is free again
    client.until(lambda: "unknown" in client.whole)
    token = site.write({"a": "root"})
    client.until(lambda: client.version.get("token") == token)
    assert [row["id"] for row in client.rows("t")] == ["a"]


def test_changes_that_make_no_sense_change_nothing(site: Site) -> None:
    client = site.client(asked("t", "tree"))
    client.until(lambda: "t" in client.whole)
    assert client.post(open=[asked("t", "tree")])[0] == 400
    assert client.post(window=[{"id": "x", "skip": 1}])[0] == 400
    assert client.post(window=[{"id": "t", "skip": -1}])[0] == 400
    assert client.post(opens=[])[0] == 400
    assert client.post(open=[asked("b", "tree", long="x" * (1 << 20))])[0] == 413
    status, body = client.post(open=[asked(str(n), "tree") for n in range(100_000 // 100)])
    assert (status, body["code"]) == (429, "QUERY_LIMIT")
    assert "at most 50 are allowed" in body["error"]
    stream, client.stream = client.stream, "nothing"
    assert client.post(close=["t"])[0] == 404
    client.stream = stream
    assert client.post(close=["t", "no such"])[0] == 204
    assert client.post(open=[asked("t", "below", parent="root")])[0] == 204
    client.until(lambda: client.snapshots == 2)


def test_one_client_gets_so_many_queries_and_streams_and_no_more(site: Site) -> None:
    first = site.client(*(asked(str(n), "below", parent=str(n)) for n in range(40)))
    first.until(lambda: len(first.whole) == 40)
    assert refused(site, *(asked(str(n), "below", parent=str(n)) for n in range(21))) == (429, "QUERY_LIMIT")
    other = site.client(*(asked(str(n), "below", parent=str(n)) for n in range(21)), **{"X-User": "other"})
    other.until(lambda: len(other.whole) == 21)
    streams = [site.client() for _ in range(4)]
    assert refused(site) == (429, "QUERY_LIMIT")
    for each in (first, *streams):
        each.close()
    live = site.live
    wait_for(lambda: live.quota.streams == 1, PATIENCE_S)
    again = site.client(*(asked(str(n), "below", parent=str(n)) for n in range(50)))
    again.until(lambda: len(again.whole) == 50)


def test_query_with_too_many_rows_ends_and_no_other(site: Site) -> None:
    client = site.client(asked("all", "all_nodes"), asked("few", "all_nodes", limit=2))
    client.until(lambda: len(client.whole) == 2)
    site.write({f"n{n:05}": "x" for n in range(20_001)})
    client.until(lambda: "all" in client.errors)
    assert "more than 20,000 rows" in client.errors["all"]["message"]
    client.until(lambda: len(client.rows("few")) == 2)
    assert code(site.get("/v1/queries/all_nodes")) == (400, "QUERY")


def lasting_threads() -> set[str]:
    """The threads of this process, without the pool of the event loop, which grows with the load and stays."""
    return {thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}


def test_large_rows_come_in_pages_and_disconnects_in_their_middle_leave_nothing(site: Site) -> None:
    site.write({f"n{n:05}": "x" * 100 for n in range(10_000)})
    before = lasting_threads()
    for steps in (1, 2, 3, 5):
        client = site.client(asked("all", "all_nodes"), asked("t", "tree"))
        for _ in range(steps):
            client.step()
        client.close()
    client = site.client(asked("all", "all_nodes"))
    client.until(lambda: "all" in client.whole)
    assert client.events > 10
    assert len(client.rows("all")) == 10_000
    client.close()
    publisher, live = site.publisher, site.live
    wait_for(lambda: live.quota.streams == 0 and publisher.queries == 0, PATIENCE_S)
    server = site.server.tables.live_server()
    assert not server._readers  # private: nothing is left
    assert len(server.tables.engine) == 0
    assert not live._streams  # private: nothing is left
    assert not live.quota._queries  # private: nothing is left
    assert not publisher._readers  # private: nothing is left
    wait_for(lambda: lasting_threads() - before <= {"eddy-live"}, PATIENCE_S)


def test_client_that_reads_nothing_is_cut_off_and_disturbs_nobody(stack: ExitStack) -> None:
    site = Site(stack, structs.replace(LIMITS, slow_s=2.0))
    rows = {f"n{n:05}": "x" * 1_000 for n in range(10_000)}
    site.write(dict(rows))
    idle = socket.socket()
    idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    idle.connect(("127.0.0.1", site.server.port))
    question = quote(json.dumps(asked("all", "all_nodes")))
    idle.sendall(f"GET /v1/live?query={question} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    client = site.client(asked("x", "all_nodes", limit=1))
    client.until(lambda: "x" in client.whole)
    for n in range(5):
        token = site.write({"a": str(n)})
        client.until(lambda: client.version.get("token") == token)  # noqa: B023
        assert client.rows("x") == [{"id": "a", "parent": str(n)}]
    wait_for(lambda: site.publisher.figures.slow == 1 and site.live.quota.streams == 1, PATIENCE_S)
    idle.close()


def test_slow_client_gets_sums_and_rows_that_are_whole(site: Site) -> None:
    site.write({f"n{n:03}": "x" * 500 for n in range(100)})
    client = site.client(asked("all", "all_nodes"))
    client.until(lambda: "all" in client.whole)
    stream = next(iter(site.live._streams.values())).stream  # private: the reader's thread of a client
    for n in range(30):  # the reader's thread is held up meanwhile, as by a client that reads slowly
        site.write({f"n{n:03}": str(n), f"m{n:03}": "y"})
    token = site.write({"n050": None})
    client.until(lambda: client.version.get("token") == token)
    assert [row["id"] for row in client.rows("all")] == sorted(site.written)
    assert {row["id"]: row["parent"] for row in client.rows("all")} == site.written
    assert stream.connection.waiting == 0


def test_declarations_that_clients_could_not_use_are_refused() -> None:
    made = Queries()

    def refused_by(match: str, function: Any, name: str | None = None) -> None:
        with pytest.raises(eddy.QueryError, match=match):
            made.query(name=name or "q")(function)

    refused_by("it has no type", lambda x: nodes)
    refused_by("clients give arguments by name", lambda *x: nodes)
    refused_by("not a name for clients", lambda: nodes, "a b")

    def odd(x: "list[Queries]") -> eddy.Query:
        return nodes

    def reserved(wait: int) -> eddy.Query:
        return nodes

    def unknown(x: "Nothing") -> eddy.Query:  # type: ignore[name-defined]  # noqa: F821
        return nodes

    refused_by("cannot be read from JSON: .*Queries'> is in it", odd)
    refused_by("another name is needed", reserved)
    refused_by("an unknown name", unknown)
    made.query(name="q")(lambda: nodes)
    refused_by("there is one of that name", lambda: nodes)
    with pytest.raises(eddy.QueryError, match="there is no such query; one of q is needed"):
        made.bind("nothing", {})


def test_body_that_never_ends_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "MAX_BODY_BYTES", 1_000)
    client = site.client(asked("t", "tree"))
    client.until(lambda: "t" in client.whole)
    assert client.post(close=["x" * 200] * 10)[0] == 413


def test_client_that_goes_in_the_middle_of_a_body_is_no_failure_of_the_server(site: Site) -> None:
    """Its answer, which nobody gets, is a refusal; an exception would be in the server's log with its traceback."""
    statuses: list[int] = []

    async def post() -> None:
        came = iter([{"type": "http.request", "body": b'{"open":', "more_body": True}, {"type": "http.disconnect"}])

        async def receive() -> Any:
            return next(came)

        async def send(message: Any) -> None:
            statuses.append(message.get("status", 0))

        scope = {"type": "http", "method": "POST", "path": "/v1/live/any", "query_string": b"", "headers": []}
        await tables_app(site.server.tables)(scope, receive, send)

    asyncio.run(post())
    assert statuses[0] == 400


def test_body_that_is_not_utf8_is_refused(site: Site) -> None:
    client = site.client(asked("t", "tree"))
    client.until(lambda: "t" in client.whole)
    with closing(http.client.HTTPConnection("127.0.0.1", site.server.port, timeout=PATIENCE_S)) as connection:
        connection.request("POST", f"/v1/live/{client.stream}", b'{"close":["\xed\xa0\x80"]}')
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["code"]) == (400, "QUERY_ARGUMENT")


def test_value_that_json_cannot_show_ends_its_query_alone() -> None:
    def encode(value: dict[str, str]) -> bytes:
        return value["text"].encode("utf-8", "surrogatepass")

    def decode(data: bytes) -> dict[str, str]:
        return {"text": data.decode("utf-8", "surrogatepass")}

    topology, asks = eddy.Topology(f"app{uuid.uuid4().hex[:8]}"), eddy.Queries()
    topology.table("odd", key=eddy.String, value=eddy.Serde("odd", encode, decode))
    topology.table("plain", key=eddy.String, value=eddy.Json())

    @asks.query
    def rows(table: str) -> eddy.Query:
        return eddy.live_table(table)

    with ExitStack() as stack:
        log = stack.enter_context(closing(eddy.open_log()))
        eddy.create_topics(topology, log)
        stack.enter_context(eddy.run(topology, log))
        server = stack.enter_context(served(endpoint_of("0"), topology, log, queries=asks))
        client = Client(server.port, PATIENCE_S)
        stack.callback(client.close)
        client.asked.update((name, asked(name, "rows", table=name)) for name in ("odd", "plain"))
        client.connect()
        client.until(lambda: client.whole == {"odd", "plain"})
        produce(log, "odd", {"a": b"\xed\xa0\x80"})
        client.until(lambda: "odd" in client.errors)
        client.ask(asked("again", "rows", table="odd"))
        client.until(lambda: "again" in client.errors)
        produce(log, "plain", {"a": b"{}"})
        client.until(lambda: client.rows("plain") == [{"key": "a"}])
        assert (client.errors.keys(), server.tables.failure) == ({"odd", "again"}, None)
        page = fetch(server.port, "/v1/queries/rows?table=odd")
        assert (page.status, page.json["code"]) == (400, "QUERY")
        assert "key 'a' has a string with a lone surrogate" in page.text
