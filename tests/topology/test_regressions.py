"""What reviews and probes have found, each as the smallest program that showed it."""

import math

import msgspec
import pytest

import eddy
from eddy import TopologyTestDriver
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.state.memory import MemoryStore

S = eddy.String


class Node(msgspec.Struct, frozen=True):
    """A row with a field that an int fits, too."""

    weight: float


def one_of(node: str, parent: str) -> tuple[str, int]:
    if node == "bad":
        raise ValueError("a bad node")
    return parent, 1


def ancestors(limit: int = 10_000) -> eddy.Topology:
    topology = eddy.Topology("family")
    parents = topology.table("nodes", key=S, value=S)
    (
        parents.to_relation()
        .map(one_of)
        .recursively(
            lambda rows: rows.join(parents, lambda _, one, parent: (parent, one)), name="ancestors", limit=limit
        )
        .group_by_key()
        .count("descendants")
    )
    return topology


def test_names_of_derived_states_are_taken() -> None:
    topology = eddy.Topology("app")
    rows = topology.table("in", key=S, value=eddy.Int64).to_relation().group_by_key()
    rows.reduce(lambda a, b: a + b, lambda a, b: a - b, "x")
    with pytest.raises(
        eddy.TopologyError, match="step 'x' gives it to one of its states or topics, and step 'x-rows' has it"
    ):
        rows.count("x-rows")


def test_a_fact_that_weighs_two_is_one_row_of_a_table() -> None:
    topology = eddy.Topology("app")
    facts = topology.stream("in", key=S, value=eddy.Int64)
    climbed = facts.recursively(lambda x: x.filter(lambda _, v: v < 1).map_values(lambda v: v + 1), include_seeds=False)
    climbed.to_table("t").group_by(lambda k, v: (k, v), key=S).count("c")
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe_all([("a", 0), ("a", 0)])
        assert driver.store("c").all() == {"a": 1}


def test_x_may_be_used_twice_in_one_step() -> None:
    topology = eddy.Topology("app")
    rows = topology.table("in", key=S, value=eddy.Int64).to_relation()
    rows.recursively(lambda x: x.union(x), name="doubled", max_depth=2).group_by_key().count("c")
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe("a", 0)
        assert driver.store("c").all() == {"a": 1 + 2 + 4}


def test_what_a_policy_left_out_is_left_out_of_a_restore_too() -> None:
    log = LocalLog(None)
    log.create_topics([TopicSpec("nodes", 1, {"cleanup.policy": "compact"})])
    config = eddy.Config(on_error="skip")
    producer = log.producer(None)

    def tables_after(*records: tuple[bytes, bytes]) -> tuple[object, object]:
        producer.begin()
        for key, value in records:
            producer.send("nodes", 0, [key], [value], [0])
        producer.commit({}, None)
        worker = eddy.Worker(ancestors(), log, config, store=MemoryStore())
        worker.run_until_idle()
        found = tuple(dict(worker.circuit.states[name].items()) for name in ("nodes", "descendants"))  # type: ignore[attr-defined]
        worker.close()
        return found  # type: ignore[return-value]

    nodes, _ = tables_after((b"a", b"b"), (b"b", b"c"), (b"bad", b"a"))
    assert nodes == {"a": "b", "b": "c"}
    nodes, descendants = tables_after((b"d", b"a"))
    assert nodes == {"a": "b", "b": "c", "d": "a"}
    assert descendants == {"a": 1, "b": 2, "c": 3}


def test_equal_structs_are_one_row() -> None:
    topology = eddy.Topology("app")
    summed = (
        topology.stream("in", key=S, value=eddy.Int64)
        .group_by_key()
        .aggregate(lambda: Node(0), lambda _, v, a: Node(a.weight + v), "sum", eddy.Struct(Node))
    )
    summed.to_relation().distinct("d").group_by_key().count("c")
    with TopologyTestDriver(topology) as driver:
        for value in (3, 5, -5):
            driver.input("in").pipe("a", value)
            driver.restart()
        assert driver.store("c").all() == {"a": 1}


def test_nan_in_a_tuple_can_be_taken_back_after_a_restart() -> None:
    topology = eddy.Topology("app")
    rows = topology.table("in", key=S, value=eddy.Float64).to_relation().map_values(lambda v: ("x", v))
    rows.distinct("d").group_by_key().count("c")
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe("a", math.nan)
        driver.restart()
        driver.input("in").pipe("a", None)
        assert driver.store("c").all() == {}


def test_headers_of_a_record_stay_when_others_are_merged() -> None:
    topology = eddy.Topology("app")
    facts = topology.stream("in", key=S, value=eddy.Int64)
    facts.recursively(lambda x: x.filter(lambda _, v: v < 1).map_values(lambda v: v + 1)).to("out")
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe_all([("a", 0), ("b", 0), ("a", 0)], headers=(("h", b"1"),))
        assert {record.headers for record in driver.output("out").read_records()} == {(("h", b"1"),)}


def test_none_is_no_value_of_a_mapped_table() -> None:
    topology = eddy.Topology("app")
    table = topology.table("in", key=S, value=eddy.Int64).map_values(lambda v: v if v > 0 else None)
    table.to_relation().group_by_key().count("c")
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe_all([("a", 1), ("b", -1)])
        assert driver.store("c").all() == {"a": 1}
        driver.input("in").pipe("a", -1)
        assert driver.store("c").all() == {}


def test_a_cycle_is_held_where_rows_leave_through_the_topic_each_wave() -> None:
    log = LocalLog(None)
    log.create_topics([TopicSpec("nodes", 1)])
    worker = eddy.Worker(ancestors(limit=20), log, eddy.Config(max_loop_rows=1))
    producer = log.producer(None)

    def produce(*records: tuple[bytes, bytes | None]) -> None:
        producer.begin()
        producer.send("nodes", 0, [key for key, _ in records], [value for _, value in records], [0] * len(records))
        producer.commit({}, None)

    produce((b"a", b"b"), (b"b", b"c"), (b"c", b"a"))
    worker.run_until_idle()
    assert worker.quiescent()
    assert dict(worker.circuit.states["descendants"].items()) == {}  # type: ignore[attr-defined]
    assert len(worker.held()) == 1
    produce((b"c", None), (b"d", b"a"))
    worker.run_until_idle()
    assert dict(worker.circuit.states["descendants"].items()) == {"a": 1, "b": 2, "c": 3}  # type: ignore[attr-defined]
    assert worker.held() == {}
    worker.close()


def test_a_tombstone_lies_under_the_bytes_of_its_row() -> None:
    """1 and 1.0 are one key of a table, so a reader of its topic has to see one key, too."""
    topology = eddy.Topology("numbers")
    table = topology.table("in", key=eddy.String, value=eddy.Native)
    table.group_by(lambda name, number: (number, name), key=eddy.Native).count("counts").to("out")
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe_all([("a", 1)])
        driver.input("in").pipe_all([("a", None), ("b", 1.0)])
        driver.input("in").pipe_all([("b", None)])
        assert driver.output("out").read_map() == {}
