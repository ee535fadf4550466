"""Each conformance case, kept up to date: one change after the other, all in one batch, and in random cuts."""

import random
from typing import Any

import pytest

from eddy.live.dataflow.patch import Drop, Insert, Move, Remove
from tests.live.query.cases import CASES, as_list, query_of, windowed, without_nulls
from tests.live.query.rig import Followed, Rig


def rig_of(case: dict[str, Any]) -> tuple[Rig, Followed]:
    rig = Rig(
        {name: table["key"] for name, table in case["tables"].items()},
        {name: table["rows"] for name, table in case["tables"].items()},
    )
    return rig, rig.follow(query_of(case), shared=False)


def change_of(change: dict[str, Any]) -> tuple[str, Any, Any]:
    op, row = change["op"], change["row"]
    return (
        change["table"],
        change.get("old") if op == "edit" else row if op == "remove" else None,
        (None if op == "remove" else row),
    )


def feed(rig: Rig, followed: Followed, batch: list[dict[str, Any]]) -> None:
    """Apply a batch; a window that moves is a batch of its own."""
    rows: list[dict[str, Any]] = []
    for change in [*batch, None]:
        if change is not None and change["op"] != "window":
            rows.append(change)
            continue
        rig.apply(map(change_of, rows))
        rows = []
        if change is not None:
            followed.take(rig.engine.move_window(followed.view, change.get("skip") or 0, change.get("limit")))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_view_is_that_of_the_case_after_each_change(case: dict[str, Any]) -> None:
    rig, followed = rig_of(case)
    steps = [without_nulls(step) for step in case["expected_steps"]]
    assert without_nulls(as_list(followed.rows)) == steps[0]
    for change, before, expected in zip(case["changes"], steps, steps[1:], strict=False):
        rig.apply([change_of(change)]) if change["op"] != "window" else feed(rig, followed, [change])
        assert without_nulls(as_list(followed.rows)) == expected
        if expected == before and "'via'" not in repr(case["query"]):  # rows of a junction are not shown
            assert [op for op in followed.ops if isinstance(op, Insert | Remove | Move | Drop)] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_any_cut_into_batches_ends_the_same(case: dict[str, Any]) -> None:
    draw = random.Random(case["name"])
    changes, steps = case["changes"], case["expected_steps"]
    for cuts in ([], *(sorted(draw.sample(range(len(changes)), k=min(len(changes), n))) for n in (1, 2))):
        rig, followed = rig_of(case)
        for begin, end in zip([0, *cuts], [*cuts, len(changes)], strict=True):
            feed(rig, followed, changes[begin:end])
            assert without_nulls(as_list(followed.rows)) == without_nulls(steps[end])


def test_window_of_a_query_is_moved_as_one_that_is_opened_so() -> None:
    case = next(case for case in CASES if any(change["op"] == "window" for change in case["changes"]))
    change = next(change for change in case["changes"] if change["op"] == "window")
    rig, followed = rig_of(case)
    feed(rig, followed, [change])
    assert followed.rows == rig.follow(windowed(query_of(case), change)).rows
