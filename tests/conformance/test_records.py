"""A function gets the place, the timestamp and the headers that the log has for its record, on every log."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

import pytest

import eddy
from eddy.connectors.log import TopicPartition
from tests.conformance.case import Case, Native, S, of
from tests.conformance.engines import Kafka, Run, Written, embedded, one, two


def build(t: eddy.Topology) -> None:
    stream = t.stream("in", S, S).filter(lambda key, value, record: value != "no")
    stream.map_values(lambda key, value, record: (value, *record)).to("out", value=Native)


RECORDS = of("in", ("a", "x"), ("b", "x"), ("a", "no"), ("c", "y"), ("a", "z"), ("d", "x"))


@pytest.fixture(params=["embedded", "Kafka"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[int], Run]]:
    """A run with numbered records, in two batches."""
    case = Case("records", build, [RECORDS[:4], RECORDS[4:]], {})
    if request.param == "Kafka":
        kafka: Kafka = request.getfixturevalue("kafka")
        with kafka.topics() as prefix:
            yield lambda partitions: Run(case, kafka.log, partitions, prefix, kafka.writer)
        return
    with embedded(None) as log:
        yield lambda partitions: Run(case, log, partitions)


def in_the_log(run: Run) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Each record of `in` as `out` has it."""
    topic = f"{run.prefix}in"
    for partition in range(run.partitions):
        at = TopicPartition(topic, partition)
        position, end = 0, run.log.end_offsets([at])[at]
        while position < end:
            records = run.log.read(at, position, end, 1_000)
            position = records.next_offset
            for index, offset in enumerate(records.offsets):
                key, value = records.keys[index], records.values[index]
                assert key is not None
                assert value is not None
                assert records.headers is not None
                place = topic, partition, offset, records.timestamps[index], records.headers[index]
                yield key.decode(), (value.decode(), *place)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("workers", [one, two])
def test_a_function_gets_what_the_log_has(
    run: Callable[[int], Run], workers: Callable[[Run], Written], partitions: int
) -> None:
    numbered = run(partitions)
    numbered.numbers = count()
    written = workers(numbered)["out"]
    expected = [row for row in in_the_log(numbered) if row[1][0] != "no"]
    assert Counter(written) == Counter(expected)
    assert {dict(value[5])["number"] for _, value in written} == {b"0", b"1", b"3", b"4", b"5"}
