"""Live queries after errors: some end and say why, others begin anew, and readers get the difference."""

import asyncio
import uuid
from contextlib import closing
from typing import Any

import pytest

import eddy
import eddy.live.query.long_opening
import eddy.live.server.live_view
from eddy.live.dataflow.patch import Buckets, Insert
from eddy.live.query.engine import LiveQueries
from eddy.live.server import naming
from eddy.live.server.live_view import LiveView
from eddy.live.server.renewals import Restarts
from eddy.tables.version import Version
from tests.live.server.families import TREE, nodes, totals
from tests.live.server.running import Loaded, Running, break_once, patches, rebuilt
from tests.tables.conftest import produce
from tests.waiting import PATIENCE_S, wait_for


def test_patches_after_a_table_was_read_anew_are_of_whole_versions(loaded: Loaded) -> None:
    """A listener never sees one table as it is now beside another one as it was."""
    loaded.show({"a": "root"}, {"a": 1})
    query = nodes.nest(total=lambda row: totals.where(totals.id == row.id).one())
    seen: list[Any] = []
    with LiveView(loaded.server, query, 100) as view:
        view.listen(lambda patch: seen.append(view.rows))
        loaded.lose("nodes")
        with loaded.server.lock:  # both changes are there when it looks again
            loaded.show({"a": "root", "b": "root"}, {"a": 2, "b": 3})
        wait_for(lambda: len(view.rows) == 2, PATIENCE_S)
        wait_for(lambda: view.rows[0]["total"]["count"] == 2, PATIENCE_S)
    assert [[row["total"]["count"] for row in rows] for rows in seen] == [[2, 3]]


def test_query_opened_while_a_table_is_read_anew_shows_its_new_rows(loaded: Loaded) -> None:
    loaded.show({"a": "root"})
    with LiveView(loaded.server, nodes, 100) as view, loaded.server.lock:
        loaded.lose("nodes")
        loaded.show({"b": "root"})
        with LiveView(loaded.server, nodes, 100) as other:
            assert ([row["id"] for row in other.rows], other.state) == (["b"], "complete")
            assert view.rows == other.rows


def test_table_that_is_lost_while_another_one_is_read_ends_no_query(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot that rows are read from has ended: they are read once more, when a query begins and later."""
    monkeypatch.setattr(naming, "PAGE_ROWS", 1)
    loses = [True]

    def allowed(key: str, value: str) -> bool:
        if loses.pop():
            loaded.lose("descendants")
            loaded.show({"c": "root"})
        loses.append(False)
        return True

    loaded.show({"a": "root", "b": "root"})
    mine = eddy.live_table(loaded.server.tables.filtered("nodes", allowed), key="id", value="parent")
    with LiveView(loaded.server, mine, 100) as view:
        assert [row["id"] for row in view.rows] == ["a", "b", "c"]
        with loaded.server.lock:
            loaded.lose("nodes")
            loses[:] = [True]
            loaded.show({"a": "root", "b": "root"})
        loaded.show({"d": "root"})
        wait_for(lambda: [row["id"] for row in view.rows] == ["a", "b", "c", "d"], PATIENCE_S)
        assert view.state == "complete"


def test_query_whose_listener_fails_ends_and_is_told_nothing_more(loaded: Loaded) -> None:
    calls: list[int] = []

    def fails(patch: eddy.live.server.live_view.Patch) -> None:
        calls.append(len(patch.ops))
        raise ValueError("no")

    with LiveView(loaded.server, nodes, 100) as view, LiveView(loaded.server, nodes, 100) as other:
        view.listen(fails)
        loaded.show({"a": "root"})
        loaded.show({"b": "root"})
        wait_for(lambda: len(other.rows) == 2, PATIENCE_S)
        loaded.lose("nodes")
        loaded.show({"a": "root", "b": "root", "c": "root"})
        wait_for(lambda: len(other.rows) == 3, PATIENCE_S)
        assert (len(calls), view.state, other.state) == (1, "error", "complete")
        with pytest.raises(ValueError, match="no"):
            _ = view.rows


def test_listener_opens_no_query_and_moves_no_window_but_its_own(loaded: Loaded) -> None:
    with LiveView(loaded.server, nodes, 100) as view, LiveView(loaded.server, nodes, 100) as other:
        errors: list[str] = []

        def meddles(patch: eddy.live.server.live_view.Patch) -> None:
            for meddle in (LiveView(loaded.server, totals, 100).open, other.window):
                with pytest.raises(eddy.QueryError) as caught:
                    meddle()
                errors.append(str(caught.value))

        stop = view.listen(meddles)
        view.listen(lambda patch: stop() or view.window(limit=1))
        loaded.show({"a": "root", "b": "root"})
        wait_for(lambda: len(other.rows) == 2, PATIENCE_S)
        assert [row["id"] for row in view.rows] == ["a"]
        assert ["a listener opens one" in errors[0], "of another query moves it" in errors[1]] == [True, True]


def test_server_that_has_failed_says_so_to_every_reader(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*given: Any) -> Any:
        raise ZeroDivisionError("broken")

    with LiveView(loaded.server, nodes, 100) as view:
        monkeypatch.setattr(loaded.server.restarts, "most", 0)
        monkeypatch.setattr(loaded.server.tables.engine, "apply", breaks)
        loaded.show({"a": "root"})
        for read in (lambda: view.next(PATIENCE_S), lambda: view.rows, LiveView(loaded.server, nodes, 100).open):
            with pytest.raises(eddy.QueryError, match="broken"):
                read()
        with pytest.raises(eddy.QueryError, match="broken"):
            view.wait({"nodes": {0: 1 << 40}}, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("long", [0, 20_000])
def test_queries_begin_anew_after_an_error_and_readers_get_the_difference(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, long: int
) -> None:
    monkeypatch.setattr(eddy.live.query.long_opening, "LONG_ROWS", long)
    server, buckets = loaded.server, Buckets()
    loaded.show({"a": "root", "b": "root", "c": "root"}, {"a": 1})
    query = nodes.order_by(-nodes.id).nest(total=lambda row: totals.where(totals.id == row.id).one())
    views: list[eddy.LiveView] = [LiveView(server, each, 100).open() for each in (query, query, nodes, nodes)]
    whole, window, plain, closed = views
    window.window(skip=1, limit=1)
    buckets.apply([Insert("", index, *entry) for index, entry in enumerate(whole.entries[""])])
    buckets.entries |= {name: list(rows) for name, rows in whole.entries.items() if name}
    with server.lock:
        break_once(server, monkeypatch)
        loaded.show({"a": None, "d": "root"}, {"d": 4})
        server.take_whole()
        assert [view.state for view in views] == ["unknown"] * 4
        assert [row["id"] for row in whole.rows] == ["c", "b", "a"]
        with pytest.raises(eddy.NotReadyError, match="computed anew"):
            whole.explain()
        closed.close()
        told = ""
        try:
            whole.wait(timeout_s=0)
        except eddy.NotReadyError as error:
            told = str(error)
        # A wait lets go of the lock, so that the server may have been quick.
        assert "was not reached" in told or whole.state == "complete"
    whole.wait(timeout_s=PATIENCE_S)
    assert [(row["id"], row["total"]) for row in whole.rows] == [
        ("d", {"id": "d", "count": 4}),
        ("c", None),
        ("b", None),
    ]
    wait_for(lambda: all(view.state == "complete" for view in views[:3]), PATIENCE_S)
    loaded.show({"e": "root"})
    wait_for(lambda: [row["id"] for row in window.rows] == ["d"], PATIENCE_S)
    wait_for(lambda: len(whole.rows) == 4 and len(plain.rows) == 4, PATIENCE_S)
    for patch in patches(whole):
        buckets.apply(patch.ops)
    assert rebuilt(whole, buckets) == whole.rows
    assert (server.restarts.count, server.failure, closed.state) == (1, None, "unknown")
    for view in views:
        view.close()
    assert len(server.tables.engine) == 0


def test_queries_that_break_again_and_again_end(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*given: Any) -> Any:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(LiveQueries, "apply", breaks)
    with LiveView(loaded.server, nodes, 100) as view:

        def has_ended() -> bool:
            loaded.show({"a": "root"})
            return loaded.server.failure is not None

        wait_for(has_ended, PATIENCE_S)
        assert loaded.server.restarts.count == 3
        with pytest.raises(eddy.QueryError, match="broken"):
            _ = view.rows


def test_new_beginnings_count_for_some_time() -> None:
    restarts = Restarts(2, 10.0)
    assert [restarts.admits(at) for at in (0.0, 5.0, 9.0, 10.0, 14.0, 15.0)] == [True, True, False, True, False, True]
    assert restarts.count == 4


def test_query_that_cannot_begin_anew_ends_and_others_go_on(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    opens = LiveQueries.open

    def refuses(engine: LiveQueries, select: Any, **given: Any) -> Any:
        if select.table.name == "descendants":
            raise ZeroDivisionError("this one")
        return opens(engine, select, **given)

    with LiveView(loaded.server, totals, 100) as bad, LiveView(loaded.server, nodes, 100) as good:
        with loaded.server.lock:
            monkeypatch.setattr(LiveQueries, "open", refuses)
            break_once(loaded.server, monkeypatch)
            loaded.show({"a": "root"})
            loaded.server.take_whole()
        wait_for(lambda: good.state == "complete" and bad.state == "error", PATIENCE_S)
        assert [row["id"] for row in good.rows] == ["a"]
        with pytest.raises(eddy.QueryError, match="this one"):
            _ = bad.rows


def test_reader_whose_loop_has_closed_disturbs_nobody(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.new_event_loop()
    with LiveView(loaded.server, nodes, 100) as view:
        view._waiting.append((loop, loop.create_future()))  # private: a moment between two threads
        loop.close()
        monkeypatch.setattr(loop, "is_closed", lambda: False)  # as it was a moment before
        loaded.show({"a": "root"})
        wait_for(lambda: view.rows != [], PATIENCE_S)


def test_query_whose_actions_cannot_be_told_ends(running: Running) -> None:
    def hear(actions: list[eddy.Action], version: Version) -> None:
        raise ValueError("full")

    with running.tables.live(nodes) as other, running.tables.live(nodes, actions=hear) as view:
        assert view.state == "error"
        with pytest.raises(ValueError, match="full"):
            _ = view.rows
        running.reach(other, {"a": "root"})
        assert len(other.rows) == 1


def test_check_finds_a_view_that_differs_and_others_go_on(running: Running) -> None:
    with running.tables.live(nodes, check_every=1) as view, running.tables.live(TREE, check_every=2) as other:
        running.reach(view, {"a": "root"})
        running.reach(view, {"b": "a", "c": "a"})
        running.reach(view, {"c": None})
        assert (view.state, other.state) == ("complete", "complete")
        view._buckets.entries[""][0] = ({"id": "a", "parent": "rot"}, {})  # private: a view that is wrong
        running.reach(other, {"d": "b"})
        assert other.rows == running.answer(TREE)
        assert view.state == "error"
        with pytest.raises(
            eddy.QueryError, match=r"check of nodes: rows\[0\]\['parent'\] is 'rot' and should be 'root'"
        ):
            _ = view.rows
    with pytest.raises(eddy.QueryError, match="check_every=0"):
        running.tables.live(nodes, check_every=0)


class Box:
    """A value that is no data."""


def box(data: bytes) -> Any:
    if data == b"box":
        return Box()
    text = data.decode("utf-8", "surrogatepass")
    return {"text": [{text: 1}] if text.startswith("deep") else text}


def unboxed(value: Any) -> bytes:
    if isinstance(value, Box):
        return b"box"
    text = value["text"]
    return (text if isinstance(text, str) else next(iter(text[0]))).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    ("poison", "why"),
    [
        (b'{"a":' * 450 + b"1" + b"}" * 450, "key 'bad' is nested more than 200 levels deep"),
        (b"box", "cannot be a row"),
        (b"\xed\xa0\x80", "key 'bad' has a string with a lone surrogate"),
        (b"deep\xed\xa0\x80", "key 'bad' has a string with a lone surrogate"),
    ],
    ids=["levels", "object", "surrogate", "surrogate-below"],
)
@pytest.mark.parametrize("table_rows", [1, 100], ids=["disk", "memory"])
def test_row_that_queries_cannot_have_ends_those_of_its_table_until_it_is_gone(
    poison: bytes, why: str, table_rows: int
) -> None:
    is_json = poison.startswith(b"{")
    serde, good = (eddy.Json(), b"{}") if is_json else (eddy.Serde("boxes", unboxed, box), b"good")
    topology = eddy.Topology(f"app{uuid.uuid4().hex[:8]}")
    topology.table("others", key=eddy.String, value=eddy.Json())
    topology.table("docs", key=eddy.String, value=serde)
    docs, others = (eddy.live_table(name, key="id") for name in ("docs", "others"))
    with closing(eddy.open_log()) as log:
        eddy.create_topics(topology, log)
        with (
            eddy.run(topology, log),
            eddy.open_tables(topology, log, table_rows=table_rows) as tables,
            tables.live(others) as other,
        ):
            other.wait(produce(log, "docs", dict.fromkeys("abc", good)), exact=True, timeout_s=PATIENCE_S)
            query = docs.where(lambda row: ~others.where(others.id == row.text).exists()).nest(
                same=lambda row: docs.where(docs.text == row.text)
            )
            view = tables.live(query).open()
            assert (len(view.rows), tables.live_server().tables.is_stored("docs")) == (3, table_rows < 3)
            produce(log, "docs", {"bad": poison})
            with pytest.raises(eddy.QueryError, match=why):
                view.next(PATIENCE_S)
            with pytest.raises(eddy.QueryError, match=why):
                tables.read(query)
            other.wait(produce(log, "docs", {"bad": None}), exact=True, timeout_s=PATIENCE_S)
            assert len(tables.read(query)) == 3
            other.wait(produce(log, "others", {"a": b"{}"}), exact=True, timeout_s=PATIENCE_S)
            assert (other.rows, tables.failure) == ([{"id": "a"}], None)


def test_query_that_ends_while_it_is_computed_anew_stays_ended(loaded: Loaded) -> None:
    server = loaded.server

    def fails(patch: Any) -> None:
        raise ZeroDivisionError("listener")

    with LiveView(server, nodes, 100) as view:
        view.listen(fails)
        with server.lock:
            server._renewals.add(view, frozen=False)  # private: a moment between two threads
            loaded.show({"a": "root"})
            with pytest.raises(ZeroDivisionError, match="listener"):
                server._open_now(view, begin_long=True)  # private: a moment between two threads
            assert (view.state, len(server.tables.engine)) == ("error", 0)
