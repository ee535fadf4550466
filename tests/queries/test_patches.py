"""Patches: rows that change places, subtrees that move, and parts of a tree that nothing leads to any more."""

import itertools
import random
from typing import Any

import pytest

import eddy
from eddy.operators.views.patch import Drop, Insert, Move, Remove, Set
from eddy.topology.queries.naive import evaluate
from tests.queries.rig import Rig

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
    assert followed.rows == evaluate(query.syntax, rig.rows())
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
    assert followed.rows == evaluate(nodes.where(nodes.parent.is_null()).nest(below=below).syntax, rig.rows())


def test_subtree_that_moves_below_a_new_node_in_one_batch_stays() -> None:
    rig = tree({"root": None, "a": "root", "b": "a", "c": "b", "d": "c"})
    followed = rig.follow(nodes.where(nodes.parent.is_null()).nest(below=below))
    move(rig, new="root", b="new", a=None)
    rig.apply([("nodes", {"id": "a", "parent": None}, None)])
    move(rig, c="new")
    assert [type(op) for op in followed.ops] == [Remove, Insert]
    assert followed.rows == evaluate(nodes.where(nodes.parent.is_null()).nest(below=below).syntax, rig.rows())


@pytest.mark.parametrize("seed", range(40))
def test_buckets_are_those_that_the_root_leads_to(seed: int) -> None:
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
