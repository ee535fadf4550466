"""Live queries over a running application: rows are right at each version, patches lead from one to the next."""

import asyncio
import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import eddy
import eddy.live.query.long_opening
import eddy.live.server.live_server as server_module
import eddy.live.server.live_view
import eddy.live.server.live_view as view_module
from eddy.errors import StateError
from eddy.live.dataflow import first_rows, stored_map, stored_order
from eddy.live.dataflow.nest import Level
from eddy.live.dataflow.patch import Buckets, Insert
from eddy.live.query.engine import LiveQueries
from eddy.live.query.long_opening import LongOpening
from eddy.live.query.nested import nested
from eddy.live.server import loading, naming
from eddy.live.server.live_server import LiveServer
from eddy.live.server.live_view import Checks, LiveView
from eddy.live.server.loading import LoadedTables
from eddy.live.server.renewals import Restarts
from eddy.state.memory import MemoryStore
from eddy.state.rocksdb import RocksDBStore
from eddy.state.spaces import Space, Spaces
from eddy.tables.intake import table_prefix
from eddy.tables.ordering import encode_key
from eddy.tables.served_rows import ServedRows
from eddy.tables.version import Version
from tests.live.server.families import TREE, Family, Written, family, nodes, totals
from tests.tables.conftest import produce
from tests.waiting import PATIENCE_S, in_time, wait_for


class Running(Family):
    """A family on an embedded log in memory, its worker, and views of it."""

    def __init__(self, stack: ExitStack) -> None:
        self.log = stack.enter_context(closing(eddy.open_log()))
        self.topology = topology = family(f"app{uuid.uuid4().hex[:8]}")
        eddy.create_topics(topology, self.log)
        stack.enter_context(eddy.run(topology, self.log))
        self.views = stack.enter_context(eddy.views(topology, self.log))

    def write(self, rows: Written) -> dict[str, dict[int, int]]:
        return self.produce(rows)

    def reach(self, view: eddy.LiveView, rows: Written) -> None:
        """Write rows, and wait until the view has them, exactly."""
        view.wait(self.write(rows), exact=True, timeout_s=PATIENCE_S)


@pytest.fixture
def running() -> Iterator[Running]:
    with ExitStack() as stack:
        yield Running(stack)


def patches(view: eddy.LiveView) -> list[Any]:
    """The patches that have come."""
    found = []
    while True:
        try:
            found.append(view.next(0))
        except eddy.NotReadyError:
            return found


def rebuilt(view: eddy.LiveView, buckets: Buckets) -> Any:
    assert view.view is not None
    return nested(buckets.entries, view.view.shape, view.view.operator.root.id)


def test_rows_are_exact_and_patches_lead_to_them(running: Running) -> None:
    draw, buckets = random.Random(1), Buckets()
    names = [f"n{i}" for i in range(12)]
    with running.views.live(TREE) as view:
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
    assert running.views.read(TREE) == running.answer(TREE)


def test_queries_that_begin_aside_are_right_while_rows_change(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eddy.live.query.long_opening, "_LONG", 0)
    draw, names = random.Random(2), [f"n{i}" for i in range(9)]

    def write() -> None:
        for _ in range(40):
            rows: Written = {name: draw.choice(["root", *names[:i], None]) for i, name in enumerate(names)}
            running.write(dict(draw.sample(list(rows.items()), 3)))

    queries = [TREE, nodes.order_by(-nodes.parent).limit(3), nodes.where(nodes.parent != "root").count()]
    with ExitStack() as stack:
        writer = threading.Thread(target=write)
        writer.start()
        views = [(query, stack.enter_context(running.views.live(query))) for query in queries * 2]
        writer.join()
        for query, view in views:
            running.reach(view, {"last": "root"})
            assert view.rows == running.answer(query)
            assert view.state == "complete"


def test_equal_queries_that_begin_aside_at_once_are_one(loaded: "Loaded", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eddy.live.query.long_opening, "_LONG", 0)
    query = nodes.order_by(-nodes.parent)
    views = [LiveView(loaded.server, query, 100) for _ in range(3)]
    threads = [threading.Thread(target=view.open) for view in views]
    with loaded.server.lock:
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    assert len({id(view.view) for view in views}) == len(loaded.server._engine) == 1
    loaded.show({"a": "root"})
    wait_for(lambda: all(view.rows for view in views), PATIENCE_S)


def test_subtree_moves_by_few_operations_whatever_its_size(running: Running) -> None:
    def below(row: Any) -> eddy.Query:
        return nodes.where(nodes.parent == row.id).nest(children=below)

    rows: Written = {"x": "root", "y": "root", "top": "x"}
    rows |= {f"n{i}": "top" if i < 2 else f"n{i // 2}" for i in range(200)}
    with running.views.live(nodes.where(nodes.parent == "root").nest(children=below)) as view:
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
        async with running.views.live(roots) as view:
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

    other = running.views.live(roots).open()
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
    with running.views.live(query) as view, running.views.live(query) as same:
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
    monkeypatch.setattr(eddy.live.server.live_view, "_MAX_OPS", 5)
    buckets = Buckets()
    with running.views.live(TREE) as view:
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
    with running.views.live(nodes) as view:
        for query, message in [
            (eddy.live_table("nothing"), "there is no such table"),
            (eddy.live_table("ancestors"), "private to its step"),
            (unnamed.where(unnamed.colour == 1), "there is no column 'colour'; one of id, value"),
            (eddy.live_table("nodes", key="name"), "names its columns"),
            (eddy.live_table("descendants", key=("a", "b")).nest(), "are not 2 items"),
            (nodes.pluck("x"), "there is no nest 'x'"),
            (nodes.exists(), "a condition is no query"),
            ("nodes", "'nodes' is no query"),
        ]:
            if "2 items" in message:
                running.reach(view, {"a": "root"})
            with pytest.raises(eddy.QueryError, match=message):
                running.views.live(query).open()  # type: ignore[arg-type]
        running.reach(view, {"b": "a"})
        assert [row["id"] for row in view.rows] == ["a", "b"]


def test_view_that_was_not_opened_has_no_patch_to_wait_for(running: Running) -> None:
    view = running.views.live(nodes)
    with pytest.raises(eddy.QueryError, match="it is not open"):
        view.next(timeout_s=0.1)
    with pytest.raises(eddy.QueryError, match="it is not open"):
        next(iter(view))


@pytest.mark.parametrize("max_rows", [-1, 2.5, None])
def test_bound_on_rows_that_is_no_number_of_rows_is_refused(running: Running, max_rows: Any) -> None:
    with pytest.raises(eddy.QueryError, match="max_rows="):
        running.views.live(nodes, max_rows=max_rows)


def test_query_with_too_many_rows_ends_with_an_error_and_others_go_on(running: Running) -> None:
    with running.views.live(nodes, max_rows=3) as view, running.views.live(nodes) as other:
        running.reach(other, {f"n{i}": "root" for i in range(5)})
        with pytest.raises(eddy.QueryError, match="more than 3 rows"):
            _ = view.rows
        assert view.state == "error"
        with pytest.raises(eddy.QueryError, match="more than 3 rows"):
            view.next(0)
        assert len(other.rows) == 5
        with pytest.raises(eddy.QueryError, match="more than 3 rows"):
            running.views.read(nodes, max_rows=3)


def test_table_that_is_read_anew_comes_as_a_difference(running: Running) -> None:
    table, rows = running.views.catalog.table("nodes"), ServedRows(MemoryStore(), ["nodes", "descendants"])

    def show(number: int, names: dict[str, str]) -> None:
        stored = {table_prefix("nodes") + encode_key(table.key, key): value.encode() for key, value in names.items()}
        rows.apply({"nodes": stored}, {}, {}, Version({}, {}, exact=True, number=number), [])
        rows.say("")

    show(1, {"a": "root", "b": "a"})
    server = LiveServer(running.views.catalog, rows, running.views.wanted)
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
    view = running.views.live(nodes).open()
    running.views.close()
    assert list(view) == []
    assert view.state == "unknown"
    with pytest.raises(eddy.EddyError):
        running.views.live(nodes).open()


class Loaded:
    """A server of live queries over rows that the test writes itself, from version to version."""

    def __init__(self, running: Running, stack: ExitStack, spaces: Spaces | None = None) -> None:
        """With `spaces` tables of two rows and more are on disk."""
        self._served = {name: running.views.catalog.table(name) for name in ("nodes", "descendants")}
        self.rows = ServedRows(MemoryStore(), list(self._served))
        stack.callback(self.rows.close)
        self._number = 0
        self.show({})
        bound = {} if spaces is None else {"table_rows": 1, "spaces": spaces}
        self.server = LiveServer(running.views.catalog, self.rows, running.views.wanted, **bound)
        stack.callback(self.server.stop)

    def show(self, names: dict[str, str | None], totals: dict[str, int] | None = None) -> None:
        """A version: with these nodes and these numbers of descendants."""
        self._number += 1
        given = {"nodes": {k: None if v is None else v.encode() for k, v in names.items()}}
        count = self._served["descendants"].value
        given["descendants"] = {key: count.encode(value) for key, value in (totals or {}).items()}
        changes = {
            table: {table_prefix(table) + encode_key(self._served[table].key, key): data for key, data in rows.items()}
            for table, rows in given.items()
        }
        self.rows.apply(changes, {}, {}, Version({}, {}, exact=True, number=self._number), [])
        self.rows.say("")

    def lose(self, table: str) -> None:
        self.rows.forget(table, self._served[table].parts, "another")


@pytest.fixture
def in_memory(running: Running) -> Iterator[Loaded]:
    with ExitStack() as stack:
        yield Loaded(running, stack)


@pytest.fixture(params=["memory", "disk"])
def loaded(request: pytest.FixtureRequest, running: Running, tmp_path: Path) -> Iterator[Loaded]:
    folder = tmp_path / "queries"
    with ExitStack() as stack:
        yield Loaded(running, stack, None if request.param == "memory" else Spaces(folder, "app", 1 << 20))
    assert not folder.exists()


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
    monkeypatch.setattr(naming, "_PAGE", 1)
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
        monkeypatch.setattr(loaded.server._engine, "apply", breaks)
        loaded.show({"a": "root"})
        for read in (lambda: view.next(PATIENCE_S), lambda: view.rows, LiveView(loaded.server, nodes, 100).open):
            with pytest.raises(eddy.QueryError, match="broken"):
                read()
        with pytest.raises(eddy.QueryError, match="broken"):
            view.wait({"nodes": {0: 1 << 40}}, timeout_s=PATIENCE_S)


def break_once(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next change cannot be applied."""

    def breaks(*given: Any) -> Any:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(server._engine, "apply", breaks)


@pytest.mark.parametrize("long", [0, 20_000])
def test_queries_begin_anew_after_an_error_and_readers_get_the_difference(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, long: int
) -> None:
    monkeypatch.setattr(eddy.live.query.long_opening, "_LONG", long)
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
        server._take_whole()
        assert [view.state for view in views] == ["unknown"] * 4
        assert [row["id"] for row in whole.rows] == ["c", "b", "a"]
        with pytest.raises(eddy.NotReadyError, match="computed anew"):
            whole.explain()
        with pytest.raises(eddy.NotReadyError, match="has not come"):
            whole.wait(timeout_s=0)
        closed.close()
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
    assert len(server._engine) == 0


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
            loaded.server._take_whole()
        wait_for(lambda: good.state == "complete" and bad.state == "error", PATIENCE_S)
        assert [row["id"] for row in good.rows] == ["a"]
        with pytest.raises(eddy.QueryError, match="this one"):
            _ = bad.rows


def test_reader_that_waits_for_a_version_is_told_when_the_views_are_closed(running: Running) -> None:
    found: list[BaseException] = []
    view = running.views.live(nodes).open()
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
    running.views.close()
    wait_for(lambda: not thread.is_alive(), PATIENCE_S)
    assert "were closed" in str(found[0])


def test_view_is_opened_once(running: Running) -> None:
    running.write({"a": "root"})
    view = running.views.live(nodes).open()
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
            assert view._waiting == []
        with loaded.server.tables.loading:  # which opening needs
            opening = asyncio.ensure_future(LiveView(loaded.server, nodes, 100).__aenter__())
            await asyncio.sleep(0)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            assert opening.cancelled()

    asyncio.run(follow())  # it waits for the threads
    assert (list(loaded.server._readers), len(loaded.server._engine)) == ([], 0)


def test_reader_whose_loop_has_closed_disturbs_nobody(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.new_event_loop()
    with LiveView(loaded.server, nodes, 100) as view:
        view._waiting.append((loop, loop.create_future()))
        loop.close()
        monkeypatch.setattr(loop, "is_closed", lambda: False)  # as it was a moment before
        loaded.show({"a": "root"})
        wait_for(lambda: view.rows != [], PATIENCE_S)


def test_actions_say_what_a_batch_did_to_a_query(running: Running) -> None:
    heard: list[tuple[str, tuple[Any, ...]]] = []

    def hear(actions: list[eddy.Action], version: Version) -> None:
        heard.extend((each.action, each.key) for each in actions)

    first = nodes.where(nodes.parent == "root").limit(1)
    with running.views.live(first, actions=hear) as view:
        assert heard == [("recompute", ())]
        running.reach(view, {"b": "root"})
        running.reach(view, {"c": "root"})
        running.reach(view, {"a": "root"})
        assert heard[1:] == [("insert", ("b",)), ("nothing", ("c",)), ("remove", ("b",)), ("insert", ("a",))]


def test_query_whose_actions_cannot_be_told_ends(running: Running) -> None:
    def hear(actions: list[eddy.Action], version: Version) -> None:
        raise ValueError("full")

    with running.views.live(nodes) as other, running.views.live(nodes, actions=hear) as view:
        assert view.state == "error"
        with pytest.raises(ValueError, match="full"):
            _ = view.rows
        running.reach(other, {"a": "root"})
        assert len(other.rows) == 1


def test_check_finds_a_view_that_differs_and_others_go_on(running: Running) -> None:
    with running.views.live(nodes, check_every=1) as view, running.views.live(TREE, check_every=2) as other:
        running.reach(view, {"a": "root"})
        running.reach(view, {"b": "a", "c": "a"})
        running.reach(view, {"c": None})
        assert (view.state, other.state) == ("complete", "complete")
        view._buckets.entries[""][0] = ({"id": "a", "parent": "rot"}, {})
        running.reach(other, {"d": "b"})
        assert other.rows == running.answer(TREE)
        assert view.state == "error"
        with pytest.raises(
            eddy.QueryError, match=r"check of nodes: rows\[0\]\['parent'\] is 'rot' and should be 'root'"
        ):
            _ = view.rows
    with pytest.raises(eddy.QueryError, match="check_every=0"):
        running.views.live(nodes, check_every=0)


def test_plan_of_a_query_has_the_rows_of_its_tables(running: Running) -> None:
    with running.views.live(nodes) as view:
        running.reach(view, {"a": "root", "b": "a", "c": "b"})
    query = nodes.where(lambda node: nodes.where(nodes.parent == node.id, nodes.id != "b").exists())
    plan = query.explain(running.views)
    assert "child-first: began with 1 rows that nodes led to, fewer than all of nodes" in str(plan)
    with running.views.live(query) as view:
        assert view.explain().rows == len(view.rows) == 1


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
            eddy.views(topology, log, table_rows=table_rows) as views,
            views.live(others) as other,
        ):
            other.wait(produce(log, "docs", dict.fromkeys("abc", good)), exact=True, timeout_s=PATIENCE_S)
            query = docs.where(lambda row: ~others.where(others.id == row.text).exists()).nest(
                same=lambda row: docs.where(docs.text == row.text)
            )
            view = views.live(query).open()
            assert (len(view.rows), view._server.tables._is_stored("docs")) == (3, table_rows < 3)
            produce(log, "docs", {"bad": poison})
            with pytest.raises(eddy.QueryError, match=why):
                view.next(PATIENCE_S)
            with pytest.raises(eddy.QueryError, match=why):
                views.read(query)
            other.wait(produce(log, "docs", {"bad": None}), exact=True, timeout_s=PATIENCE_S)
            assert len(views.read(query)) == 3
            other.wait(produce(log, "others", {"a": b"{}"}), exact=True, timeout_s=PATIENCE_S)
            assert (other.rows, views.failure) == ([{"id": "a"}], None)


@pytest.fixture
def passing(in_memory: Loaded, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """No table is small enough to be in memory for a window, and no row is kept beyond one."""
    monkeypatch.setattr(loading, "_LARGE", 0)
    monkeypatch.setattr(first_rows, "slack_of", lambda limit, scanned: 0)
    return in_memory


def kept(view: eddy.LiveView) -> int:
    """The rows in memory for a window."""
    assert view.view is not None
    rows = view.view.operator.root.level.ordered
    assert isinstance(rows, first_rows.FirstRows)
    return rows.row_count()


def test_window_reads_the_table_for_rows_that_are_not_kept(passing: Loaded) -> None:
    names = [f"n{i:02}" for i in range(40)]
    passing.show(dict.fromkeys(names, "root"), {"n03": 3})
    query = nodes.order_by(nodes.id).limit(3).nest(total=lambda row: totals.where(totals.id == row.id).one())
    buckets = Buckets()
    with LiveView(passing.server, query, 100) as view, LiveView(passing.server, query, 100) as other:
        assert [row["id"] for row in view.rows] == names[:3]
        assert (kept(view), len(passing.server._engine.tables["nodes~"].rows), view.view is other.view) == (3, 0, True)
        assert "nodes" not in passing.server._engine.tables
        assert "the other rows are not in memory" in str(view.explain())
        buckets.apply([Insert("", index, *entry) for index, entry in enumerate(view.entries[""])])
        buckets.entries |= {name: list(rows) for name, rows in view.entries.items() if name}
        with passing.server.lock:
            passing.show({"n01": None, "n30": None})
            passing.server._take_whole()
            assert (view.state, [row["id"] for row in view.rows]) == ("unknown", names[:3])
        for each in (view, other):
            each.wait(timeout_s=PATIENCE_S)
            assert [row["id"] for row in each.rows] == ["n00", "n02", "n03"]
        assert (view.rows[2]["total"], view.view is other.view, kept(view)) == ({"id": "n03", "count": 3}, True, 3)
        for patch in patches(view):
            buckets.apply(patch.ops)
        assert rebuilt(view, buckets) == view.rows
        view.window(skip=20, limit=4)
        assert [row["id"] for row in view.rows] == ["n21", "n22", "n23", "n24"]
        view.window(skip=21, limit=2)
        assert [row["id"] for row in view.rows] == ["n22", "n23"]
        assert [row["id"] for row in other.rows] == ["n00", "n02", "n03"]
        passing.lose("nodes")
        passing.show({"z": "root", "n05": "root"})
        wait_for(lambda: [row["id"] for row in other.rows] == ["n05", "z"], PATIENCE_S)
        wait_for(lambda: (view.rows, view.state) == ([], "complete"), PATIENCE_S)
    passing.show({"n06": "root"})
    wait_for(lambda: "nodes~" not in passing.server._engine.tables, PATIENCE_S)


@pytest.fixture
def on_disk(running: Running, tmp_path: Path) -> Iterator[Loaded]:
    with ExitStack() as stack:
        yield Loaded(running, stack, Spaces(tmp_path / "queries", "app", 1 << 20))


def is_on_disk(loaded: Loaded, table: str) -> bool:
    return loaded.server._engine.tables[table].spaces is not None


def test_table_beyond_the_bound_is_on_disk_for_queries_that_are_no_windows(on_disk: Loaded) -> None:
    on_disk.show({"a": "root", "b": "a", "c": "a", "d": "c"}, {"a": 3})
    server = on_disk.server
    given: list[eddy.Query] = [
        nodes,
        nodes.count(),
        totals.nest(same=lambda row: nodes.where(nodes.parent == row.id).order_by(-nodes.id).limit(1)),
        nodes.where(lambda row: nodes.where(nodes.parent == row.id).exists()),
        TREE,
    ]
    with ExitStack() as stack:
        window = stack.enter_context(LiveView(server, nodes.order_by(-nodes.id).limit(1), 100))
        assert (server._engine.tables.keys(), [row["id"] for row in window.rows]) == ({"nodes~"}, ["d"])
        views = [stack.enter_context(LiveView(server, query, 100, Checks(every=1))) for query in given]
        assert (is_on_disk(on_disk, "nodes"), is_on_disk(on_disk, "descendants")) == (True, False)
        other = stack.enter_context(LiveView(server, nodes.limit(1), 100))
        assert "first rows of nodes" in str(other.explain())  # as before: its rows are few
        for view in views:
            assert view.explain().rows > 0
        with server.lock:
            on_disk.show({"e": "d", "b": None, "c": "root"}, {"c": 2})
            server._take_whole()
        assert [row["id"] for row in views[0].rows] == ["a", "c", "d", "e"]
        assert views[1].rows == 4
        assert [(row["id"], [below["id"] for below in row["same"]]) for row in views[2].rows] == [
            ("a", []),
            ("c", ["d"]),
        ]
        assert [row["id"] for row in views[3].rows] == ["c", "d"]
        assert [view.state for view in views] == ["complete"] * 5
        server.tables.most_rows = 2
        skipping = stack.enter_context(LiveView(server, nodes.skip(2), 100))
        assert [row["id"] for row in skipping.rows] == ["d", "e"]
        with pytest.raises(eddy.QueryError, match=r"a skip of 3 has to keep .* at most 2 \(table_rows\)"):
            LiveView(server, nodes.skip(3).limit(1), 100).open()
        window.window(limit=None)
        assert [row["id"] for row in window.rows] == ["e", "d", "c", "a"]


@pytest.mark.parametrize("long", [0, 20_000])
def test_table_on_disk_that_is_read_anew_makes_queries_begin_anew(
    on_disk: Loaded, monkeypatch: pytest.MonkeyPatch, long: int
) -> None:
    monkeypatch.setattr(eddy.live.query.long_opening, "_LONG", long)
    on_disk.show({"a": "root", "b": "a"}, {"a": 1})
    server = on_disk.server
    with LiveView(server, TREE, 100) as view, LiveView(server, totals, 100) as other:
        before = view.rows
        on_disk.lose("nodes")
        with server.lock:
            server._take_whole()
            assert (view.state, view.rows, other.state) == ("unknown", before, "unknown")
        on_disk.rows.say("not whole yet")
        on_disk.show({"a": "root", "c": "a"})
        for each in (view, other):
            each.wait(timeout_s=PATIENCE_S)
        wait_for(lambda: [view.state, other.state] == ["complete", "complete"], PATIENCE_S)
        on_disk.show({"d": "c"}, {"c": 1})
        wait_for(lambda: rows_below(view) == ["a", "c", "d"], PATIENCE_S)
        wait_for(lambda: len(other.rows) == 2, PATIENCE_S)
        assert (server.restarts.count, server.failure) == (0, None)


def rows_below(view: eddy.LiveView) -> list[str]:
    """The ids of all rows that a view has."""
    return sorted({row["id"] for rows in view.entries.values() for row, _ in rows})


def test_full_disk_ends_queries_that_need_it_and_others_go_on(on_disk: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk.show({"a": "root", "b": "a"}, {"a": 1})
    server, write = on_disk.server, Space.write

    def refused(*given: Any) -> None:
        raise StateError("state 'x': a write was refused (no space left)")

    why = r"its rows cannot be kept on disk: state 'x': a write was refused"
    with LiveView(server, totals, 100) as other:
        monkeypatch.setattr(Space, "write", refused)
        with pytest.raises(eddy.QueryError, match=why):
            LiveView(server, TREE, 100).open()
        monkeypatch.setattr(Space, "write", write)
        with LiveView(server, TREE, 100) as view:
            assert rows_below(view) == ["a", "b"]
            monkeypatch.setattr(stored_map, "_CELLS", 1)
            monkeypatch.setattr(Space, "write", refused)
            on_disk.show({f"n{number}": "a" for number in range(10)}, {"a": 11})
            with pytest.raises(eddy.QueryError, match=why):
                view.next(PATIENCE_S)
        wait_for(lambda: other.rows[0]["count"] == 11, PATIENCE_S)
        wait_for(lambda: other.state == "complete", PATIENCE_S)
        monkeypatch.setattr(Space, "write", write)
        with LiveView(server, TREE, 100) as view:
            assert len(rows_below(view)) == 12
        assert (server.restarts.count, server.failure) == (1, None)


def test_table_that_is_loaded_while_all_begin_anew_is_loaded_again(
    on_disk: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk.show({"a": "root", "b": "a"})
    server, stored, calls = on_disk.server, LoadedTables._stored, 0

    def meanwhile(tables: LoadedTables, rows: Any) -> Any:
        nonlocal calls
        made = stored(tables, rows)
        calls += 1
        if calls == 1:
            with server.lock:
                server._begin_anew()
        return made

    monkeypatch.setattr(LoadedTables, "_stored", meanwhile)
    with LiveView(server, TREE, 100) as view:
        assert rows_below(view) == ["a", "b"]
        on_disk.show({"c": "b"})
        wait_for(lambda: rows_below(view) == ["a", "b", "c"], PATIENCE_S)
    assert (calls, server.restarts.count, server.failure) == (2, 0, None)


def test_window_that_the_disk_cannot_move_is_opened_anew(on_disk: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_order, "_SLACK", 1)
    on_disk.show({f"n{number}": "root" for number in range(9)})
    server, between, failed = on_disk.server, Space.between, False
    query = nodes.order_by(nodes.id).limit(1).nest(below=lambda row: nodes.where(nodes.parent == row.id))

    def fails_once(*given: Any) -> Any:
        nonlocal failed
        if not failed:
            failed = True
            raise StateError("state 'x': cannot be used")
        return between(*given)

    with LiveView(server, query, 100) as view:
        monkeypatch.setattr(Space, "between", fails_once)
        view.window(limit=5)
        assert ([row["id"] for row in view.rows], failed) == (["n0", "n1", "n2", "n3", "n4"], True)
        assert (len(server._engine), server.failure) == (1, None)


def test_table_stays_while_a_query_begins_over_it(passing: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    passing.show({"a": "root", "b": "root"})
    former = LiveView(passing.server, nodes.limit(1), 100).open()
    opens, calls = LongOpening.open, []

    def meanwhile(aside: LongOpening, max_rows: int) -> Any:
        calls.append(aside)
        former.close()
        passing.show({"a": "b"})
        with passing.server.lock:
            passing.server._take_whole()
        return opens(aside, max_rows)

    monkeypatch.setattr(LongOpening, "open", meanwhile)
    with LiveView(passing.server, nodes.order_by(-nodes.id).limit(2), 100) as view:
        assert [row["parent"] for row in view.rows] == ["root", "b"]
    assert len(calls) == 1
    passing.show({"c": "root"})
    wait_for(lambda: "nodes~" not in passing.server._engine.tables, PATIENCE_S)


def test_query_does_not_begin_over_rows_whose_changes_it_has_missed(
    passing: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing.show({"a": "root"})
    opens, calls = LongOpening.open, []

    def meanwhile(aside: LongOpening, max_rows: int) -> Any:
        found = opens(aside, max_rows)
        calls.append(aside)
        if len(calls) == 1:
            passing.lose("nodes")
            passing.show({"b": "root"})
            with passing.server.lock:
                passing.server._take_whole()
        return found

    monkeypatch.setattr(LongOpening, "open", meanwhile)
    with LiveView(passing.server, nodes.order_by(nodes.id).limit(2), 100) as view:
        assert [row["id"] for row in view.rows] == ["b"]


def test_query_that_could_not_be_opened_leaves_no_table(passing: Loaded) -> None:
    passing.show({f"n{i}": "root" for i in range(5)})
    tables = passing.server.tables
    name = tables.filtered("nodes", lambda key, value: True)
    mine = eddy.live_table(name, key="id", value="parent")
    with pytest.raises(eddy.QueryError, match="more than 3 rows"):
        LiveView(passing.server, mine.limit(5), 3).open()
    tables.unfiltered(name)
    with passing.server.lock:
        passing.server._take_whole()
        assert (tables.engine.tables, tables.feed._watched, tables._filters) == ({}, {}, {})


def test_window_beyond_many_others_may_read_a_table_that_is_not_loaded(
    passing: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_WINDOWS", 1)
    passing.show({"a": "root"}, {"a": 1})
    query = nodes.limit(2).nest(total=lambda row: totals.where(totals.id == row.id).one())
    with LiveView(passing.server, nodes.limit(1), 100), LiveView(passing.server, query, 100) as view:
        assert [row["total"] for row in view.rows] == [{"id": "a", "count": 1}]


def test_query_that_ends_while_it_is_computed_anew_stays_ended(loaded: Loaded) -> None:
    server = loaded.server

    def fails(patch: Any) -> None:
        raise ZeroDivisionError("listener")

    with LiveView(server, nodes, 100) as view:
        view.listen(fails)
        with server.lock:
            server._renewals.add(view, frozen=False)
            loaded.show({"a": "root"})
            with pytest.raises(ZeroDivisionError, match="listener"):
                server._open_now(view, begin_long=True)
            assert (view.state, len(server._engine)) == ("error", 0)


def test_many_different_windows_have_the_table_in_memory(passing: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_WINDOWS", 2)
    passing.show({f"n{i}": "root" for i in range(9)})
    with ExitStack() as stack:
        views = [
            stack.enter_context(LiveView(passing.server, nodes.order_by(nodes.id).limit(size), 100))
            for size in (1, 2, 2, 3, 4)
        ]
        tables = passing.server._engine.tables
        assert [len(tables[name].dependents) for name in ("nodes~", "nodes")] == [2, 1]
        passing.show({"n0": None, "n1": None, "a": "root"})
        expected = [["a", "n2", "n3", "n4"][:size] for size in (1, 2, 2, 3, 4)]
        wait_for(lambda: [[row["id"] for row in view.rows] for view in views] == expected, PATIENCE_S)


def test_rows_that_are_read_while_others_wait_are_bounded(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """By count: the rows shown between two moments at which the lock was free."""
    monkeypatch.setattr(server_module, "_AT_ONCE", 6)
    held: list[int] = []
    shown, nest = Level.shown, view_module.nested

    def counted(level: Level, row: Any) -> Any:
        held[-1] += loaded.server.lock._is_owned()  # type: ignore[attr-defined]
        return shown(level, row)

    def nested_freely(*given: Any) -> Any:
        assert not loaded.server.lock._is_owned()  # type: ignore[attr-defined]
        return nest(*given)

    loaded.show({f"n{i}": f"n{i // 3}" for i in range(1, 10)} | {"n0": "root"})
    queries = [TREE, nodes.order_by(-nodes.id), nodes.order_by(-nodes.id).limit(8), nodes.order_by(-nodes.id).limit(5)]
    with ExitStack() as stack:
        first = [stack.enter_context(LiveView(loaded.server, query, 100)) for query in queries[:2]]
        monkeypatch.setattr(Level, "shown", counted)
        monkeypatch.setattr(view_module, "nested", nested_freely)
        views = []
        for query in queries:
            held.append(0)
            views.append(stack.enter_context(LiveView(loaded.server, query, 100)))
        assert held[:2] == [0, 0]  # those of readers that were there
        assert held[2:] == [0, 10]  # aside; at once, for the routes and for the rows
        assert [view.view for view in views[:2]] == [view.view for view in first]
        assert [row["id"] for row in views[2].rows] == [f"n{i}" for i in range(9, 1, -1)]
        loaded.show({"n9": None})
        wait_for(lambda: [row["id"] for row in views[2].rows] == [f"n{i}" for i in range(8, 0, -1)], PATIENCE_S)
        wait_for(lambda: [row["id"] for row in views[3].rows] == [f"n{i}" for i in range(8, 3, -1)], PATIENCE_S)
        assert views[0].rows == first[0].rows


def test_bound_of_rows_in_memory_is_an_option_and_files_are_there_while_they_are_needed(
    running: Running, tmp_path: Path
) -> None:
    running.views.wait(running.write({"a": "root", "b": "root"}), timeout_s=PATIENCE_S)
    assert len(running.views.read(nodes)) == 2
    folder = tmp_path / running.topology.name / "~queries"
    left = RocksDBStore(folder, running.topology.name)  # by a server that was killed
    left.write([(b"a", b"1")])
    left.close()
    with eddy.views(running.topology, running.log, state_dir=tmp_path, table_rows=1) as views:
        assert not folder.exists()
        views.wait(exact=True, timeout_s=PATIENCE_S)
        assert [row["id"] for row in views.read(nodes.order_by(-nodes.id).limit(1))] == ["b"]
        assert not folder.exists()
        assert len(views.read(nodes)) == 2
        assert folder.exists()
    assert not folder.exists()


def test_rows_leave_a_live_query_when_they_expire_without_any_input() -> None:
    topology = eddy.Topology("presence")
    signs = topology.stream("signs", key=eddy.String, value=eddy.String)
    signs.to_table("online", expire_after=timedelta(seconds=3), expire_by="wall clock")
    with ExitStack() as stack:
        log = stack.enter_context(closing(eddy.open_log()))
        eddy.create_topics(topology, log)
        stack.enter_context(eddy.run(topology, log))
        views = stack.enter_context(eddy.views(topology, log))
        assert views.tables == ["online"]
        with views.live(eddy.live_table("online")) as view:
            producer = log.producer(None)
            producer.begin()
            producer.send("signs", 0, [b"ada", b"ben"], [b"lobby"] * 2, [round(time.time() * 1000)] * 2)
            producer.commit({}, None)
            wait_for(lambda: len(view.rows) == 2, PATIENCE_S, "both rows")
            wait_for(lambda: len(view.rows) == 0, PATIENCE_S, "that both have expired")
            assert view.version.exact


def test_table_that_outgrows_the_memory_goes_over_to_the_disk_while_its_queries_go_on(
    in_memory: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eddy.live.query.long_opening, "_LONG", 0)
    server, tables = in_memory.server, in_memory.server.tables
    tables.most_rows = 6
    rows: dict[str, str | None] = {"a": "root", "b": "a"}
    in_memory.show(rows, {"a": 1})
    mine = tables.filtered("nodes", lambda key, value: key != "b")
    filtered = eddy.live_table(mine, key="id", value="parent")
    count, few = nodes.count(), nodes.order_by(-nodes.id).limit(2)
    queries = [TREE, count, few, totals, filtered.count(), nodes.where(nodes.id == "a").order_by(nodes.parent)]
    with ExitStack() as stack:
        views = [stack.enter_context(LiveView(server, query, 100)) for query in queries]
        tree, patched, states = views[0], Buckets(), []
        patched.entries = {bucket: list(entries) for bucket, entries in tree.entries.items()}
        for view in views:
            view.listen(lambda patch, view=view: states.append(view.state))  # type: ignore[misc]
        assert not any(tables._is_stored(name) for name in ("nodes", mine))
        for number in range(12):
            more = {f"n{number}": "b", **({"a": None} if number == 8 else {})}
            rows |= more
            in_memory.show(more, {"a": number})
            wait_for(lambda: server.version.number == in_memory.rows.version.number, PATIENCE_S)
        wait_for(lambda: not {"nodes", mine} & tables.engine.tables.keys(), PATIENCE_S, "the disk")
        rows |= {"last": "root", "n1": None, "n2": None}
        in_memory.show({"last": "root", "n1": None, "n2": None})
        present = {key for key, parent in rows.items() if parent is not None}
        wait_for(lambda: views[1].rows == len(present), PATIENCE_S)
        assert all(tables._is_stored(name + "^") for name in ("nodes", mine))
        assert [row["id"] for row in views[2].rows] == sorted(present)[:-3:-1]
        assert (views[3].rows, views[4].rows, views[5].rows) == ([{"id": "a", "count": 11}], len(present) - 1, [])
        for patch in patches(tree):
            patched.apply(patch.ops)
        assert rebuilt(tree, patched) == tree.rows == LiveView(server, TREE, 100).open().rows
        assert "nodes^" not in str(views[1].explain())
        assert set(states) == {"complete"}
        with LiveView(server, filtered.order_by(filtered.id), 100) as later:
            assert [row["id"] for row in later.rows] == sorted(present - {"b"})
    tables.unfiltered(mine)
    in_memory.show({})
    wait_for(lambda: not tables._filters, PATIENCE_S, "the filtered rows to be forgotten")
    assert not any(name.startswith(mine) for name in tables.engine.tables)
