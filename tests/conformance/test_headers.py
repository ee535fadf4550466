"""What a table, an aggregate or a join of tables writes has the headers of the record that caused it, on every log."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

import eddy
from tests.conformance.case import Case, N, S, of, plus
from tests.conformance.engines import Kafka, Run, Written, embedded, one, two


def build(t: eddy.Topology) -> None:
    numbers, names = t.stream("numbers", S, N), t.table("names", S, S)
    numbers.group_by(lambda key, n: key.upper(), key=S).count("counts").to("counts")
    numbers.group_by_key().reduce(plus, "sums").to("sums")
    numbers.to_table("latest").left_join(names, lambda n, name: f"{name} {n}", value=S).to("joined")
    names.group_by(lambda key, name: (name, key), key=S, value=S).count("sizes").to("sizes")
    names.foreign_key_join(t.table("cities", S, S), str, lambda name, city: f"{name} of {city}", "of", S).to("of")


RECORDS = of("numbers", ("a", 1), ("b", 1), ("a", 2)) + of("names", ("a", "x"), ("b", "y"), ("b", "x"), ("a", None))
RECORDS += of("cities", ("x", "Rome"), ("y", "Oslo")) + of("names", ("c", "y"))
WRITTEN = {
    "counts": {"A": [0, 2], "B": [1]},
    "sums": {"a": [0, 2], "b": [1]},
    "joined": {"a": [0, 2, 3, 6], "b": [1, 4, 5]},
    "sizes": {"x": [3, 5, 6], "y": [4, 5, 9]},
    "of": {"b": [7], "c": [9]},
}


@pytest.fixture(params=["embedded", "Kafka"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[int], Run]]:
    """A run with numbered records, each of them a batch."""
    case = Case("headers", build, [[record] for record in RECORDS], {})
    if request.param == "Kafka":
        kafka: Kafka = request.getfixturevalue("kafka")
        with kafka.topics() as prefix:
            yield lambda partitions: Run(case, kafka.log, partitions, prefix, kafka.writer)
        return
    with embedded(None) as log:
        yield lambda partitions: Run(case, log, partitions)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("workers", [one, two])
def test_headers_are_those_of_the_record_that_caused_it(
    run: Callable[[int], Run], workers: Callable[[Run], Written], partitions: int
) -> None:
    numbered = run(partitions)
    numbered.numbers = count()
    workers(numbered)
    assert {topic: numbered.numbers_of(topic) for topic in WRITTEN} == WRITTEN
