"""Named queries over HTTP: once, as streams of patches, resumed, moved, refused; and that nothing is left over."""

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import quote

import pytest

import eddy
from eddy.live.streams.limits import Limits
from eddy.live.streams.publisher import Publisher
from eddy.serve.endpoint import endpoint_of
from eddy.serve.live_pages import LivePages
from eddy.serve.table_server import Served, served
from tests.live.server.families import TREE, Family, Written, family, nodes
from tests.live.server.sse import Client, asked
from tests.serve.conftest import Page, fetch
from tests.waiting import PATIENCE_S, wait_for

queries = eddy.Queries(claims=lambda headers: None if "x-nobody" in headers else {"user": headers.get("x-user", "")})


@queries.query
def tree() -> eddy.Query:
    """The whole tree."""
    return TREE


@queries.query
def below(parent: str, top: int = 20) -> eddy.Query:
    """The nodes below a parent."""
    return nodes.where(nodes.parent == parent).order_by(nodes.id).limit(top)


@queries.query
def mine(claims: eddy.Claims) -> eddy.Query:
    return nodes.where(nodes.parent == claims["user"])


BOB = {"X-User": "bob"}


class Site(Family):
    """A family on an embedded log, its worker, and a server of its tables and queries."""

    def __init__(self, stack: ExitStack, limits: Limits | None = None) -> None:
        self.log = stack.enter_context(closing(eddy.open_log()))
        topology = family(f"app{uuid.uuid4().hex[:8]}")
        eddy.create_topics(topology, self.log)
        stack.enter_context(eddy.run(topology, self.log))
        self.server: Served = stack.enter_context(
            served(endpoint_of("0"), topology, self.log, queries=queries, limits=limits)
        )
        self._stack = stack
        self.server.tables.wait(timeout_s=PATIENCE_S)

    @property
    def live(self) -> LivePages:
        """The pages of live queries."""
        return self.server.live

    @property
    def publisher(self) -> Publisher:
        """The queries that are published."""
        assert self.live.publisher is not None
        return self.live.publisher

    def client(self, *questions: dict[str, Any], **headers: str) -> Client:
        client = Client(self.server.port, PATIENCE_S, headers)
        client.asked.update((each["id"], each) for each in questions)
        self._stack.callback(client.close)
        client.connect()
        return client

    def get(self, path: str, headers: dict[str, str] | None = None) -> Page:
        return fetch(self.server.port, path, headers=headers)

    def write(self, rows: Written) -> str:
        """Write rows; the token of an exact version that has them."""
        return self.server.tables.wait(self.produce(rows), exact=True, timeout_s=PATIENCE_S).token


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(stack)


def test_queries_are_listed_and_answered_once(site: Site) -> None:
    token = site.write({"a": "root", "b": "a", "c": "a"})
    listed = {each["name"]: each for each in site.get("/v1/queries").json["queries"]}
    assert list(listed)[:3] == ["tree", "below", "mine"]
    assert listed["below"]["description"] == "The nodes below a parent."
    assert listed["below"]["arguments"] == [
        {"name": "parent", "type": "str", "required": True, "default": None},
        {"name": "top", "type": "int", "required": False, "default": 20},
    ]
    page = site.get(f"/v1/queries/below?parent=a&top=1&at_least={token}")
    assert (page.status, page.json["rows"]) == (200, [{"id": "b", "parent": "a"}])
    assert page.json["version"]["exact"] is True
    assert site.get("/v1/queries/tree").json["rows"] == site.answer(TREE)
    same = site.get("/v1/queries/below?parent=a&top=1", {"If-None-Match": page.headers["ETag"]})
    assert same.status == 304
    assert site.get("/v1/queries/mine", {"X-User": "root"}).json["rows"] == [{"id": "a", "parent": "root"}]


def test_stream_has_rows_and_patches_of_many_queries(site: Site) -> None:
    site.write({"a": "root", "b": "a"})
    client = site.client(asked("t", "tree"), asked("r", "below", parent="root"))
    client.until(lambda: client.whole >= {"t", "r"})
    assert client.rows("t") == site.answer(TREE)
    token = site.write({"c": "root", "b": "c"})
    client.until(lambda: client.version == {"token": token, "exact": True})
    assert client.rows("t") == site.answer(TREE)
    assert [row["id"] for row in client.rows("r")] == ["a", "c"]
    client.ask(asked("b", "below", parent="c"))
    client.until(lambda: "b" in client.whole)
    assert client.rows("b") == [{"id": "b", "parent": "c"}]
    client.post(close=["t"])
    before = dict(client.views["t"].entries)
    token = site.write({"d": "c", "e": "root"})
    client.until(lambda: client.version == {"token": token, "exact": True})
    assert [row["id"] for row in client.rows("b")] == ["b", "d"]
    assert client.views["t"].entries == before


def test_client_that_comes_back_as_another_caller_has_the_rows_of_that_one(site: Site) -> None:
    """A browser sends the last event also after its user has logged out, and another one in."""
    site.write({"of-ann": "ann", "of-bob": "bob"})
    client, other = site.client(asked("m", "mine"), **{"X-User": "ann"}), site.client(asked("b", "mine"), **BOB)
    client.until(lambda: "m" in client.whole)
    other.until(lambda: "b" in other.whole)
    client.headers = BOB
    client.connect()
    token = site.write({"more": "bob"})
    client.until(lambda: client.version == {"token": token, "exact": True} and "m" in client.whole)
    assert [row["id"] for row in client.rows("m")] == ["more", "of-bob"]


def test_client_that_comes_back_goes_on_by_patches(site: Site) -> None:
    site.write({"a": "root", "b": "a"})
    client = site.client(asked("t", "tree"), asked("r", "below", parent="root"))
    client.until(lambda: client.whole >= {"t", "r"})
    for n in range(3):
        client.close()
        token = site.write({f"x{n}": "root", "b": f"x{n}"})
        client.connect()
        client.until(lambda: client.version.get("token") == token)  # noqa: B023
        assert client.rows("t") == site.answer(TREE)
        assert [row["id"] for row in client.rows("r")] == sorted(k for k, v in site.written.items() if v == "root")
    assert client.snapshots == 2
    client.last_id = ".".join(["x", *client.last_id.split(".")[1:]])
    client.asked["r"] = asked("r", "below", parent="a")
    client.connect()
    client.until(lambda: client.snapshots == 3)
    assert client.rows("r") == []


def test_window_moves_by_its_difference(site: Site) -> None:
    site.write({f"n{n}": "root" for n in range(9)})
    client = site.client(asked("r", "below", parent="root", limit=3))
    client.until(lambda: "r" in client.whole)
    client.move("r", 2, 3)
    client.until(lambda: [row["id"] for row in client.rows("r")] == ["n2", "n3", "n4"])
    token = site.write({"n1": None, "n3": "n0"})
    client.until(lambda: client.version.get("token") == token)
    assert [row["id"] for row in client.rows("r")] == ["n4", "n5", "n6"]
    client.close()
    client.connect()
    token = site.write({"n5": None})
    client.until(lambda: client.version.get("token") == token)
    assert [row["id"] for row in client.rows("r")] == ["n4", "n6", "n7"]
    assert client.snapshots == 1
    client.move("r", None, None)
    client.until(lambda: len(client.rows("r")) == 6)


def test_clients_go_on_by_patches_after_all_queries_began_anew(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*given: Any) -> Any:
        raise ZeroDivisionError("broken")

    site.write({"a": "root"})
    client = site.client(asked("t", "tree"))
    client.until(lambda: "t" in client.whole)
    tag = {"If-None-Match": site.get("/v1/queries/tree").headers["ETag"]}
    monkeypatch.setattr(site.server.tables.live_server().tables.engine, "apply", breaks)
    site.write({"b": "a"})
    client.until(lambda: client.rows("t") == site.answer(TREE))
    wait_for(lambda: site.get("/v1/queries/tree", tag).status == 200, PATIENCE_S)
    assert site.get("/v1/queries/tree", tag).json["rows"] == site.answer(TREE)
    assert (client.snapshots, site.get("/healthz").status) == (1, 200)
    assert "eddy_live_restarts_total 1.0" in site.get("/metrics").text


def test_server_whose_queries_have_ended_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*given: Any) -> Any:
        raise ZeroDivisionError("broken")

    page = site.get("/v1/queries/tree")
    tag = {"If-None-Match": page.headers["ETag"]}
    assert site.get("/v1/queries/tree", tag).status == 304
    client = site.client(asked("t", "tree"))
    client.until(lambda: "t" in client.whole)
    assert site.get("/healthz").json == {"ok": True, "reason": ""}
    assert "eddy_live_ended 0.0" in site.get("/metrics").text
    server = site.server.tables.live_server()
    monkeypatch.setattr(server.restarts, "most", 0)
    monkeypatch.setattr(server.tables.engine, "apply", breaks)
    site.write({"a": "root"})
    client.until(lambda: "broken" in client.errors.get("t", {}).get("message", ""))
    wait_for(lambda: site.get("/healthz").status == site.get("/readyz").status == 503, PATIENCE_S)
    wait_for(lambda: site.get("/v1/queries/tree", tag).status not in (200, 304), PATIENCE_S)
    assert [site.get(path).status for path in ("/healthz", "/readyz", "/v1/tables")] == [503, 503, 200]
    assert site.get("/readyz").json["reason"] == "live queries have ended"
    assert "eddy_live_ended 1.0" in site.get("/metrics").text
    assert "broken" in site.get("/v1/queries/tree", tag).json["error"]


def test_answer_of_one_caller_is_confirmed_to_no_other(site: Site) -> None:
    """A caller whose cache has any answer gets 304 only where its own answer is the same, byte for byte."""
    callers: list[dict[str, str]] = [{}, {"X-User": "root"}, {"X-User": "a"}, {"X-User": "b"}]
    paths = ["/v1/queries/mine", "/v1/queries/tree", "/v1/queries/below?parent=a"]
    for rows in ({"a": "root", "b": "a"}, {"c": "b"}, {"c": None}):
        site.server.tables.wait(site.produce(rows), exact=True, timeout_s=PATIENCE_S)
        site.server.tables.live_server().wait(site.server.tables.version.token, True, PATIENCE_S)
        answers = {(path, n): site.get(path, caller) for path in paths for n, caller in enumerate(callers)}
        for (path, n), page in answers.items():
            assert page.headers["Cache-Control"] == "private, no-cache"
            assert {"authorization", "x-user", "x-nobody"} <= set(page.headers["Vary"].lower().split(", "))
            for (other, m), cached in answers.items():
                if path == other:
                    status = site.get(path, callers[n] | {"If-None-Match": cached.headers["ETag"]}).status
                    assert status == (304 if n == m else 200), (path, n, m)


def test_offsets_are_waited_for_as_tokens_are(site: Site) -> None:
    ends = site.produce({"a": "root", "b": "a"})
    for at_least in (json.dumps(ends), json.dumps({"nodes": [ends["nodes"][0]]})):
        assert site.get(f"/v1/queries/tree?at_least={quote(at_least)}").json["rows"] == site.answer(TREE)
    later = quote(json.dumps({"nodes": {"0": ends["nodes"][0] + 9}}))
    assert site.get(f"/v1/tables/nodes?wait=0&at_least={later}").status == 503
    for wrong in ('{"nodes": 5}', '{"nodes": {"x": 1}}', "{", '{"elsewhere": {"0": 1}}', '{"nodes": {"7": 1}}'):
        page = site.get(f"/v1/tables/nodes?at_least={quote(wrong)}")
        assert (page.status, "at_least" in page.json["error"]) == (400, True), wrong
