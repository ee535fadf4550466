"""Random queries over random changes: the view made of patches alone is the naive answer, after each batch."""

import random
from typing import Any

import pytest

import eddy
from eddy.operators.views import positions
from eddy.topology.queries.naive import evaluate
from tests.queries.random_queries import KEYS, random_changes, random_query, random_row
from tests.queries.rig import Followed, Rig


def rig_of(draw: random.Random) -> Rig:
    rows = {name: [random_row(draw, name) for _ in range(draw.randrange(25))] for name in KEYS}
    return Rig(KEYS, rows)


def canonical(found: Any) -> Any:
    """Text of a result that tells 1 from True, whatever the order of columns."""
    if isinstance(found, dict):
        return {name: canonical(found[name]) for name in sorted(found)}
    return [canonical(each) for each in found] if isinstance(found, list) else repr(found)


def check(rig: Rig, followed: Followed, query: eddy.Query) -> None:
    assert canonical(followed.rows) == canonical(evaluate(query.syntax, rig.rows())), query


def play(seed: Any, *, batches: int = 8) -> None:
    """Follow some queries at once through some batches."""
    draw = random.Random(seed)
    rig = rig_of(draw)
    queries = [random_query(draw) for _ in range(3)]
    followed = [rig.follow(query) for query in queries]
    for _ in range(batches):
        for each, query in zip(followed, queries, strict=True):
            check(rig, each, query)
        rig.apply(random_changes(draw, rig.rows(), draw.choice([1, 1, 2, 6])))
    for each in followed:
        again = Followed(rig.engine, eddy.Query(each.view.shape.select), shared=False)
        assert again.buckets.entries == {b: rows for b, rows in each.buckets.entries.items() if rows}
        rig.engine.close(again.view)
        rig.engine.close(each.view)
    assert len(rig.engine) == len(rig.engine._dataflow) == 0  # nothing is kept for queries that are closed


@pytest.mark.parametrize("seed", range(150))
def test_view_of_patches_is_the_naive_answer(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", range(50))
def test_it_is_with_sorted_rows_in_short_runs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "_RUN", 2)
    monkeypatch.setattr(positions, "_FEW", 1)
    play(f"runs {seed}")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_view_of_patches_is_the_naive_answer_in_ten_thousand_cases(seed: int) -> None:
    for number in range(34):
        play((seed, number).__repr__())
