"""Random SQL with and without recursion: eddy answers as DuckDB does, or refuses by name; four in five are answered.

Each query is asked both ways: by functions over whole tables, where it is suitable, and by the circuit of its view.
"""

import random
import re
from collections import Counter

import duckdb
import pytest

import eddy
from eddy.topology.sql import recursive_queries as recursive
from eddy.topology.sql.once.batch_compiler import BatchCompiler
from eddy.topology.sql.statement_compiler import StatementCompiler
from tests.seeds import of_today, parts_of
from tests.sql import both_ways, duck, random_queries

pytestmark = pytest.mark.slow

LARGEST = 20_000
"""The rows of an answer from which on a query is not asked."""


def reason(error: eddy.TopologyError) -> str:
    """The refusal without its place, its names and its numbers."""
    _, _, said = str(error).partition(": ")
    return re.sub(r"\d+", "n", re.sub(r"'[^']*'", "…", said)).split(";")[0]


class Judge:
    """Asks both engines, and counts."""

    def __init__(self) -> None:
        self._duck = duck.Duck()
        self.seen: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def wrong(self, seed: int) -> str:
        """The query of a seed, if it is answered otherwise than by DuckDB; else nothing."""
        dice = random.Random(seed)
        tables, text = random_queries.tables(dice), random_queries.query(dice)
        self._duck.fill(tables)
        try:
            expected = self._duck.answer(text)
        except duckdb.Error:
            self.seen["refused by DuckDB"] += 1
            return ""
        if expected.total() > LARGEST:
            self.seen["too large"] += 1
            return ""
        try:
            found = duck.bag(eddy.query(text, tables).rows)
            if found == expected and not both_ways.has_order(text, tables):
                found = duck.bag(both_ways.by_circuit(text, tables))
                self.seen["asked at once"] += both_ways.at_once(text, tables) is not None
        except eddy.TopologyError as error:
            self.refused[reason(error)] += 1
            return ""
        except eddy.EddyError as error:
            return f"{text}\n{tables}\n{error!r}"
        self.seen["answered"] += 1
        return "" if found == expected else f"{text}\n{tables}\n{found}\n{expected}"

    def told(self) -> str:
        """All counts, one a line."""
        lines = [f"{number:6} {what}" for what, number in self.seen.most_common()]
        return "\n".join([*lines, *(f"{number:6} refused: {why}" for why, number in self.refused.most_common())])


@pytest.mark.parametrize("seeds", [of_today(300), *parts_of(of_today(10_000), 20)], ids=str)
def test_random_queries_are_answered_as_duckdb_does(seeds: range) -> None:
    judge = Judge()
    wrong = [(seed, said) for seed in seeds if (said := judge.wrong(seed))]
    print(judge.told())
    assert wrong == []
    assert judge.seen["answered"] >= 0.8 * (judge.seen["answered"] + judge.refused.total()), judge.told()
    assert judge.seen["answered"] + judge.refused.total() > 0.9 * len(seeds), judge.told()
    assert judge.seen["asked at once"] > 0.75 * judge.seen["answered"], judge.told()


def test_a_step_that_is_not_checked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    unchecked = lambda step, of, refuse: [of]  # noqa: E731
    monkeypatch.setattr(recursive, "linear_references", unchecked)
    judge = Judge()
    assert any(judge.wrong(seed) for seed in range(1_000, 1_400))


def test_groups_that_keep_their_key_are_found(monkeypatch: pytest.MonkeyPatch) -> None:  # private: planted
    group = StatementCompiler._group
    monkeypatch.setattr(StatementCompiler, "_group", lambda self, node: (group(self, node)[0], "_, row"))
    judge = Judge()
    assert any(judge.wrong(seed) for seed in range(1_200, 1_400))


def test_matches_that_are_counted_once_are_found(monkeypatch: pytest.MonkeyPatch) -> None:  # private: planted
    index = BatchCompiler._index

    def once(*args: object) -> object:
        table, weighted = index(*args)
        scope = args[-1].of(args[1])
        if not args[3]:
            scope.steps.append(lambda: table.rows.update(dict.fromkeys(table.rows, 1)))
        return table, weighted

    monkeypatch.setattr(BatchCompiler, "_index", once)
    judge = Judge()
    assert any(judge.wrong(seed) for seed in range(1_000, 1_400))
