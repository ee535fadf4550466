"""What `authorize` hides is hidden from queries, at every table that they read; filtered tables leave nothing."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pytest

import eddy
from eddy.client import Client as RemoteClient
from eddy.client import ClientError
from eddy.live.streams.limits import Limits
from eddy.serve.endpoint import endpoint_of, listen
from eddy.serve.http_server import HttpServer
from eddy.serve.table_pages import tables_app
from tests.live.server.sse import Client, asked
from tests.serve.conftest import fetch
from tests.tables.conftest import produce
from tests.waiting import PATIENCE_S, wait_for

folders = eddy.live_table("folders", key="id")
notes = eddy.live_table("notes", key="id")
queries = eddy.Queries()
asked_by_ann: list[str] = []


@queries.query
def shared() -> eddy.Query:
    with_notes = folders.where(lambda f: notes.where(notes.folder == f.id).exists())
    return with_notes.nest(notes=lambda f: notes.where(notes.folder == f.id))


@queries.query
def only_notes() -> eddy.Query:
    return notes.where(notes.folder == "f1")


@dataclass(frozen=True)
class Owned:
    """The rows of one user; equal for the same user."""

    user: str

    def __call__(self, key: Any, value: Any) -> bool:
        if self.user == "broken":
            raise RuntimeError("no such user")
        return bool(value["owner"] == self.user)


def authorize(request: Any, table: str) -> Any:
    user = request.headers.get("x-user") or request.headers.get("authorization", "").removeprefix("Bearer ")
    if user == "ann":
        asked_by_ann.append(table)
    if user == "nobody":
        return None
    if user == "unclear":
        return "perhaps"
    if user == "failing":
        raise RuntimeError("a secret")
    return user == "root" or ((table != "folders" or user != "bob") and Owned(user))


class Site:
    def __init__(self, stack: ExitStack) -> None:
        self.log = stack.enter_context(closing(eddy.open_log()))
        topology = eddy.Topology(f"app{uuid.uuid4().hex[:8]}")
        for name in ("folders", "notes"):
            topology.table(name, key=eddy.String, value=eddy.Json())
        eddy.create_topics(topology, self.log)
        stack.enter_context(eddy.run(topology, self.log))
        self.tables = stack.enter_context(eddy.open_tables(topology, self.log, queries=queries))
        app = tables_app(self.tables, authorize, limits=Limits(retain_s=0.0, linger_s=0.0))
        self.live = app.state.live
        listener = listen(endpoint_of("0"))
        self.port = listener.getsockname()[1]
        server = HttpServer(app, listener, keep_alive=True)
        server.start()
        stack.callback(server.stop)
        stack.callback(self.live.stop)
        self.stack = stack

    def client(self, user: str, *questions: dict[str, Any]) -> Client:
        client = Client(self.port, PATIENCE_S, {"X-User": user})
        client.asked.update((each["id"], each) for each in questions)
        self.stack.callback(client.close)
        client.connect()
        return client

    def write(self, topic: str, rows: dict[str, bytes]) -> str:
        at = produce(self.log, topic, dict(rows))
        return self.tables.wait(at, exact=True, timeout_s=PATIENCE_S).token


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(stack)


def test_rows_are_those_that_the_caller_may_read_at_every_table(site: Site) -> None:
    site.write("folders", {"f1": b'{"owner": "ann"}', "f2": b'{"owner": "eve"}', "f3": b'{"owner": "ann"}'})
    site.write("notes", {"n1": b'{"owner": "ann", "folder": "f1"}', "n3": b'{"owner": "eve", "folder": "f3"}'})

    def ids(rows: Any) -> Any:
        return {row["id"]: [note["id"] for note in row["notes"]] for row in rows}

    client = site.client("ann", asked("s", "shared"))
    everything = site.client("root", asked("s", "shared"))
    for each in (client, everything):
        each.until(lambda: "s" in each.whole)  # noqa: B023
    assert ids(client.rows("s")) == {"f1": ["n1"]}
    assert ids(everything.rows("s")) == {"f1": ["n1"], "f3": ["n3"]}
    site.write("notes", {"n4": b'{"owner": "eve", "folder": "f1"}'})
    token = site.write("notes", {"n3": b'{"owner": "ann", "folder": "f3"}'})
    for each in (client, everything):
        each.until(lambda: each.version.get("token") == token)  # noqa: B023
    assert ids(client.rows("s")) == {"f1": ["n1"], "f3": ["n3"]}
    assert ids(everything.rows("s")) == {"f1": ["n1", "n4"], "f3": ["n3"]}
    page = fetch(site.port, "/v1/queries/shared", headers={"X-User": "eve"})
    assert page.json["rows"] == []
    client.close()
    token = site.write("notes", {"n5": b'{"owner": "eve", "folder": "f1"}', "n3": b'{"owner": "ann", "folder": "f1"}'})
    client.connect()  # by patches or by a snapshot: what is hidden stays hidden
    client.until(lambda: client.version.get("token") == token and "s" in client.whole)
    assert ids(client.rows("s")) == {"f1": ["n1", "n3"]}


def test_queries_as_texts_are_over_the_rows_that_the_caller_may_read(site: Site) -> None:
    """And a path of its own reads them, so that `authorize` may allow named queries alone."""
    site.write("folders", {"f1": b'{"owner": "ann"}', "f2": b'{"owner": "eve"}'})
    site.write("notes", {"n1": b'{"owner": "bob", "folder": "f1"}', "n2": b'{"owner": "eve", "folder": "f1"}'})
    texts = {"f": "live_table('folders', key='id').count()", "n": "live_table('notes', key='id').select('id')"}

    def client(user: str, path: str = "/v1/live-text") -> Client:
        made = Client(site.port, PATIENCE_S, {"X-User": user})
        made.path = path
        made.asked.update((id_, {"id": id_, "text": text}) for id_, text in texts.items())
        site.stack.callback(made.close)
        made.connect()
        made.until(lambda: texts.keys() <= made.whole | made.errors.keys())
        return made

    root, bob, plain = client("root"), client("bob"), client("root", "/v1/live")
    assert (root.rows("f"), [row["id"] for row in root.rows("n")]) == (2, ["n1", "n2"])
    assert [row["id"] for row in bob.rows("n")] == ["n1"]
    assert "'folders': there is no table" not in bob.errors["f"]["message"]
    assert bob.errors["f"]["message"].endswith("table 'folders': there is none of that name")
    assert {error["message"] for error in plain.errors.values()} == {
        "live queries: a text is not read here. Ask for it at: /v1/live-text"
    }
    token = site.write("notes", {"n3": b'{"owner": "bob", "folder": "f1"}', "n1": None})  # type: ignore[dict-item]
    for each in (root, bob):
        each.until(lambda: each.version.get("token") == token)  # noqa: B023
    assert ([row["id"] for row in root.rows("n")], [row["id"] for row in bob.rows("n")]) == (["n2", "n3"], ["n3"])
    former = bob.stream
    bob.close()
    bob.connect()  # goes on from its last event
    bob.until(lambda: bob.stream != former and bob.whole == {"n"})
    assert [row["id"] for row in bob.rows("n")] == ["n3"]
    bob.ask({"id": "w", "text": texts["n"], "skip": 0, "limit": 0}, {"id": "b", "name": "only_notes", "text": "notes"})
    bob.until(lambda: {"w", "b"} <= bob.whole | bob.errors.keys())
    assert bob.rows("w") == []
    assert bob.errors["b"]["message"].startswith("live queries: a query has a name with its args, or a text")


def test_texts_of_the_python_client_are_over_the_rows_that_the_caller_may_read(site: Site) -> None:
    """`authorize` is asked for every table when the connection is made, and for those of a query when it is opened."""
    site.write("folders", {"f1": b'{"owner": "ann"}', "f2": b'{"owner": "eve"}'})
    site.write("notes", {"n1": b'{"owner": "bob", "folder": "f1"}', "n2": b'{"owner": "ann", "folder": "f1"}'})
    nested = "folders.nest(notes=lambda f: notes.where(notes.folder == f.key).select('key')).select('key')"

    async def follow() -> None:
        url = f"http://127.0.0.1:{site.port}"
        async with asyncio.timeout(PATIENCE_S), RemoteClient(url, token="ann", texts=True) as ann:
            asked_by_ann.clear()
            async with ann.live_text(nested) as view:
                assert view.rows == [{"key": "f1", "notes": [{"key": "n2"}]}]
                assert asked_by_ann == ["folders", "notes"] * 2
                async with ann.live_text("notes.count()") as number:
                    assert (number.rows, asked_by_ann[4:]) == (1, [])  # the table is open for this caller
                await asyncio.to_thread(site.write, "notes", {"n3": b'{"owner": "eve", "folder": "f1"}'})
                await asyncio.to_thread(site.write, "notes", {"n1": b'{"owner": "ann", "folder": "f1"}'})
                async for _ in view:
                    if len(view.rows[0]["notes"]) > 1:
                        break
                assert view.rows == [{"key": "f1", "notes": [{"key": "n1"}, {"key": "n2"}]}]
        async with (
            asyncio.timeout(PATIENCE_S),
            RemoteClient(url, token="bob", texts=True) as bob,
            bob.live_text("notes.count()") as none,
        ):
            assert none.rows == 0
            with pytest.raises(ClientError, match="'folders': there is none of that name"):
                await bob.live_text("live_table('folders').count()").__aenter__()
            with pytest.raises(ClientError) as caught:
                await bob.live("shared").__aenter__()
            assert (caught.value.code, none.state) == ("QUERY_FORBIDDEN", "complete")
        async with asyncio.timeout(PATIENCE_S), RemoteClient(url, token="nobody", texts=True) as nobody:
            for text in ("folders", "notes.count()"):
                with pytest.raises(ClientError, match="there are no tables"):
                    await nobody.live_text(text).__aenter__()

    asyncio.run(follow())


def test_a_text_does_not_decide_how_named_queries_name_columns(site: Site) -> None:
    """All queries of a loaded table have one name for its key: a text reads rows apart."""
    site.write("notes", {"n1": b'{"owner": "ann", "folder": "f1"}'})
    for user in ("root", "ann"):
        text = Client(site.port, PATIENCE_S, {"X-User": user})
        text.path = "/v1/live-text"
        text.asked["key"] = {"id": "key", "text": "notes.select('key')"}
        text.asked["number"] = {"id": "number", "text": "live_table('notes', key='number').select('number')"}
        site.stack.callback(text.close)
        text.connect()
        text.until(lambda: text.whole | text.errors.keys() == {"key", "number"})  # noqa: B023
        named = site.client(user, asked("n", "only_notes"))
        named.until(lambda: named.whole | named.errors.keys() == {"n"})  # noqa: B023
        assert (text.rows("key"), text.rows("number")) == ([{"key": "n1"}], [{"number": "n1"}])
        assert [row["id"] for row in named.rows("n")] == ["n1"]
    shown = fetch(site.port, "/v1/open-queries", headers={"X-User": "root"}).json["queries"]
    assert sorted(each["is_filtered"] for each in shown) == [False] * 3 + [True] * 3  # ann's are over some rows


def test_refused_tables_and_failing_functions_end_the_query_alone(site: Site) -> None:
    site.write("notes", {"n1": b'{"owner": "ann", "folder": "f1"}'})
    client = site.client("bob", asked("s", "shared"), asked("n", "only_notes"))
    client.until(lambda: "n" in client.whole and "s" in client.errors)
    assert client.errors["s"]["code"] == "QUERY_FORBIDDEN"
    assert client.rows("n") == []
    assert fetch(site.port, "/v1/queries/shared", headers={"X-User": "bob"}).status == 403
    broken = site.client("broken", asked("n", "only_notes"))
    broken.until(lambda: "n" in broken.errors)
    assert "no such user" in broken.errors["n"]["message"]
    token = site.write("notes", {"n2": b'{"owner": "bob", "folder": "f1"}'})
    client.until(lambda: client.version.get("token") == token)
    assert [row["id"] for row in client.rows("n")] == ["n2"]


@pytest.mark.parametrize(
    ("user", "status", "code"),
    [("nobody", 403, "QUERY_FORBIDDEN"), ("unclear", 403, "QUERY_FORBIDDEN"), ("failing", 500, "QUERY_FAILED")],
)
def test_without_a_clear_answer_nothing_is_read(site: Site, user: str, status: int, code: str) -> None:
    site.write("notes", {"n1": b'{"owner": "ann", "folder": "f1"}'})
    for path in ("/v1/queries/only_notes", "/v1/tables/notes", "/v1/tables/notes/n1"):
        page = fetch(site.port, path, headers={"X-User": user})
        assert (page.status, page.json["code"], "secret" in page.text) == (status, code, False)
    client = site.client(user, asked("n", "only_notes"), asked("m", "only_notes"))
    client.until(lambda: len(client.errors) == 2)
    assert {error["code"] for error in client.errors.values()} == {code}


def test_filtered_tables_are_let_go_of(site: Site) -> None:  # private: nothing is left
    site.write("notes", {"n1": b'{"owner": "ann", "folder": "f1"}'})
    server = site.tables.live_server()
    for user in ("ann", "eve", "broken"):
        client = site.client(user, asked("n", "only_notes"))
        client.until(lambda: client.whole or client.errors)  # noqa: B023
        client.close()
    wait_for(lambda: site.live.quota.streams == 0, PATIENCE_S)
    wait_for(lambda: not server.tables._filters and not site.live.publisher.queries, PATIENCE_S)
    assert not any(
        "@" in name for name in (*server.tables._namings, *server.tables.engine.tables, *server.tables.feed._watched)
    )
