"""Laws of live queries: cuts into batches, names, work and space. Work is counted in calls, not in time."""

import gc
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import eddy
from eddy.live.dataflow.patch_making import Bucket
from eddy.live.dataflow.window import SortedBucket, Window
from tests.live.query.random_queries import KEYS, random_changes, random_query, random_row
from tests.live.query.rig import Followed, Rig
from tests.live.query.test_random import canonical

docs = eddy.live_table("docs", key="id")
notes = eddy.live_table("notes", key="id")
nodes = eddy.live_table("nodes", key="id")
Row = dict[str, Any]


def filled(followed: Followed) -> dict[str, Any]:
    """The buckets that have rows."""
    return {bucket: canonical([row for row, _ in rows]) for bucket, rows in followed.buckets.entries.items() if rows}


@pytest.mark.parametrize("seed", range(60))
def test_any_cut_of_changes_into_batches_leads_to_the_same_buckets(seed: int) -> None:
    draw = random.Random(seed)
    rows = {name: [random_row(draw, name) for _ in range(15)] for name in KEYS}
    cuts = [Rig(KEYS, rows) for _ in range(3)]
    query = random_query(draw)
    followed = [rig.follow(query) for rig in cuts]
    changes = []
    for _ in range(12):  # each depends on the rows that there are then
        (change,) = random_changes(draw, cuts[0].rows(), 1)
        changes.append(change)
        cuts[0].apply([change])
    cuts[1].apply(changes)
    begin = 0
    while begin < len(changes):
        size = draw.randrange(1, 6)
        cuts[2].apply(changes[begin : begin + size])
        begin += size
    assert filled(followed[0]) == filled(followed[1]) == filled(followed[2])
    assert canonical(followed[0].rows) == canonical(followed[1].rows)


def test_names_of_functions_and_rows_change_no_answer_and_share_all_operators() -> None:
    def children(node: Any) -> eddy.Query:
        return nodes.where(nodes.parent == node.id).nest(below=children)

    def kids(each: Any) -> eddy.Query:
        return nodes.where(nodes.parent == each.id).nest(below=kids)

    rows = [{"id": n, "parent": (n - 1) // 2 if n else None} for n in range(15)]
    rig = Rig({"nodes": ["id"]}, {"nodes": rows})
    one = rig.follow(nodes.where(nodes.id == 0).nest(below=children))
    operators = len(rig.engine.dataflow)
    two = rig.follow(nodes.where(nodes.id == 0).nest(below=kids))
    assert len(rig.engine.dataflow) == operators
    rig.apply([("nodes", None, {"id": 1, "parent": 2})])
    assert one.rows == two.rows
    assert one.ops == two.ops


def calls(function: Callable[[], object]) -> int:
    """The number of calls that a function makes, of Python's own functions too."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    outer = sys.getprofile()
    gc.disable()  # whose callbacks would count, whenever it has its turn
    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(outer)
        gc.enable()
    return count


def edit_calls(rig: Rig, table: str, row: Row) -> int:
    """The work of one edit."""
    key = rig.key_of[table](row)
    found = calls(lambda: rig.engine.apply({table: {key: row}}))
    rig.plain[table][key] = row
    return found


def ranked(count: int) -> Rig:
    rig = Rig({"docs": ["id"]}, {"docs": [{"id": n, "rank": n, "owner": n % 7} for n in range(count)]})
    rig.follow(docs.order_by(docs.rank).skip(2).limit(10))
    return rig


@pytest.mark.parametrize("place", [-1, 5.5, 90.5])
def test_work_of_an_edit_does_not_grow_with_the_table(place: float) -> None:
    """At the top, inside of the window and beyond it; a row leaves the window, and another one enters."""
    few, many = (edit_calls(ranked(count), "docs", {"id": 4, "rank": place}) for count in (2_000, 40_000))
    assert many <= few + 10  # the levels of a larger sorted list


def test_work_of_an_edit_does_not_grow_with_the_queries_that_it_does_not_touch() -> None:
    found = []
    for count in (10, 500):
        rows = [{"id": n, "owner": n, "rank": 0} for n in range(500)]
        rig = Rig({"docs": ["id"]}, {"docs": rows})
        for owner in range(count):
            rig.follow(docs.where(docs.owner == owner).order_by(docs.rank).limit(5))
        found.append(edit_calls(rig, "docs", {"id": 3, "owner": 3, "rank": 1}))
    assert found[0] == found[1]


def test_work_of_a_nested_edit_does_not_grow_with_the_parents() -> None:
    found = []
    for parents in (1, 300):
        rig = Rig(
            {"docs": ["id"], "notes": ["id"]},
            {"docs": [{"id": n, "topic": "x"} for n in range(parents)], "notes": [{"id": 1, "topic": "x", "at": 0}]},
        )
        followed = rig.follow(docs.nest(notes=lambda doc: notes.where(notes.topic == doc.topic)))
        found.append(edit_calls(rig, "notes", {"id": 1, "topic": "x", "at": 1}))
        rig.apply([("notes", None, {"id": 1, "topic": "x", "at": 2})])
        assert len(followed.ops) == 1
    assert found[0] == found[1]


def test_work_of_a_query_that_closes_does_not_grow_with_the_others_over_its_rows() -> None:
    found = []
    for count in (20, 500):
        rig = ranked(10)
        views = [rig.engine.open(docs.order_by(docs.rank).syntax, shared=False) for _ in range(count)]
        found.append(calls(partial(rig.engine.close, views[count // 2])))
    assert found[0] == found[1]


def test_work_of_a_subtree_that_moves_does_not_grow_with_it() -> None:
    def children(node: Any) -> eddy.Query:
        return nodes.where(nodes.parent == node.id).nest(children=children)

    found = []
    for size in (1, 300):
        rows: list[Row] = [{"id": name, "parent": "top" if name != "top" else None} for name in ("top", "one", "two")]
        rows += [{"id": n, "parent": "one" if n == 1 else n // 2} for n in range(1, size + 1)]
        rig = Rig({"nodes": ["id"]}, {"nodes": rows})
        rig.follow(nodes.where(nodes.id == "top").nest(children=children))
        found.append(edit_calls(rig, "nodes", {"id": 1, "parent": "two"}))
    assert found[0] == found[1]


def kept_objects() -> int:
    """The number of buckets and windows that are not garbage."""
    gc.collect()
    return sum(isinstance(each, Bucket | Window | SortedBucket) for each in gc.get_objects())


def check_empty(rig: Rig) -> None:
    """No rows are kept anywhere; buckets only where a window is open."""
    for operator in rig.engine.dataflow.operators.values():
        for kept in ("counts", "keys", "_passing", "_groups", "rows"):
            value = getattr(operator, kept, None)
            assert callable(value) or not value
        for bucket in getattr(operator, "buckets", {}).values():
            assert bucket.windows
            assert not bucket


def follow_to_the_end(rig: Rig, draw: random.Random) -> None:
    """Follow queries until no row is left, and close them."""
    followed = [rig.follow(random_query(draw)) for _ in range(3)]
    for _ in range(5):
        rig.apply(random_changes(draw, rig.rows(), 5))
    rig.apply([(name, row, None) for name, rows in rig.rows().items() for row in rows])
    assert [row for each in followed for rows in each.buckets.entries.values() for row in rows] == []
    check_empty(rig)
    for each in followed:
        rig.engine.close(each.view)
    rig.followed.clear()


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_go_and_queries_that_close_leave_nothing(seed: int) -> None:
    before, draw = kept_objects(), random.Random(seed)
    rig = Rig(KEYS, {name: [random_row(draw, name) for _ in range(15)] for name in KEYS})
    follow_to_the_end(rig, draw)
    assert [each for table in rig.engine.tables.values() for each in table.dependents] == []
    assert kept_objects() <= before
