"""`suppress(until_time_limit=…)`: a row changes at most once in a span of the wall clock; an oracle in plain Python."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy

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
    ],
)
def test_what_is_no_limit_is_refused_where_it_is_written(build: Any, message: str) -> None:
    with pytest.raises(eddy.TopologyError, match=message):
        build(eddy.Topology("app").table("in", S, S))
