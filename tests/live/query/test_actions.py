"""Actions: the effect of each change on a view, and the rows of its buckets by them."""

import random
from typing import Any

import pytest

import eddy
from eddy.live.dataflow.values import key_of, values_of
from tests.live.query.random_queries import KEYS, random_changes, random_query, random_row
from tests.live.query.rig import Followed, Rig

items = eddy.live_table("items", key="id")
QUERY = items.where(items.kind == "a").order_by(items.place).skip(1).limit(2)


def logged(rig: Rig, query: eddy.Query) -> Followed:
    followed = rig.follow(query)
    rig.engine.log(followed.view)
    return followed


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"id": 1, "kind": "a", "place": 11}, {("update", 1, True)}),
        ({"id": 1, "kind": "a", "place": 21}, {("move", 1, True), ("move", 2, False)}),
        ({"id": 1, "kind": "b", "place": 10}, {("remove", 1, True), ("insert", 3, False)}),
        ({"id": 9, "kind": "a", "place": 15}, {("insert", 9, True), ("remove", 2, False)}),
        ({"id": 9, "kind": "a", "place": -1}, {("insert", 0, False), ("remove", 2, False), ("nothing", 9, True)}),
        ({"id": 9, "kind": "a", "place": 99}, {("nothing", 9, True)}),
        ({"id": 9, "kind": "b", "place": 15}, {("nothing", 9, True)}),
    ],
)
def test_change_has_the_effect_of_its_place_and_is_never_a_recomputation(
    row: dict[str, Any], expected: set[tuple[str, int, bool]]
) -> None:
    rig = Rig({"items": ["id"]}, {"items": [{"id": n, "kind": "a", "place": n * 10} for n in range(4)]})
    followed = logged(rig, QUERY)
    rig.apply([("items", None, row)])
    found = {(each.action, each.key[0], each.own) for each in rig.engine.actions[followed.view]}
    if ("move", 2, False) in expected:  # of two that change places, either one has moved
        assert {("move", 1, True)} <= found <= expected
    else:
        assert found == expected
    rig.apply([("items", None, row)])
    assert rig.engine.actions[followed.view] == []  # it was so already


@pytest.mark.parametrize("seed", range(30))
def test_rows_of_a_bucket_are_those_before_with_the_actions(seed: int) -> None:
    draw = random.Random(seed)
    rig = Rig(KEYS, {name: [random_row(draw, name) for _ in range(20)] for name in KEYS})
    followed = [logged(rig, random_query(draw)) for _ in range(3)]

    def rows(each: Followed) -> dict[Any, set[Any]]:
        return {
            bucket: {values_of(key_of(position)) for position in bucket.positions()}
            for bucket in each.view.operator.buckets()
        }

    for _ in range(8):
        before = [rows(each) for each in followed]
        changes = random_changes(draw, rig.rows(), 4)
        rig.apply(changes)
        for each, was in zip(followed, before, strict=True):
            actions, now = rig.engine.actions[each.view], rows(each)
            for bucket in was.keys() & now.keys():
                of = [action for action in actions if action.bucket == bucket.id]
                come = {action.key for action in of if action.action == "insert"}
                gone = {action.key for action in of if action.action == "remove"}
                assert (was[bucket] - gone) | come == now[bucket]
                assert (come.isdisjoint(was[bucket]), gone <= was[bucket]) == (True, True)
                assert {action.key for action in of} - come - gone <= now[bucket]


def test_views_that_are_closed_are_logged_no_more() -> None:
    rig = Rig({"items": ["id"]}, {"items": []})
    followed = logged(rig, QUERY)
    rig.engine.close(followed.view)
    rig.engine.apply({"items": {rig.key_of["items"]({"id": 1}): {"id": 1, "kind": "a", "place": 1}}})
    assert rig.engine.actions == {}
