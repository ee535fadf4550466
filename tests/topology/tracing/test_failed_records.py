"""Records on which a step fails are left out of a trace, as a worker leaves them out, and are named."""

import random
from contextlib import closing
from datetime import timedelta

import pytest

import eddy
from eddy.program.open_tables import Tables
from eddy.program.row_trace import Traces

S = eddy.String


def shares() -> eddy.Topology:
    """Minutes in which records are counted, once after a step that fails on 0, once before it."""
    topology = eddy.Topology("shares")
    numbers = topology.stream("numbers", key=S, value=eddy.Int64)
    parts = numbers.map_values(lambda value: 100 // value, name="part").filter(lambda key, value: value > 10)
    for name, stream in {"large": parts, "both": parts.merge(numbers)}.items():
        stream.group_by_key().windowed_by(eddy.TimeWindows(timedelta(minutes=1))).count(name)
    return topology


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
@pytest.mark.parametrize("seed", range(3))
def test_trace_has_the_rows_of_the_worker_without_the_records_that_fail(policy: str, seed: int) -> None:
    draw, topology = random.Random(seed), shares()
    numbers = [draw.randrange(0, 15) for _ in range(30)] + [0, 1]
    large = sum(1 for number in numbers if number and 100 // number > 10)
    with closing(eddy.open_log()) as log:
        eddy.create_topics(topology, log, partitions=draw.randint(1, 3))
        with eddy.run(topology, log, eddy.Config(on_error=policy)), Tables(topology, log) as tables:
            failing = []
            for number in numbers:
                end = log.write("numbers", {"a": number}, value=eddy.Int64, timestamp_ms=1_000)
                failing += [f"numbers-{p}@{offset - 1}" for p, offset in end["numbers"].items() if number == 0]
            tables.wait(end, exact=True)
            for step, count in {"large": large, "both": large + len(numbers) - numbers.count(0)}.items():
                made = Traces(topology.plan).trace(tables, step, '["a", 0, 60000]')
                assert ([row.value for row in made.rows], made.served) == ([count], count)
                assert made.agrees is None  # a step elsewhere may have rejected others
                assert f"record {failing[0]} is left out: step 'part' fails on it: ZeroDivisionError" in made.text
                assert (f"{len(failing) - 5:,} more records" in made.text) == (len(failing) > 5)
