"""Rows after an exchange that the changelog of a state, or the topic of another exchange, does not accept.

The oracle is the same topology over the records that make no such row: the others must not be touched.
"""

import random
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.errors import DataError
from eddy.partitioner import partition_of
from tests.seeds import DAY
from tests.waiting import step_to_rest

N, S, J = eddy.Int64, eddy.String, eddy.Json()
LARGE = 1_200_000
"""More bytes than a topic takes."""

Record = tuple[str, int | None, int]
"""A key, how often it is repeated, and the time."""


class Kept:
    """Keeps the text of each record, and forwards it."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context = context
        self.texts = context.store("texts")

    def process(self, record: eddy.Record[str, str]) -> None:
        self.texts.put(record.key, record.value)
        self.context.forward(record)


def texts(topology: eddy.Topology) -> eddy.KStream[str, str]:
    """Letters, repeated as often as a record says, made after an exchange."""
    numbers = topology.stream("asked", key=S, value=N).filter(lambda key, n: n is not None).repartition(3)
    return numbers.map_values(lambda key, n: key * n, value=S)


def rows(topology: eddy.Topology) -> eddy.KGroupedTable[str, str]:
    """The same of a table, grouped after an exchange."""
    groups = topology.table("asked", key=S, value=N).group_by(lambda key, n: (key, n), key=S, value=N)
    longest = groups.aggregate(lambda: 0, lambda key, n, all: all + n, lambda key, n, all: all - n, "sums")
    return longest.map_values(lambda key, n: key * n, value=S).group_by(lambda key, text: (key, text), key=S, value=S)


def gathered(topology: eddy.Topology) -> Any:
    return rows(topology).aggregate(
        dict,
        lambda key, text, all: {**all, text: all.get(text, 0) + 1},
        lambda key, text, all: {one: n - (one == text) for one, n in all.items() if n - (one == text)},
        "all",
        value=J,
    )


def processed(topology: eddy.Topology) -> Any:
    topology.store("texts", key=S, value=S)
    return texts(topology).process_values(Kept, stores=["texts"], name="kept", value=S).to_table("of-kept")


def joined(topology: eddy.Topology) -> Any:
    numbers = topology.stream("asked", key=S, value=N).filter(lambda key, n: n is not None).repartition(3)
    within = eddy.JoinWindows(timedelta(0), grace=timedelta(seconds=1))
    left = numbers.map_values(lambda key, n: key * n, value=S)
    return left.join(numbers, lambda text, n: text, within, value=S).to_table("pairs")


def related(topology: eddy.Topology) -> Any:
    groups = topology.table("asked", key=S, value=N).group_by(lambda key, n: (key, n), key=S, value=N)
    sums = groups.reduce(lambda a, b: a + b, lambda a, b: a - b, "sums")
    long = sums.map_values(lambda key, n: key * n, value=S).to_relation()
    return (
        long.join(sums.to_relation(), lambda key, text, n: (key, n), name="join", key=S, value=N)
        .group_by_key()
        .count("n")
    )


def windows(topology: eddy.Topology, windows: Any) -> Any:
    grouped = texts(topology).group_by_key().windowed_by(windows)
    merging: Any = {"merger": lambda k, a, b: a + b} if isinstance(windows, eddy.SessionWindows) else {}
    table = grouped.aggregate(str, lambda k, text, all: all + text, "seen", value=S, **merging)
    return table.to_stream().map(lambda w, text: (f"{w.key} {w.start_ms}", text), key=S, value=S).to_table("by-text")


def fixpoint(topology: eddy.Topology) -> Any:
    """From each letter to itself, repeated; nothing is reached from the letters whose rows are refused."""
    long = rows_made(topology)
    short = long.filter(lambda key, text: key not in "xyz", name="short-rows")
    roots = short.map(lambda key, text: (key, key), name="roots", key=S, value=S)
    found = topology.recursive_fixpoint(roots=roots, edges=long, name="fixpoint", node=S)
    return found.group_by_key(key=S).count("n")


def fixpoint_of_functions(topology: eddy.Topology) -> Any:
    """The same by a function that makes the long nodes of short edges."""
    groups = topology.table("asked", key=S, value=N).group_by(lambda key, n: (key, n), key=S, value=N)
    sums = groups.reduce(lambda a, b: a + b, lambda a, b: a - b, "sums").to_relation()
    short = sums.filter(lambda key, n: key not in "xyz", name="short-rows")
    roots = short.map(lambda key, n: (key, key), name="roots", key=S, value=S)
    found = topology.recursive_fixpoint(
        roots=roots, edges=sums, expand=lambda node, n: [node * n + "."], name="fixpoint", node=S
    )
    return found.group_by_key(key=S).count("n")


def totals(topology: eddy.Topology) -> Any:
    """Each letter is below itself, repeated."""
    table = rows(topology).reduce(lambda a, b: a + b, lambda a, b: b, "texts")
    found = table.tree_totals(parent=lambda key, text: text + ".", own=lambda key, text: 1, name="totals")
    return found.filter(lambda key, total: "." not in key).map_values(str, value=S)


def nested(topology: eddy.Topology) -> Any:
    again = rows_made(topology).recursively(
        lambda texts: texts.map(lambda key, text: (key, text[:1]), name="first", key=S, value=S).distinct("once"),
        name="nested",
    )
    return again.group_by_key(key=S).count("n")


def rows_made(topology: eddy.Topology) -> Any:
    """The long rows, after an exchange."""
    groups = topology.table("asked", key=S, value=N).group_by(lambda key, n: (key, n), key=S, value=N)
    sums = groups.reduce(lambda a, b: a + b, lambda a, b: a - b, "sums")
    return sums.map_values(lambda key, n: key * n, value=S).to_relation()


STEPS: dict[str, Callable[[eddy.Topology], Any]] = {
    "a table": lambda topology: texts(topology).to_table("long"),
    "a join": related,
    "a group of long keys": lambda topology: texts(topology).group_by(lambda key, text: text, key=S).count("n"),
    "a group of a table": gathered,
    "the largest": lambda topology: rows(topology).top_k(1, "top", value=J),
    "distinct values": lambda topology: texts(topology).group_by_key().distinct_count("n"),
    "a processor": processed,
    "a join in time": joined,
    "windows": lambda topology: windows(topology, eddy.TimeWindows(timedelta(milliseconds=5), grace=timedelta(1))),
    "sessions": lambda topology: windows(topology, eddy.SessionWindows(timedelta(milliseconds=1), grace=timedelta(1))),
    "duplicates": lambda topology: (
        texts(topology)
        .deduplicate(lambda key, text: text, within=timedelta(1), key=S)
        .group_by(lambda key, text: text[:1], key=S)
        .count("n")
    ),
    "a graph": fixpoint,
    "a graph of functions": fixpoint_of_functions,
    "a tree": totals,
    "nested time": nested,
    "another exchange": lambda topology: (
        texts(topology)
        .select_key(lambda key, text: text[:1] + text[-1:], key=S)
        .repartition(2, "moved")
        .to_table("again")
    ),
}

OF_TABLES = {"a group of a table", "the largest", "a graph", "a graph of functions", "a tree", "nested time"}
"""The steps over rows that may be retracted."""


def topology_of(step: Callable[[eddy.Topology], Any]) -> eddy.Topology:
    topology = eddy.Topology("app")
    table = step(topology)
    short = table.map_values(lambda value: repr(value)[:40], name="short", value=S)
    short.to_stream().map(lambda key, text: (key[:20], text), key=S, value=S).to("out")
    return topology


def outcome(
    step: Callable[[eddy.Topology], Any],
    records: list[Record],
    dice: random.Random,
    workers: int,
    policy: Any,
    partitions: int = 2,
) -> tuple[dict[bytes | None, bytes | None], list[bytes | None]]:
    """The last rows of the output, and the values of the letters."""
    log = LocalLog(None)
    log.create_topics(TopicSpec(topic, partitions) for topic in ("asked", "out"))
    config = eddy.Config(on_error=policy, max_epoch_records=dice.choice([1, 3, 100]))

    def started() -> list[eddy.Worker]:
        return [eddy.Worker(topology_of(step), log, config, member=str(n)) for n in range(workers)]

    with ExitStack() as open_now:
        running = [open_now.enter_context(closing(worker)) for worker in started()]
        step_to_rest(running)
        for key, n, time in records:
            write(log, partition_of(key.encode(), partitions), key, n, time)
            if dice.random() < 0.3:
                step_to_rest(running)
            if dice.random() < 0.1:
                open_now.close()
                running = [open_now.enter_context(closing(worker)) for worker in started()]
        step_to_rest(running)
    return dict(read(log, "out", partitions)), [value for _, value in read(log, "app-dead-letter", 1)]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("step", STEPS)
def test_a_row_that_a_changelog_refuses_is_set_aside_alone(step: str, workers: int) -> None:
    dice = random.Random(f"{DAY} {step} {workers}")
    partitions = 1 if step == "duplicates" else dice.randint(1, 3)  # records wait for a partition without any
    of_table = step in OF_TABLES
    few: list[Record] = [(dice.choice("abcd"), dice.randint(1, 5), time) for time in range(8)]
    many = list(few)
    for number, key in enumerate(dice.sample("xyz", dice.randint(1, 3))):  # own keys, so that they touch no other row
        place = dice.randint(1, len(few))
        many.insert(place, (key, LARGE, many[place - 1][2]))
        if of_table and number and dice.random() < 0.5:
            many.append((key, None, 8))
    expected, none = outcome(STEPS[step], few, dice, 1, "fail", partitions)
    found, letters = outcome(
        STEPS[step], many, dice, workers, dice.choice(["dead-letter", lambda record: "dead-letter"]), partitions
    )
    assert {key: value for key, value in found.items() if key is None or key[:1] not in b"xyz" or value} == expected
    assert none == []
    assert letters


@pytest.mark.parametrize("workers", [1, 2])
def test_an_aggregate_that_grows_too_large_leaves_out_the_rows_that_make_it_so(workers: int) -> None:
    """The oracle adds the texts of a key, and leaves out each with which their sum would be too large."""
    dice = random.Random(f"{DAY} {workers}")
    records: list[Record] = [
        (dice.choice("ab"), dice.choice([3, 200_000, 400_000, 700_000]), time) for time in range(12)
    ]
    sums: dict[str, int] = {}
    left_out = []
    for key, n, _ in records:
        assert n is not None
        fits = sums.get(key, 0) + n < 1_040_000
        sums[key] = sums.get(key, 0) + n * fits
        left_out += [] if fits else [n]

    def added(topology: eddy.Topology) -> Any:
        table = texts(topology).group_by_key().aggregate(str, lambda key, text, all: all + text, "all", value=S)
        return table.map_values(len, value=N)

    found, letters = outcome(added, records, dice, workers, "dead-letter")
    assert found == {key.encode(): str(n).encode() for key, n in sums.items()}
    assert sorted(len(value or b"") for value in letters) == sorted(left_out)


def test_fail_names_the_changelog_and_the_size() -> None:
    with pytest.raises(DataError, match=r"app-long-changelog.*has 12000\d\d bytes; the topic takes"):
        outcome(STEPS["a table"], [("a", 1, 0), ("x", LARGE, 1)], random.Random(1), 1, "fail")


def write(log: LocalLog, partition: int, key: str, n: int | None, time: int) -> None:
    with closing(log.producer(None)) as producer:
        producer.begin()
        producer.send("asked", partition, [key.encode()], [None if n is None else N.encode(n)], [time])
        producer.commit({}, None)


def read(log: LocalLog, topic: str, partitions: int) -> list[tuple[bytes | None, bytes | None]]:
    found = [log.read(TopicPartition(topic, partition), 0, 1_000, 1_000) for partition in range(partitions)]
    return [pair for records in found for pair in zip(records.keys, records.values, strict=True)]
