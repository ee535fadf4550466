"""`suppress(until_time_limit=…)`: a row changes at most once in a span of the wall clock; an oracle in plain Python."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import murmur2
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from tests.waiting import step_to_rest

S, N = eddy.String, eddy.Int64
TEN = timedelta(seconds=10)


def counting(limit: timedelta = TEN) -> eddy.Topology:
    topology = eddy.Topology("app")
    counts = topology.stream("in", S, S).group_by_key().count("counts")
    counts.suppress("now-and-then", until_time_limit=limit).to("out", value=N)
    return topology


def test_changes_wait_and_the_last_one_is_passed_on() -> None:
    with eddy.TopologyTestDriver(counting()) as driver:
        read = driver.output("out", value=N)
        driver.input("in").pipe_all([("a", "x"), ("b", "x")])
        assert read.read_key_values() == []
        driver.advance_wall_clock_time(9.5)
        driver.input("in").pipe_all([("a", "x"), ("a", "x")])
        assert read.read_key_values() == []
        driver.advance_wall_clock_time(0.5)
        assert sorted(read.read_key_values()) == [("a", 3), ("b", 1)]
        driver.advance_wall_clock_time(100)
        assert read.read_key_values() == []
        driver.input("in").pipe("b", "x")
        driver.advance_wall_clock_time(10)
        assert read.read_key_values() == [("b", 2)]


def test_a_row_that_is_as_it_was_is_not_passed_on() -> None:
    topology = eddy.Topology("app")
    topology.table("in", S, S).suppress("calm", until_time_limit=TEN).to("out")
    with eddy.TopologyTestDriver(topology) as driver:
        read = driver.output("out", value=S)
        driver.input("in").pipe("a", "x")
        driver.advance_wall_clock_time(10)
        assert read.read_key_values() == [("a", "x")]
        driver.input("in").pipe("a", "y")
        driver.input("in").pipe("a", "x")
        driver.input("in").pipe("b", "z")
        driver.input("in").pipe("b", None)
        assert list(driver.worker.circuit.states["calm-waiting"].items()) == []
        driver.advance_wall_clock_time(10)
        assert read.read_key_values() == []
        driver.input("in").pipe("a", None)
        driver.advance_wall_clock_time(10)
        assert read.read_key_values() == [("a", None)]


def test_a_join_and_a_count_of_what_was_passed_on() -> None:
    topology = eddy.Topology("app")
    names = topology.table("names", S, S)
    calm = topology.table("in", S, S).suppress("calm", until_time_limit=TEN)
    calm.join(names, lambda value, name: f"{value} of {name}", value=S).to("joined")
    calm.group_by(lambda key, value: (value, key), S, S).count("counts")
    with eddy.TopologyTestDriver(topology, partitions=3) as driver:
        driver.input("names").pipe("a", "Ann")
        driver.input("in").pipe_all([("a", "x"), ("b", "x"), ("c", "y")])
        assert driver.store("counts").all() == {}
        driver.advance_wall_clock_time(10)
        assert driver.store("counts").all() == {"x": 2, "y": 1}
        driver.input("in").pipe_all([("a", "y"), ("b", None)])
        driver.advance_wall_clock_time(10)
        assert driver.store("counts").all() == {"y": 2}
        assert driver.output("joined", value=S).read_map() == {"a": "y of Ann"}


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.sampled_from("xyz"))),
        st.integers(1, 12),
        st.just("restart"),
        st.just("lose the disk"),
    ),
    max_size=30,
)


@given(steps, st.integers(1, 3), st.integers(1, 15))
def test_each_row_is_passed_on_as_it_is_some_time_after_it_has_changed(
    steps: list[Any], partitions: int, limit: int
) -> None:
    topology = eddy.Topology("app")
    topology.table("in", S, S).suppress("calm", until_time_limit=timedelta(seconds=limit)).to("out")
    now, rows, shown = 0, dict[str, str](), dict[str, str | None]()
    waiting: dict[str, int] = {}
    with eddy.TopologyTestDriver(topology, partitions=partitions) as driver:
        read = driver.output("out", value=S)
        for step in [*steps, limit, limit]:
            if isinstance(step, tuple):
                key, value = step
                driver.input("in").pipe(key, value)
                rows = {**rows, key: value} if value is not None else {k: v for k, v in rows.items() if k != key}
                if rows.get(key) == shown.get(key):
                    waiting.pop(key, None)
                else:
                    waiting.setdefault(key, now + limit)
            elif isinstance(step, int):
                driver.advance_wall_clock_time(step)
                now += step
            else:
                driver.restart(lose_state=step != "restart")
            due = {key for key, moment in waiting.items() if moment <= now}
            expected = {key: rows.get(key) for key in due}
            assert dict(read.read_key_values()) == expected
            shown |= expected
            waiting = {key: moment for key, moment in waiting.items() if key not in due}
        assert {key: value for key, value in shown.items() if value is not None} == rows


def calm(**bound: Any) -> eddy.Topology:
    topology = eddy.Topology("app")
    topology.table("in", S, S).suppress("calm", until_time_limit=TEN, **bound).to("out")
    return topology


def test_the_changes_that_have_waited_longest_are_passed_on_where_too_many_wait() -> None:
    with eddy.TopologyTestDriver(calm(max_rows=2)) as driver:
        read = driver.output("out", value=S)
        driver.input("in").pipe_all([("a", "1"), ("b", "1")])
        assert read.read_key_values() == []
        driver.advance_wall_clock_time(1)
        driver.input("in").pipe("c", "1")
        assert read.read_key_values() == [("a", "1")]
        driver.input("in").pipe("b", "2")
        assert read.read_key_values() == []
        driver.input("in").pipe("d", "1")
        assert read.read_records() == [eddy.OutputRecord("b", "2", 1_000)]
        driver.advance_wall_clock_time(10)
        assert sorted(read.read_key_values()) == [("c", "1"), ("d", "1")]


def test_a_worker_ends_where_too_many_changes_wait_and_a_record_is_not_to_blame() -> None:
    topology = calm(max_rows=2, full="fail")
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="dead-letter")) as driver:
        driver.input("in").pipe_all([("a", "1"), ("b", "1"), ("a", "2")])
        with pytest.raises(
            eddy.StateError, match=r"suppress 'calm': 3 changes of 48 bytes .* partition 0; .* 2 changes"
        ):
            driver.input("in").pipe("c", "1")
        assert driver.output("app-dead-letter").read_records() == []


epochs = st.lists(
    st.one_of(
        st.lists(
            st.tuples(st.sampled_from("abcdefg"), st.sampled_from([None, "x", "y", "long" * 9])), min_size=1, max_size=9
        ),
        st.integers(1, 12),
        st.sampled_from(["restart", "lose the disk"]),
    ),
    max_size=25,
)


@given(epochs, st.integers(1, 3), st.one_of(st.none(), st.integers(1, 4)), st.one_of(st.none(), st.integers(1, 120)))
def test_no_more_changes_wait_than_may_and_the_oldest_are_passed_on(
    steps: list[Any], partitions: int, rows: int | None, size: int | None
) -> None:
    now, table, shown = 0, dict[str, str](), dict[str, str]()
    waiting: dict[str, int] = {}
    with eddy.TopologyTestDriver(calm(max_rows=rows, max_bytes=size), partitions=partitions) as driver:
        read = driver.output("out", value=S)

        def length(key: str, moment: int) -> int:
            spec = driver.worker.circuit.states["calm-waiting"].spec
            row = (moment * 1_000, shown.get(key), table.get(key))
            return len(spec.key.encode(key)) + len(spec.value.encode(row))

        def full(keys: dict[str, int]) -> bool:
            """Whether more wait than may."""
            held = sum(length(key, moment) for key, moment in keys.items())
            return (rows is not None and len(keys) > rows) or (size is not None and held > size)

        for step in [*steps, 10, 10]:
            if isinstance(step, list):
                driver.input("in").pipe_all(step)
                table = {key: value for key, value in (table | dict(step)).items() if value is not None}
                for key in dict(step):
                    if table.get(key) == shown.get(key):
                        waiting.pop(key, None)
                    else:
                        waiting.setdefault(key, now + 10)
            elif isinstance(step, int):
                driver.advance_wall_clock_time(step)
                now += step
            else:
                driver.restart(lose_state=step != "restart")
            passed = dict(read.read_key_values())
            assert passed == {key: table.get(key) for key in passed}
            due = {key for key, moment in waiting.items() if moment <= now}
            assert due <= passed.keys() <= waiting.keys()
            for partition in range(partitions):
                here = {key: at for key, at in waiting.items() if murmur2(key.encode(), partitions) == partition}
                early = [key for key in here if key in passed and key not in due]
                left = {key: at for key, at in here.items() if key not in passed}
                assert not full(left)
                assert max((here[key] for key in early), default=0) <= min(left.values(), default=1 << 62)
                last = [key for key in early if here[key] == max(here[other] for other in early)]
                assert not last or any(full({**left, key: here[key]}) for key in last)
            for key in passed:
                del waiting[key]
                shown.pop(key, None)
                if key in table:
                    shown[key] = table[key]
        assert shown == table


@given(
    st.lists(st.tuples(st.lists(st.sampled_from("abcdefghijklmn"), min_size=1), st.integers(0, 9)), max_size=8),
    st.data(),
)
def test_a_bound_holds_in_each_partition_whichever_worker_has_it(parts: list[Any], data: st.DataObject) -> None:
    log = LocalLog(None)
    log.create_topics(TopicSpec(name, 2) for name in ("in", "out"))
    number, table = 0, dict[str, str]()

    def new_worker() -> eddy.Worker:
        return eddy.Worker(calm(max_rows=3), log, eddy.Config(), member=f"w{number}", wall=lambda: 0.0)

    workers = [new_worker()]
    for number, (keys, choice) in enumerate(parts, 1):
        if len(workers) > 1 and choice < 5:
            workers.pop(choice % 2).close()
        elif len(workers) == 1:
            workers.append(new_worker())
        producer = log.producer(None)
        producer.begin()
        for key in keys:
            table[key] = str(number)
            producer.send("in", murmur2(key.encode(), 2), [key.encode()], [table[key].encode()], [0])
        producer.commit({}, None)
        step_to_rest(workers)
        waiting: dict[str, str] = {}
        for worker in workers:
            rows = worker.circuit.states["calm-waiting"].items()
            owned = worker.circuit.ownership.of(2)
            waiting |= {key: value for key, (_, _, value) in rows if murmur2(key.encode(), 2) in owned}
        there, wait = (Counter(murmur2(key.encode(), 2) for key in rows) for rows in (table, waiting))
        assert wait == {partition: min(many, 3) for partition, many in there.items()}
        shown: dict[str, str] = {}
        for at in (TopicPartition("out", 0), TopicPartition("out", 1)):
            read = log.read(at, 0, log.end_offsets([at])[at], 10_000)
            shown |= {key.decode(): value.decode() for key, value in zip(read.keys, read.values, strict=True)}
        assert shown | waiting == table
    for worker in workers:
        worker.close()


@pytest.mark.slow
def test_many_rows_are_passed_on_in_several_steps() -> None:
    with eddy.TopologyTestDriver(counting()) as driver:
        driver.input("in").pipe_all([(f"k{n}", "x") for n in range(45_000)])
        driver.advance_wall_clock_time(10)
        assert len(driver.output("out", value=N).read_key_values()) == 45_000
        assert list(driver.worker.circuit.states["now-and-then-waiting"].items()) == []


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda t: t.suppress("calm", until_time_limit=5), "suppress 'calm': until_time_limit=5; a timedelta"),
        (lambda t: t.suppress("calm", until_time_limit=timedelta(0)), "until_time_limit=.* from a millisecond"),
        (lambda t: t.suppress("calm"), r"a table of windows is needed.*until_time_limit=timedelta\("),
        (lambda t: t.suppress("calm", max_rows=5), r"until_time_limit= is not given; .* Add until_time_limit="),
        (lambda t: t.suppress("calm", until_time_limit=TEN, full="fail"), "full='fail' without a bound.*max_rows="),
    ],
)
def test_what_is_no_limit_is_refused_where_it_is_written(build: Any, message: str) -> None:
    with pytest.raises(eddy.TopologyError, match=message):
        build(eddy.Topology("app").table("in", S, S))
