"""Queries that begin beside the others: their rows are right whatever has changed meanwhile, and from then on."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

import eddy
from eddy.live.dataflow.patch import Buckets
from eddy.live.dataflow.window import in_order
from eddy.live.query import long_opening
from eddy.live.query.long_opening import LongOpening, is_long
from eddy.live.query.nested import nested
from eddy.live.query.planning import PlannedView
from tests.live.query.oracle import answer
from tests.live.query.random_queries import KEYS, items, random_changes, random_query, random_row
from tests.live.query.rig import Rig
from tests.live.query.test_random import canonical


def shown(view: PlannedView, buckets: Buckets) -> Any:
    return canonical(nested(buckets.entries, view.shape, view.operator.root.id))


def join_while_rows_change(
    draw: random.Random, rig: Rig, query: eddy.Query[Any], keeps_all: bool = True
) -> tuple[PlannedView, Buckets]:
    """Begin a query aside, with changes of rows at each of its steps. Returns its view, and its rows so far.

    An order that does not keep all places refuses some moves of its window; the query then begins anew, as at a server.
    """
    begun, now = query.syntax, query.syntax
    if draw.random() < 0.5 and not (now.aggregates and not now.group):  # its window is moved meanwhile
        begun = replace(now, skip=draw.randrange(4), limit=draw.choice([None, *range(5)]))
    aside = LongOpening(rig.engine, begun)
    rig.apply(random_changes(draw, rig.rows(), draw.randrange(4)))
    view, buckets = aside.open(1_000_000), Buckets()
    buckets.apply(view.operator.snapshot())
    for _ in range(draw.randrange(3)):
        rig.apply(random_changes(draw, rig.rows(), 2))
    try:
        for ops in aside.join(now.skip, now.limit):
            buckets.apply(ops)
    except eddy.NotReadyError as error:
        aside.close()
        if keeps_all or "rows that are not kept" not in str(error):
            raise
        return join_while_rows_change(draw, rig, query, keeps_all)
    aside.close()
    assert shown(view, buckets) == canonical(answer(query, rig.rows()))
    return view, buckets


@pytest.mark.parametrize("seed", range(80))
def test_view_is_the_naive_answer_after_it_has_joined(seed: int) -> None:
    draw = random.Random(seed)
    rig = Rig(KEYS, {name: [random_row(draw, name) for _ in range(20)] for name in KEYS})
    query = random_query(draw)
    others = [rig.follow(each) for each in draw.sample([query, random_query(draw), random_query(draw)], 2)]
    view, buckets = join_while_rows_change(draw, rig, query)
    later = rig.follow(query)  # shares its operators
    for _ in range(5):
        buckets.apply(rig.apply(random_changes(draw, rig.rows(), 3)).get(view, []))
        expected = canonical(answer(query, rig.rows()))
        assert shown(view, buckets) == expected == canonical(later.rows)
    for each in (view, later.view, *(other.view for other in others)):
        rig.engine.close(each)
    assert len(rig.engine) == len(rig.engine.dataflow) == 0
    assert [journal for table in rig.engine.tables.values() for journal in table.journals] == []


def test_nothing_is_changed_before_it_joins_and_a_table_that_was_read_anew_is_an_error() -> None:
    rig = Rig(KEYS, {name: [] for name in KEYS})
    aside = LongOpening(rig.engine, items.order_by(items.size).syntax)
    aside.open(10)
    assert len(rig.engine) == len(rig.engine.dataflow) == 0
    rig.engine.unload("items")
    rig.engine.load("items", {})
    with pytest.raises(eddy.NotReadyError, match="table 'items' has to be read anew"):
        aside.join(0, None)
    aside.close()
    assert len(rig.engine) == len(rig.engine.dataflow) == 0


def test_query_whose_rows_become_too_many_meanwhile_does_not_join() -> None:
    rig = Rig(KEYS, {name: [] for name in KEYS})
    aside = LongOpening(rig.engine, items.syntax)
    aside.open(2)
    rig.apply([("items", None, {"id": number}) for number in range(3)])
    with pytest.raises(eddy.QueryError, match="more than 2 rows"):
        aside.join(0, None)
    aside.close()
    assert len(rig.engine) == len(rig.engine.dataflow) == 0


def test_it_is_long_where_operators_over_many_rows_are_to_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_opening, "LONG_ROWS", 5)
    rig = Rig(KEYS, {"items": [{"id": n} for n in range(5)], "parts": [], "nodes": [{"id": n} for n in range(4)]})
    query = items.where(items.id > 2).order_by(items.size)
    assert is_long(rig.engine, query.syntax)
    assert not is_long(rig.engine, eddy.live_table("nodes", key="id").syntax)
    rig.follow(query.limit(3))
    assert not is_long(rig.engine, query.syntax)
    assert is_long(rig.engine, query.order_by(-items.size).syntax)


def test_many_positions_are_in_order() -> None:
    draw = random.Random(1)
    positions = [(3, draw.random(), 3, number) for number in range(120_001)]
    assert in_order(positions) == sorted(positions)
