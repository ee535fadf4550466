"""Plans: rows and costs are those of the operators, and a filter begins at the side that has fewer rows."""

from typing import Any

import pytest

import eddy
from eddy.live.query.explain import QueryPlan, explain
from tests.live.query.oracle import answer
from tests.live.query.rig import Rig

issues = eddy.live_table("issues", key="id")
notes = eddy.live_table("notes", key="id")

LOUD = issues.where(lambda issue: notes.where(notes.issue == issue.id, notes.loud == True).exists())  # noqa: E712


def rig_of(issue_count: int, noted: int) -> Rig:
    """Issues, the first of which have two loud notes each; all have a note that is not."""
    rows: list[dict[str, Any]] = [{"id": f"{n}{k}", "issue": n, "loud": True} for n in range(noted) for k in "ab"]
    rows += [{"id": f"{n}c", "issue": n, "loud": False} for n in range(issue_count)]
    return Rig({"issues": ["id"], "notes": ["id"]}, {"issues": [{"id": n} for n in range(issue_count)], "notes": rows})


def plan_of(rig: Rig, query: eddy.Query) -> QueryPlan:
    followed = rig.follow(query)
    assert followed.rows == answer(query, rig.rows())
    return explain(followed.view)


def steps(plan: QueryPlan) -> list[QueryPlan]:
    return [plan, *(step for each in plan.reads for step in steps(each))]


def step(plan: QueryPlan, beginning: str) -> QueryPlan:
    return next(each for each in steps(plan) if each.step.startswith(beginning))


@pytest.mark.parametrize(
    ("query", "noted", "cost", "note"),
    [
        (LOUD, 3, 3, "child-first: began with 3 rows that notes led to, fewer than all of issues"),
        (LOUD.where(issues.id > 0), 3, 3, "child-first"),
        (LOUD, 100, 100, "parent-first: no exists led to fewer rows than the 100 of issues"),
        (
            issues.where(lambda i: ~notes.where(notes.issue == i.id).exists()),
            3,
            100,
            "parent-first: no exists is required",
        ),
        (issues.where(lambda i: notes.where(notes.issue == i.id).exists() | (i.id > 9)), 3, 100, "parent-first: no"),
    ],
)
def test_condition_is_evaluated_for_the_rows_of_the_side_that_has_fewer(
    query: eddy.Query, noted: int, cost: int, note: str
) -> None:
    found = step(plan_of(rig_of(100, noted), query), "filter")
    assert found.cost == cost
    assert found.note.startswith(note)


def test_of_two_that_have_to_hold_the_one_that_leads_to_fewer_rows_is_the_start() -> None:
    quiet = LOUD.where(lambda issue: notes.where(notes.issue == issue.id, notes.loud == False).exists())  # noqa: E712
    plan = plan_of(rig_of(100, 7), quiet)
    assert (step(plan, "filter").cost, step(plan, "filter").rows) == (7, 7)
    counts = [each for each in steps(plan) if each.step.startswith("count")]
    assert [each.note for each in counts] == ["leads to 7 rows", "leads to 100 rows"]


def test_operators_of_other_queries_cost_nothing_again() -> None:
    rig = rig_of(10, 2)
    first = plan_of(rig, LOUD.order_by(issues.id).limit(5))
    again = plan_of(rig, LOUD.order_by(issues.id).limit(1))
    assert (step(first, "sort").cost, step(first, "filter").cost) == (2, 2)
    assert (step(again, "sort").cost, step(again, "filter").cost) == (0, 0)
    assert step(again, "sort").note == "shared with other queries"
    assert again.total_cost() == 2  # the row of the window, in the window and in the view


def test_plan_of_a_tree_and_of_groups_names_each_level_once() -> None:
    rows = [{"id": n, "parent": (n - 1) // 2 if n else None} for n in range(7)]
    rig = Rig({"nodes": ["id"]}, {"nodes": rows})
    nodes = eddy.live_table("nodes", key="id")

    def children(node: Any) -> eddy.Query:
        return nodes.where(nodes.parent == node.id).order_by(-nodes.id).nest(children=children)

    tree = nodes.where(nodes.id == 0).nest(
        children=children, by_parent=lambda node: nodes.where(nodes.id == node.id).group_by(nodes.parent).count()
    )
    assert str(plan_of(rig, tree)) == "\n".join(
        [
            "view: rows 8, cost 8; buckets: 9",
            "  window of id = 0: rows 1, cost 1; buckets: 1",
            "    sort nodes by key: rows 7, cost 7",
            "      table nodes: rows 7, cost 0",
            "    nest children: window: rows 6, cost 6; buckets: 7",
            "      sort nodes by -id: rows 6, cost 6",
            "        table nodes: rows 7, cost 0",
            "      nest children by id: the level above again: rows 0, cost 0",
            "    nest by_parent: window: rows 1, cost 1; buckets: 1",
            "      sort groups of nodes: rows 7, cost 7",
            "        groups by parent: rows 7, cost 7",
            "          table nodes: rows 7, cost 0",
        ]
    )
