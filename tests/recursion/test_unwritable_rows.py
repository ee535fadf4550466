"""Rows that a recursion by nested time makes, and that no state can write: the recursion is held until they are gone.

The oracle reads the latest records: while a number is unlucky, nothing is downstream; otherwise each key has two rows.
Whatever the epochs, the partitions, the workers and their restarts. Records beside the recursion are processed.
"""

import random
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from tests.seeds import DAY
from tests.waiting import step_to_rest

N, S = eddy.Int64, eddy.String
UNLUCKY, LARGE = 13, 1_200_000
Rows = eddy.Relation[str, int]


def unhashable(rows: Rows) -> Any:
    return rows.map(lambda key, n: (key, [n] if n == UNLUCKY else n), name="made", key=S, value=N).distinct("once")


def too_large(rows: Rows) -> Any:
    """The state of a step inside refuses the row, and no binding has it."""
    long = rows.map(lambda key, n: (key, "x" * (LARGE if n == UNLUCKY else n)), name="made", key=S, value=S)
    return long.distinct("once").map(lambda key, text: (key, len(text)), name="length", key=S, value=N)


def of_another_type(rows: Rows) -> Any:
    made = rows.map(lambda key, n: (key, str(n) if n == UNLUCKY else n), name="made", key=S, value=N)
    return made.distinct("once")


def topology_of(op: Callable[[Rows], Any]) -> eddy.Topology:
    topology = eddy.Topology("app")
    groups = topology.table("in", key=S, value=N).group_by(lambda key, n: (key, n), key=S, value=N)
    rows = groups.reduce(lambda a, b: a + b, lambda a, b: a - b, "sums").to_relation()
    rows.recursively(op, name="loop").group_by_key(key=S).count("sizes").to("out", key=S, value=N)
    topology.stream("beside", key=S, value=N).to("beside-out")
    return topology


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("op", [unhashable, too_large, of_another_type])
def test_nothing_is_downstream_while_a_row_cannot_be_written(op: Callable[[Rows], Any], workers: int) -> None:
    dice = random.Random(f"{DAY} {op.__name__} {workers}")
    partitions, log = dice.randint(1, 3), LocalLog(None)
    log.create_topics(
        [TopicSpec("in", partitions), *(TopicSpec(topic, 1) for topic in ("out", "beside", "beside-out"))]
    )
    config = eddy.Config(on_error=dice.choice(["skip", "dead-letter"]), max_epoch_records=dice.choice([1, 3, 100]))
    latest: dict[str, int | None] = {}

    def started(anew: int) -> list[eddy.Worker]:
        return [eddy.Worker(topology_of(op), log, config, member=f"{anew}-{n}") for n in range(workers)]

    with ExitStack() as open_now:
        running = [open_now.enter_context(closing(worker)) for worker in started(0)]
        for turn in range(12):
            for _ in range(dice.randint(1, 4)):
                key, n = dice.choice("abcdef"), dice.choice([None, 1, 2, 3, UNLUCKY])
                write(log, "in", partition_of(key.encode(), partitions), key, n)
                latest[key] = n
            if dice.random() < 0.3:
                open_now.close()
                running = [open_now.enter_context(closing(worker)) for worker in started(turn + 1)]
            write(log, "beside", 0, "k", turn)
            step_to_rest(running)
            there = {key: n for key, n in latest.items() if n is not None}
            is_held = UNLUCKY in there.values()
            assert table(log, "out") == ({} if is_held else dict.fromkeys(there, 2)), (turn, there)
            assert any(worker.held() for worker in running) is is_held
            assert table(log, "beside-out") == {"k": turn}


def write(log: LocalLog, topic: str, partition: int, key: str, n: int | None) -> None:
    with closing(log.producer(None)) as producer:
        producer.begin()
        producer.send(topic, partition, [key.encode()], [None if n is None else N.encode(n)], [1])
        producer.commit({}, None)


def table(log: LocalLog, topic: str) -> dict[str, int]:
    records = log.read(TopicPartition(topic, 0), 0, 10_000, 1 << 30)
    latest = dict(zip(records.keys, records.values, strict=True))
    return {S.decode(key or b""): N.decode(value) for key, value in latest.items() if value is not None}
