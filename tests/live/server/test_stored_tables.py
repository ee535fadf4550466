"""Live queries over tables that are not in memory: first rows, tables on disk, and those that outgrow the memory."""

from contextlib import ExitStack
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
from eddy.live.dataflow.kept_order import KeptOrder
from eddy.live.dataflow.nest_levels import Level
from eddy.live.dataflow.patch import Buckets, Insert
from eddy.live.dataflow.stored_order import StoredOrdered
from eddy.live.query.long_opening import LongOpening
from eddy.live.server import loading
from eddy.live.server.live_view import Checks, LiveView
from eddy.live.server.loading import LoadedTables
from eddy.live.server.naming import Naming
from eddy.state.rocksdb import RocksDBStore
from eddy.state.spaces import Space
from tests.live.server.families import TREE, nodes, totals
from tests.live.server.running import Loaded, Running, is_on_disk, kept, order_of, patches, rebuilt, rows_below
from tests.waiting import PATIENCE_S, wait_for


def test_window_goes_on_over_an_order_for_rows_that_are_not_kept(passing: Loaded) -> None:
    names = [f"n{i:02}" for i in range(40)]
    passing.show(dict.fromkeys(names, "root"), {"n03": 3})
    query = nodes.order_by(nodes.id).limit(3).nest(total=lambda row: totals.where(totals.id == row.id).one())
    buckets = Buckets()
    with LiveView(passing.server, query, 100) as view, LiveView(passing.server, query, 100) as other:
        assert [row["id"] for row in view.rows] == names[:3]
        tables = passing.server.tables.engine.tables
        assert (kept(view), len(tables["nodes~"].rows), view.view is other.view, "nodes" in tables) == (
            3,
            0,
            True,
            False,
        )
        assert "the other rows are not in memory" in str(view.explain())
        buckets.apply([Insert("", index, *entry) for index, entry in enumerate(view.entries[""])])
        buckets.entries |= {name: list(rows) for name, rows in view.entries.items() if name}
        with passing.server.lock:
            passing.show({"n01": None, "n30": None})
            passing.server.take_whole()
            assert (view.state, [row["id"] for row in view.rows]) == ("unknown", names[:3])
        for each in (view, other):
            each.wait(timeout_s=PATIENCE_S)
            assert [row["id"] for row in each.rows] == ["n00", "n02", "n03"]
        assert (view.rows[2]["total"], view.view is other.view) == ({"id": "n03", "count": 3}, True)
        assert (is_on_disk(passing, "nodes^"), "nodes" in tables) == (True, False)
        assert "nodes^" not in str(view.explain())
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
    wait_for(lambda: not {"nodes~", "nodes^"} & passing.server.tables.engine.tables.keys(), PATIENCE_S)


def test_head_of_a_queue_reads_the_table_twice_and_is_never_unknown(
    passing: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_rows, "slack_of", lambda limit, scanned: 40)
    monkeypatch.setattr(eddy.live.query.long_opening, "LONG_ROWS", 0)
    rows, server = [f"n{i:03}" for i in range(200)], passing.server
    passing.show(dict.fromkeys(rows, "root"))
    reads, read = 0, Naming.rows

    def counted(naming: Naming, snapshot: Any) -> Any:
        nonlocal reads
        reads += 1
        return read(naming, snapshot)

    monkeypatch.setattr(Naming, "rows", counted)
    with LiveView(server, nodes.order_by(nodes.id).limit(3), 100) as view:
        states: list[str] = []
        view.listen(lambda patch: states.append(view.state))
        for number in range(150):
            passing.show({rows[number]: None})
            wait_for(lambda left=rows[number + 1]: view.rows[0]["id"] == left, PATIENCE_S)  # type: ignore[misc]
            if number == 20:  # the order is begun, and its time is that of 30 more rows
                wait_for(lambda: order_of(view) is KeptOrder, PATIENCE_S)
        assert (reads, set(states)) == (2, {"complete"})
        view.window(skip=30, limit=2)
        with LiveView(server, nodes.order_by(nodes.id).skip(40).limit(5), 100) as other:
            assert [row["id"] for row in view.rows + other.rows] == [f"n{i:03}" for i in (180, 181, *range(190, 195))]
        assert reads == 2


def test_window_that_moves_leaves_others_of_the_same_query_where_they_are(passing: Loaded) -> None:
    passing.show({f"n{i:02}": "root" for i in range(50)})
    query, moved = nodes.order_by(-nodes.id).limit(2), Buckets()
    with LiveView(passing.server, query, 100) as one, LiveView(passing.server, query, 100) as two:
        one.listen(lambda patch: moved.apply(patch.ops))
        moved.entries = {bucket: list(rows) for bucket, rows in one.entries.items()}
        for skip in (30, 10, 48, 49, 0):
            one.window(skip=skip, limit=2)
            shown = [f"n{i:02}" for i in range(49 - skip, max(-1, 47 - skip), -1)]
            assert [row["id"] for row in one.rows] == shown
            assert rebuilt(one, moved) == one.rows
            assert [row["id"] for row in two.rows] == ["n49", "n48"]
        with LiveView(passing.server, query, 100) as three:
            passing.show({"n49": None})
            for each in (one, two, three):
                wait_for(lambda each=each: [row["id"] for row in each.rows] == ["n48", "n47"], PATIENCE_S)  # type: ignore[misc]


def test_order_that_outgrows_the_memory_goes_on_on_disk(passing: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    server = passing.server
    server.tables.most_rows = 12
    passing.show({f"n{i}": "root" for i in range(10)})
    with LiveView(server, nodes.order_by(-nodes.id).limit(2), 100) as view:
        view.window(skip=1, limit=2)
        assert ([row["id"] for row in view.rows], order_of(view)) == (["n8", "n7"], KeptOrder)
        for number in range(10, 16):
            passing.show({f"p{number}": "root"})
        wait_for(lambda: order_of(view) is StoredOrdered, PATIENCE_S)
        view.wait(timeout_s=PATIENCE_S)
        assert [row["id"] for row in view.rows] == ["p14", "p13"]
        with pytest.raises(eddy.QueryError, match=r"a skip of 13 has to keep .* at most 12 \(table_rows\)"):
            LiveView(server, nodes.skip(13).limit(1), 100).open()


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
        assert (server.tables.engine.tables.keys(), [row["id"] for row in window.rows]) == ({"nodes~"}, ["d"])
        views = [stack.enter_context(LiveView(server, query, 100, Checks(every=1))) for query in given]
        assert (is_on_disk(on_disk, "nodes"), is_on_disk(on_disk, "descendants")) == (True, False)
        other = stack.enter_context(LiveView(server, nodes.limit(1), 100))
        assert "sort nodes by key" in str(other.explain())  # its order is there
        for view in views:
            assert view.explain().rows > 0
        with server.lock:
            on_disk.show({"e": "d", "b": None, "c": "root"}, {"c": 2})
            server.take_whole()
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
    monkeypatch.setattr(eddy.live.query.long_opening, "LONG_ROWS", long)
    on_disk.show({"a": "root", "b": "a"}, {"a": 1})
    server = on_disk.server
    with LiveView(server, TREE, 100) as view, LiveView(server, totals, 100) as other:
        before = view.rows
        on_disk.lose("nodes")
        with server.lock:
            server.take_whole()
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
            monkeypatch.setattr(stored_map, "MAX_CELLS", 1)
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


def test_table_that_is_loaded_while_all_begin_anew_is_loaded_again(  # private: in the middle of a load
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
                server.begin_anew()
        return made

    monkeypatch.setattr(LoadedTables, "_stored", meanwhile)
    with LiveView(server, TREE, 100) as view:
        assert rows_below(view) == ["a", "b"]
        on_disk.show({"c": "b"})
        wait_for(lambda: rows_below(view) == ["a", "b", "c"], PATIENCE_S)
    assert (calls, server.restarts.count, server.failure) == (2, 0, None)


def test_window_that_the_disk_cannot_move_is_opened_anew(on_disk: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_order, "LEAST_SLACK", 1)
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
        assert (len(server.tables.engine), server.failure) == (1, None)


def test_table_stays_while_a_query_begins_over_it(passing: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    passing.show({"a": "root", "b": "root"})
    former = LiveView(passing.server, nodes.limit(1), 100).open()
    opens, calls = LongOpening.open, []

    def meanwhile(aside: LongOpening, max_rows: int) -> Any:
        calls.append(aside)
        former.close()
        passing.show({"a": "b"})
        with passing.server.lock:
            passing.server.take_whole()
        return opens(aside, max_rows)

    monkeypatch.setattr(LongOpening, "open", meanwhile)
    with LiveView(passing.server, nodes.order_by(-nodes.id).limit(2), 100) as view:
        assert [row["parent"] for row in view.rows] == ["root", "b"]
    assert len(calls) == 1
    passing.show({"c": "root"})
    wait_for(lambda: "nodes~" not in passing.server.tables.engine.tables, PATIENCE_S)


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
                passing.server.take_whole()
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
        passing.server.take_whole()
        assert (tables.engine.tables, tables.feed._watched, tables._filters) == ({}, {}, {})  # private: nothing is left


def test_window_beyond_many_others_may_read_a_table_that_is_not_loaded(
    passing: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "MANY_WINDOWS", 1)
    passing.show({"a": "root"}, {"a": 1})
    query = nodes.limit(2).nest(total=lambda row: totals.where(totals.id == row.id).one())
    with LiveView(passing.server, nodes.limit(1), 100), LiveView(passing.server, query, 100) as view:
        assert [row["total"] for row in view.rows] == [{"id": "a", "count": 1}]


def test_many_different_windows_have_the_table_in_memory(passing: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "MANY_WINDOWS", 2)
    passing.show({f"n{i}": "root" for i in range(9)})
    with ExitStack() as stack:
        views = [
            stack.enter_context(LiveView(passing.server, nodes.where(nodes.id != f"-{size}").limit(size), 100))
            for size in (1, 2, 2, 3, 4)
        ]
        tables = passing.server.tables.engine.tables
        assert [len(tables[name].dependents) for name in ("nodes~", "nodes")] == [2, 2]
        passing.show({"n0": None, "n1": None, "a": "root"})
        expected = [["a", "n2", "n3", "n4"][:size] for size in (1, 2, 2, 3, 4)]
        wait_for(lambda: [[row["id"] for row in view.rows] for view in views] == expected, PATIENCE_S)


def test_rows_that_are_read_while_others_wait_are_bounded(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """By count: the rows shown between two moments at which the lock was free."""
    monkeypatch.setattr(server_module, "AT_ONCE_ROWS", 6)
    held: list[int] = []
    shown, nest = Level.shown, view_module.nested

    def counted(level: Level, row: Any) -> Any:
        held[-1] += loaded.server.lock._is_owned()  # type: ignore[attr-defined]  # private: the lock alone knows its owner
        return shown(level, row)

    def nested_freely(*given: Any) -> Any:
        assert not loaded.server.lock._is_owned()  # type: ignore[attr-defined]  # private: the lock alone knows its owner
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
    running.tables.wait(running.write({"a": "root", "b": "root"}), timeout_s=PATIENCE_S)
    assert len(running.tables.read(nodes)) == 2
    folder = tmp_path / running.topology.name / "~queries"
    left = RocksDBStore(folder, running.topology.name)  # by a server that was killed
    left.write([(b"a", b"1")])
    left.close()
    with eddy.open_tables(running.topology, running.log, state_dir=tmp_path, table_rows=1) as tables:
        assert not folder.exists()
        tables.wait(exact=True, timeout_s=PATIENCE_S)
        assert [row["id"] for row in tables.read(nodes.order_by(-nodes.id).limit(1))] == ["b"]
        assert not folder.exists()
        assert len(tables.read(nodes)) == 2
        assert folder.exists()
    assert not folder.exists()


def test_table_that_outgrows_the_memory_goes_over_to_the_disk_while_its_queries_go_on(
    in_memory: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eddy.live.query.long_opening, "LONG_ROWS", 0)
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
        assert not any(tables.is_stored(name) for name in ("nodes", mine))
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
        assert all(tables.is_stored(name + "^") for name in ("nodes", mine))
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
    wait_for(lambda: not tables._filters, PATIENCE_S, "the filtered rows to be forgotten")  # private: nothing is left
    assert not any(name.startswith(mine) for name in tables.engine.tables)
