"""Errors drawn at random in a worker's operators and states: verify finds those that change an output.

An error that stops the worker, or changes no output for these inputs, is drawn again. Errors of each kind of step are
planted in `test_witness.py`, which takes less.
"""

import functools
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eddy.connectors.log import TopicSpec
from tests.seeds import DAY
from tests.spark.branches import BRANCHES, TIMES, branches
from tests.spark.mutants import Mutant, mutants_of, ordered
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(7200)]

FILES = {
    "operators": "aggregate batch bound join keyed one_row reduce stateless sums top_k upsert weight_functions",
    "operators.graph": "beyond depths links ranked reached totals",
    "operators.nested": "fixpoint operators outermost",
    "operators.waves": "body quarantine recursion total withheld",
    "operators.windows": "assignment due frontier session_fold sliding_records windowed_fold",
    "state": "adjacency arrangement iteration_trace ordered_arrangement ranks table_state",
}
"""The modules in which errors are drawn, by package."""
LOOPS = ("held", "depth", "nested", "reached")
"""Branches that take Spark longer than others."""
PATIENCE_S = 10
Timed = list[tuple[bytes | None, bytes | None, int]]
"""Key, value and time of records."""


class _TooLongError(BaseException):
    """No `Exception`: a worker would take it for an error of the step that runs, and look for its record."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raises: _TooLongError, as an error may lead to a loop without end."""

    def stop(*_: object) -> None:
        raise _TooLongError

    former = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def random_inputs(rng: random.Random) -> list[dict[str, Timed]]:
    """Two parts: nodes that move and leave, and notes with equal values; their times are not in order."""
    names = [bytes([letter]) for letter in b"abcdefgh"]

    def records(time: int, count: int, values: list[bytes]) -> Timed:
        choices = [*values, *values, None]
        return [(rng.choice(names), rng.choice(choices), time + rng.randrange(20)) for _ in range(count)]

    return [
        {
            "nodes": records(time, 12, names),
            "others": records(time, 5, [b"1", b"2"]),
            "notes": records(time, 16, [b"x", b"y", b"zz"]),
        }
        for time in TIMES
    ]


def worked(folder: Path, spark: Any, inputs: list[dict[str, Timed]], only: tuple[str, ...] = ()) -> Rig:
    sinks = [sink.topic for sink in branches(only).plan.sinks()]
    topics = [TopicSpec(topic, 1) for topic in ("nodes", "others", "notes", *sinks)]
    rig = Rig(folder, functools.partial(branches, only), topics, spark)
    try:
        for part in inputs:
            for topic, records in part.items():
                rig.write_at(topic, records)
            rig.work()
    except BaseException:
        rig.close()
        raise
    return rig


def outputs(rig: Rig, only: tuple[str, ...] = ()) -> dict[str, Any]:
    return {name: rig.latest(name) for name in only or BRANCHES}


class Drawn:
    """One drawn error after the other, with what verify has said of it."""

    def __init__(self, folder: Path, spark: Any, orders: Path, seed: int) -> None:
        self._folder, self._spark, self._orders = folder, spark, orders
        self._rng = random.Random(seed)
        self._inputs = random_inputs(self._rng)
        self._number = 0
        self.dropped: Counter[str] = Counter()
        with_all = self._worked(())
        self._right = outputs(with_all)
        with_all.close()

    def _worked(self, only: tuple[str, ...]) -> Rig:
        self._number += 1
        with at_most(PATIENCE_S * len(TIMES)):
            return worked(self._folder / str(self._number), self._spark, self._inputs, only)

    def found(self, mutant: Mutant) -> bool | None:
        """Whether verify finds it; None where no output is wrong."""
        with ordered(self._orders / "mutants", [mutant]):
            try:
                rig = self._worked(())
                wrong = [name for name, rows in outputs(rig).items() if rows != self._right[name]]
                rig.close()
                if not wrong:
                    self.dropped["no effect"] += 1
                    return None
                only = (min(wrong, key=lambda name: (name in LOOPS, name)),)
                rig = self._worked(only)
                if outputs(rig, only) == {name: self._right[name] for name in only}:
                    self.dropped["no effect by itself"] += 1
                    return None
            except (Exception, _TooLongError) as error:
                self.dropped[type(error).__name__] += 1
                return None
            verdict = rig.verify(stores=False)
            rig.close()
            return bool(verdict.differs)


def check(folder: Path, spark: Any, orders: Path, seed: int, count: int) -> None:
    modules = [f"eddy.{package}.{name}" for package, names in FILES.items() for name in names.split()]
    mutants = [mutant for module in modules for mutant in mutants_of(module)]
    random.Random(seed).shuffle(mutants)
    drawn, missed, found = Drawn(folder, spark, orders, seed), [], 0
    for mutant in mutants:
        if found + len(missed) == count:
            break
        told = drawn.found(mutant)
        if told is not None:
            print(f"{'found' if told else 'missed'}: {mutant}")
        if told is False:
            missed.append(str(mutant))
        found += told is True
    print(f"{found} found, {len(missed)} missed, dropped: {dict(drawn.dropped)}")
    assert found >= 0.95 * count, "\n".join(missed)


@pytest.mark.long
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # a worker that takes too long is cut off
def test_a_hundred_drawn_errors_are_found(tmp_path: Path, spark: Any, orders: Path) -> None:
    check(tmp_path, spark, orders, DAY, 100)
