"""Windows over tables that are not in memory: the rows of each case and of random queries, with any slack.

Where the first rows do not suffice, a window goes on over an order that is kept, and from there over one on disk.
"""

import random
from collections.abc import Iterable
from typing import Any

import pytest

import eddy
from eddy.live.dataflow import first_rows
from eddy.live.dataflow.first_rows import FirstRows
from eddy.live.dataflow.kept_order import KeptOrder
from eddy.live.dataflow.patch import Buckets
from eddy.live.dataflow.stored_map import StoredMap
from eddy.live.dataflow.stored_order import StoredOrdered
from eddy.live.dataflow.values import flat_key
from eddy.live.query.engine import LiveQueries
from eddy.live.query.planning import PlannedView, bounds_of, is_window
from eddy.live.query.renaming import renamed
from eddy.live.server.difference import difference
from eddy.state.spaces import Spaces
from tests.live.query.cases import CASES, as_list, query_of, without_nulls
from tests.live.query.random_queries import KEYS, random_changes, random_query, random_row
from tests.live.query.rig import Followed, Rig, Row
from tests.live.query.test_conformance import change_of
from tests.live.query.test_random import check, follow_through

WINDOWS = [case for case in CASES if is_window(query_of(case).syntax)]
SLACKS = [0, 1, 100]


class PassingRig(Rig):
    """A rig whose windows keep first rows, and are opened anew over an order where these do not suffice."""

    def __init__(self, keys: Any, tables: Any, most_positions: int = 1_000) -> None:
        super().__init__(keys, tables)
        self.renewals = 0
        spaces = Spaces()
        for name, rows in self.plain.items():
            self.engine.load_passing(name + "~", rows.items, name)
            stored: StoredMap[Row] = StoredMap(spaces.make())
            stored.fill(rows.items())
            self.engine.load_stored(name + "^", stored, spaces, name, most_positions)

    def follow(self, query: eddy.Query, *, shared: bool = True) -> Followed:
        name = query.syntax.table.name
        passing = renamed(query.syntax, {name: name + "~"})
        known = self.engine.first_rows(passing)
        if known and not any(each.covers(bounds_of(passing, each.position)) for each in known):
            return super().follow(eddy.Query(renamed(query.syntax, {name: name + "^"})), shared=shared)
        found = super().follow(eddy.Query(passing), shared=shared)
        assert isinstance(found.view.operator.root.level.ordered, FirstRows)
        return found

    def apply(self, changes: Iterable[tuple[str, Row | None, Row | None]]) -> dict[PlannedView, list[Any]]:
        found = super().apply(changes)
        spent = list(self.engine.spent)
        for followed in self.followed:
            if followed.view in spent:
                self.renew(followed)
        return found

    def take(self, changes: Iterable[tuple[str, Row | None, Row | None]]) -> dict[str, dict[Any, Row | None]]:
        deltas = super().take(changes)
        return {table + suffix: delta for table, delta in deltas.items() for suffix in ("", "~", "^")}

    def renew(self, followed: Followed, select: Any = None) -> None:
        """As the server does it: the difference to the rows of a new view, over the rows on disk."""
        self.renewals += 1
        again = select or followed.view.shape.select
        name = again.table.name
        view = self.engine.open(renamed(again, {name: name.replace("~", "^")}), shared=False)
        buckets = Buckets()
        buckets.apply(view.operator.snapshot())
        ops = difference(followed.buckets.entries, buckets.entries)
        self.engine.close(followed.view)
        followed.view = view
        followed.buckets.apply(ops)
        followed.ops = followed.ops + ops


def move(rig: PassingRig, followed: Followed, skip: int, limit: int | None) -> None:
    """Move a window, among the rows that are kept or not."""
    ops = rig.engine.move_window(followed.view, skip, limit)
    if ops is not None:
        followed.take(ops)
        return
    followed.ops = []
    select = followed.view.shape.select
    rig.renew(followed, eddy.Query(select).skip(skip).limit(limit if limit is not None else 1 << 20).syntax)


@pytest.mark.parametrize("slack", SLACKS)
@pytest.mark.parametrize("case", WINDOWS, ids=lambda case: case["name"])
def test_view_is_that_of_the_case_after_each_change(
    case: dict[str, Any], slack: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_rows, "slack_of", lambda limit, scanned: slack)
    keys = {name: table["key"] for name, table in case["tables"].items()}
    rig = PassingRig(keys, {name: table["rows"] for name, table in case["tables"].items()})
    followed = rig.follow(query_of(case), shared=False)
    steps = [without_nulls(step) for step in case["expected_steps"]]
    assert without_nulls(as_list(followed.rows)) == steps[0]
    for change, expected in zip(case["changes"], steps[1:], strict=False):
        if change["op"] == "window":
            move(rig, followed, change.get("skip") or 0, change.get("limit"))
        else:
            rig.apply([change_of(change)])
        assert without_nulls(as_list(followed.rows)) == expected


def play(seed: Any, batches: int = 8) -> int:
    """Follow some windows through some batches. Returns how often one was opened anew."""
    draw = random.Random(seed)
    rig = PassingRig(KEYS, {name: [random_row(draw, name) for _ in range(draw.randrange(25))] for name in KEYS})
    queries: list[eddy.Query] = []
    while len(queries) < 3:
        query = random_query(draw)
        if is_window(query.syntax):
            queries.append(query)
    for each in follow_through(rig, draw, queries, batches):
        rig.engine.close(each.view)
    assert len(rig.engine) == len(rig.engine.dataflow) == 0
    return rig.renewals


@pytest.mark.parametrize("slack", SLACKS)
def test_view_of_patches_is_the_naive_answer(slack: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_rows, "slack_of", lambda limit, scanned: slack)
    renewals = sum(play((seed, slack).__repr__()) for seed in range(40))
    assert bool(renewals) is (slack < 100)


@pytest.mark.long
@pytest.mark.parametrize("slack", SLACKS)
@pytest.mark.parametrize("seed", range(10))
def test_view_of_patches_is_the_naive_answer_in_many_cases(
    seed: int, slack: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_rows, "slack_of", lambda limit, scanned: slack)
    for number in range(100):
        play((seed, number, slack).__repr__())


docs = eddy.live_table("docs", key="id")
_key = flat_key(["id"])


def opened(rows: dict[Any, Row], query: eddy.Query) -> tuple[LiveQueries, PlannedView, FirstRows]:
    engine = LiveQueries()
    engine.load_passing("docs", rows.items, "docs")
    view = engine.open(query.syntax)
    kept = view.operator.root.level.ordered
    assert isinstance(kept, FirstRows)
    return engine, view, kept


def test_rows_that_are_kept_are_bounded_and_others_are_read_once_the_slack_is_used_up() -> None:
    rows = {_key({"id": i}): {"id": i} for i in range(1_000)}
    engine, view, kept = opened(rows, docs.order_by(docs.id).limit(50))
    assert kept.row_count() == 150
    for i in range(1, 1_001):  # rows that come before all others
        engine.apply({"docs": {_key({"id": -i}): {"id": -i}}})
        assert kept.row_count() <= 250
        assert not engine.spent
    lows = []
    for i in range(1_000, 800, -1):
        patches = engine.apply({"docs": {_key({"id": -i}): None}})
        assert bool(patches) is not view.operator.is_short
        lows.append((view.operator.is_low, view.operator.is_short))
    assert lows == sorted(lows)
    assert {(False, False), (True, False), (True, True)} == set(lows)
    assert lows.index((True, True)) - lows.index((True, False)) == 80
    assert not engine.has_begun(docs.order_by(docs.id).limit(50).syntax)


def test_row_that_a_window_starts_after_is_not_counted_as_one_of_its_rows() -> None:
    rows = {_key({"id": i}): {"id": i} for i in range(500)}
    engine, view, kept = opened(rows, docs.order_by(docs.id).start({"id": 0}).limit(2))
    assert kept.row_count() == 103
    engine.apply({"docs": {_key({"id": i}): None for i in range(2, 103)}})  # of its rows there is one, 103 is not kept
    assert (view.operator.is_short, engine.spent) == (True, [view])


def test_query_that_needs_other_rows_cannot_read_a_passing_table() -> None:
    engine = LiveQueries()
    engine.load_passing("docs", tuple, "docs")
    for query in (docs, docs.count(), docs.limit(1).nest(same=lambda row: docs.where(docs.id == row.id))):
        assert not is_window(query.syntax)
        with pytest.raises(eddy.QueryError, match="only windows can read it"):
            engine.open(query.syntax)
    assert len(engine.dataflow) == 0


def moved_through(seed: int) -> set[type]:
    """A window that moves while rows change: deletions before, inside and after it, ties, nulls. Returns its orders."""
    draw = random.Random(seed)
    most = draw.choice([5, 20, 1_000])
    rig = PassingRig(KEYS, {name: [random_row(draw, name) for _ in range(draw.randrange(12))] for name in KEYS}, most)
    query = random_query(draw)
    while not is_window(query.syntax) or query.syntax.pluck is not None or query.syntax.one:
        query = random_query(draw)
    followed = rig.follow(query, shared=False)
    seen: set[type] = set()
    for _ in range(12):
        if draw.random() < 0.4:
            query = query.skip(draw.randrange(15)).limit(draw.randrange(8))
            move(rig, followed, query.syntax.skip, query.syntax.limit)
        seen.add(type(followed.view.operator.root.level.ordered))
        check(rig, followed, query)
        changes = random_changes(draw, rig.rows(), draw.choice([1, 2, 6]))
        table = query.syntax.table.name
        gone = draw.sample(rig.rows()[table], k=min(len(rig.rows()[table]), draw.randrange(3)))
        rig.apply([*changes, *((table, row, None) for row in gone)])
        check(rig, followed, query)
    rig.engine.close(followed.view)
    assert len(rig.engine) == len(rig.engine.dataflow) == 0
    return seen


@pytest.mark.parametrize("slack", [0, 4])
def test_window_that_moves_goes_from_first_rows_to_an_order_that_is_kept(
    slack: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_rows, "slack_of", lambda limit, scanned: slack)
    found = [moved_through(seed) for seed in range(120)]
    assert set().union(*found) == {FirstRows, KeptOrder, StoredOrdered}


def test_order_that_is_kept_has_its_positions_in_memory_while_the_table_has_few_rows() -> None:
    spaces = Spaces()
    rig = Rig({"docs": ["id"]}, {"docs": []}, spaces)
    rig.engine.tables["docs"].most_positions = 10
    followed = rig.follow(docs.order_by(-docs.id).skip(2).limit(3))
    for number in range(11):
        assert not rig.engine.spent
        rig.apply([("docs", None, {"id": number})])
        assert [row["id"] for row in followed.rows] == list(range(number - 2, max(-1, number - 5), -1))
    assert rig.engine.spent == [followed.view]
    again = rig.follow(docs.order_by(-docs.id).skip(2).limit(3))
    kinds = [type(each.view.operator.root.level.ordered) for each in (followed, again)]
    assert (kinds, again.rows == followed.rows) == ([KeptOrder, StoredOrdered], True)


def test_windows_of_one_order_share_their_first_rows() -> None:
    rows = {_key({"id": i}): {"id": i} for i in range(5_000)}
    engine, view, kept = opened(rows, docs.order_by(docs.id).limit(50))
    other = engine.open(docs.order_by(docs.id).skip(20).limit(30).syntax)
    assert (other.operator.root.level.ordered, kept.needed) == (kept, 50)
    wider = engine.open(docs.order_by(docs.id).skip(500).limit(10).syntax, shared=False)
    assert ([op.row["id"] for op in wider.operator.snapshot()][:2], kept.needed) == ([500, 501], 510)  # type: ignore[union-attr]
    assert engine.move_window(wider, 600, 0) is None  # of 550 rows that are kept
    engine.close(wider)
    assert kept.needed == 50
    with pytest.raises(eddy.NotReadyError, match="too few rows are kept"):
        engine.open(docs.order_by(docs.id).skip(600).limit(1).syntax)
    engine.close(other)
    engine.close(view)
    assert len(engine.dataflow) == 0
