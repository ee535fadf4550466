"""One suite of topologies for every engine: the same program, the same records, the same result."""

from collections import Counter
from pathlib import Path

import pytest

from tests import oracle
from tests.conformance.cases import CASES, Case
from tests.conformance.engines import CANNOT, ENGINES, Engine


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, case: Case) -> Engine:
    """An engine; a case that it cannot do has to fail on it."""
    if reason := CANNOT.get((request.param, case.name)):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    return ENGINES[request.param]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_engine_gives_the_result(case: Case, engine: Engine, partitions: int, tmp_path: Path) -> None:
    written = engine(case, partitions, tmp_path)
    for topic, expected in case.expected.items():
        if isinstance(expected, dict):
            assert oracle.latest(written[topic]) == expected, topic
        else:
            assert Counter(written[topic]) == Counter(expected), topic


def test_what_an_engine_cannot_do_is_a_case_of_an_engine() -> None:
    assert {engine for engine, _ in CANNOT} <= ENGINES.keys()
    assert {name for _, name in CANNOT} <= {case.name for case in CASES}


def test_cases_have_names_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 20
