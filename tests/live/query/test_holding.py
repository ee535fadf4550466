"""The bytes that views hold: those of what goes with them, and about those that Python counts."""

import gc
import random
import tracemalloc
from typing import Any

import pytest

import eddy
from eddy.live.dataflow.dataflow import QueryOperator
from eddy.live.query import held_alone as holding
from eddy.live.query.engine import LiveQueries
from eddy.live.query.held_alone import held_alone
from eddy.live.query.planning import PlannedView
from tests.live.query.random_queries import KEYS, random_query, random_row
from tests.live.query.rig import Rig
from tests.seeds import of_today

nodes = eddy.live_table("nodes", key="id")


def read_by_somebody(engine: LiveQueries) -> set[QueryOperator]:
    """The operators, and the tables that one of them reads."""
    flow = engine.dataflow
    return {*flow.operators.values(), *(table for table in flow.tables.values() if table.dependents)}


def check_what_goes(seed: Any) -> None:
    draw = random.Random(seed)
    rig = Rig(KEYS, {name: [random_row(draw, name) for _ in range(20)] for name in KEYS})
    queries = [random_query(draw) for _ in range(5)]
    opened: list[PlannedView] = [rig.engine.open(draw.choice(queries).syntax) for _ in range(8)]
    draw.shuffle(opened)
    while opened:
        some = [opened.pop() for _ in range(draw.randrange(1, len(opened) + 1))]
        before, told = read_by_somebody(rig.engine), held_alone(some)
        sizes = {each: each.held_bytes() for each in before}
        for view in some:
            rig.engine.close(view)
        assert told == sum(sizes[each] for each in before - read_by_somebody(rig.engine))


@pytest.mark.parametrize("seed", [*range(20), *of_today(20)])
def test_bytes_of_views_are_those_of_what_goes_with_them(seed: int) -> None:
    check_what_goes(seed)


def test_operators_that_others_use_too_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        holding,
        "held_alone",
        lambda views: sum(each.held_bytes() for each in {op for view in views for op in view.operators}),
    )
    monkeypatch.setitem(globals(), "held_alone", holding.held_alone)
    with pytest.raises(AssertionError):
        check_what_goes(1)


@pytest.mark.parametrize(
    "query",
    [
        nodes.where(nodes.x > 10).order_by(nodes.text).limit(3),
        nodes.group_by(nodes.x).aggregate(n=nodes.id.count(), low=nodes.text.min()).limit(1),
        nodes.where(lambda row: nodes.where(nodes.x == row.id).exists()).limit(1),
        nodes.where(nodes.id == 3).nest(same=lambda row: nodes.where(nodes.x == row.x)),
    ],
    ids=repr,
)
def test_estimate_is_about_what_python_counts(query: eddy.Query) -> None:
    draw = random.Random(1)
    rows = {n: {"id": n, "x": draw.randrange(2_000), "text": "x" * draw.randrange(40)} for n in range(10_000)}
    rig = Rig({"nodes": ["id"]}, {"nodes": rows.values()})
    gc.collect()
    tracemalloc.start()
    try:
        view = rig.engine.open(query.syntax)
        gc.collect()
        counted, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    told = held_alone([view]) - rig.engine.tables["nodes"].held_bytes()
    assert counted / 2.5 < told < counted * 2.5
