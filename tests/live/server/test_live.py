"""Live queries over a running application: rows are right at each version, patches lead from one to the next."""

import asyncio
import random
import threading
import time
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import Any

import pytest

import eddy
import eddy.live.query.long_opening
import eddy.live.server.live_view
from eddy.live.dataflow.patch import Buckets
from eddy.live.server.live_server import LiveServer
from eddy.live.server.live_view import LiveView
from eddy.state.memory import MemoryStore
from eddy.tables.intake import table_prefix
from eddy.tables.ordering import encode_key
from eddy.tables.served_rows import ServedRows
from eddy.tables.version import Version
from tests.live.server.families import TREE, Written, nodes
from tests.live.server.running import Loaded, Running, patches, rebuilt
from tests.waiting import PATIENCE_S, in_time, wait_for


def test_rows_are_exact_and_patches_lead_to_them(running: Running) -> None:
    draw, buckets = random.Random(1), Buckets()
    names = [f"n{i}" for i in range(12)]
    with running.tables.live(TREE) as view:
        assert (view.rows, view.state) == ([], "complete")
        for _ in range(10):
            rows: Written = {name: draw.choice(["root", *names[:i], None]) for i, name in enumerate(names[:])}
            running.reach(view, dict(draw.sample(list(rows.items()), 4)))
            assert view.version.exact
            assert view.rows == running.answer(TREE)
            for patch in patches(view):
                buckets.apply(patch.ops)
            assert rebuilt(view, buckets) == view.rows
    assert view.state == "unknown"
    with pytest.raises(eddy.QueryError, match="it is not open"):
        _ = view.rows
    assert running.tables.read(TREE) == running.answer(TREE)


def test_queries_that_begin_aside_are_right_while_rows_change(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eddy.live.query.long_opening, "LONG_ROWS", 0)
    draw, names = random.Random(2), [f"n{i}" for i in range(9)]

    def write() -> None:
        for _ in range(40):
            rows: Written = {name: draw.choice(["root", *names[:i], None]) for i, name in enumerate(names)}
            running.write(dict(draw.sample(list(rows.items()), 3)))

    queries = [TREE, nodes.order_by(-nodes.parent).limit(3), nodes.where(nodes.parent != "root").count()]
    with ExitStack() as stack:
        writer = threading.Thread(target=write)
        writer.start()
        views = [(query, stack.enter_context(running.tables.live(query))) for query in queries * 2]
        writer.join()
        for query, view in views:
            running.reach(view, {"last": "root"})
            assert view.rows == running.answer(query)
            assert view.state == "complete"


def test_equal_queries_that_begin_aside_at_once_are_one(loaded: "Loaded", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eddy.live.query.long_opening, "LONG_ROWS", 0)
    query = nodes.order_by(-nodes.parent)
    views = [LiveView(loaded.server, query, 100) for _ in range(3)]
    threads = [threading.Thread(target=view.open) for view in views]
    with loaded.server.lock:
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    assert len({id(view.view) for view in views}) == len(loaded.server.tables.engine) == 1
    loaded.show({"a": "root"})
    wait_for(lambda: all(view.rows for view in views), PATIENCE_S)


def test_subtree_moves_by_few_operations_whatever_its_size(running: Running) -> None:
    def below(row: Any) -> eddy.Query:
        return nodes.where(nodes.parent == row.id).nest(children=below)

    rows: Written = {"x": "root", "y": "root", "top": "x"}
    rows |= {f"n{i}": "top" if i < 2 else f"n{i // 2}" for i in range(200)}
    with running.tables.live(nodes.where(nodes.parent == "root").nest(children=below)) as view:
        running.reach(view, rows)
        patches(view)
        running.reach(view, {"top": "y"})
        assert [[row["id"] for row in each["children"]] for each in view.rows] == [[], ["top"]]
        assert sum(len(patch.ops) for patch in patches(view)) <= 3


def test_patches_come_to_coroutines_and_threads_and_listeners(running: Running) -> None:
    roots = nodes.where(nodes.parent == "root")
    heard: list[int] = []
    from_thread: list[int] = []

    async def follow() -> list[str]:
        found: list[str] = []
        async with running.tables.live(roots) as view:
            stop = view.listen(lambda patch: heard.append(len(patch.ops)))
            await asyncio.to_thread(running.write, {"a": "root"})
            async for patch in view:
                found += [op.row["id"] for op in patch.ops]
                if len(found) == 1:
                    await asyncio.to_thread(running.write, {"b": "root", "c": "a"})
                elif len(found) == 2:
                    break
            stop()
        return found

    other = running.tables.live(roots).open()
    thread = threading.Thread(target=lambda: from_thread.extend(len(patch.ops) for patch in other))
    thread.start()
    with in_time("the patches"):
        found = asyncio.run(asyncio.wait_for(follow(), PATIENCE_S))
    assert found == ["a", "b"]
    wait_for(lambda: sum(from_thread) == 2, PATIENCE_S)
    other.close()
    wait_for(lambda: not thread.is_alive(), PATIENCE_S)
    assert sum(heard) == 2


def test_window_moves_without_a_new_query(running: Running) -> None:
    query = nodes.order_by(-nodes.id).limit(2)
    with running.tables.live(query) as view, running.tables.live(query) as same:
        running.reach(view, {f"n{i}": "root" for i in range(9)})
        view.window(skip=3, limit=3)
        assert [row["id"] for row in view.rows] == ["n5", "n4", "n3"]
        running.reach(view, {"n7": None})
        assert view.rows == running.answer(query.skip(3).limit(3))
        assert same.rows == running.answer(query)
        buckets = Buckets()
        for patch in patches(view):
            buckets.apply(patch.ops)
        assert rebuilt(view, buckets) == view.rows
        with pytest.raises(eddy.QueryError, match=r"window\(skip=-1"):
            view.window(skip=-1)


def test_late_reader_gets_one_patch_from_what_it_has_seen(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eddy.live.server.live_view, "MAX_OPS", 5)
    buckets = Buckets()
    with running.tables.live(TREE) as view:
        running.reach(view, {"a": "root"})
        for patch in patches(view):
            buckets.apply(patch.ops)
        for number in range(20):
            running.reach(view, {f"n{number}": "a", "n3": None})
        late = patches(view)
        assert len(late) <= 6
        for patch in late:
            buckets.apply(patch.ops)
        assert rebuilt(view, buckets) == view.rows == running.answer(TREE)


def test_query_that_does_not_fit_is_refused_and_nobody_else_is_disturbed(running: Running) -> None:
    unnamed = eddy.live_table("nodes", key="id")
    with running.tables.live(nodes) as view:
        for query, message in [
            (eddy.live_table("nothing"), "there is no such table"),
            (eddy.live_table("ancestors"), "private to its step"),
            (unnamed.where(unnamed.colour == 1), "there is no column 'colour'; one of id, value"),
            (eddy.live_table("nodes", key="name"), "names its columns"),
            (eddy.live_table("descendants", key=("a", "b")).limit(9), "are not 2 items"),
            (nodes.pluck("x"), "there is no nest 'x'"),
            (nodes.exists(), "a condition is not a query"),
            ("nodes", "'nodes' is not a query"),
        ]:
            if "2 items" in message:
                running.reach(view, {"a": "root"})
            with pytest.raises(eddy.QueryError, match=message):
                running.tables.live(query).open()  # type: ignore[arg-type]
        running.reach(view, {"b": "a"})
        assert [row["id"] for row in view.rows] == ["a", "b"]


def test_view_that_was_not_opened_has_no_patch_to_wait_for(running: Running) -> None:
    view = running.tables.live(nodes)
    with pytest.raises(eddy.QueryError, match="it is not open"):
        view.next(timeout_s=0.1)
    with pytest.raises(eddy.QueryError, match="it is not open"):
        next(iter(view))


@pytest.mark.parametrize("max_rows", [-1, 2.5, None])
def test_bound_on_rows_that_is_no_number_of_rows_is_refused(running: Running, max_rows: Any) -> None:
    with pytest.raises(eddy.QueryError, match="max_rows="):
        running.tables.live(nodes, max_rows=max_rows)


def test_query_with_too_many_rows_ends_with_an_error_and_others_go_on(running: Running) -> None:
    with running.tables.live(nodes, max_rows=3) as view, running.tables.live(nodes) as other:
        running.reach(other, {f"n{i}": "root" for i in range(5)})
        with pytest.raises(eddy.QueryError, match="more than 3 rows"):
            _ = view.rows
        assert view.state == "error"
        with pytest.raises(eddy.QueryError, match="more than 3 rows"):
            view.next(0)
        assert len(other.rows) == 5
        with pytest.raises(eddy.QueryError, match="more than 3 rows"):
            running.tables.read(nodes, max_rows=3)


def test_table_that_is_read_anew_comes_as_a_difference(running: Running) -> None:
    table, rows = running.tables.catalog.table("nodes"), ServedRows(MemoryStore(), ["nodes", "descendants"])

    def show(number: int, names: dict[str, str]) -> None:
        stored = {table_prefix("nodes") + encode_key(table.key, key): value.encode() for key, value in names.items()}
        rows.apply({"nodes": stored}, {}, {}, Version({}, {}, exact=True, number=number), [])
        rows.say("")

    show(1, {"a": "root", "b": "a"})
    server = LiveServer(running.tables.catalog, rows, running.tables.wanted)
    with LiveView(server, nodes, 100) as view:
        rows.forget("nodes", table.parts, "another")
        wait_for(lambda: view.state == "unknown", PATIENCE_S)
        assert [row["id"] for row in view.rows] == ["a", "b"]
        show(2, {"a": "root", "c": "a"})
        wait_for(lambda: view.state == "complete", PATIENCE_S)
        assert [row["id"] for row in view.rows] == ["a", "c"]
        assert [type(op).__name__ for patch in patches(view) for op in patch.ops] == ["Remove", "Insert"]
        show(3, {"d": "a"})
        wait_for(lambda: len(view.rows) == 3, PATIENCE_S)
    server.stop()
    rows.close()


def test_every_query_ends_when_the_views_are_closed(running: Running) -> None:
    view = running.tables.live(nodes).open()
    running.tables.close()
    assert list(view) == []
    assert view.state == "unknown"
    with pytest.raises(eddy.EddyError):
        running.tables.live(nodes).open()


def test_reader_that_waits_for_a_version_is_told_when_the_views_are_closed(running: Running) -> None:
    found: list[BaseException] = []
    view = running.tables.live(nodes).open()
    waits = threading.Event()

    def wait() -> None:
        waits.set()
        try:
            view.wait({"nodes": {0: 1 << 40}}, timeout_s=10 * PATIENCE_S)
        except eddy.EddyError as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_for(waits.is_set, PATIENCE_S)
    running.tables.close()
    wait_for(lambda: not thread.is_alive(), PATIENCE_S)
    assert "were closed" in str(found[0])


def test_view_is_opened_once(running: Running) -> None:
    running.write({"a": "root"})
    view = running.tables.live(nodes).open()
    with pytest.raises(eddy.QueryError, match="it was opened before"):
        view.open()
    view.close()
    with pytest.raises(eddy.QueryError, match="it was opened before"):
        view.open()


def test_cancelled_readers_and_openers_leave_nothing(loaded: Loaded) -> None:
    async def follow() -> None:
        async with LiveView(loaded.server, nodes, 100) as view:
            for _ in range(3):
                reading = asyncio.ensure_future(anext(aiter(view)))
                await asyncio.sleep(0)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            assert view._waiting == []  # private: nothing is left
        with loaded.server.tables.loading:  # which opening needs
            opening = asyncio.ensure_future(LiveView(loaded.server, nodes, 100).__aenter__())
            await asyncio.sleep(0)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            assert opening.cancelled()

    asyncio.run(follow())  # it waits for the threads
    assert (list(loaded.server._readers), len(loaded.server.tables.engine)) == ([], 0)  # private: nothing is left


def test_actions_say_what_a_batch_did_to_a_query(running: Running) -> None:
    heard: list[tuple[str, tuple[Any, ...]]] = []

    def hear(actions: list[eddy.Action], version: Version) -> None:
        heard.extend((each.action, each.key) for each in actions)

    first = nodes.where(nodes.parent == "root").limit(1)
    with running.tables.live(first, actions=hear) as view:
        assert heard == [("recompute", ())]
        running.reach(view, {"b": "root"})
        running.reach(view, {"c": "root"})
        running.reach(view, {"a": "root"})
        assert heard[1:] == [("insert", ("b",)), ("nothing", ("c",)), ("remove", ("b",)), ("insert", ("a",))]


def test_plan_of_a_query_has_the_rows_of_its_tables(running: Running) -> None:
    with running.tables.live(nodes) as view:
        running.reach(view, {"a": "root", "b": "a", "c": "b"})
    query = nodes.where(lambda node: nodes.where(nodes.parent == node.id, nodes.id != "b").exists())
    plan = query.explain(running.tables)
    assert "child-first: began with 1 rows that nodes led to, fewer than all of nodes" in str(plan)
    with running.tables.live(query) as view:
        assert view.explain().rows == len(view.rows) == 1


def test_rows_leave_a_live_query_when_they_expire_without_any_input() -> None:
    topology = eddy.Topology("presence")
    signs = topology.stream("signs", key=eddy.String, value=eddy.String)
    signs.to_table("online", expire_after=timedelta(seconds=3), expire_by="wall clock")
    with ExitStack() as stack:
        log = stack.enter_context(closing(eddy.open_log()))
        eddy.create_topics(topology, log)
        stack.enter_context(eddy.run(topology, log))
        tables = stack.enter_context(eddy.open_tables(topology, log))
        assert tables.names == ["online"]
        with tables.live(eddy.live_table("online")) as view:
            producer = log.producer(None)
            producer.begin()
            producer.send("signs", 0, [b"ada", b"ben"], [b"lobby"] * 2, [round(time.time() * 1000)] * 2)
            producer.commit({}, None)
            wait_for(lambda: len(view.rows) == 2, PATIENCE_S, "both rows")
            wait_for(lambda: len(view.rows) == 0, PATIENCE_S, "that both have expired")
            assert view.version.exact
