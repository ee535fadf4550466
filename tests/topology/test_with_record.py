"""Functions with a parameter named `record`: the record's place, timestamp and headers, whatever the cut; bad input."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.state.memory import MemoryStore
from tests.waiting import step_to_rest

S, N, Native = eddy.String, eddy.Int64, eddy.Native
Headers = tuple[tuple[str, bytes], ...]
Sent = tuple[str, str, int, Headers]
"""The key, the value, the timestamp and the headers of a record."""


def told(record: eddy.RecordContext) -> tuple[Any, ...]:
    return (record.topic, record.partition, record.offset, record.timestamp_ms, record.headers)


def rows(driver: eddy.TopologyTestDriver, topic: str = "out") -> list[tuple[Any, Any]]:
    return driver.output(topic).read_key_values()


def driven(build: Callable[[eddy.KStream[str, str]], Any], config: eddy.Config | None = None) -> Any:
    topology = eddy.Topology("app")
    build(topology.stream("in", S, S))
    driver = eddy.TopologyTestDriver(topology, config)
    driver.input("in").pipe("a", "x", 7, headers=[("from", b"here")])
    driver.input("in").pipe("b", "y", 9)
    return driver


HERE = (("from", b"here"),)
A, B = ("in", 0, 0, 7, HERE), ("in", 0, 2, 9, ())
"""What is told of the two records; a transaction's mark has the offset between them."""


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda s: s.map_values(lambda value, record: (value, told(record))), [("a", ("x", A)), ("b", ("y", B))]),
        (
            lambda s: s.map_values(lambda key, value, record: (key, value, told(record))),
            [("a", ("a", "x", A)), ("b", ("b", "y", B))],
        ),
        (lambda s: s.map(lambda key, value, record: (value, told(record)), key=S), [("x", A), ("y", B)]),
        (lambda s: s.flat_map(lambda key, value, record: [(value, told(record))], key=S), [("x", A), ("y", B)]),
        (
            lambda s: s.flat_map_values(lambda value, record: [value, record.offset]),
            [("a", "x"), ("a", 0), ("b", "y"), ("b", 2)],
        ),
        (lambda s: s.filter(lambda key, value, record: record.offset > 0), [("b", "y")]),
        (lambda s: s.filter_not(lambda key, value, record: record.headers), [("b", "y")]),
        (
            lambda s: s.select_key(lambda key, value, record: f"{record.topic}-{key}", key=S),
            [("in-a", "x"), ("in-b", "y")],
        ),
        (
            lambda s: s.map_values(str.upper, value=S).map_values(lambda value, *, record: (value, told(record))),
            [("a", ("X", A)), ("b", ("Y", B))],
        ),
    ],
)
def test_a_function_is_called_with_the_record_of_each_row(step: Callable[[Any], Any], expected: list[Any]) -> None:
    with driven(lambda stream: step(stream).to("out", value=Native)) as driver:
        assert rows(driver) == expected


def test_effects_branches_and_topics_get_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    def build(stream: eddy.KStream[str, str]) -> None:
        stream.peek(lambda key, value, record: print("peek", record.offset)).foreach(
            lambda key, value, record: print("foreach", record.timestamp_ms)
        )
        branches = stream.split(
            tagged=lambda key, value, record: bool(record.headers), rest=lambda key, value: value == "y"
        )
        branches["tagged"].to("tagged")
        branches["rest"].to("rest")
        stream.to(lambda key, value, record: f"out-{record.partition}", topics=["out-0", "out-1"])

    with driven(build) as driver:
        assert (rows(driver, "tagged"), rows(driver, "rest")) == ([("a", "x")], [("b", "y")])
        assert rows(driver, "out-0") == [("a", "x"), ("b", "y")]
    assert capsys.readouterr().out.split("\n")[:-1] == ["peek 0", "foreach 7", "peek 2", "foreach 9"]


def test_a_parameter_that_gets_the_key_or_the_value_is_no_record() -> None:
    with driven(lambda s: s.filter(lambda key, record: record == "x").to("out")) as driver:
        assert rows(driver) == [("a", "x")]
    with driven(lambda s: s.map_values(lambda record: record + "!").to("out")) as driver:
        assert rows(driver) == [("a", "x!"), ("b", "y!")]
    with driven(lambda s: s.map_values(lambda key, record: key + record).to("out")) as driver:
        assert rows(driver) == [("a", "ax"), ("b", "by")]
    with driven(lambda s: s.map_values(lambda value, record=None: (value, record)).to("out", value=Native)) as driver:
        assert rows(driver) == [("a", ("x", None)), ("b", ("y", None))]


def test_a_decorated_function_gets_the_record_where_its_decorator_passes_one_on() -> None:
    def placed(value: str, record: eddy.RecordContext) -> tuple[str, int]:
        return value, record.offset

    @functools.wraps(placed)
    def passing(*arguments: Any, **named: Any) -> tuple[str, int]:
        return placed(*arguments, **named)

    @functools.wraps(placed)
    def of_its_own(value: str) -> str:
        return value

    for function in (passing, functools.cache(placed)):
        with driven(lambda s, function=function: s.map_values(function).to("out", value=Native)) as driver:
            assert rows(driver) == [("a", ("x", 0)), ("b", ("y", 2))]
    with driven(lambda s: s.map_values(of_its_own).to("out")) as driver:
        assert rows(driver) == [("a", "x"), ("b", "y")]


def test_a_record_that_is_joined_with_a_table_is_still_one() -> None:
    topology = eddy.Topology("app")
    names, cities = topology.table("names", S, S), topology.global_table("cities", S, S)
    named = topology.stream("in", S, S).join(names, lambda value, name: f"{value} {name}")
    placed = named.left_join(cities, lambda value, city: value, select=lambda key, value: key)
    placed.map_values(lambda value, record: (value, told(record))).to("out", value=Native)
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("names").pipe("a", "ann", 1)
        driver.input("in").pipe("b", "w", 5)
        driver.input("in").pipe("a", "x", 7, headers=[("from", b"here")])
        assert rows(driver) == [("a", ("x ann", ("in", 0, 2, 7, HERE)))]


def test_the_event_time_of_the_author_is_the_timestamp() -> None:
    topology = eddy.Topology("app")
    stream = topology.stream("in", S, N, timestamp=lambda value: value)
    stream.map_values(lambda value, record: record.timestamp_ms, value=N).to("out")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("in").pipe("a", 12_345, 7)
        assert rows(driver) == [("a", 12_345)]


def test_a_table_and_a_count_of_what_was_kept_of_records() -> None:
    topology = eddy.Topology("app")
    stream = topology.stream("in", S, S).map_values(lambda value, record: f"{value}@{record.offset}", value=S)
    stream.to_table("latest")
    stream.group_by_key().count("counts")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("in").pipe_all([("a", "x"), ("a", "y")], 1)
        assert driver.store("latest").all() == {"a": "y@1"}
        assert driver.store("counts").all() == {"a": 2}


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_a_record_on_which_the_function_fails_is_left_out_alone(policy: Any) -> None:
    def failing(value: str, record: eddy.RecordContext) -> tuple[str, Any]:
        if record.offset == 1 or record.timestamp_ms != 5:
            raise ValueError(f"bad record of {record.timestamp_ms}")
        return value, told(record)

    topology = eddy.Topology("app")
    topology.stream("in", S, S).map_values(failing).to("out", value=Native)
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error=policy)) as driver:
        driver.input("in").pipe_all([("a", "x"), ("b", "y"), ("c", "z")], 5)
        assert [(key, value[1][2]) for key, value in rows(driver)] == [("a", 0), ("c", 2)]
        assert driver.worker.statistics.skipped == 1


record = st.tuples(
    st.sampled_from("abcdef"),
    st.text("xyz", min_size=1, max_size=3),
    st.integers(0, 10**12),
    st.sampled_from([(), (("h", b"1"),), (("h", b"1"), ("h", b""), ("i", b"2"))]),
)


@given(
    st.lists(st.lists(record, max_size=6), max_size=5),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([1, 2, 1000]),
    st.data(),
)
def test_it_is_the_record_whatever_the_cut_and_the_worker(
    parts: list[list[Sent]], partitions: int, count: int, most: int, data: st.DataObject
) -> None:
    topology = eddy.Topology("app")
    stream = topology.stream("in", S, S).filter(lambda key, value: value != "z")
    stream.map(lambda key, value, record: (value, (key, told(record))), key=S).to("out", value=Native)
    log = LocalLog(None)
    log.create_topics([TopicSpec("in", partitions), TopicSpec("out", 1)])

    def worker(number: int) -> eddy.Worker:
        return eddy.Worker(topology, log, eddy.Config(max_epoch_records=most), member=str(number), store=MemoryStore())

    workers = [worker(number) for number in range(count)]
    for part in parts:
        producer = log.producer(None)
        producer.begin()
        for key, value, stamp, headers in part:
            home = partition_of(key.encode(), partitions)
            producer.send("in", home, [key.encode()], [value.encode()], [stamp], [headers] if headers else None)
        producer.commit({}, None)
        producer.close()
        number = data.draw(st.integers(0, count - 1))
        if data.draw(st.booleans()):
            workers[number].close()
            workers[number] = worker(number)
        workers[number].step()
    step_to_rest(workers)
    expected = []
    for partition in range(partitions):
        read = log.read(TopicPartition("in", partition), 0, 10_000, 10_000)
        headers = read.headers or [()] * len(read)
        for key, value, offset, stamp, own in zip(
            read.keys, read.values, read.offsets, read.timestamps, headers, strict=True
        ):
            assert key is not None
            assert value is not None
            if value != b"z":
                expected.append((value.decode(), (key.decode(), ("in", partition, offset, stamp, tuple(own)))))
    found = log.read(TopicPartition("out", 0), 0, 10_000, 10_000)
    pairs = zip(found.keys, found.values, strict=True)
    assert sorted((k.decode(), Native.decode(v)) for k, v in pairs if k is not None and v is not None) == sorted(
        expected
    )
    for one in workers:
        one.close()


def double(value: str, record: eddy.RecordContext) -> str:
    return value * 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda t: t.stream("in", S, S).repartition(3, "spread").map_values(double),
            r"map_values after 'spread'.* named record, and step 'spread-repartition' has sent the rows",
        ),
        (
            lambda t: t.stream("in", S, S).to_table("t").to_stream().map_values(double),
            "makes rows that are not records of a source; call it on the source's stream",
        ),
        (lambda t: t.table("in", S, S).map_values(double), r"a row of a table is retracted .*to_table\(\)"),
        (lambda t: t.table("in", S, S).to_relation().map_values(double), "is retracted without its record"),
        (
            lambda t: t.stream("in", S, S).recursively(lambda s: s.map_values(double), "loop", max_depth=2),
            "rows inside .*'loop'.* are not records of a source; call it before the recursion",
        ),
        (
            lambda t: t.stream("in", S, S).map_values(lambda value, other, record: value),
            r"takes \(value, other, record\) and is called with \(value\)",
        ),
        (
            lambda t: t.stream("in", S, S).to(lambda key, record, other, more: "x", topics=["x"]),
            "topic=.* is called with",
        ),
    ],
)
def test_where_there_is_no_record_it_is_refused_by_name(build: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(eddy.TopologyError, match=message):
        build(eddy.Topology("app"))


async def later(value: str, record: eddy.RecordContext) -> str:
    return value


def test_a_coroutine_function_is_refused() -> None:
    with pytest.raises(eddy.TopologyError, match="is a coroutine function"):
        eddy.Topology("app").stream("in", S, S).map_values(later)
