"""Patches: rows that change places, subtrees that move, and parts of a tree that nothing leads to any more."""

import itertools
import random
from typing import Any

import pytest

import eddy
from eddy.live.dataflow.patch import Buckets, Drop, Entry, Insert, Move, Remove, Set
from eddy.live.server.difference import difference
from tests.live.query.oracle import answer
from tests.live.query.rig import Followed, Rig

items = eddy.live_table("items", key="id")
nodes = eddy.live_table("nodes", key="id")


def below(row: Any) -> eddy.Query:
    return nodes.where(nodes.parent == row.id).nest(below=below)


def tree(parents: dict[str, str | None]) -> Rig:
    rows = [{"id": name, "parent": parent} for name, parent in parents.items()]
    return Rig({"nodes": ["id"]}, {"nodes": rows})


def move(rig: Rig, **parents: str | None) -> None:
    rig.apply(("nodes", None, {"id": name, "parent": parent}) for name, parent in parents.items())


@pytest.mark.parametrize("columns", [("id", "place"), ("id",)])
@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("places", list(itertools.permutations(range(4))))
def test_rows_that_change_places_in_one_batch_are_moved(
    places: tuple[int, ...], limit: int | None, columns: tuple[str, ...]
) -> None:
    rig = Rig({"items": ["id"]}, {"items": [{"id": number, "place": number * 10} for number in range(6)]})
    query = items.order_by(items.place).limit(limit).select(*columns)
    followed = rig.follow(query)
    rig.apply(("items", None, {"id": number, "place": place * 10}) for number, place in enumerate(places))
    assert followed.rows == answer(query, rig.rows())
    if limit is None:
        rising = next(
            n for n in range(4, 0, -1) if any(list(c) == sorted(c) for c in itertools.combinations(places, n))
        )
        assert sum(isinstance(op, Move) for op in followed.ops) <= 4 - rising


def test_row_whose_value_changes_at_its_place_is_set_alone() -> None:
    rig = Rig({"items": ["id"]}, {"items": [{"id": number, "place": number * 10} for number in range(6)]})
    followed = rig.follow(items.order_by(items.place))
    rig.apply([("items", None, {"id": 2, "place": 21})])
    assert followed.ops == [Set("", 2, {"id": 2, "place": 21})]
    names = rig.follow(items.order_by(items.place).select("id"))
    rig.apply([("items", None, {"id": 2, "place": 22})])
    assert names.ops == []


def test_part_that_is_cut_off_goes_though_it_leads_to_itself() -> None:
    rig = tree({"root": None, "a": "root", "b": "a", "c": "b"})
    followed = rig.follow(nodes.where(nodes.parent.is_null()).nest(below=below))
    move(rig, a="c")  # a, b and c lead to one another, and nothing leads to them
    assert followed.rows == [{"id": "root", "parent": None, "below": []}]
    assert {type(op) for op in followed.ops} == {Remove, Drop}
    assert len(followed.view.operator) == 2
    move(rig, b="root")
    assert followed.rows == answer(nodes.where(nodes.parent.is_null()).nest(below=below), rig.rows())


def test_subtree_that_moves_below_a_new_node_in_one_batch_stays() -> None:
    rig = tree({"root": None, "a": "root", "b": "a", "c": "b", "d": "c"})
    followed = rig.follow(nodes.where(nodes.parent.is_null()).nest(below=below))
    move(rig, new="root", b="new", a=None)
    rig.apply([("nodes", {"id": "a", "parent": None}, None)])
    move(rig, c="new")
    assert [type(op) for op in followed.ops] == [Remove, Insert]
    assert followed.rows == answer(nodes.where(nodes.parent.is_null()).nest(below=below), rig.rows())


@pytest.mark.parametrize("seed", range(40))
def test_buckets_are_those_that_the_root_leads_to(seed: int) -> None:  # private: readers do not see others
    """Two edges from each node: shared nodes and cycles, which are cut off and closed again."""
    draw, names = random.Random(seed), [str(number) for number in range(8)]

    def row(name: str) -> dict[str, Any]:
        return {"id": name, "parent": draw.choice([*names, None]), "other": draw.choice([*names, None])}

    def both(node: Any) -> eddy.Query:
        return nodes.where(nodes.parent == node.id).nest(
            below=both, other=lambda row: nodes.where(nodes.id == row.other).nest(below=both)
        )

    rig = Rig({"nodes": ["id"]}, {"nodes": [row(name) for name in names]})
    query = nodes.where(nodes.id == "0").nest(below=both)
    followed = rig.follow(query)
    for _ in range(30):
        rig.apply(("nodes", None, row(name)) for name in draw.sample(names, draw.choice([1, 1, 2, 4])))
        fresh = rig.engine.open(query.syntax, shared=False)
        assert {bucket.id for bucket in fresh.operator._buckets.values()} == {
            bucket.id for bucket in followed.view.operator._buckets.values()
        }
        rig.engine.close(fresh)


def test_equal_numbers_of_different_types_lead_to_one_bucket() -> None:
    """Also in a snapshot, and in the one of a query that is opened later: an id is that of the value."""
    rows = [{"id": 1, "owner": 7}, {"id": 2, "owner": 7.0}, {"id": 3, "owner": float("inf")}]
    rig = Rig({"items": ["id"]}, {"items": rows})
    query = items.nest(same=lambda row: items.where(items.owner == row.owner))
    followed = rig.follow(query)
    assert followed.rows == answer(query, rig.rows())
    rig.apply([("items", rows[0], None), ("items", None, {"id": 4, "owner": float("-inf")})])
    assert followed.rows == answer(query, rig.rows())
    assert Followed(rig.engine, query, shared=False).buckets.entries.keys() >= followed.buckets.entries.keys()


def test_null_matches_no_null_of_rows_that_were_there_before() -> None:
    rows = [{"id": 1, "owner": None, "boss": None}]
    rig = Rig({"items": ["id"]}, {"items": rows})
    followed = rig.follow(items.where(lambda row: items.where(items.owner == row.boss).exists()))
    assert followed.rows == []
    rig.apply([("items", None, {"id": 1, "owner": 1, "boss": 1})])
    assert [row["id"] for row in followed.rows] == [1]


def test_rows_that_go_do_not_count_against_those_that_come_with_them() -> None:
    rig = tree({"a": None, "b": "x"} | {f"a{n}": "a" for n in range(5)} | {f"b{n}": "b" for n in range(5)})
    query = nodes.where(nodes.parent.is_null()).nest(below=below)
    view, buckets = rig.engine.open(query.syntax, max_rows=8), Buckets()
    buckets.apply(view.operator.snapshot())
    key = rig.key_of["nodes"]
    delta = {key({"id": name}): {"id": name, "parent": parent} for name, parent in (("a", "x"), ("b", None))}
    ((_, ops),) = rig.engine.apply({"nodes": delta})
    buckets.apply(ops)
    assert (view.operator.failure, view.operator.rows) == (None, 6)
    assert len(buckets.entries['below["b"]']) == 5


@pytest.mark.parametrize("value", [[True], {"a": True}, -0.0])
def test_change_to_an_equal_value_of_another_kind_is_a_change(value: Any) -> None:
    rig = Rig({"items": ["id"]}, {"items": [{"id": 1, "value": {list: [1], dict: {"a": 1}, float: 0.0}[type(value)]}]})
    followed = rig.follow(items)
    rig.apply([("items", None, {"id": 1, "value": value})])
    assert followed.ops == [Set("", 0, {"id": 1, "value": value})]


def test_sums_beyond_the_largest_float_are_infinite_and_come_back() -> None:
    rig = Rig({"items": ["id"]}, {"items": [{"id": 1, "size": 1.5e308}]})
    followed = rig.follow(items.aggregate(total=items.size.sum(), mean=items.size.avg()))
    rig.apply([("items", None, {"id": 2, "size": 1.5e308}), ("items", None, {"id": 3, "size": 10**309})])
    assert followed.rows == [{"total": float("inf"), "mean": float("inf")}]
    rig.apply([("items", {"id": 2}, None), ("items", {"id": 3}, None)])
    assert followed.rows == [{"total": 1.5e308, "mean": 1.5e308}]


@pytest.mark.parametrize(("gone", "left"), [(1, 1.0), (2, 1)])
def test_least_and_greatest_of_equal_numbers_are_those_of_the_rows(gone: int, left: float) -> None:
    rig = Rig({"items": ["id"]}, {"items": [{"id": 1, "size": 1}, {"id": 2, "size": 1.0}]})
    followed = rig.follow(items.aggregate(low=items.size.min(), high=items.size.max()))
    rig.apply([("items", {"id": gone}, None)])
    assert [type(value) for value in followed.rows[0].values()] == [type(left)] * 2


def test_rows_of_start_that_have_equal_json_are_different() -> None:
    rig = Rig({"items": ["id"]}, {"items": [{"id": 1, "size": 1.0}]})
    above = rig.follow(items.order_by(items.size).start({"size": float("-inf"), "id": 1}))
    beyond = rig.follow(items.order_by(items.size).start({"size": float("inf"), "id": 1}))
    assert (len(above.rows), len(beyond.rows)) == (1, 0)


def test_late_patch_has_the_change_of_a_kind() -> None:
    old: dict[str, list[Entry]] = {"": [({"id": 1, "x": 1}, {})]}
    new: dict[str, list[Entry]] = {"": [({"id": 1, "x": True}, {})]}
    assert difference(old, new) == [Remove("", 0), Insert("", 0, {"id": 1, "x": True})]


@pytest.mark.parametrize("seed", range(10))
def test_recursions_within_recursions_have_bounds_of_their_own(seed: int) -> None:
    """Three, each inside of the other, that lead back further out: also to levels that had been left."""

    def outer(row: Any) -> eddy.Query:
        return nodes.where(nodes.parent == row.id).nest(again=outer).nest(depth=2, middle=middle)

    def middle(row: Any) -> eddy.Query:
        found = nodes.where(nodes.other == row.id).nest(again=middle)
        return found.nest(depth=2, inner=inner).nest(out=outer)

    def inner(row: Any) -> eddy.Query:
        return nodes.where(nodes.other == row.parent).nest(again=inner).nest(middle=middle).nest(outer=outer)

    draw = random.Random(seed)
    rig = Rig({"nodes": ["id"]}, {"nodes": []})
    query = nodes.where(nodes.id == 0).nest(depth=3, tree=outer)
    followed = rig.follow(query)
    for _ in range(6):
        name, parent, other = (draw.randrange(4) for _ in range(3))
        rig.apply([("nodes", None, {"id": name, "parent": parent, "other": other})])
        assert followed.rows == answer(query, rig.rows())
