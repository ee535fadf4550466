"""One suite of topologies for every engine: the same program, the same records, the same result."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eddy.connectors.kafka import KafkaLog, KafkaSettings
from tests import oracle
from tests.conformance.cases import CASES, Case
from tests.conformance.engines import CANNOT, ENGINES, ON_KAFKA, Kafka, Written


@pytest.fixture(scope="session")
def kafka(broker: str) -> Iterator[Kafka]:
    log = KafkaLog(KafkaSettings.of(broker))
    shared = Kafka(log, log.producer(None))
    yield shared
    shared.writer.close()
    log.close()


@pytest.fixture(params=[*ENGINES, *ON_KAFKA])
def engine(request: pytest.FixtureRequest, case: Case, tmp_path: Path) -> Callable[[Case, int], Written]:
    """An engine; a case that it cannot do has to fail on it."""
    if reason := CANNOT.get((request.param, case.name)):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    if request.param in ON_KAFKA:
        kafka = request.getfixturevalue("kafka")
        return lambda case, partitions: ON_KAFKA[request.param](case, partitions, kafka)
    return lambda case, partitions: ENGINES[request.param](case, partitions, tmp_path)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_engine_gives_the_result(case: Case, engine: Callable[[Case, int], Written], partitions: int) -> None:
    written = engine(case, partitions)
    for topic, expected in case.expected.items():
        if isinstance(expected, dict):
            assert oracle.latest(written[topic]) == expected, topic
        else:
            assert Counter(written[topic]) == Counter(expected), topic


def test_what_an_engine_cannot_do_is_a_case_of_an_engine() -> None:
    assert {engine for engine, _ in CANNOT} <= ENGINES.keys() | ON_KAFKA.keys()
    assert {name for _, name in CANNOT} <= {case.name for case in CASES}


def test_cases_have_names_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 20
