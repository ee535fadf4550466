"""Rows that a step after an exchange cannot process: the answer is that from scratch without them.

Whatever the epochs, the partitions, the workers and their restarts: tables hold what a naive oracle makes of the
latest records, failing rows left out and keys whose values cannot be written absent; and what is remembered of rows
set aside is what one worker remembers that reads the latest records alone.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import eddy
from eddy import Config, TopologyTestDriver
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.runtime.metadata import read_metadata

S, N, J = eddy.String, eddy.Int64, eddy.Json()
BAD, BIG = 13, 2**63 - 1
Values = dict[str, tuple[str, int]]
"""The latest (group, number) of each key."""
pytestmark = pytest.mark.usefixtures("quiet")


def check(n: int) -> int:
    if n == BAD:
        raise ValueError("unlucky")
    return n


class Program(NamedTuple):
    """A topology from table "in" to table "out", and what "out" holds for the latest values."""

    name: str
    build: Callable[[Any], Any]
    expect: Callable[[Values], dict[str, int]]

    def topology(self) -> eddy.Topology:
        topology = eddy.Topology("app")
        self.build(topology.table("in", key=S, value=J, name="rows")).to("out", key=S, value=N)
        return topology


def of_groups(table: Any) -> Any:
    return table.group_by(lambda _, row: tuple(row), key=S, value=N)


def relation(table: Any) -> Any:
    return table.to_relation().map(lambda _, row: tuple(row), name="by-group", key=S, value=N)


def by_group(values: Values) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for group, n in values.values():
        groups.setdefault(group, []).append(n)
    return groups


def summed(values: Values) -> dict[str, int]:
    sums = {group: sum(numbers) for group, numbers in by_group(values).items()}
    return {group: total for group, total in sums.items() if total <= BIG}


def without_bad(values: Values) -> dict[str, int]:
    return summed({key: row for key, row in values.items() if row[1] != BAD})


def counted(values: Values) -> dict[str, int]:
    return {group: len(numbers) for group, numbers in by_group(values).items() if len(numbers) != 2}


def pairs(values: Values) -> dict[str, int]:
    rows = list(values.values())
    found = Counter(g for g, n in rows for h, m in rows if g == h and n + m != 2 * BAD)
    return dict(found)


def beside(values: Values) -> dict[str, int]:
    counts = Counter(group for group, _ in values.values())
    return {key: n + counts[key] for key, (_, n) in values.items() if key in counts and n != BAD and n < BIG}


def least(values: Values) -> dict[str, int]:
    return {group: min(numbers) for group, numbers in by_group(values).items() if min(numbers) not in (2, BAD)}


def down(values: Values) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for group, n in values.values():
        if n != BIG:
            rows[group] += len([m for m in range(n + 1) if n < BAD or m >= BAD])
    return {group: n for group, n in rows.items() if n}


def aggregated(table: Any) -> Any:
    return of_groups(table).aggregate(
        lambda: 0, lambda _, n, total: total + check(n), lambda _, n, total: total - n, "sums"
    )


def loosely(table: Any) -> Any:
    """Its state takes any number, only the sink's serde does not."""
    numbers = of_groups(table)
    return numbers.aggregate(lambda: 0, lambda _, n, t: t + n, lambda _, n, t: t - n, "sums")


def count_checked(table: Any) -> Any:
    return of_groups(table).count("sizes").map_values(lambda n: check(BAD if n == 2 else n), value=N)


def self_joined(table: Any) -> Any:
    rows = relation(table)
    twice = rows.map(lambda key, n: (key, n), name="twice", key=S, value=N)

    def merge(key: str, a: int, b: int) -> tuple[str, int]:
        check(a if a == b else 0)
        return key, 1

    return rows.join(twice, merge, name="met", key=S).group_by_key(key=S).count("sizes")


def beside_counts(table: Any) -> Any:
    counts = of_groups(table).count("sizes")
    small = table.filter(lambda _, row: row[1] < BIG, name="small")
    return small.join(counts, lambda row, n: check(row[1]) + n, value=N)


def least_checked(table: Any) -> Any:
    """Two as the least fails in a function of all values."""

    def smallest(_: str, numbers: Any) -> list[int]:
        if min(numbers) == 2:
            raise ValueError("two")
        return [check(min(numbers))]

    found = relation(table).reduce(smallest, name="least")
    return found.group_by_key(key=S, value=N).reduce(lambda a, b: a + b, lambda a, b: a - b, "one")


def counted_down(table: Any) -> Any:
    small = relation(table).filter(lambda _, n: n < BIG, name="small")
    rows = small.recursively(
        lambda rows: rows.filter(lambda _, n: n > 0, name="above").map(
            lambda key, n: (key, check(n) - 1), name="lower", key=S, value=N
        ),
        name="down",
    )
    return rows.group_by_key(key=S, value=N).count("sizes")


def greatest_checked(table: Any) -> Any:
    return of_groups(table).max("greatest", by=check)


def greatest(values: Values) -> dict[str, int]:
    return {
        group: max(numbers) for group, numbers in by_group({k: v for k, v in values.items() if v[1] != BAD}).items()
    }


def added_up(table: Any) -> Any:
    return of_groups(table).sum("sums", of=check, value=N)


def mean(table: Any) -> Any:
    small = table.filter(lambda _, row: row[1] < BIG, name="small")
    return of_groups(small).avg("means", of=check).map_values(int, value=N)


def means(values: Values) -> dict[str, int]:
    found = by_group({key: row for key, row in values.items() if row[1] not in (BAD, BIG)})
    return {group: int(sum(numbers) / len(numbers)) for group, numbers in found.items()}


def collected(table: Any) -> Any:
    """Groups of up to two."""
    small = table.filter(lambda _, row: row[1] < BIG, name="small")
    return of_groups(small).collect("all", by=check, max=2).map_values(sum, value=N)


def of_two(values: Values) -> dict[str, int]:
    found = by_group({key: row for key, row in values.items() if row[1] not in (BAD, BIG)})
    return {group: sum(numbers) for group, numbers in found.items() if len(numbers) <= 2}


def different(table: Any) -> Any:
    return of_groups(table).distinct_count("kinds", of=check)


def kinds(values: Values) -> dict[str, int]:
    found = by_group({key: row for key, row in values.items() if row[1] != BAD})
    return {group: len(set(numbers)) for group, numbers in found.items()}


class ViewProgram(Program):
    """The table of a view, of which a group with several rows is not a row."""

    def topology(self) -> eddy.Topology:
        topology = eddy.Topology("app")
        rows = topology.table("in", key=S, value=J, name="rows").map_values(lambda row: {"g": row[0], "n": row[1]})
        tables = {"t": (rows, {"g": "text", "n": "bigint"})}
        view = topology.sql("SELECT g, n FROM t WHERE n <> 13", tables, name="alone", key="g")
        view.to_table().map_values(lambda row: row[1], value=N).to("out", key=S, value=N)
        return topology


def alone(values: Values) -> dict[str, int]:
    return {group: numbers[0] for group, numbers in by_group(without(values, BAD)).items() if len(numbers) == 1}


def without(values: Values, number: int) -> Values:
    return {key: row for key, row in values.items() if row[1] != number}


class GraphProgram(Program):
    """For each key, the nodes that are reached from its group over the numbers of the group."""

    def topology(self) -> eddy.Topology:
        topology = eddy.Topology("app")
        table = topology.table("in", key=S, value=J, name="rows")
        roots = table.to_relation().map(lambda key, row: (key, row[0]), name="roots", key=S, value=S)
        edges = table.to_relation().map(lambda _, row: tuple(row), name="edges", key=S, value=N)
        reached = topology.recursive_fixpoint(
            roots=roots, edges=edges, expand=lambda _, n: [str(check(n))], name="reached", node=S
        )
        reached.group_by_key(key=S).count("sizes").to("out", key=S, value=N)
        return topology


def reached(values: Values) -> dict[str, int]:
    found = {group: {n for n in numbers if n != BAD} for group, numbers in by_group(values).items()}
    return {key: 1 + len(found[group]) for key, (group, _) in values.items()}


def tree_summed(table: Any) -> Any:
    small = table.filter(lambda _, row: row[1] < BIG, name="small").map_values(tuple, value=eddy.Native)
    return small.tree_totals(parent=lambda _, row: "of " + row[0], own=lambda _, row: check(row[1]), name="totals")


def of_trees(values: Values) -> dict[str, int]:
    leaves = {key: n for key, (_, n) in values.items() if n not in (BAD, BIG)}
    trees = {f"of {group}": sum(values[key][1] for key in leaves if values[key][0] == group) for group in "ab"}
    return leaves | {tree: n for tree, n in trees.items() if tree[-1] in {values[key][0] for key in leaves}}


def small_relation(table: Any) -> Any:
    return relation(table).filter(lambda _, n: n < BIG, name="small")


def small_sets(values: Values) -> dict[str, set[int]]:
    return {group: set(numbers) for group, numbers in by_group(without(values, BIG)).items()}


def counted_down_once(table: Any) -> Any:
    """As `counted_down`, but each number once: by nested time."""
    rows = small_relation(table).recursively(
        lambda rows: (
            rows.filter(lambda _, n: n > 0, name="above")
            .map(lambda key, n: (key, check(n) - 1), name="lower", key=S, value=N)
            .distinct("once")
        ),
        name="down",
    )
    return rows.distinct("all").group_by_key(key=S, value=N).count("sizes")


def down_once(values: Values) -> dict[str, int]:
    return {
        group: len({m for n in numbers for m in range(n + 1) if n < BAD or m >= BAD})
        for group, numbers in small_sets(values).items()
    }


def added(key: str, one: int, other: int) -> tuple[str, int]:
    return key, min(check(one + other), 20)


def closed(table: Any) -> Any:
    """All sums of numbers of a group up to 20, without those that fail: a join with rows outside."""
    rows = small_relation(table)
    sums = rows.recursively(
        lambda sums: sums.join(rows, added, name="add", key=S, value=N).distinct("once"), name="sums"
    )
    return sums.distinct("all").group_by_key(key=S, value=N).count("sizes")


def closed_by_itself(table: Any) -> Any:
    """The same sums: a join with the rows inside."""
    sums = small_relation(table).recursively(
        lambda sums: sums.join(sums, added, name="add", key=S, value=N).distinct("once"), name="sums"
    )
    return sums.distinct("all").group_by_key(key=S, value=N).count("sizes")


def closure(values: Values) -> dict[str, int]:
    return {group: len(sums_of(numbers, numbers)) for group, numbers in small_sets(values).items()}


def closure_by_itself(values: Values) -> dict[str, int]:
    return {group: len(sums_of(numbers, None)) for group, numbers in small_sets(values).items()}


def sums_of(numbers: set[int], addends: set[int] | None) -> set[int]:
    found: set[int] = set()
    more = numbers
    while more - found:
        found |= more
        more = {min(a + b, 20) for a in found for b in (addends or found) if a + b != BAD}
    return found


def one_below(table: Any) -> Any:
    """The rows, and the number below the greatest of each group."""

    def below(_: str, numbers: Any) -> list[int]:
        return [check(max(numbers)) - 1] if max(numbers) > 0 else []

    rows = small_relation(table).recursively(lambda rows: rows.reduce(below, name="greatest"), name="with-one")
    return rows.group_by_key(key=S, value=N).count("sizes")


def with_one_below(values: Values) -> dict[str, int]:
    found = by_group(without(values, BIG))
    return {group: len(numbers) + (max(numbers) not in (0, BAD)) for group, numbers in found.items()}


PROGRAMS = [
    Program("state", lambda table: of_groups(table).reduce(lambda a, b: a + b, lambda a, b: a - b, "sums"), summed),
    Program("sink", loosely, summed),
    Program("adder", aggregated, without_bad),
    Program("values", count_checked, counted),
    Program("join", self_joined, pairs),
    Program("tables", beside_counts, beside),
    Program("function", least_checked, least),
    Program("order", greatest_checked, greatest),
    Program("loop", counted_down, down),
    Program("sum", added_up, without_bad),
    Program("mean", mean, means),
    Program("collect", collected, of_two),
    Program("distinct", different, kinds),
    ViewProgram("view", lambda table: table, alone),
    GraphProgram("graph", lambda table: table, reached),
    Program("tree", tree_summed, of_trees),
    Program("nested", counted_down_once, down_once),
    Program("nested lookup", closed, closure),
    Program("nested join", closed_by_itself, closure_by_itself),
    Program("nested reduce", one_below, with_one_below),
]

numbers = st.sampled_from([0, 1, 2, BAD, BAD + 2, BIG])
events = st.tuples(
    st.sampled_from(["a", "b", "c", "d"]), st.none() | st.tuples(st.sampled_from(["a", "b"]), numbers).map(list)
)


class Workers:
    """Some workers on one log, stepped in an order drawn from a seed."""

    def __init__(self, program: Program, partitions: int, size: int, seed: int) -> None:
        self.program, self.partitions = program, partitions
        self.config = Config(on_error="dead-letter", max_epoch_records=size)
        self.random, self.log = random.Random(seed), LocalLog(None)
        self.log.create_topics([TopicSpec("in", partitions), TopicSpec("out", 2)])
        self.workers: list[eddy.Worker] = []

    def start(self, name: int) -> None:
        worker = eddy.Worker(self.program.topology(), self.log, self.config, member=f"w{name}")
        self.workers.append(worker)

    def replace(self) -> None:
        """One leaves, with its store, and another one comes."""
        worker = self.workers.pop(self.random.randrange(len(self.workers)))
        worker.close()
        self.start(int(worker.member[1:]))

    def produce(self, events: list[Any], time: int = 1) -> None:
        producer = self.log.producer(None)
        producer.begin()
        for key, row in events:
            data = S.encode(key)
            value = None if row is None else J.encode(row)
            producer.send("in", partition_of(data, self.partitions), [data], [value], [time])
        producer.commit({}, None)
        producer.close()

    def rest(self) -> None:
        for _ in range(400):
            taken = [worker.step() for worker in self.random.sample(self.workers, len(self.workers))]
            if not any(taken) and not any(w.restoring for w in self.workers) and self.workers[0].quiescent():
                return
        raise AssertionError("not at rest after 400 rounds")

    def rows(self, topic: str, count: int) -> Iterator[tuple[Any, Any]]:
        for partition in [TopicPartition(topic, p) for p in range(count)]:
            records = self.log.read(partition, 0, self.log.end_offsets([partition])[partition], 1 << 30)
            yield from zip(records.keys, records.values, strict=True)

    def table(self) -> dict[str, int]:
        latest = dict(self.rows("out", 2))
        return {S.decode(key): N.decode(value) for key, value in latest.items() if value is not None}

    def remembered(self) -> Counter[tuple[str, bytes]]:
        found: Counter[tuple[str, bytes]] = Counter()
        for where, kept in read_metadata(self.log, "app-plan").set_aside.items():
            found[where.step, where.identity] += kept.weight
        return found

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.log.close()


few = settings(max_examples=max(8, settings.default.max_examples // 5), deadline=None)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@few
@given(
    batches=st.lists(st.lists(events, max_size=6), max_size=5),
    size=st.sampled_from([1, 3, 50]),
    partitions=st.sampled_from([1, 2, 4]),
    workers=st.integers(1, 3),
    seed=st.integers(0, 1 << 30),
)
@example(
    batches=[[("a", ["a", BIG]), ("b", ["a", 1])], [("c", ["a", 2])], [("a", None)]],
    size=1,
    partitions=4,
    workers=2,
    seed=0,
)
@example(batches=[[("a", ["b", 1]), ("a", ["b", BAD]), ("a", None)]], size=1, partitions=1, workers=1, seed=0)
@example(
    batches=[[("a", ["a", BAD]), ("b", ["b", BAD])], [("c", ["a", 1])], [("a", ["a", 1]), ("b", None)]],
    size=1,
    partitions=4,
    workers=3,
    seed=0,
)
@pytest.mark.slow
def test_tables_are_those_from_scratch_without_what_fails(
    program: Program, batches: list[list[Any]], size: int, partitions: int, workers: int, seed: int
) -> None:
    many = Workers(program, partitions, size, seed)
    one = Workers(program, 1, 1_000, seed)
    try:
        for name in range(workers):
            many.start(name)
        for batch in batches:
            many.produce(batch)
            for _ in range(many.random.randrange(6)):
                many.random.choice(many.workers).step()
            if many.random.random() < 0.3:
                many.replace()
        many.rest()
        values = {key: row for key, row in dict(row for batch in batches for row in batch).items() if row is not None}
        assert many.table() == program.expect(values)
        one.start(0)
        one.produce(list(values.items()))
        one.rest()
        assert one.table() == program.expect(values)
        assert many.remembered() == one.remembered()
    finally:
        many.close()
        one.close()


def test_a_stream_goes_on_and_its_letters_name_the_records() -> None:
    topology = eddy.Topology("app")
    rows = topology.stream("in", key=S, value=N).select_key(lambda key, n: key[0], key=S)
    rows.repartition(name="by").map_values(check, "check", value=N).to("out", value=N)
    with TopologyTestDriver(topology, Config(on_error="dead-letter")) as driver:
        driver.input("in").pipe_all([("a1", 1), ("b1", BAD), ("a2", 2)])
        assert driver.output("out").read_key_values() == [("a", 1), ("a", 2)]
        (letter,) = driver.output("app-dead-letter", key=S, value=N).read_records()
        told = {name: value.decode() for name, value in letter.headers}
        assert (letter.key, letter.value) == ("b", BAD)
        assert (told["eddy.topic"], told["eddy.partition"], told["eddy.offset"]) == ("in", "0", "1")
        assert (told["eddy.step"], told["eddy.weight"]) == ("check", "1")
        assert "ValueError: unlucky" in told["eddy.error"]
        assert driver.worker.statistics.set_aside == 1
        assert driver.worker.statistics.kept_aside == 0


def test_a_retraction_finds_its_row_though_the_function_was_mended() -> None:
    unlucky = [BAD]

    def adder(_: str, n: int, total: int) -> int:
        if n in unlucky:
            raise ValueError("unlucky")
        return total + n

    topology = eddy.Topology("app")
    numbers = topology.table("in", key=S, value=N, name="rows").group_by(lambda _, n: ("all", n), key=S, value=N)
    numbers.aggregate(lambda: 0, adder, lambda _, n, total: total - n, "sums", N).to("out", value=N)
    with TopologyTestDriver(topology, Config(on_error="skip")) as driver:
        driver.input("in").pipe_all([("a", 1), ("b", BAD)])
        assert driver.store("sums").all() == {"all": 1}
        assert driver.worker.statistics.kept_aside == 1
        unlucky.clear()
        driver.restart(lose_state=True)
        assert driver.worker.statistics.kept_aside == 1
        driver.input("in").pipe("b", 2)
        assert driver.store("sums").all() == {"all": 3}
        assert driver.worker.statistics.kept_aside == 0
        driver.input("in").pipe("c", BAD)
        assert driver.store("sums").all() == {"all": 3 + BAD}


def test_of_a_row_that_several_records_make_all_of_them_are_told() -> None:
    topology = eddy.Topology("app")
    numbers = topology.stream("in", key=S, value=N)
    counts = numbers.group_by(lambda key, _: key[0], key=S).count("state")
    counts.to_stream().map_values(lambda n: check(n + 10), value=N).to("out", value=N)
    with TopologyTestDriver(topology, Config(on_error="dead-letter")) as driver:
        driver.input("in").pipe_all([("a1", 0), ("b1", 0), ("a2", 0), ("a3", 0), ("b2", 0)])
        assert driver.store("state").all() == {"a": 3, "b": 2}
        assert driver.output("out").read_map() == {"b": 12}
        (letter,) = driver.output("app-dead-letter", key=S, value=N).read_records()
        assert (letter.key, letter.value) == ("a", 3)
        assert dict(letter.headers)["eddy.sources"] == b"'in' partition 0 offsets 0 to 4"


@pytest.mark.parametrize("key", [["no", "hash"], 7], ids=["unhashable", "of another type"])
def test_a_key_that_an_aggregate_cannot_take_is_set_aside(key: Any) -> None:
    topology = eddy.Topology("app")
    numbers = topology.stream("in", key=S, value=N)
    groups = numbers.group_by(lambda name, n: key if n == BAD else name, key=S)
    groups.aggregate(lambda: 0, lambda _, n, total: total + n, "state", N)
    with TopologyTestDriver(topology, Config(on_error="dead-letter")) as driver:
        driver.input("in").pipe_all([("a", 1), ("b", BAD), ("a", 2), ("c", 3)])
        assert driver.store("state").all() == {"a": 3, "c": 3}
        (letter,) = driver.output("app-dead-letter", key=eddy.Bytes, value=N).read_records()
        assert (letter.value, dict(letter.headers)["eddy.offset"]) == (BAD, b"1")


@pytest.mark.parametrize("on_error", ["fail", "dead-letter"])
def test_another_worker_names_the_very_record_where_none_was_merged(on_error: Any) -> None:
    """The epoch that sent it took in many records."""

    def build(rows: Any) -> Any:
        by = rows.select_key(lambda _, row: row[0], key=S).repartition(name="by")
        return by.map_values(lambda row: check(row[1]), "check", value=N)

    class Streamed(Program):
        def topology(self) -> eddy.Topology:
            topology = eddy.Topology("app")
            self.build(topology.stream("in", key=S, value=J)).to("out", key=S, value=N)
            return topology

    many = Workers(Streamed("stream", build, dict), 4, 1_000, 0)
    many.config = Config(on_error=on_error)
    try:
        for name in range(2):
            many.start(name)
        many.rest()
        for n in range(40):
            many.produce([(f"k{n}", [f"g{n}", BAD if n == 20 else 100])], n)
        if on_error == "fail":
            with pytest.raises(eddy.DataError, match="step 'check'") as refused:
                many.rest()
            told = str(refused.value)
        else:
            many.rest()
            (headers,) = many.log.read(TopicPartition("app-dead-letter", 0), 0, 99, 99).headers or ()
            told = dict(headers)["eddy.sources"].decode()
        home, to = partition_of(b"k20", 4), partition_of(b"g20", 4)
        assert home // 2 != to // 2, "the row does not cross"
        records = many.log.read(TopicPartition("in", home), 0, 999, 999)
        offset = dict(zip(records.keys, records.offsets, strict=True))[b"k20"]
        assert f"'in' partition {home} offset {offset}" in told
    finally:
        many.close()
