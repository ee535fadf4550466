"""Random topologies and records: Kafka Streams and eddy write and keep what their rules say, record by record.

`meaning.py` has what a step computes, for both. `streams_rules.py` and `eddy_rules.py` have the rules in which they
differ, each predicted exactly: values, times, headers, the order of each key's records, and stores at the end.
"""

from typing import Any

import pytest

import eddy
from eddy.errors import DataError
from eddy.operators import join
from eddy.operators.batch import EMPTY
from eddy.operators.windows import assignment
from eddy.state.table_state import Table
from tests.seeds import of_today, parts_of
from tests.streams_oracle import eddy_rules, in_eddy, random_cases, streams_rules
from tests.streams_oracle.case import Case
from tests.streams_oracle.comparison import Comparison, differs, shortened
from tests.streams_oracle.oracle import Oracle

pytestmark = pytest.mark.xdist_group("streams-oracle")


@pytest.mark.parametrize("seeds", [of_today(200), *parts_of(of_today(2_000), 10)], ids=str)
def test_both_follow_their_rules(oracle: Oracle, seeds: range) -> None:
    comparison = Comparison(oracle)
    wrong = [(seed, told) for seed in seeds if (told := comparison.wrong(random_cases.case(seed)))]
    print(comparison.told())
    assert wrong == [], "\n".join(f"seed {seed}: {told}" for seed, told in wrong)
    assert comparison.seen["steps that both write the same of"] > len(seeds), comparison.told()


def test_all_steps_are_drawn_and_write_records() -> None:
    written, chosen, folds = set(), set(), set()
    for case in map(random_cases.case, range(300)):
        for step, out in zip(case.steps, streams_rules.answer(case).out, strict=True):
            if out:
                written.add(step["op"])
                chosen |= {part for part, value in step.items() if value is not False}
                folds.add((step["op"], step.get("fold")))
    assert {*random_cases.OF_STREAM, *random_cases.OF_TABLE} <= written
    assert {"bare", "child", "g", "keyed", "looks", "maintained", "once", "routed", "shares", "timed"} <= chosen
    assert {("windowed", "cogroup"), ("sessions", "cogroup"), ("sliding", "cogroup")} <= folds


def found(seeds: range) -> bool:
    return any(is_wrong(random_cases.case(seed)) for seed in seeds)


def is_wrong(case: Case) -> bool:
    """Whether eddy's answer is not that of its rules, or eddy has noticed the error itself."""
    try:
        return differs(in_eddy.answer, eddy_rules.answer, case)
    except DataError:
        return True


class TestPlanted:
    """An error of eddy's is found, by cases that the rules predict."""

    SEEDS = range(300)

    def test_a_table_that_stores_only_one_of_the_keys_of_an_epoch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Table, "put_many", _one_too_few(Table.put_many))
        assert found(self.SEEDS)

    def test_a_table_join_that_forgets_the_keys_of_its_right_side(self, monkeypatch: pytest.MonkeyPatch) -> None:
        replaced = join.TableJoin._replaced  # private: planted
        half = lambda self, left, right, joined: replaced(self, left, EMPTY, joined)  # noqa: E731
        monkeypatch.setattr(join.TableJoin, "_replaced", half)  # private: planted
        assert found(self.SEEDS)

    def test_a_foreign_key_join_without_headers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        never = property(lambda self: False, lambda self, value: None)
        monkeypatch.setattr(join.Join, "_headed", never, raising=False)  # private: planted
        assert found(self.SEEDS)

    def test_windows_without_grace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(eddy.TimeWindows, "lag_ms", 0)
        assert found(self.SEEDS)

    def test_windows_that_no_record_is_late_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(assignment, "event_times", lambda context, batch: batch.times_of_rows())
        assert found(self.SEEDS)


def _one_too_few(put_many: Any) -> Any:
    def put(table: Any, news: Any, olds: Any) -> None:
        keys = list(news)
        put_many(table, {key: news[key] for key in keys[:1]}, list(olds)[:1])

    return put


def test_a_case_is_cut_down_to_what_it_fails_by() -> None:
    case = next(case for seed in range(100) if reads_a_stream(case := random_cases.case(seed)) and len(case.steps) > 5)
    cut = shortened(case, lambda cut: reads_a_stream(cut) and len(cut.records) > 1)
    assert len(cut.steps) == 1
    assert len(cut.records) == 2


def reads_a_stream(case: Case) -> bool:
    return any(step["op"] == "stream" for step in case.steps)
