"""Queries over tables that are not in memory: each case, random queries, trees, and queries that begin beside others.

Hardly a row is kept before the disk, and no more rows of a bucket than have to be, so that all is read again and again.
"""

import gc
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.errors import StateError
from eddy.live.dataflow import filter as filter_module
from eddy.live.dataflow import stored_map, stored_order
from eddy.live.dataflow.stored_map import StoredMap
from eddy.live.dataflow.stored_order import StoredOrdered
from eddy.live.dataflow.values import flat_key
from eddy.live.query.explain import explain
from eddy.live.query.long_opening import LongOpening
from eddy.state.spaces import Space, Spaces
from tests.live.query import test_conformance
from tests.live.query.cases import CASES
from tests.live.query.oracle import answer
from tests.live.query.random_queries import KEYS, items, nodes, parts, random_changes, random_query, random_row
from tests.live.query.rig import Followed, Rig
from tests.live.query.test_aside import join_while_rows_change, shown
from tests.live.query.test_laws import follow_to_the_end
from tests.live.query.test_random import canonical, check
from tests.seeds import of_today


@pytest.fixture(autouse=True)
def hardly_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_map, "MAX_CELLS", 2)
    monkeypatch.setattr(stored_map, "PAGE_CELLS", 3)
    monkeypatch.setattr(stored_order, "LEAST_SLACK", 1)
    monkeypatch.setattr(filter_module, "READ_ROWS", 2)
    monkeypatch.setattr(filter_module, "MANY_KEYS", 3)


@pytest.fixture
def as_much_in_memory_as_usual(hardly_in_memory: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()


@pytest.fixture
def spaces(tmp_path: Path) -> Iterator[Spaces]:
    made = Spaces(tmp_path / "queries", "app", 1 << 20)
    yield made
    made.clear()
    assert not (tmp_path / "queries").exists()


@pytest.fixture
def some_spaces() -> Iterator[Spaces]:
    """Spaces in memory, which take a tenth of the time."""
    made = Spaces()
    yield made
    gc.collect()
    made.make().drop()
    assert len(made) == 0  # nothing is left of what went with its queries


class DiskRig(Rig):
    """A rig whose tables are on disk; those of `in_memory` are not."""

    def __init__(self, keys: Any, tables: Any, spaces: Spaces, in_memory: Any = ()) -> None:
        super().__init__(keys, tables, spaces)
        for name in in_memory:
            self.engine.unload(name)
            self.engine.load(name, dict(self.plain[name]))

    def close(self) -> None:
        for followed in self.followed:
            self.engine.close(followed.view)
        self.followed.clear()
        for name in list(self.engine.tables):
            self.engine.unload(name)


def play(seed: Any, spaces: Spaces, *, batches: int = 8) -> None:
    """Follow some queries at once through some batches, over tables of which some are in memory."""
    draw = random.Random(seed)
    rows = {name: [random_row(draw, name) for _ in range(draw.randrange(25))] for name in KEYS}
    rig = DiskRig(KEYS, rows, spaces, draw.sample(list(KEYS), draw.choice([0, 0, 1, 2])))
    queries = [random_query(draw) for _ in range(3)]
    followed = [rig.follow(query) for query in queries]
    for _ in range(batches):
        for each, query in zip(followed, queries, strict=True):
            check(rig, each, query)
            explain(each.view)
        rig.apply(random_changes(draw, rig.rows(), draw.choice([1, 1, 2, 6])))
    for each in followed:
        again = Followed(rig.engine, eddy.Query(each.view.shape.select), shared=False)
        assert again.buckets.entries == {b: rows for b, rows in each.buckets.entries.items() if rows}
        rig.engine.close(again.view)
    rig.close()
    assert len(rig.engine) == len(rig.engine.dataflow) == len(spaces) == 0


@pytest.mark.parametrize("seed", [*range(15), *of_today(15)])
def test_view_of_patches_is_the_naive_answer(seed: int, some_spaces: Spaces) -> None:
    play(seed, some_spaces)


@pytest.mark.parametrize("seed", range(4))
def test_it_is_on_a_disk_too(seed: int, spaces: Spaces) -> None:
    play(seed, spaces)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_view_of_patches_is_the_naive_answer_in_many_cases(seed: int, some_spaces: Spaces) -> None:
    for number in range(20):
        play((seed, number).__repr__(), some_spaces)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_view_is_that_of_the_case(case: dict[str, Any], some_spaces: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[DiskRig] = []

    def rig_of(keys: Any, tables: Any) -> DiskRig:
        made.append(DiskRig(keys, tables, some_spaces))
        return made[-1]

    monkeypatch.setattr(test_conformance, "Rig", rig_of)
    test_conformance.test_view_is_that_of_the_case_after_each_change(case)
    test_conformance.test_any_cut_into_batches_ends_the_same(case)
    for rig in made:
        rig.close()


@pytest.mark.parametrize("seed", range(30))
def test_query_that_begins_aside_is_right_from_then_on(seed: int, some_spaces: Spaces) -> None:
    begin_aside(seed, some_spaces)


@pytest.mark.parametrize("seed", range(30, 35))
def test_query_that_begins_aside_on_a_disk_is_right_from_then_on(seed: int, spaces: Spaces) -> None:
    begin_aside(seed, spaces)


def begin_aside(seed: int, some_spaces: Spaces) -> None:
    """Open one beside others, while rows change."""
    draw = random.Random(seed)
    rows = {name: [random_row(draw, name) for _ in range(20)] for name in KEYS}
    rig = DiskRig(KEYS, rows, some_spaces, draw.sample(list(KEYS), draw.randrange(2)))
    query = random_query(draw)
    for each in draw.sample([query, random_query(draw), random_query(draw)], 2):
        rig.follow(each)
    view, buckets = join_while_rows_change(draw, rig, query, keeps_all=False)
    later = rig.follow(query)
    for _ in range(5):
        buckets.apply(rig.apply(random_changes(draw, rig.rows(), 3)).get(view, []))
        expected = canonical(answer(query, rig.rows()))
        assert shown(view, buckets) == expected == canonical(later.rows)
    rig.engine.close(view)
    rig.close()


def test_query_that_does_not_join_leaves_nothing(some_spaces: Spaces) -> None:
    rig = DiskRig(KEYS, {"items": [{"id": n} for n in range(9)], "parts": [], "nodes": []}, some_spaces)
    before = len(some_spaces)
    aside = LongOpening(rig.engine, items.order_by(items.size).syntax)
    aside.open(100)
    assert len(some_spaces) > before
    aside.close()
    assert len(some_spaces) == before
    with pytest.raises(eddy.QueryError, match="more than 1 rows"):
        rig.engine.open(items.syntax, max_rows=1)
    assert len(some_spaces) == before
    rig.close()


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_go_and_queries_that_close_leave_nothing(seed: int, some_spaces: Spaces) -> None:
    draw = random.Random(seed)
    rig = DiskRig(KEYS, {name: [random_row(draw, name) for _ in range(15)] for name in KEYS}, some_spaces)
    follow_to_the_end(rig, draw)
    rig.close()


def test_subtree_that_moves_stays_and_one_that_is_cut_off_goes(some_spaces: Spaces) -> None:
    def children(node: Any) -> eddy.Query:
        return nodes.where(nodes.parent == node.id).order_by(nodes.pos).nest(below=children)

    rows: list[Any] = [{"id": name, "parent": None, "pos": 0} for name in ("one", "two")]
    rows += [{"id": n, "parent": "one" if n == 1 else n // 2, "pos": n % 3} for n in range(1, 64)]
    rig = DiskRig({"nodes": ["id"]}, {"nodes": rows}, some_spaces)
    query = nodes.where(nodes.parent.is_null()).nest(below=children)
    tree = rig.follow(query)
    for parent, most in (("two", 2), ("one", 2), (40, 100), ("two", 100)):  # 40 is below it: a cycle that is cut off
        rig.apply([("nodes", None, {"id": 1, "parent": parent, "pos": 9})])
        assert len(tree.ops) <= most
        check(rig, tree, query)
        assert tree.view.operator.rows == (65 if most == 2 or parent == "two" else 2)
    rig.close()


def ordered_of(followed: Followed) -> StoredOrdered:
    found = followed.view.operator.root.level.ordered
    assert isinstance(found, StoredOrdered)
    return found


def test_positions_in_memory_are_those_that_are_shown_and_a_slack(some_spaces: Spaces) -> None:
    rows = [{"id": n, "size": n % 97, "color": n % 5} for n in range(500)]
    rig = DiskRig({"items": ["id"]}, {"items": rows}, some_spaces)
    query = items.where(items.color == 3).order_by(items.size).skip(2).limit(3)
    window = rig.follow(query, shared=False)
    kept = ordered_of(window)
    assert (kept.row_count(), kept.kept) == (500, 6)
    draw = random.Random(5)
    for _ in range(150):
        size = draw.randrange(-20, 20)
        rig.apply([("items", None, {"id": draw.randrange(500), "size": size, "color": draw.choice([3, 3, 4])})])
        assert kept.kept <= 7
        check(rig, window, query)
    for skip, limit in ((0, 5), (10, 20), (2, 1)):
        window.take(rig.engine.move_window(window.view, skip, limit) or [])
        assert canonical(window.rows) == canonical(answer(query.skip(skip).limit(limit), rig.rows()))
    rig.apply([("items", row, None) for row in rig.rows()["items"][:480]])
    assert canonical(window.rows) == canonical(answer(query.skip(2).limit(1), rig.rows()))
    assert rig.engine.move_window(window.view, 0, None) is None  # all of it is read aside
    rig.close()


def test_windows_over_one_bucket_share_what_is_kept_of_it(some_spaces: Spaces) -> None:
    rig = DiskRig({"items": ["id"]}, {"items": [{"id": n, "size": n} for n in range(50)]}, some_spaces)
    query = items.order_by(items.size)
    whole, few = rig.follow(query), rig.follow(query.limit(4))
    kept = ordered_of(few)
    assert kept.kept == 50
    rig.engine.close(rig.followed.pop(0).view)
    rig.apply([("items", None, {"id": -1, "size": -1})])
    assert kept.kept == 5
    more = rig.follow(query.limit(9))
    assert kept.kept == 5 + 11
    later = rig.follow(query.start({"id": 20, "size": 20}).limit(2))
    assert kept.kept == 5 + 11 + 4
    rig.apply([("items", None, {"id": n, "size": n + 100}) for n in range(10)])
    for each, asked in ((few, query.limit(4)), (more, query.limit(9))):
        check(rig, each, asked)
    assert [row["id"] for row in later.rows] == [21, 22]
    assert whole.view.users == 0
    rig.close()


def test_bucket_with_too_many_rows_is_read_no_further(some_spaces: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DiskRig({"items": ["id"]}, {"items": [{"id": n, "owner": n % 2} for n in range(2_000)]}, some_spaces)
    read: list[int] = []
    beginning = StoredMap.beginning

    def counted(*args: Any, **options: Any) -> Any:
        read.append(options["limit"])
        return beginning(*args, **options)

    monkeypatch.setattr(StoredMap, "beginning", counted)
    for query in (items, items.skip(30), items.where(items.owner == 1).limit(500)):
        with pytest.raises(eddy.QueryError, match="more than 10 rows"):
            rig.engine.open(query.syntax, max_rows=10)
    assert max(read) < 60
    with pytest.raises(eddy.QueryError, match="more than 10 rows"):  # those that it skips are kept, too
        rig.engine.open(items.skip(11).limit(1).syntax, max_rows=10)
    view = rig.engine.open(items.skip(5).limit(1).syntax, max_rows=10)
    assert view.operator.rows == 1
    rig.engine.close(view)
    rig.close()


def test_exists_is_found_by_the_few_rows_on_either_side(some_spaces: Spaces) -> None:
    rows = {"items": [{"id": n, "owner": n} for n in range(300)], "parts": [{"item": 7, "n": n} for n in range(3)]}
    rig = DiskRig(KEYS, rows | {"nodes": []}, some_spaces)
    query = items.where(lambda row: parts.where(parts.item == row.id).exists())
    followed = rig.follow(query)
    assert "child-first: began with 1 rows" in str(explain(followed.view))
    assert [row["id"] for row in followed.rows] == [7]
    other = items.where(lambda row: ~parts.where(parts.item == row.id).exists()).aggregate(n=items.id.count())
    total = rig.follow(other)
    assert "parent-first" in str(explain(total.view))
    rig.apply([("parts", None, {"item": 9, "n": 0}), *(("parts", {"item": 7, "n": n}, None) for n in range(3))])
    for each, asked in ((followed, query), (total, other)):
        check(rig, each, asked)
    assert total.rows == [{"n": 299}]
    rig.close()


def test_least_value_is_found_past_those_that_were_deleted(
    some_spaces: Spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = DiskRig({"items": ["id"]}, {"items": [{"id": n, "size": n} for n in range(9)]}, some_spaces)
    query = items.aggregate(low=items.size.min(), high=items.size.max())
    followed, between, starts = rig.follow(query), Space.between, []

    def noted(space: Space, start: bytes, stop: bytes | None, limit: int) -> Any:
        starts.append(start)
        return between(space, start, stop, limit)

    monkeypatch.setattr(Space, "between", noted)
    for number in range(5):
        rig.apply([("items", {"id": number, "size": number}, None)])
        check(rig, followed, query)
    assert starts == sorted(set(starts))
    assert len(starts) == 5  # none for the greatest one, which stays
    rig.apply([("items", None, {"id": 20, "size": -1}), ("items", None, {"id": 21, "size": 99})])
    check(rig, followed, query)
    rig.close()


def test_map_is_a_dictionary_whatever_it_keeps(some_spaces: Spaces) -> None:
    draw, found, plain = random.Random(3), StoredMap[Any](some_spaces.make()), {}
    key_of = flat_key(["id"])
    for step in range(2_000):
        key = key_of({"id": draw.choice([draw.randrange(20), str(draw.randrange(20)), None, 2.5])})
        if draw.random() < 0.4 and key in plain:
            del plain[key], found[key]
        elif draw.random() < 0.7:
            plain[key] = found[key] = {"step": step}
        assert (found.get(key), key in found, len(found)) == (plain.get(key), key in plain, len(plain))
        assert found.cells <= 2 * 2 + 1
        if step % 50 == 0:
            assert dict(found.items()) == plain
            assert list(found.beginning(b"", limit=3)) == sorted(plain)[:3]
            snapshot, then = found.snapshot(), dict(plain)
            found.fetch(plain)
            snapshot[key_of({"id": "new"})] = {"step": 0}
            assert dict(snapshot.items()) == then | {key_of({"id": "new"}): {"step": 0}}
            snapshot.close()
    with pytest.raises(KeyError):
        _ = found[key_of({"id": "none"})]
    with pytest.raises(KeyError):
        del found[key_of({"id": "none"})]
    found.close()
    with pytest.raises(StateError, match="this one was dropped"):
        found.get(key_of({"id": 1}))


@pytest.mark.usefixtures("as_much_in_memory_as_usual")
def test_large_cells_in_memory_are_few(some_spaces: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    between, write = Space.between, Space.write

    def noted(space: Space, start: bytes, stop: bytes | None, limit: int) -> Any:
        page = between(space, start, stop, limit)
        read.append(sum(len(data) for _, data in page))
        return page

    def noted_too(space: Space, changes: Any) -> None:
        read.append(sum(len(data) for _, data in changes if data is not None))
        write(space, changes)

    monkeypatch.setattr(Space, "between", noted)
    monkeypatch.setattr(Space, "write", noted_too)
    rows = {flat_key(["id"])({"id": n}): {"id": n, "text": "x" * 100_000} for n in range(200)}
    filled, found = StoredMap[Any](some_spaces.make()), StoredMap[Any](some_spaces.make())
    filled.fill(rows.items())
    for key, row in rows.items():
        found[key] = row
        assert found.cells <= 90
    for each in (filled, found):
        each.fetch(rows)
        assert each.cells <= 90
        assert [each[key] for key in rows] == list(rows.values())
        assert each.cells <= 90
        assert dict(each.items()) == rows
        each.close()
    assert max(read) < 5_000_000


@pytest.mark.usefixtures("as_much_in_memory_as_usual")
@pytest.mark.slow
def test_rows_that_one_key_decides_are_not_all_in_memory(spaces: Spaces) -> None:
    count, size = 3_000, 10_000
    rows = [{"id": n, "owner": 1, "size": n, "text": "x" * size} for n in range(count)]
    rig = DiskRig(KEYS, {"items": rows, "parts": [], "nodes": []}, spaces)
    query = items.where(lambda row: parts.where(parts.item == row.owner).exists())
    total, first = rig.follow(query.aggregate(n=items.id.count())), rig.follow(query.order_by(items.size).limit(3))
    other = rig.follow(items.where(lambda row: ~parts.where(parts.item == row.owner).exists()).count())
    gc.collect()
    tracemalloc.start()
    try:
        rig.apply([("parts", None, {"item": 1, "n": 0})])
        assert (total.rows, [row["id"] for row in first.rows], other.rows) == ([{"n": count}], [0, 1, 2], 0)
        rig.apply([("parts", {"item": 1, "n": 0}, None)])
        assert (total.rows, first.rows, other.rows) == ([{"n": 0}], [], count)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < count * size // 2
    rig.close()
