"""Random queries over random changes: the view made of patches alone is the answer of the oracle, after each batch."""

import random
from typing import Any

import pytest

import eddy
from eddy.live.dataflow import groups
from eddy.live.dataflow import row_positions as positions
from eddy.live.dataflow.nest_levels import AT, Level
from eddy.live.dataflow.values import Row
from tests.live.query.oracle import answer
from tests.live.query.random_queries import KEYS, random_changes, random_query, random_row
from tests.live.query.rig import Followed, Rig
from tests.seeds import of_today


def rig_of(draw: random.Random) -> Rig:
    rows = {name: [random_row(draw, name) for _ in range(draw.randrange(25))] for name in KEYS}
    return Rig(KEYS, rows)


def canonical(found: Any) -> Any:
    """Text of a result that tells 1 from True, whatever the order of columns."""
    if isinstance(found, dict):
        return {name: canonical(found[name]) for name in sorted(found)}
    return [canonical(each) for each in found] if isinstance(found, list) else repr(found)


def check(rig: Rig, followed: Followed, query: eddy.Query) -> None:
    assert canonical(followed.rows) == canonical(answer(query, rig.rows())), query


def follow_through(rig: Rig, draw: random.Random, queries: list[eddy.Query], batches: int) -> list[Followed]:
    """Follow queries, and check each after each batch of random changes."""
    followed = [rig.follow(query) for query in queries]
    for _ in range(batches):
        for each, query in zip(followed, queries, strict=True):
            check(rig, each, query)
        rig.apply(random_changes(draw, rig.rows(), draw.choice([1, 1, 2, 6])))
    return followed


def play(seed: Any, *, batches: int = 8) -> None:
    """Follow some queries at once through some batches."""
    draw = random.Random(seed)
    rig = rig_of(draw)
    queries = [random_query(draw) for _ in range(3)]
    for each in follow_through(rig, draw, queries, batches):
        again = Followed(rig.engine, eddy.Query(each.view.shape.select), shared=False)
        assert again.buckets.entries == {b: rows for b, rows in each.buckets.entries.items() if rows}
        rig.engine.close(again.view)
        rig.engine.close(each.view)
    assert len(rig.engine) == len(rig.engine.dataflow) == 0  # nothing is kept for queries that are closed


@pytest.mark.parametrize("seed", [*range(130), *of_today(20)])
def test_view_of_patches_is_the_answer_from_scratch(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", range(50))
def test_it_is_with_sorted_rows_in_short_runs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "RUN", 2)
    monkeypatch.setattr(positions, "SHORT_RUN", 1)
    play(f"runs {seed}")


def of_shown_columns(self: Level, row: Row) -> Row:
    """As if a position were that of the columns that are shown."""
    shown = row if self.columns is None else {column: row[column] for column in self.columns if column in row}
    return {**shown, AT: self.ordered.position(shown).hex()} if self.is_plucked else shown


def without_zero_sign(value: Any) -> str:
    """As if 0.0 and -0.0 were one."""
    return "3" if isinstance(value, float) else "2"


def play_all(seeds: range) -> None:
    for seed in seeds:
        play(seed)


@pytest.mark.parametrize(
    ("of", "name", "planted"), [(Level, "shown", of_shown_columns), (groups, "spelling", without_zero_sign)]
)
def test_mistakes_are_found(of: Any, name: str, planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of, name, planted)
    with pytest.raises(AssertionError):
        play_all(range(150))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_view_of_patches_is_the_answer_from_scratch_in_ten_thousand_cases(seed: int) -> None:
    for number in range(34):
        play((seed, number).__repr__())
