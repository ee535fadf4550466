"""At rest the latest cut is at the ends, whichever workers wrote the last transactions."""

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition
from eddy.partitioner import partition_of
from eddy.runtime.quiescence import Cut, last_cut
from tests.runtime.logs import begun, log_of
from tests.waiting import step_to_rest

S = eddy.String
FIRST, SECOND = b"a", b"d"
"""A key of each partition."""
NEVER = eddy.Config(cut_interval_s=3600.0)
"""Several workers are long at rest before one looks for a cut."""


@pytest.fixture
def log() -> LocalLog:
    return log_of({"in": 2, "out": 2})


def worker(log: LocalLog, member: str) -> eddy.Worker:
    topology = eddy.Topology("app")
    topology.table("in", key=S, value=S).to("out")
    return eddy.Worker(topology, log, NEVER, member=member)


def change(log: LocalLog, *keys: bytes) -> None:
    producer = begun(log)
    for key in keys:
        producer.send("in", partition_of(key, 2), [key], [b"1"], [0])
    producer.commit({}, None)
    producer.close()


def cut_is_at_the_ends(log: LocalLog) -> bool:
    cut = last_cut(log, "app-cuts")
    ends = log.end_offsets([TopicPartition(topic, p) for topic in ("in", "out") for p in (0, 1)])
    return cut is not None and {"in": cut.inputs["in"], "out": cut.outputs["out"]} == Cut.by_topic(ends)


def begin_alone(log: LocalLog) -> eddy.Worker:
    """A worker that has joined, restored its states and come to rest."""
    alone = worker(log, "0")
    for _ in range(5):
        alone.step()
    return alone


def test_a_worker_that_begins_alone_writes_the_cut_that_several_left_out(log: LocalLog) -> None:
    change(log, FIRST, SECOND)
    several = [worker(log, "0"), worker(log, "1")]
    step_to_rest(several)
    for each in several:
        each.close()
    assert not cut_is_at_the_ends(log)
    begin_alone(log).close()
    assert cut_is_at_the_ends(log)


def test_a_worker_that_is_alone_again_writes_it(log: LocalLog) -> None:
    change(log, FIRST)
    first, second = begin_alone(log), worker(log, "1")
    step_to_rest([first, second])
    change(log, SECOND)
    step_to_rest([first, second])
    assert not cut_is_at_the_ends(log)
    second.close()
    for _ in range(5):
        first.step()
    assert cut_is_at_the_ends(log)
    first.close()
