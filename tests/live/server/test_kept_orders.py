"""Windows that are moved while their order is made, and windows that share what others have in memory."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

import eddy
import eddy.live.query.long_opening
import eddy.live.server.live_server as server_module
from eddy.errors import StateError
from eddy.live.dataflow import first_rows
from eddy.live.dataflow.kept_order import KeptOrder
from eddy.live.dataflow.patch import Buckets
from eddy.live.dataflow.stored_map import StoredMap
from eddy.live.dataflow.stored_order import StoredOrdered
from eddy.live.query.long_opening import LongOpening
from eddy.live.server.live_view import LiveView
from eddy.live.server.loading import LoadedTables
from tests.live.server.families import nodes, totals
from tests.live.server.running import Loaded, order_of, patches, rebuilt
from tests.waiting import PATIENCE_S, wait_for

NAMES = [f"n{i:03}" for i in range(200)]


@pytest.fixture(autouse=True)
def aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eddy.live.query.long_opening, "LONG_ROWS", 0)


def once_while_it_opens(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> threading.Event:
    """Call `act` in another thread, once the rows of the next query were computed aside. Returns whether it is over."""
    opens, over = LongOpening.open, threading.Event()

    def meanwhile(aside: LongOpening, max_rows: int) -> Any:
        found = opens(aside, max_rows)
        if not over.is_set():
            thread = threading.Thread(target=act)
            thread.start()
            thread.join(0.5)  # a window that has to wait for this opening goes on after it
            over.set()
        return found

    monkeypatch.setattr(LongOpening, "open", meanwhile)
    return over


def shown(view: eddy.LiveView[Any]) -> list[str]:
    return [row["id"] for row in view.rows]


@pytest.mark.parametrize("skip", [5, 90])  # within the first rows, and beyond them
def test_window_that_is_moved_while_its_order_is_made_stays_where_it_is(
    passing: Loaded, monkeypatch: pytest.MonkeyPatch, skip: int
) -> None:
    monkeypatch.setattr(first_rows, "slack_of", lambda limit, scanned: 20)
    passing.show(dict.fromkeys(NAMES, "root"))
    with LiveView(passing.server, nodes.order_by(nodes.id).limit(3), 100) as view:
        rebuilding = Buckets()
        rebuilding.entries = {name: list(rows) for name, rows in view.entries.items()}
        over = once_while_it_opens(monkeypatch, lambda: view.window(skip=skip, limit=4))
        passing.show(dict.fromkeys(NAMES[:5]))
        assert over.wait(PATIENCE_S)
        wait_for(lambda: order_of(view) is KeptOrder, PATIENCE_S)
        view.wait(timeout_s=PATIENCE_S)
        assert (shown(view), view.select.skip) == (NAMES[5 + skip : 9 + skip], skip)
        passing.show({NAMES[6]: None, NAMES[7 + skip]: None})
        wait_for(lambda: shown(view)[-1] == NAMES[10 + skip], PATIENCE_S)
        for patch in patches(view):
            rebuilding.apply(patch.ops)
        assert rebuilt(view, rebuilding) == view.rows


def test_window_that_is_moved_while_its_order_goes_to_the_disk_stays_where_it_is(
    passing: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing.server.tables.most_rows = 12
    passing.show(dict.fromkeys(NAMES[:10], "root"))
    with LiveView(passing.server, nodes.order_by(nodes.id).limit(2), 100) as view:
        view.window(skip=1, limit=2)
        assert order_of(view) is KeptOrder
        over = once_while_it_opens(monkeypatch, lambda: view.window(skip=5, limit=3))
        passing.show(dict.fromkeys(NAMES[10:20], "root"))
        assert over.wait(PATIENCE_S)
        wait_for(lambda: order_of(view) is StoredOrdered, PATIENCE_S)
        view.wait(timeout_s=PATIENCE_S)
        assert shown(view) == NAMES[5:8]


def test_window_that_is_moved_while_its_table_is_loaded_stays_where_it_is(
    passing: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eddy.live.query.long_opening, "LONG_ROWS", 1_000)  # then the order is made at once
    monkeypatch.setattr(first_rows, "slack_of", lambda limit, scanned: 20)
    passing.show(dict.fromkeys(NAMES, "root"))
    load_all, moved = LoadedTables.load_all, threading.Event()
    with LiveView(passing.server, nodes.order_by(nodes.id).limit(3), 100) as view:

        def meanwhile(tables: LoadedTables, select: Any) -> None:
            load_all(tables, select)
            if not moved.is_set():
                moved.set()
                thread = threading.Thread(target=lambda: view.window(skip=5, limit=4))
                thread.start()
                wait_for(lambda: view.select.skip == 5, PATIENCE_S)

        monkeypatch.setattr(LoadedTables, "load_all", meanwhile)
        passing.show(dict.fromkeys(NAMES[:5]))
        assert moved.wait(PATIENCE_S)
        wait_for(lambda: order_of(view) is KeptOrder, PATIENCE_S)
        assert shown(view) == NAMES[10:14]


def test_large_window_beside_small_ones_does_not_keep_others_from_opening(
    passing: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window that is too large to be opened at once has first rows of its own: others cannot share them."""
    monkeypatch.setattr(first_rows, "slack_of", lambda limit, scanned: 30)
    monkeypatch.setattr(server_module, "AT_ONCE_ROWS", 20)
    passing.show(dict.fromkeys(NAMES, "root"))
    query = nodes.order_by(nodes.id)
    with ExitStack() as stack:
        small, large, other = (
            stack.enter_context(LiveView(passing.server, each, 100))
            for each in (query.limit(1), query.limit(25), query.skip(40).limit(2))
        )
        assert (shown(small), shown(large), shown(other)) == (NAMES[:1], NAMES[:25], NAMES[40:42])
        small.window(skip=42, limit=1)
        assert shown(small) == NAMES[42:43]


def test_nest_over_a_table_that_outgrew_the_memory_goes_to_the_disk_with_its_window(
    passing: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = passing.server
    server.tables.most_rows = 12
    passing.show(dict.fromkeys(NAMES[:4], "root"), dict.fromkeys(NAMES[:4], 1))
    query = nodes.order_by(nodes.id).limit(2).nest(total=lambda row: totals.where(totals.id == row.id).one())
    with LiveView(server, query, 100) as view:
        view.window(skip=1, limit=2)
        assert order_of(view) is KeptOrder
        passing.show({}, dict.fromkeys(NAMES[:20], 2))
        wait_for(lambda: "descendants" not in server.tables.engine.tables, PATIENCE_S, "its rows to leave the memory")
        wait_for(lambda: not server._renewals._waiting, PATIENCE_S)  # private: it is not opened again and again
        assert [row["total"]["count"] for row in view.rows] == [2, 2]


def test_rows_of_a_move_that_the_disk_has_interrupted_are_not_shown(
    passing: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing.show(dict.fromkeys(NAMES, "root"))
    server, fetch = passing.server, StoredMap.fetch
    with LiveView(server, nodes.order_by(nodes.id).limit(3), 100) as view:
        view.window(skip=1, limit=3)
        assert order_of(view) is KeptOrder

        def fails(*given: Any) -> None:
            raise StateError("state 'x': cannot be read")

        with server.lock:
            monkeypatch.setattr(StoredMap, "fetch", fails)
            server.move_window(view, 20, 3)
            monkeypatch.setattr(StoredMap, "fetch", fetch)
            passing.show({NAMES[0]: None, NAMES[21]: None})
            server.take_whole()
            assert (shown(view), view.state) == (NAMES[1:4], "unknown")
        view.wait(timeout_s=PATIENCE_S)
        assert shown(view) == [*NAMES[22:25]]
        assert server.restarts.count == 0


def test_shared_window_that_moves_does_not_make_its_order_on_disk_while_others_wait(
    passing: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, under_lock = passing.server, []
    fill = StoredOrdered._fill  # private: it makes an order
    server.tables.most_rows = 12
    passing.show(dict.fromkeys(NAMES[:10], "root"))
    query = nodes.order_by(nodes.id).limit(2)

    def filled(order: StoredOrdered) -> None:
        under_lock.append(server.lock._is_owned())  # type: ignore[attr-defined]  # private: the lock alone knows its owner
        fill(order)

    monkeypatch.setattr(StoredOrdered, "_fill", filled)  # private: the moment at which an order is made
    with LiveView(server, query.skip(1), 100) as first:
        first.window(skip=5, limit=2)
        assert order_of(first) is KeptOrder
        with LiveView(server, query, 100) as one, LiveView(server, query, 100) as two:
            assert (one.view is two.view, order_of(one)) == (True, KeptOrder)
            with server.lock:
                passing.show(dict.fromkeys(NAMES[10:20], "root"))
                server.take_whole()
                server.move_window(one, 7, 2)
            for view in (one, two, first):
                view.wait(timeout_s=PATIENCE_S)
                wait_for(lambda view=view: order_of(view) is StoredOrdered, PATIENCE_S)  # type: ignore[misc]
            assert (shown(one), shown(two), shown(first)) == (NAMES[7:9], NAMES[:2], NAMES[5:7])
    assert under_lock
    assert not any(under_lock)
