"""Sinks whose records go to the partitions that a function chooses."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.log import TopicPartition
from eddy.errors import TopologyError
from tests.topology.joining import N, Record, Running, S


def by_value(key: str | None, value: int | None, partitions: int) -> int:
    return (value or 0) * 7 % partitions


def by_value_or_not(key: str | None, value: int | None, partitions: int) -> Any:
    assert value is not None
    return {1: -1, 2: partitions, 3: True, 4: 1.0, 5: 1 // (value - 5) if value == 5 else 0}.get(value, 0)


key = st.sampled_from(["a", "b", "c", None])
record = st.tuples(st.just(0), key, st.one_of(st.none(), st.integers(1, 40)), st.integers(0, 50))
parts = st.lists(st.lists(record, min_size=1, max_size=12), min_size=1, max_size=5)


@given(parts, st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 3, 1000]), st.data())
def test_each_record_is_once_in_the_partition_of_its_function(
    parts: list[list[Record]], partitions: int, count: int, most: int, data: st.DataObject
) -> None:
    topology = eddy.Topology("app")
    rows = topology.stream("left", key=S, value=N)
    topology.stream("right", key=S, value=N)
    rows.map_values(lambda value: value, value=eddy.Native).to("out", partitioner=by_value)
    running = Running(topology, partitions, count, most)
    for part in parts:
        running.write(part)
        match data.draw(st.sampled_from(["finish", "step", "replace"])):
            case "finish":
                running.finish()
            case "step":
                running.workers[data.draw(st.integers(0, count - 1))].step()
            case "replace":
                running.replace(data.draw(st.integers(0, count - 1)))
    running.finish()
    found: list[list[tuple[str | None, int | None, int]]] = []
    for partition in range(partitions):
        at = TopicPartition("out", partition)
        records = running.log.read(at, 0, running.log.end_offsets([at])[at], 100_000)
        columns = zip(records.keys, records.values, records.timestamps, strict=True)
        found.append(
            [
                (None if k is None else k.decode(), None if v is None else eddy.Native.decode(v), stamp)
                for k, v, stamp in columns
            ]
        )
    for partition, rows_found in enumerate(found):
        wanted = [(k, v, stamp) for part in parts for _, k, v, stamp in part if (v or 0) * 7 % partitions == partition]
        assert sorted(map(repr, rows_found)) == sorted(map(repr, wanted))
    for worker in running.workers:
        worker.close()


def parcels(partitioner: Callable[[Any, Any, int], Any], **chosen: Any) -> eddy.Topology:
    topology = eddy.Topology("app")
    stream = topology.stream("in", key=S, value=N)
    stream.to(chosen.pop("topic", "out"), partitioner=partitioner, **chosen)
    return topology


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        (1, "returned -1 for key 'a'; a whole number from 0 to 1 is needed"),
        (2, "returned 2 for key 'a'"),
        (3, "returned True for key 'a'"),
        (4, "returned 1.0 for key 'a'"),
        (5, r"raised ZeroDivisionError: .*test_partitioners.py:\d+ in by_value_or_not"),
    ],
)
def test_what_is_no_partition_is_an_error_of_its_record_alone(value: int, wrong: str) -> None:
    topology = parcels(by_value_or_not)
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="dead-letter"), partitions=2) as driver:
        driver.input("in").pipe_all([("x", 10), ("a", value), ("x", 11)])
        assert driver.output("out").read_key_values() == [("x", 10), ("x", 11)]
        at = TopicPartition("app-dead-letter", 0)
        letters = driver.log.read(at, 0, driver.log.end_offsets([at])[at], 10)
        assert list(letters.keys) == [b"a"]
        assert letters.headers is not None
        reason = dict(letters.headers[0])["eddy.error"].decode()
        assert re.search(rf"sink 'out': partitioner= of .*test_partitioners.py:\d+ {wrong}", reason)


def test_the_policy_fail_names_the_record() -> None:
    with (
        eddy.TopologyTestDriver(parcels(by_value_or_not), partitions=2) as driver,
        pytest.raises(eddy.DataError, match=r"topic 'in' partition \d offset \d.*partitioner= of .* returned -1"),
    ):
        driver.input("in").pipe("a", 1)


def test_rows_that_are_set_aside_after_an_exchange_are_so_for_their_partition_too() -> None:
    topology = eddy.Topology("app")
    rows = topology.stream("in", key=S, value=N).select_key(lambda key, value: f"{key}{key}").repartition(2, name="r")
    rows.to("out", partitioner=by_value_or_not)
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="dead-letter"), partitions=2) as driver:
        driver.input("in").pipe_all([("x", 10), ("a", 1), ("b", 5), ("y", 11)])
        assert sorted(driver.output("out").read_key_values()) == [("xx", 10), ("yy", 11)]
        at = TopicPartition("app-dead-letter", 0)
        assert sorted(driver.log.read(at, 0, driver.log.end_offsets([at])[at], 10).keys) == [
            eddy.Native.encode(key) for key in ("aa", "bb")
        ]


def test_a_function_names_the_topic_and_another_one_the_partition() -> None:
    topology = parcels(by_value, topic=lambda key, value: key, topics=["one", "two"])
    with eddy.TopologyTestDriver(topology, partitions=3) as driver:
        driver.input("in").pipe_all([("one", 1), ("two", 2), ("one", 3)])
        log = driver.log
        found = {
            (t, p): list(log.read(TopicPartition(t, p), 0, 10, 10).values) for t in ("one", "two") for p in range(3)
        }
    encoded = {n: N.encode(n) for n in (1, 2, 3)}
    assert found == {
        ("one", 0): [encoded[3]],
        ("one", 1): [encoded[1]],
        ("one", 2): [],
        ("two", 0): [],
        ("two", 1): [],
        ("two", 2): [encoded[2]],
    }


def test_changes_of_a_table_as_a_stream_are_placed_too() -> None:
    topology = eddy.Topology("app")
    counts = topology.stream("in", key=S, value=N).group_by_key().count("counts")
    counts.to_stream().to("out", partitioner=lambda key, count, partitions: count % partitions)
    with eddy.TopologyTestDriver(topology, partitions=2) as driver:
        for _ in range(3):
            driver.input("in").pipe("a", 1)
        read = [list(driver.log.read(TopicPartition("out", p), 0, 20, 20).values) for p in (0, 1)]
    assert read == [[N.encode(2)], [N.encode(1), N.encode(3)]]


def again(use: Callable[[eddy.Topology, "eddy.KStream[str, int]"], object]) -> eddy.Topology:
    """A topology that reads the topic that it writes with `partitioner=`."""
    topology = parcels(by_value)
    use(topology, topology.stream("out", key=S, value=N))
    return topology


def counted(topology: eddy.Topology, stream: "eddy.KStream[str, int]") -> None:
    stream.group_by_key().count("counts")


def joined(topology: eddy.Topology, stream: "eddy.KStream[str, int]") -> None:
    stream.join(topology.table("other", key=S, value=N), lambda one, other: one).to("joined")


@pytest.mark.parametrize("use", [counted, joined])
def test_a_step_by_key_says_that_it_is_not_co_partitioned(
    use: Callable[[eddy.Topology, "eddy.KStream[str, int]"], object],
) -> None:
    with pytest.raises(TopologyError, match=r"works by key and is not co-partitioned with 'out'.*repartition\(2\)"):
        eddy.TopologyTestDriver(again(use), partitions=2)
    eddy.TopologyTestDriver(again(use), partitions=1).close()  # all keys are in one partition
    eddy.TopologyTestDriver(again(lambda t, rows: use(t, rows.repartition(2, name="r"))), partitions=2).close()


def test_a_table_of_the_topic_is_refused_and_steps_without_a_key_are_not() -> None:
    topology = parcels(by_value)
    topology.table("out", key=S, value=N)
    with pytest.raises(TopologyError, match="not co-partitioned with 'out'"):
        eddy.TopologyTestDriver(topology, partitions=2)
    again_topology = again(lambda t, rows: rows.filter(lambda key, value: value > 1).to("more"))
    with eddy.TopologyTestDriver(again_topology, partitions=2) as driver:
        driver.input("in").pipe_all([("a", 1), ("b", 2)])
        assert driver.output("more").read_key_values() == [("b", 2)]


def test_a_function_by_record_is_refused_where_it_is_written() -> None:
    with pytest.raises(TopologyError, match=r"partitioner=.* is called with \(key, value, partitions\)"):
        parcels(lambda key, value: 0)  # type: ignore[arg-type, misc]
