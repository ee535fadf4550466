"""Faults planted into what holds rows without a finite answer: each is found by the laws, or they prove nothing."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, find, settings
from hypothesis import strategies as st

from eddy.operators.waves import held_message
from eddy.operators.waves.quarantine import Quarantine
from eddy.operators.waves.withheld import Withheld
from tests.operators.test_endless import alone, cases, shared

Plant = Callable[[pytest.MonkeyPatch], None]
WITHIN, SEED = 500, 3
"""A planted fault is found within so many cases."""

sizes = st.lists(st.integers(1, 4), min_size=1, max_size=3)
whatever_the_cut = st.tuples(cases(), st.sampled_from([5, 30]), sizes, sizes, st.sampled_from([1, 1 << 60]))
whoever_owns = st.tuples(
    *(cases(), st.sampled_from([5, 30]), st.integers(2, 3), st.integers(1, 2)),
    *(st.lists(st.integers(1, 5), max_size=12), sizes),
)


def told_whatever_the_cut(case: Any, limit: int, one: list[int], other: list[int], budget: int) -> None:
    assert alone(case, limit, one, 1 << 60, False) == alone(case, limit, other, budget, False)


def told_whoever_owns(case: Any, limit: int, owners: int, each: int, rooms: list[int], cut: list[int]) -> None:
    assert shared(case, limit, owners, each, rooms, cut) == alone(case, limit, [len(case.records)], 1 << 60, False)


def name_the_cycle_that_was_met_first(patch: pytest.MonkeyPatch) -> None:
    """The message depends on the order in which rows are searched."""
    patch.setattr(held_message, "cycle_among", lambda found, order: found.closing_path)


def hold_the_cycle_alone(patch: pytest.MonkeyPatch) -> None:
    """Rows that follow from a cycle leave."""
    mark_only = Withheld.mark_only
    patch.setattr(Withheld, "mark_only", lambda self, rows: mark_only(self, {row for row in rows if row in self.stops}))


def suspect_nothing(patch: pytest.MonkeyPatch) -> None:  # private: planted
    """Each worker searches among its own rows alone."""
    patch.setattr(Quarantine, "_suspect", lambda self, rows, total: None)


@pytest.mark.parametrize(
    ("plant", "law", "given"),
    [
        (name_the_cycle_that_was_met_first, told_whatever_the_cut, whatever_the_cut),
        (hold_the_cycle_alone, told_whatever_the_cut, whatever_the_cut),
        (suspect_nothing, told_whoever_owns, whoever_owns),
    ],
)
def test_a_planted_fault_is_found(plant: Plant, law: Any, given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    def breaks(arguments: Any) -> bool:
        try:
            law(*arguments)
        except (AttributeError, NameError):
            raise  # the planted code itself does not fit
        except Exception:
            return True
        return False

    tries = settings(max_examples=WITHIN, phases=[Phase.generate], database=None, deadline=None)
    find(given, breaks, settings=tries, random=random.Random(SEED))
