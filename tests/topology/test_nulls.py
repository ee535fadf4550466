"""Records without a key or a value, and headers: what Kafka Streams does with them, and eddy.

`KAFKA_STREAMS` was written by the `TopologyTestDriver` of Kafka Streams 4.1.2. The laws below it hold for any records.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import Config, TopologyTestDriver
from eddy.serde import Serde

S, N, Native = eddy.String, eddy.Int64, eddy.Native
Record = tuple[str, str | None, str | None]
Build = Callable[[eddy.Topology, Serde[Any], Serde[Any] | None], Any]


def stream(t: eddy.Topology, source: Serde[Any]) -> Any:
    return t.stream("in", key=source, value=source)


def rekeyed(t: eddy.Topology, source: Serde[Any], serde: Serde[Any] | None) -> Any:
    return stream(t, source).select_key(lambda key, value: key, key=serde)


def table(t: eddy.Topology, source: Serde[Any], topic: str = "table") -> Any:
    return t.table(topic, key=source, value=source)


def glued(one: str | None, other: str | None) -> str:
    return f"{one}{other}"


def unless_x(total: str, value: str) -> str | None:
    return None if value == "x" else total + value


def joined(left: bool, how: str) -> Build:
    def build(t: eddy.Topology, source: Serde[Any], serde: Serde[Any] | None) -> Any:
        records = rekeyed(t, source, serde) if how == "rekeyed" else stream(t, source)
        records = records.repartition(name="moved") if how == "repartitioned" else records
        return (records.left_join if left else records.join)(table(t, source), glued, name="join")

    return build


def grouped(fold: Callable[[Any], Any], again: bool = False) -> Build:
    def build(t: eddy.Topology, source: Serde[Any], serde: Serde[Any] | None) -> Any:
        return fold((rekeyed(t, source, serde) if again else stream(t, source)).group_by_key())

    return build


def count(group: Any) -> Any:
    return group.count("fold").map_values(str)


def concatenation(group: Any) -> Any:
    return group.aggregate(str, lambda key, value, total: total + value, "fold")


STREAM: list[Record] = [("in", "a", "1"), ("in", None, "2"), ("in", "a", None), ("in", None, None), ("in", "a", "3")]
JOIN: list[Record] = [("table", "a", "T"), *STREAM[:4], ("in", "b", "3")]
NONES: list[Record] = [("in", "a", "1"), ("in", "a", "x"), ("in", "a", "x"), ("in", "a", "2"), ("in", "b", "x")]
MOVES: list[Record] = [
    ("table", "a", "1"), ("table", "a", "2"), ("table", "b", "1"), ("table", "a", "1"), ("table", "a", None)
]  # fmt: skip
Written = list[list[tuple[str | None, str | None]]]


@dataclass(frozen=True)
class Known:
    """What Kafka Streams wrote after each record; each record of it had the headers of that one."""

    build: Build
    records: list[Record]
    written: Written
    dropped: int


A1, A2, A3 = ("a", "1"), ("a", "2"), ("a", "3")
KAFKA_STREAMS = {
    "count": Known(grouped(count), STREAM, [[A1], [], [], [], [A2]], 3),
    "count of a re-keyed stream": Known(grouped(count, again=True), STREAM, [[A1], [], [], [], [A2]], 3),
    "group_by": Known(
        lambda t, source, serde: count(stream(t, source).group_by(lambda key, value: key, key=serde)),
        STREAM, [[A1], [], [], [], [A2]], 3,
    ),
    "aggregate": Known(grouped(concatenation), STREAM, [[A1], [], [], [], [("a", "13")]], 3),
    "reduce": Known(grouped(lambda g: g.reduce(glued, "fold")), STREAM, [[A1], [], [], [], [("a", "13")]], 3),
    "to_table": Known(
        lambda t, source, serde: stream(t, source).to_table("fold"), STREAM, [[A1], [], [("a", None)], [], [A3]], 2
    ),
    "to_table of a re-keyed stream": Known(
        lambda t, source, serde: rekeyed(t, source, serde).to_table("fold"),
        STREAM, [[A1], [], [("a", None)], [], [A3]], 2,
    ),
    "table": Known(
        lambda t, source, serde: t.table("in", key=source, value=source), STREAM,
        [[A1], [], [("a", None)], [], [A3]], 2,
    ),
    "repartition": Known(
        lambda t, source, serde: stream(t, source).repartition(name="moved"), STREAM,
        [[A1], [], [("a", None)], [], [A3]], 2,
    ),
    "to": Known(lambda t, source, serde: stream(t, source), STREAM, [[(k, v)] for _, k, v in STREAM], 0),
    "join": Known(joined(False, "plain"), JOIN, [[], [("a", "1T")], [], [], [], []], 3),
    "join of a re-keyed stream": Known(joined(False, "rekeyed"), JOIN, [[], [("a", "1T")], [], [], [], []], 3),
    **{
        f"left_join, {how}": Known(
            joined(True, how), JOIN, [[], [("a", "1T")], [(None, "2None")], [], [], [("b", "3None")]], 2
        )
        for how in ("plain", "rekeyed", "repartitioned")
    },
    "group_by of a table, to no key": Known(
        lambda t, source, serde: count(
            table(t, source).group_by(lambda key, value: (None if value == "2" else value, key), key=serde)
        ),
        MOVES, [[("1", "1")], [("1", None)], [("1", "1")], [("1", "2")], [("1", "1")]], 1,
    ),
    "group_by of a table, moves": Known(
        lambda t, source, serde: count(table(t, source).group_by(lambda key, value: (value, key), key=serde)),
        MOVES,
        [[("1", "1")], [("1", None), ("2", "1")], [("1", "1")], [("2", None), ("1", "2")], [("1", "1")]], 0,
    ),
    "aggregate to None": Known(
        grouped(lambda g: g.aggregate(str, lambda key, value, total: unless_x(total, value), "fold")),
        NONES, [[A1], [("a", None)], [], [A2], []], 0,
    ),
    "reduce to None": Known(
        grouped(lambda g: g.reduce(unless_x, "fold")),
        NONES, [[A1], [("a", None)], [("a", "x")], [("a", "x2")], [("b", "x")]], 0,
    ),
    "filter and map_values of a table": Known(
        lambda t, source, serde: table(t, source).filter(lambda key, value: value != "2").map_values(str),
        MOVES, [[A1], [("a", None)], [("b", "1")], [A1], [("a", None)]], 0,
    ),
    "outer_join of tables": Known(
        lambda t, source, serde: table(t, source, "in").outer_join(table(t, source), glued, name="join"),
        [("table", "a", "T"), ("in", "a", "1"), ("table", None, "U"), ("table", "a", None)],
        [[("a", "NoneT")], [("a", "1T")], [], [("a", "1None")]], 1,
    ),
}  # fmt: skip
"""In place of a count of 0 eddy has no group: a tombstone. Kafka Streams counts not all of what it drops."""

SERDES: dict[str, tuple[Serde[Any], Serde[Any] | None]] = {
    "named": (S, S),
    "not named": (S, None),
    "native": (Native, None),
}


def built(build: Build, serdes: str) -> eddy.Topology:
    topology = eddy.Topology("app")
    build(topology, *SERDES[serdes]).to("out", key=Native, value=Native)
    return topology


@pytest.mark.parametrize("serdes", SERDES)
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("name", KAFKA_STREAMS)
def test_records_and_headers_are_those_of_kafka_streams(name: str, partitions: int, serdes: str) -> None:
    known = KAFKA_STREAMS[name]
    with TopologyTestDriver(built(known.build, serdes), partitions=partitions) as driver:
        for number, ((topic, key, value), expected) in enumerate(zip(known.records, known.written, strict=True)):
            headers = (("number", b"%d" % number),)
            driver.input(topic).pipe(key, value, headers=headers)
            records = driver.output("out").read_records()
            found = [((record.key, record.value), record.headers) for record in records]
            wanted = [(row, headers) for row in expected]
            assert (found == wanted) if partitions == 1 else (sorted(found, key=str) == sorted(wanted, key=str))
        assert driver.worker.statistics.dropped == known.dropped
        assert driver.worker.statistics.skipped == 0


keys = st.sampled_from(["a", "b", None])
stories = st.lists(st.lists(st.tuples(keys, st.sampled_from(["1", "2", None])), min_size=1, max_size=4), max_size=4)
KEPT: dict[str, Callable[[str | None, str | None], bool]] = {
    name: (lambda key, value: key is not None)
    if "table" in name or name == "repartition"
    else (lambda key, value: value is not None)
    if "left" in name
    else (lambda key, value: key is not None and value is not None)
    for name in KAFKA_STREAMS
    if KAFKA_STREAMS[name].records in (STREAM, JOIN) and name != "to"
}


@given(name=st.sampled_from(list(KEPT)), serdes=st.sampled_from(list(SERDES)), story=stories)
def test_a_record_that_is_dropped_leaves_no_trace(name: str, serdes: str, story: list[list[Any]]) -> None:
    """However it is cut into epochs, and after a lost state: as if it had never come."""
    took = KEPT[name]

    def run(epochs: list[list[Any]], lose: bool) -> tuple[Any, ...]:
        with TopologyTestDriver(built(KAFKA_STREAMS[name].build, serdes), partitions=2) as driver:
            if "join" in name:
                driver.input("table").pipe("a", "T")
            dropped = 0
            for records in epochs:
                driver.input("in").pipe_all(records, 7)
                if lose:
                    dropped += driver.worker.statistics.dropped
                    driver.restart(lose_state=True)
            states = {name: dict(state.items()) for name, state in driver.worker.circuit.states.items()}
            return driver.output("out").read_key_values(), states, dropped + driver.worker.statistics.dropped

    whole = [[record for record in epoch if took(*record)] for epoch in story]
    missing = sum(map(len, story)) - sum(map(len, whole))
    written, states, _ = run(whole, lose=False)
    for lose in (False, True):
        assert run(story, lose) == (written, states, missing)


moves = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(-1, 1)), max_size=4), max_size=5)


@given(lose=st.booleans(), story=moves)
def test_none_for_a_zero_is_the_aggregate_without_its_zeros(lose: bool, story: list[list[Any]]) -> None:
    """None is the same as `initializer()` to the next call: no sum is lost by way of 0."""
    topology = eddy.Topology("app")
    numbers = topology.table("in", key=S, value=N).group_by(lambda key, n: (key > "a", n))
    sums = numbers.aggregate(int, lambda _, n, total: (total + n) or None, lambda _, n, total: (total - n) or None, "s")
    sums.to("out", key=Native, value=Native)
    latest: dict[str, int | None] = {}
    with TopologyTestDriver(topology) as driver:
        for epoch in story:
            driver.input("in").pipe_all(epoch)
            if lose:
                driver.restart(lose_state=True)
            latest |= dict(epoch)
        totals = {big: sum(n or 0 for key, n in latest.items() if (key > "a") is big) for big in (False, True)}
        wanted = {big: total for big, total in totals.items() if total}
        assert driver.store("s").all() == wanted
        assert driver.output("out").read_map() == wanted


def test_a_reducer_of_a_table_that_returned_none_begins_anew_with_the_next_value() -> None:
    topology = eddy.Topology("app")
    numbers = topology.table("in", key=S, value=N).group_by(lambda key, n: ("g", n), key=S, value=N)
    numbers.reduce(lambda total, n: (total + n) or None, lambda total, n: (total - n) or None, "s").to("out")  # type: ignore[arg-type, return-value]
    with TopologyTestDriver(topology) as driver:
        for record in [("a", 3), ("b", -3), ("b", None), ("b", 5)]:
            driver.input("in").pipe(*record)
        assert driver.output("out").read_key_values() == [("g", 3), ("g", None), ("g", 5)]


def relations(t: eddy.Topology, serde: Serde[Any] | None) -> dict[str, eddy.Relation[Any, Any]]:
    """Steps of relations that work by key, of rows under their values: those with value "-" have none."""
    one, other = (
        t.table(name, key=S, value=S)
        .to_relation()
        .map(lambda key, value: (None if value == "-" else value, key), key=serde, value=S)
        for name in ("one", "other")
    )
    return {
        "join": one.join(other, lambda key, left, right: (f"{key}", left + right), "j", S, S),
        "distinct": one.distinct("d"),
        "minus": one.minus(other, "m"),
        "reduce": one.reduce(lambda key, values: sorted(values)[:1], "r", value=S),
        "count": one.group_by_key().count("c").to_relation(),
    }


rows = st.tuples(st.sampled_from(["one", "other"]), st.sampled_from("ab"), st.sampled_from(["-", "x", None]))


@given(
    serde=st.sampled_from([S, None]),
    partitions=st.sampled_from([1, 3]),
    story=st.lists(st.lists(rows, max_size=4), max_size=4),
)
def test_a_row_of_a_relation_without_a_key_is_as_if_it_were_not_there(
    serde: Serde[Any] | None, partitions: int, story: list[list[Any]]
) -> None:
    def run(epochs: list[list[Any]]) -> dict[str, Any]:
        topology = eddy.Topology("app")
        for name, relation in relations(topology, serde).items():
            shown = relation.map(lambda key, value: ((key, value), 1), key=Native, value=Native)
            shown.group_by_key().count(f"{name}-rows")
        with TopologyTestDriver(topology, partitions=partitions) as driver:
            for epoch in epochs:
                for topic in ("one", "other"):
                    driver.input(topic).pipe_all([(key, value) for name, key, value in epoch if name == topic])
                driver.restart(lose_state=True)
            return {
                name: dict(s.items())
                for name, s in driver.worker.circuit.states.items()
                if name not in {"one", "other"}
            }

    gone = [[(topic, key, None if value == "-" else value) for topic, key, value in epoch] for epoch in story]
    assert run(story) == run(gone)


def test_headers_of_an_epoch_are_those_of_the_last_record_of_a_key() -> None:
    topology = eddy.Topology("app")
    stream(topology, S).group_by(lambda key, value: value, key=S).count("c").to("out")
    with TopologyTestDriver(topology) as driver:
        producer = driver.log.producer(None)
        producer.begin()
        records = [("1", "x"), ("2", "y"), ("3", "x")]
        columns = [[key.encode() for key, _ in records], [value.encode() for _, value in records], [1, 2, 3]]
        producer.send("in", 0, *columns, [(("of", key.encode()),) for key, _ in records])
        producer.commit({}, None)
        driver.run()
        found = {record.key: (record.value, record.headers) for record in driver.output("out").read_records()}
        assert found == {"x": (2, (("of", b"3"),)), "y": (1, (("of", b"2"),))}


class TestDropping:
    def driver(self, config: Config | None = None) -> TopologyTestDriver:
        topology = eddy.Topology("app")
        numbers = topology.stream("in", key=S, value=N).map_values(lambda n: 1 // n if n == 0 else n)
        numbers.group_by_key().count("sizes")
        numbers.to_table("latest")
        return TopologyTestDriver(topology, config)

    def lines(self, caplog: pytest.LogCaptureFixture) -> list[str]:
        return [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]

    def test_a_step_says_so_at_once_and_then_not_for_ten_seconds(self, caplog: pytest.LogCaptureFixture) -> None:
        said = "step '{}': {} row(s) without the key or the value that it needs were dropped".format
        with self.driver() as driver, caplog.at_level(logging.WARNING, "eddy"):
            driver.input("in").pipe_all([(None, 1), (None, 2), ("a", 3)])
            assert self.lines(caplog) == [said("sizes", 2), said("latest", 2)]
            for _ in range(5):
                driver.input("in").pipe(None, 1)
            assert len(self.lines(caplog)) == 2
            driver.advance_wall_clock_time(10.0)
            driver.input("in").pipe(None, 1)
            assert self.lines(caplog)[2:] == [said("sizes", 6), said("latest", 6)]
            assert driver.worker.statistics.dropped == 16

    def test_what_is_undone_and_tried_again_is_counted_once(self, caplog: pytest.LogCaptureFixture) -> None:
        with self.driver(Config(on_error="skip")) as driver, caplog.at_level(logging.WARNING, "eddy"):
            driver.input("in").pipe_all([(None, 1), ("a", 0), (None, 2), ("a", 3), (None, 4)])
            assert driver.worker.statistics.aborts > 0
            assert driver.worker.statistics.skipped == 1
            assert driver.worker.statistics.dropped == 6


@given(
    records=st.lists(st.tuples(keys, st.sampled_from([1, 13, None])), max_size=8),
    fold=st.sampled_from(["reduce", "aggregate", "join"]),
)
def test_what_is_dropped_is_never_blamed(records: list[Any], fold: str) -> None:
    """Functions that cannot take None, and fail for 13: only a record with 13 is left out by the policy."""

    def add(total: int, n: int) -> int:
        if n == 13:
            raise ValueError(n)
        return total + n

    topology = eddy.Topology("app")
    numbers = topology.stream("in", key=S, value=N).select_key(lambda key, n: key)
    known = topology.table("known", key=S, value=N)
    if fold == "join":
        numbers.join(known, add, name="fold")
    elif fold == "reduce":
        numbers.map_values(lambda n: n).group_by_key().reduce(add, "fold")
    else:
        numbers.group_by_key().aggregate(int, lambda key, n, total: add(total, n), "fold")
    with TopologyTestDriver(topology, Config(on_error="skip")) as driver:
        driver.input("known").pipe_all([("a", 13), ("b", 1)])
        driver.input("in").pipe_all(records)
        whole = [(key, n) for key, n in records if key is not None and n is not None]
        again = [any(other == key for other, _ in whole[:at]) for at, (key, _) in enumerate(whole)]
        blamed = {
            "join": [key == "a" for key, _ in whole],
            "aggregate": [n == 13 for _, n in whole],
            "reduce": [n == 13 and folded for (_, n), folded in zip(whole, again, strict=True)],
        }
        done = driver.worker.statistics
        assert done.skipped + done.set_aside == sum(blamed[fold])
        assert done.dropped == len(records) - len(whole)


@pytest.mark.parametrize("lose", [False, True])
def test_a_state_that_holds_something_without_a_key_goes_on(lose: bool) -> None:
    """Earlier versions counted records without a key where none had to be encoded; that stays as it was."""
    topology = eddy.Topology("app")
    stream(topology, S).select_key(lambda key, value: None if value == "-" else key).group_by_key().count("c").to("out")
    with TopologyTestDriver(topology) as driver:
        table: Any = driver.worker.circuit.states["c"]
        table.put_many({None: 5}, [None])
        for _ in range(3):
            driver.input("in").pipe("a", "1")
            driver.input("in").pipe("a", "-")
            driver.restart(lose_state=lose)
        assert driver.store("c").all() == {"a": 3, None: 5}
        assert driver.output("out", S, N).read_key_values() == [("a", 1), ("a", 2), ("a", 3)]
