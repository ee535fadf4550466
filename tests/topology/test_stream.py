"""KStream: every method, by example, on the test driver."""

import functools
from typing import Any, TypeGuard

import pytest
from typing_extensions import TypeIs

import eddy
from eddy import TopologyTestDriver
from eddy.errors import TopologyError
from tests.topology.programs import S

Stream = eddy.KStream[str, str]


def run(build: Any, records: list[tuple[Any, Any]], **serdes: Any) -> list[tuple[Any, Any]]:
    """What `build(stream)` writes for `records`."""
    topology = eddy.Topology("app")
    build(topology.stream("in", key=S, value=S)).to("out", **serdes)
    with TopologyTestDriver(topology) as driver:
        for key, value in records:
            driver.input("in").pipe(key, value)
        return driver.output("out").read_key_values()


AB = [("a", "1"), ("b", "2")]


def test_filter_keeps_what_the_predicate_takes() -> None:
    assert run(lambda s: s.filter(lambda key, value: key == "a"), AB) == [("a", "1")]


def is_one(value: object) -> "TypeGuard[str]":
    return value == "1"


def not_two(value: str) -> TypeIs[str]:
    return value != "2"


class IsOne:
    def __call__(self, value: str) -> TypeGuard[str]:
        return value == "1"


def noted(function: Any) -> Any:
    """A decorator that passes on what it gets."""

    @functools.wraps(function)
    def called(*given: Any) -> Any:
        return function(*given)

    return called


@pytest.mark.parametrize("guard", [is_one, not_two, IsOne(), functools.cache(is_one), noted(is_one)])
def test_filter_calls_a_type_guard_with_the_value(guard: Any) -> None:
    assert run(lambda s: s.filter(guard), AB) == [("a", "1")]
    assert run(lambda s: s.to_table("t").filter(guard).to_stream(), AB) == [("a", "1")]


def test_filter_calls_a_guard_of_two_arguments_with_the_key() -> None:
    def has_a(key: str, value: str) -> TypeGuard[str]:
        return key == "a"

    assert run(lambda s: s.filter(has_a), AB) == [("a", "1")]


def test_filter_calls_a_guard_with_the_value_whose_other_parameters_are_given_or_by_name() -> None:
    def is_text(text: str, value: str) -> TypeGuard[str]:
        return value == text

    def is_first(value: str, *, text: str = "1") -> TypeGuard[str]:
        return value == text

    for guard in (is_first, functools.partial(is_text, "1")):
        assert run(lambda s, guard=guard: s.filter(guard), AB) == [("a", "1")]


def test_filter_refuses_a_guard_of_a_value_or_a_key_and_a_value() -> None:
    def has_one(value: str, other: str = "") -> TypeGuard[str]:
        return True

    def has_all(*given: str) -> TypeGuard[str]:
        return True

    for guard, takes in ((has_one, r"\(value, other=''\)"), (has_all, r"\(\*given\)"), (noted(has_one), "")):
        with pytest.raises(TopologyError, match=f"filter after 'in': type guard has_.* of .* takes {takes}.*by name"):
            run(lambda s, guard=guard: s.filter(guard), AB)


def test_filter_keeps_the_cache_of_a_guard() -> None:
    guard = functools.cache(is_one)
    run(lambda s: s.filter(guard), [("a", "1"), ("b", "1")])
    assert guard.cache_info().hits >= 1


def test_filter_not_and_branches_refuse_a_guard_of_the_value() -> None:
    for step in (lambda s: s.filter_not(is_one), lambda s: s.split(one=is_one)["one"]):
        with pytest.raises(TopologyError, match=r"is_one of .* takes \(value\) and is called with \(key, value\)"):
            run(step, [])


def test_filter_not_keeps_the_rest() -> None:
    assert run(lambda s: s.filter_not(lambda key, value: key == "a"), AB) == [("b", "2")]


def test_map_replaces_key_and_value() -> None:
    assert run(lambda s: s.map(lambda key, value: (value, key)), AB) == [("1", "a"), ("2", "b")]


def test_map_values_replaces_the_value() -> None:
    assert run(lambda s: s.map_values(int), AB, value=eddy.Int64) == [("a", 1), ("b", 2)]


def test_flat_map_replaces_a_record_by_any_number() -> None:
    build = lambda s: s.flat_map(lambda key, value: [(value, key)] * int(value))  # noqa: E731
    assert run(build, [*AB, ("c", "0")]) == [("1", "a"), ("2", "b"), ("2", "b")]


def test_flat_map_values_keeps_the_key() -> None:
    assert run(lambda s: s.flat_map_values(lambda value: value * 2), AB) == [
        ("a", "1"), ("a", "1"), ("b", "2"), ("b", "2"),
    ]  # fmt: skip


def test_select_key_keeps_the_value() -> None:
    assert run(lambda s: s.select_key(lambda key, value: key + value), AB) == [("a1", "1"), ("b2", "2")]


def test_peek_sees_each_record_and_changes_none() -> None:
    seen: list[tuple[str, str]] = []
    assert run(lambda s: s.peek(lambda key, value: seen.append((key, value))), AB) == AB
    assert seen == AB


def test_foreach_ends_the_branch() -> None:
    seen: list[tuple[str, str]] = []
    topology = eddy.Topology("app")
    assert topology.stream("in", key=S, value=S).foreach(lambda key, value: seen.append((key, value))) is None  # type: ignore[func-returns-value]
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe("a", "1")
    assert seen == [("a", "1")]


def test_merge_takes_the_records_of_all() -> None:
    def build(stream: Stream) -> Stream:
        big, small = stream.map_values(str.upper), stream.filter(lambda key, value: key == "b")
        return big.merge(small)

    assert run(build, [("a", "x"), ("b", "y")]) == [("a", "X"), ("b", "Y"), ("b", "y")]


def test_split_sends_a_record_to_the_first_branch_that_takes_it() -> None:
    topology = eddy.Topology("app")
    branches = topology.stream("in", key=S, value=S).split(
        short=lambda key, value: len(value) < 2,
        digits=lambda key, value: value.isdigit(),
        default=lambda key, value: True,
    )
    for name, branch in branches.items():
        branch.to(name)
    with TopologyTestDriver(topology) as driver:
        for value in ["1", "12", "word"]:
            driver.input("in").pipe(value, value)
        assert {name: driver.output(name).read_map() for name in branches} == {
            "short": {"1": "1"},
            "digits": {"12": "12"},
            "default": {"word": "word"},
        }


def test_split_drops_what_no_branch_takes() -> None:
    assert run(lambda s: s.split(a=lambda key, value: key == "a")["a"], AB) == [("a", "1")]


def test_branch_is_an_old_name_of_split() -> None:
    with pytest.warns(DeprecationWarning, match="branch is called split"):
        assert run(lambda s: s.branch(a=lambda key, value: key == "a")["a"], AB) == [("a", "1")]


def test_repartition_goes_through_a_topic_of_its_own_and_changes_nothing() -> None:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).repartition(5, "spread").to("out")
    with TopologyTestDriver(topology, partitions=2) as driver:
        driver.input("in").pipe("a", "1")
        assert driver.log.topics(["app-spread-repartition"])["app-spread-repartition"].partitions == 5
        assert driver.output("out").read_key_values() == [("a", "1")]


def test_to_writes_with_the_serdes_named_there() -> None:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).map_values(int).to("out", value=eddy.Int64)
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe("a", "258")
        assert driver.output("out", value=eddy.Bytes).read_key_values() == [("a", b"\0\0\0\0\0\0\x01\x02")]


def test_to_writes_strings_and_numbers_plainly_when_no_serde_is_known() -> None:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).map(lambda key, value: (int(value), value * 2)).to("out")
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe("a", "7")
        out = driver.output("out", key=eddy.Int64, value=S)
        assert out.read_key_values() == [(7, "77")]


def test_to_writes_rows_natively_where_native_is_named() -> None:
    pairs = run(lambda s: s.map(lambda key, value: ((key, 1), (value, None))), AB, key=eddy.Native, value=eddy.Native)
    assert pairs == [(("a", 1), ("1", None)), (("b", 1), ("2", None))]


def test_to_table_keeps_the_latest_value_and_none_deletes() -> None:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).to_table("latest")
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe_all([("a", "1"), ("b", "1"), ("a", "2"), ("b", None)])
        assert driver.store("latest").all() == {"a": "2"}


def test_to_table_is_named_after_its_topic_when_unnamed() -> None:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).to_table()
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe("a", "1")
        assert driver.store("in-table").get("a") == "1"


def test_group_by_key_counts_records() -> None:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).group_by_key().count("counts")
    with TopologyTestDriver(topology) as driver:
        for key in "aba":
            driver.input("in").pipe(key, "x")
        assert driver.store("counts").all() == {"a": 2, "b": 1}


def test_group_by_counts_by_another_key() -> None:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).group_by(lambda key, value: value, key=S).count("counts")
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe_all([("a", "x"), ("b", "y"), ("c", "x")])
        assert driver.store("counts").all() == {"x": 2, "y": 1}


class TestJoin:
    def drive(self, left: bool, records: list[tuple[str, str | None, str | None]]) -> list[tuple[Any, Any]]:
        topology = eddy.Topology("app")
        clicks, users = topology.stream("clicks", key=S, value=S), topology.table("users", key=S, value=S)
        join = clicks.left_join if left else clicks.join
        join(users, lambda click, user: f"{user} {click}", value=S).to("out")
        with TopologyTestDriver(topology) as driver:
            for topic, key, value in records:
                driver.input(topic).pipe(key, value)
            return driver.output("out").read_key_values()

    def test_join_looks_up_the_value_as_of_the_record(self) -> None:
        records = [
            ("clicks", "a", "early"), ("users", "a", "Ann"), ("clicks", "a", "one"),
            ("users", "a", "Anna"), ("clicks", "a", "two"), ("users", "a", None), ("clicks", "a", "late"),
        ]  # fmt: skip
        assert self.drive(False, records) == [("a", "Ann one"), ("a", "Anna two")]

    def test_left_join_gives_none_where_nothing_is(self) -> None:
        assert self.drive(True, [("clicks", "a", "one"), ("users", "a", "Ann"), ("clicks", "a", "two")]) == [
            ("a", "None one"),
            ("a", "Ann two"),
        ]

    def test_a_record_without_a_key_is_dropped_by_join_and_kept_by_left_join(self) -> None:
        assert self.drive(False, [("clicks", None, "x")]) == []  # type: ignore[list-item]
        assert self.drive(True, [("clicks", None, "x")]) == [(None, "None x")]  # type: ignore[list-item]


def test_table_changes_of_an_epoch_come_before_its_records() -> None:
    topology = eddy.Topology("app")
    words, known = topology.stream("words", key=S, value=S), topology.table("known", key=S, value=S)
    words.join(known, lambda word, meaning: meaning, value=S).to("out")
    with TopologyTestDriver(topology) as driver:
        producer = driver.log.producer(None)
        producer.begin()
        for topic in ("words", "known"):
            producer.send(topic, 0, [b"a"], [topic.encode()], [0])
        producer.commit({}, None)
        driver.run()
        assert driver.output("out").read_key_values() == [("a", "known")]


def take_in_at_once(driver: TopologyTestDriver, values: list[bytes | None], times_ms: list[int]) -> None:
    """Take in records of topic `in` in one epoch."""
    producer = driver.log.producer(None)
    producer.begin()
    producer.send("in", 0, [b"a", b"b"], values, times_ms)
    producer.commit({}, None)
    driver.run()


class TestTime:
    def test_a_record_of_a_stream_goes_out_with_its_own_time(self) -> None:
        topology = eddy.Topology("app")
        stream = topology.stream("in", key=S, value=S)
        stream.filter(lambda key, value: value != "drop").flat_map_values(list).select_key(lambda k, v: v).to("out")
        with TopologyTestDriver(topology) as driver:
            source = driver.input("in")
            source.pipe("a", "x", timestamp_ms=50)
            source.pipe("a", "drop", timestamp_ms=60)
            source.pipe("a", "yz", timestamp_ms=40)
            assert [(r.value, r.timestamp_ms) for r in driver.output("out").read_records()] == [
                ("x", 50), ("y", 40), ("z", 40),
            ]  # fmt: skip

    def test_times_stay_with_their_records_when_an_epoch_holds_many(self) -> None:
        topology = eddy.Topology("app")
        stream, table = topology.stream("in", key=S, value=S), topology.table("t", key=S, value=S)
        stream.left_join(table, lambda value, other: value, value=S).merge(stream).to("out")
        with TopologyTestDriver(topology) as driver:
            take_in_at_once(driver, [b"1", b"2"], [70, 30])
            assert [(r.value, r.timestamp_ms) for r in driver.output("out").read_records()] == [
                ("1", 70), ("2", 30), ("1", 70), ("2", 30),
            ]  # fmt: skip

    def test_a_tables_change_goes_out_with_the_time_of_the_record_that_made_it(self) -> None:
        topology = eddy.Topology("app")
        topology.table("in", key=S, value=S).to_stream().to("out")
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe("a", "1", timestamp_ms=10)
            driver.input("in").pipe("a", None, timestamp_ms=25)
            assert [(r.value, r.timestamp_ms) for r in driver.output("out").read_records()] == [("1", 10), (None, 25)]

    def test_records_of_a_recursion_go_out_with_the_time_of_their_seed(self) -> None:
        topology = eddy.Topology("app")
        stream = topology.stream("in", key=S, value=S)
        stream.recursively(lambda rows: rows.flat_map_values(lambda v: [v[:-1]] if len(v) > 1 else []), "cut").to("out")
        with TopologyTestDriver(topology) as driver:
            take_in_at_once(driver, [b"xy", b"z"], [70, 30])
            assert {(r.value, r.timestamp_ms) for r in driver.output("out").read_records()} == {
                ("xy", 70), ("z", 30), ("x", 70),
            }  # fmt: skip


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.filter(lambda k, v: True),
        lambda s: s.map(lambda k, v: (k, v)),
        lambda s: s.map_values(str),
        lambda s: s.flat_map(lambda k, v: [(k, v)]),
        lambda s: s.flat_map_values(lambda v: [v]),
        lambda s: s.select_key(lambda k, v: k),
        lambda s: s.peek(lambda k, v: None),
        lambda s: s.merge(s.filter(lambda k, v: False)),
        lambda s: s.repartition(),
    ],
    ids=["filter", "map", "map_values", "flat_map", "flat_map_values", "select_key", "peek", "merge", "repartition"],
)
def test_headers_pass_through(step: Any) -> None:
    topology = eddy.Topology("app")
    step(topology.stream("in", key=S, value=S)).to("out")
    headers = (("trace", b"\x00\xff"), ("trace", b"twice"))
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe("a", "1")
        driver.input("in").pipe("b", "2", headers=headers)
        assert [record.headers for record in driver.output("out").read_records()] == [(), headers]
