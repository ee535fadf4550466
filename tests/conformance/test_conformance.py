"""One suite of topologies for every engine: the same program, the same records, the same result."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests import oracle
from tests.conformance.cases import CASES, Case
from tests.conformance.engines import CANNOT, ENGINES, ON_FAUST, ON_KAFKA, Kafka, Written, hosted
from tests.seeds import DAY, on_days

PARTITIONS = (1, 3)
HOSTED = 2
"""How many cases of a day one Faust app hosts at once, each in both modes: the app takes most of the time to start."""
WAYS_ON_KAFKA = [*product((engine for engine in ON_KAFKA if engine not in ON_FAUST), PARTITIONS)]


def on_every_engine() -> Iterator[Any]:
    """Each case on each engine. On Kafka in one way a day, which takes turns; in the long form in all, and in Faust."""
    for (turn, case), engine, partitions in product(enumerate(CASES), [*ENGINES, *ON_KAFKA], PARTITIONS):
        todays = engine in ENGINES or WAYS_ON_KAFKA[(DAY + turn) % len(WAYS_ON_KAFKA)] == (engine, partitions)
        marks = () if todays else pytest.mark.long
        yield pytest.param(case, engine, partitions, id=f"{case.name}-{engine}-{partitions}", marks=marks)


@pytest.fixture
def run(engine: str, case: Case, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[int], Written]:
    """The case on an engine, in so many partitions; a case that it cannot do has to fail on it."""
    if reason := CANNOT.get((engine, case.name)):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    if engine in ON_KAFKA:
        kafka = request.getfixturevalue("kafka")
        return lambda partitions: ON_KAFKA[engine](case, partitions, kafka)
    return lambda partitions: ENGINES[engine](case, partitions, tmp_path)


@pytest.mark.parametrize(("case", "engine", "partitions"), [*on_every_engine()])
def test_an_engine_gives_the_result(case: Case, run: Callable[[int], Written], partitions: int) -> None:
    check(case, run(partitions))


def check(case: Case, written: Written) -> None:
    """A case's sinks hold the result."""
    for topic, expected in case.expected.items():
        if isinstance(expected, dict):
            assert oracle.latest(written[topic]) == expected, topic
        else:
            assert Counter(written[topic]) == Counter(expected), topic


@on_days({3, 4, 5}, 6)  # on the others, tests/faust has its slow test
def test_an_app_of_faust_that_hosts_cases_in_both_modes_gives_the_result_of_each(kafka: Kafka) -> None:
    number = DAY // 6 * 3 + DAY % 3  # rises by one with each day of these
    todays = [CASES[(number * HOSTED + turn) % len(CASES)] for turn in range(HOSTED)]
    ways = product(todays, ["worker", "agents"])
    cases = [(case, mode) for case, mode in ways if (f"Faust, mode={mode}", case.name) not in CANNOT]
    for (case, _), written in zip(cases, hosted(cases, 3, kafka), strict=True):
        check(case, written)


def test_what_an_engine_cannot_do_is_a_case_of_an_engine() -> None:
    assert {engine for engine, _ in CANNOT} <= ENGINES.keys() | ON_KAFKA.keys()
    assert {name for _, name in CANNOT} <= {case.name for case in CASES}


def test_cases_have_names_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 20
