"""The queries that are open now, over HTTP: their clients, rows and costs, for callers that may read their tables."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import eddy
from eddy.live.streams.open_queries import MAX_LISTED
from tests.live.server.families import TREE, nodes
from tests.live.server.sse import asked
from tests.live.server.test_authorize import Site as GuardedSite
from tests.live.server.test_http import BOB, Site
from tests.serve.conftest import fetch
from tests.waiting import PATIENCE_S, wait_for


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(stack)


@pytest.fixture
def guarded() -> Iterator[GuardedSite]:
    with ExitStack() as stack:
        yield GuardedSite(stack)


def open_now(port: int, user: str = "") -> dict[str, Any]:
    """The open queries by their text."""
    found = fetch(port, "/v1/open-queries", headers={"X-User": user}).json
    assert found["count"] == len(found["queries"])
    return {each["text"]: each for each in found["queries"]}


def rows_in(tree: Any) -> int:
    """The number of rows of a tree, with their totals."""
    return sum(1 + rows_in(row["children"]) + (row.get("total") is not None) for row in tree)


def test_nothing_is_open_at_first(site: Site) -> None:
    assert site.get("/v1/open-queries").json == {"queries": [], "count": 0}


def test_each_query_has_its_clients_and_rows(site: Site) -> None:
    site.write({"a": "root", "b": "a", "c": "a", "d": "c"})
    clients = [site.client(asked("q", "below", parent="a"), asked("t", "tree")) for _ in range(2)]
    clients.append(site.client(asked("q", "mine"), **BOB))
    for client in clients:
        client.until(lambda: client.whole == client.asked.keys())  # noqa: B023
    everyone, bobs = nodes.where(nodes.parent == "a").order_by(nodes.id).limit(20), nodes.where(nodes.parent == "bob")
    with site.server.tables.live(nodes):
        found = open_now(site.server.port)
    told = {text: (each["names"], each["clients"], each["readers"], each["rows"]) for text, each in found.items()}
    assert told == {
        repr(everyone): (["below"], 2, 0, 2),
        repr(TREE): (["tree"], 2, 0, rows_in(site.answer(TREE))),
        repr(bobs): (["mine"], 1, 0, 0),
        repr(nodes): ([], 0, 1, 4),
    }
    assert [each["tables"] for each in found.values() if "tree" in each["names"]] == [["descendants", "nodes"]]
    assert not any(each["is_filtered"] for each in found.values())
    clients[0].close()
    wait_for(lambda: open_now(site.server.port)[repr(TREE)]["clients"] == 1)


def test_cost_grows_with_changes_and_memory_with_rows(site: Site) -> None:
    site.write({"b": "a"})
    with site.server.tables.live(nodes.where(nodes.parent == "b")):
        (before,) = open_now(site.server.port).values()
        assert before["opening_s"] > 0
        version = site.write({f"n{number}": "b" for number in range(500)})
        site.server.tables.live_server().wait(version, False, PATIENCE_S)
        (after,) = open_now(site.server.port).values()
    assert after["rows"] == before["rows"] + 500
    assert after["bytes"] > before["bytes"] + 500 * 50
    assert after["seconds"] > before["seconds"]
    assert after["opening_s"] == before["opening_s"]
    assert open_now(site.server.port) == {}


def test_only_the_most_costly_ones_are_listed(site: Site) -> None:
    with ExitStack() as stack:
        for number in range(MAX_LISTED + 5):
            stack.enter_context(site.server.tables.live(nodes.where(nodes.parent == f"n{number}")))
        site.server.tables.live_server().wait(site.write({"b": "n7"}), False, PATIENCE_S)
        found = site.get("/v1/open-queries").json
    assert (found["count"], len(found["queries"])) == (MAX_LISTED + 5, MAX_LISTED)
    costs = [each["seconds"] for each in found["queries"]]
    assert costs == sorted(costs, reverse=True)


def test_queries_of_tables_that_a_caller_may_not_read_whole_are_not_shown(guarded: GuardedSite) -> None:
    folders, notes = eddy.live_table("folders", key="id"), eddy.live_table("notes", key="id")
    with guarded.tables.live(folders), guarded.tables.live(notes.where(notes.folder == "secret")):
        assert len(open_now(guarded.port, "root")) == 2
        for user in ("ann", "bob", "nobody", ""):
            assert open_now(guarded.port, user) == {}
        assert fetch(guarded.port, "/v1/open-queries", headers={"X-User": "failing"}).status == 500


def test_query_over_some_rows_says_so(guarded: GuardedSite) -> None:
    client = guarded.client("ann", asked("q", "only_notes"))
    client.until(lambda: client.whole == {"q"})
    (found,) = open_now(guarded.port, "root").values()
    assert (found["is_filtered"], found["tables"], found["clients"]) == (True, ["notes"], 1)
    assert found["text"] == "notes.where(notes.folder == 'f1')"
