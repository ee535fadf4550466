"""The error policy as a function: its decisions, and that constant ones are the policies of these names."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Headers, TopicPartition, TopicSpec
from eddy.errors import ConfigurationError, ConnectorError, DataError, TopologyError
from eddy.partitioner import partition_of
from tests.waiting import step_to_rest

N, S = eddy.Int64, eddy.String
Decide = Callable[[eddy.FailedRecord], Any]


def shares() -> eddy.Topology:
    """A hundred by each number; of tables by group their sums, which have to be below a hundred."""
    topology = eddy.Topology("app")
    numbers = topology.stream("numbers", key=S, value=N)
    numbers.map_values(lambda number: 100 // number, name="share", value=N).to("shares")
    items = topology.table("items", key=S, value=N)
    groups = items.group_by(lambda key, number: (str(number % 2), number), key=S, value=N)
    sums = groups.reduce(lambda a, b: a + b, lambda a, b: a - b, "sums")
    sums.map_values(lambda total: 100 // max(0, 100 - total), name="left", value=N).to("left")
    return topology


def output(driver: eddy.TopologyTestDriver) -> Any:
    """All outputs, and all letters without their times."""
    letters = driver.output("app-dead-letter", key=eddy.Bytes, value=eddy.Bytes).read_records()
    told = sorted((letter.key or b"", letter.value or b"", sorted(letter.headers)) for letter in letters)
    return driver.output("shares").read_key_values(), driver.output("left").read_map(), told


records = st.lists(
    st.one_of(
        st.tuples(st.just("numbers"), st.sampled_from("abc"), st.integers(0, 3)),
        st.tuples(st.just("items"), st.sampled_from("abcd"), st.one_of(st.none(), st.integers(1, 60))),
    ),
    max_size=15,
)


@given(records, st.sampled_from(["skip", "dead-letter"]), st.integers(1, 3))
def test_a_constant_decision_is_the_policy_of_that_name(records: list[Any], word: Any, partitions: int) -> None:
    found = []
    for policy in (word, lambda record: word):
        with eddy.TopologyTestDriver(shares(), eddy.Config(on_error=policy), partitions=partitions) as driver:
            for topic, key, value in records:
                driver.input(topic).pipe(key, value)
            found.append(output(driver))
    assert found[0] == found[1]


def test_each_record_is_decided_about() -> None:
    asked: list[tuple[Any, ...]] = []

    def decide(record: eddy.FailedRecord) -> str:
        asked.append((record.kind, record.topic, record.offset, record.step))
        return "dead-letter" if record.key in {b"b", b"1"} else "skip"

    with eddy.TopologyTestDriver(shares(), eddy.Config(on_error=decide)) as driver:
        driver.input("numbers").pipe_all([("a", 0), ("b", 0), ("c", 5)])
        write(driver.log, "numbers", [(b"d", b"none")])
        driver.input("items").pipe_all([("a", 101), ("b", 200), ("c", 4)])
        numbers, left, letters = output(driver)
    assert (numbers, left) == ([("c", 20)], {})
    assert [key for key, _, _ in letters] == [b"1", b"b"]
    assert set(asked) == {
        ("process", "numbers", 0, None),
        ("process", "numbers", 1, None),
        ("decode", "numbers", 4, None),
        ("row", None, None, "left"),
    }


@pytest.mark.parametrize("bad", ["1", 1 << 64], ids=["of another type", "beyond the serde's range"])
@pytest.mark.parametrize("exchanged", [False, True])
def test_what_a_sink_cannot_write_is_told_with_the_sink_and_left_out_of_all_outputs(exchanged: bool, bad: Any) -> None:
    asked: list[eddy.FailedRecord] = []

    def decide(record: eddy.FailedRecord) -> str:
        asked.append(record)
        return "skip"

    topology = eddy.Topology("app")
    numbers = topology.stream("numbers", key=S, value=N)
    numbers = numbers.repartition() if exchanged else numbers
    numbers.to("shares")
    numbers.map_values(lambda number: bad if number == 2 else number).to("left", value=N)
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error=decide)) as driver:
        driver.input("numbers").pipe_all([("a", 1), ("b", 2), ("c", 3)])
        assert [value for _, value in driver.output("left").read_key_values()] == [1, 3]
        shared = [value for _, value in driver.output("shares").read_key_values()]
        assert shared == ([1, 2, 3] if exchanged else [1, 3])
    told = {(record.kind, record.topic, record.offset, "KSTREAM-SINK" in (record.step or "")) for record in asked}
    assert told == {("row" if exchanged else "process", "numbers", 1, exchanged)}
    assert all(record.error.startswith("sink 'left': value") for record in asked)


def test_what_a_topic_refuses_is_told_with_the_topic() -> None:
    asked: list[tuple[str, str]] = []

    def decide(record: eddy.FailedRecord) -> str:
        asked.append((record.kind, record.error))
        return "skip"

    topology = eddy.Topology("app")
    long = topology.stream("numbers", key=S, value=N).map_values(lambda number: "x" * number, value=S)
    long.to("shares")
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error=decide)) as driver:
        driver.input("numbers").pipe_all([("a", 1), ("b", 2_000_000), ("c", 2)])
        assert driver.output("shares").read_key_values() == [("a", "x"), ("c", "xx")]
    assert {kind for kind, _ in asked} == {"process"}
    assert all("send to shares-0" in error and "2000001 bytes" in error for _, error in asked)


LARGE = 2_000_000
"""More bytes than a topic takes."""


def long_after_an_exchange(of: str) -> eddy.Topology:
    """Letters, repeated as often as a record says, as the records of a stream or the rows of a table."""
    topology = eddy.Topology("app")
    asked = topology.stream("asked", key=S, value=N)
    if of == "stream":
        asked.repartition(2).map_values(lambda key, number: key * number, value=S).to("long")
    else:
        latest = asked.select_key(lambda key, number: key).group_by_key().reduce(lambda old, new: new, "latest")
        latest.map_values(lambda key, number: key * number, value=S).to("long")
    return topology


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("of", ["stream", "table"])
def test_after_an_exchange_a_row_that_its_topic_refuses_is_left_out_alone(of: str, workers: int) -> None:
    log = LocalLog(None)
    log.create_topics(TopicSpec(topic, 2) for topic in ("asked", "long"))
    rows = [("a", 1), ("b", LARGE), ("c", 2), ("d", LARGE), ("e", 3), ("f", 4), ("g", LARGE)]
    for key, number in rows:  # each beside the others in its partition, and on both workers
        write(log, "asked", [(key.encode(), N.encode(number))], partition_of(key.encode(), 2))
    config = eddy.Config(on_error="dead-letter")
    running = [eddy.Worker(long_after_an_exchange(of), log, config, member=str(n)) for n in range(workers)]
    step_to_rest(running)
    long = {key: value for key, value in read(log, "long", 2) if value is not None}
    assert long == {key.encode(): (key * number).encode() for key, number in rows if number != LARGE}
    letters = read(log, "app-dead-letter", 1)
    assert sorted(len(value or b"") for _, value in letters) == [LARGE] * 3
    for key, _ in (rows[1], rows[3]):
        write(log, "asked", [(key.encode(), N.encode(5))], partition_of(key.encode(), 2))
    step_to_rest(running)
    assert {(b"b", b"bbbbb"), (b"d", b"ddddd")} <= set(read(log, "long", 2))
    for worker in running:
        worker.close()


@pytest.mark.parametrize("exchanged", [False, True])
def test_a_row_whose_headers_a_topic_refuses_leaves_no_older_one_behind(exchanged: bool) -> None:
    """Also where the record deletes the row: what is written then has no headers."""
    log = LocalLog(None)
    log.create_topics([TopicSpec("asked", 1), TopicSpec("latest", 1, {"max.message.bytes": "2000"})])
    topology = eddy.Topology("app")
    asked = topology.stream("asked", key=S, value=S)
    (asked.repartition() if exchanged else asked).to_table("kept").to("latest")
    large = (("trace", b"x" * 3_000),)
    with closing(eddy.Worker(topology, log, eddy.Config(on_error="dead-letter"))) as worker:
        write(log, "asked", [(key, b"old") for key in (b"a", b"b", b"c", b"d")])
        worker.run_until_idle()
        write(log, "asked", [(b"a", None), (b"b", b"new"), (b"c", b"z" * 3_000)], headers=large)
        worker.run_until_idle()
        assert read(log, "latest", 1)[4:] == [(b"a", None), (b"b", None), (b"c", None)]
        letters = read(log, "app-dead-letter", 1)
        assert letters == [(b"a", None), (b"b", b"new"), (b"c", b"z" * 3_000)]
        write(log, "asked", [(b"a", b"last"), (b"b", b"last"), (b"c", None), (b"d", b"last")])
        worker.run_until_idle()
    assert dict(read(log, "latest", 1)) == {b"a": b"last", b"b": b"last", b"c": None, b"d": b"last"}
    assert read(log, "app-dead-letter", 1) == letters


@pytest.mark.parametrize("table", [False, True])
def test_a_topic_that_is_gone_is_named_also_beside_a_record_that_fails(table: bool) -> None:
    log = LocalLog(None)
    log.create_topics(TopicSpec(topic, 1) for topic in ("asked", "shares"))
    topology = eddy.Topology("app")
    shares = topology.stream("asked", key=S, value=N).repartition().map_values(lambda n: 100 // n, value=N)
    (shares.to_table("kept") if table else shares).to("shares")
    worker = eddy.Worker(topology, log, eddy.Config(on_error="skip", retry_s=0.01))
    write(log, "asked", [(b"a", N.encode(1))])
    worker.run_until_idle()
    log.delete_topics(["shares"])
    write(log, "asked", [(b"a", N.encode(2)), (b"b", N.encode(0))])
    with pytest.raises(ConnectorError, match="topic 'shares'"):
        worker.run_until_idle()
    worker.close()


@pytest.mark.parametrize("kind", ["decode", "row"])
def test_a_letter_that_its_topic_refuses_names_the_record_without_its_bytes(kind: str) -> None:
    log, large = LocalLog(None), 17 << 20
    log.create_topics(TopicSpec(topic, 1, {"max.message.bytes": str(large << 1)}) for topic in ("asked", "long"))
    topology = eddy.Topology("app")
    asked = topology.stream("asked", key=S, value=S)
    asked = asked.repartition() if kind == "row" else asked
    asked.map_values(lambda text: {"loud": text}[text[:4]], value=S).to("long")
    bad = b"x" * large if kind == "row" else b"\xff" * large
    write(log, "asked", [(b"a", b"loud"), (b"b", bad), (b"c", b"loud")])
    with closing(eddy.Worker(topology, log, eddy.Config(on_error="dead-letter"))) as worker:
        worker.run_until_idle()
    assert [key for key, _ in read(log, "long", 1)] == [b"a", b"c"]
    (letter,) = log.read(TopicPartition("app-dead-letter", 0), 0, 10, 10).headers or ()
    told = dict(letter)
    assert told["eddy.offset"] == b"1"
    assert told["eddy.left_out_bytes"] == b"key 1, value %d" % large


@pytest.mark.parametrize("exchanged", [False, True])
@pytest.mark.parametrize("made", ["row", "error"])
@pytest.mark.slow
def test_a_letter_whose_error_is_too_long_has_its_beginning(exchanged: bool, made: str) -> None:
    def fail(text: str) -> Any:
        if text == "loud":
            return 1
        if made == "row":
            return "é" * (9 << 20)
        raise ValueError("é" * (9 << 20))

    log = LocalLog(None)
    log.create_topics(TopicSpec(topic, 1) for topic in ("asked", "long"))
    topology = eddy.Topology("app")
    asked = topology.stream("asked", key=S, value=S)
    (asked.repartition() if exchanged else asked).map_values(fail, value=N).to("long")
    write(log, "asked", [(b"a", b"loud"), (b"b", b"bad"), (b"c", b"loud")])
    with closing(eddy.Worker(topology, log, eddy.Config(on_error="dead-letter"))) as worker:
        worker.run_until_idle()
    assert [key for key, _ in read(log, "long", 1)] == [b"a", b"c"]
    (letter,) = log.read(TopicPartition("app-dead-letter", 0), 0, 10, 10).headers or ()
    told = {name: data.decode() for name, data in letter}
    assert told["eddy.offset"] == "1"
    assert ("'long': value" if made == "row" else "raised ValueError") in told["eddy.error"]
    assert 900 < len(told["eddy.error"].encode()) < 1_100


def test_a_record_is_tried_again_until_it_can_be_processed() -> None:
    failing, asked, made = {3}, [], []

    def call_out(number: int) -> int:
        if number in failing:
            raise TimeoutError("nobody answers")
        made.append(number)
        return number

    def decide(record: eddy.FailedRecord) -> str:
        asked.append(record.offset)
        if len(asked) == 3:
            failing.clear()
        return "retry"

    topology = eddy.Topology("app")
    topology.stream("numbers", key=S, value=N).map_values(call_out, value=N).to("shares")
    log = a_log()
    write(log, "numbers", [(b"a", N.encode(1)), (b"b", N.encode(3)), (b"c", N.encode(2))])
    run(log, decide, topology)
    assert written(log) == [(b"a", 1), (b"b", 3), (b"c", 2)]
    assert asked == [1, 1, 1]
    assert made[-3:] == [1, 3, 2]


def test_what_is_tried_again_for_too_long_ends_the_worker_with_its_reason() -> None:
    log = a_log()
    write(log, "numbers", [(b"a", N.encode(5)), (b"b", N.encode(0))])
    told = "topic 'numbers' partition 0 offset 1 key b'b': step 'share'.*ZeroDivisionError.*asks to try again"
    with pytest.raises(ConnectorError, match=told):
        run(log, lambda record: "retry", retry_s=0.7)
    run(log, lambda record: "skip")
    assert written(log) == [(b"a", 20)]


LESS_THAN_THE_LONGEST_PAUSE_S = 50.0
"""A step that pauses for the 60 seconds of `eddy.Retry(after=60)` takes longer, one on a busy machine does not."""


class Clocked:
    """A worker on a clock that the test moves, whose first number cannot be processed."""

    def __init__(self, decision: Any, retry_s: float = 300.0) -> None:
        self.now, self.asked = 1_000.0, list[float]()
        self.log, self.decision, self.retry_s = a_log(), decision, retry_s
        write(self.log, "numbers", [(b"a", N.encode(0)), (b"b", N.encode(4))])
        self.start()

    def start(self) -> None:
        config = eddy.Config(on_error=self._decide, retry_s=self.retry_s)
        self.worker = eddy.Worker(shares(), self.log, config, clock=lambda: self.now)
        while not self.worker.quiescent() and self.worker.trouble is None:
            self.worker.step()

    def _decide(self, record: eddy.FailedRecord) -> Any:
        self.asked.append(self.now)
        return self.decision

    def at(self, now: float) -> list[float]:
        """When the function has been asked, after three steps at this time, of which each ends soon."""
        self.now = now
        for _ in range(3):
            began = time.monotonic()
            self.worker.step()
            assert time.monotonic() - began < LESS_THAN_THE_LONGEST_PAUSE_S
        return self.asked


@pytest.mark.parametrize(("decision", "after"), [(eddy.Retry(after=60), 60.0), (eddy.Retry(), 0.5), ("retry", 0.5)])
def test_the_next_attempt_is_made_after_the_time_of_the_decision(decision: Any, after: float) -> None:
    one = Clocked(decision)
    assert one.at(1_000.0 + 0.9 * after) == [1_000.0]
    assert not one.worker.in_epoch
    assert one.worker.statistics.aborts == len(one.asked) + 1  # the first one told that a record fails
    write(one.log, "numbers", [(b"c", N.encode(5))])  # no transaction of the worker is in the way
    assert one.at(1_000.0 + after) == [1_000.0, 1_000.0 + after]
    one.decision = "skip"
    one.at(1_000.0 + 2 * after)
    one.worker.close()
    assert written(one.log) == [(b"b", 25), (b"c", 20)]


def test_the_last_attempt_is_made_when_the_time_for_retries_is_over() -> None:
    one = Clocked(eddy.Retry(after=60), retry_s=10.0)
    assert one.at(1_009.0) == [1_000.0]
    with pytest.raises(ConnectorError, match=r"ZeroDivisionError.*on_error asks to try again after 60 s"):
        one.at(1_010.0)
    assert one.asked == [1_000.0, 1_010.0]
    one.worker.close()


def test_a_worker_that_is_started_anew_tries_at_once() -> None:
    one = Clocked(eddy.Retry(after=60))
    one.worker.close()
    one.now += 1
    one.start()
    assert one.asked == [1_000.0, 1_001.0]
    one.worker.close()


def test_a_worker_that_waits_obeys_a_stop() -> None:
    one = Clocked(eddy.Retry(after=60))
    steps = iter([False, False, True])
    began = time.monotonic()
    one.worker.run(lambda: next(steps))
    assert time.monotonic() - began < LESS_THAN_THE_LONGEST_PAUSE_S
    assert one.asked == [1_000.0]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 6)), max_size=12),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 5),
)
def test_what_is_tried_again_is_counted_exactly_once(
    given_records: list[tuple[str, int]], partitions: int, workers: int, most: int
) -> None:
    """The number of a record says how many attempts on it fail."""
    left = {number: fails for number, (_, fails) in enumerate(given_records)}

    def call_out(number: int) -> int:
        if left[number]:
            left[number] -= 1
            raise TimeoutError("nobody answers")
        return number

    topology = eddy.Topology("app")
    made = topology.stream("numbers", key=S, value=N).map_values(call_out, value=N)
    made.group_by_key().count("counts").to("counts")
    made.to("shares")
    log = LocalLog(None)
    log.create_topics(TopicSpec(topic, partitions) for topic in ("numbers", "shares", "counts"))
    for number, (key, _) in enumerate(given_records):
        write(log, "numbers", [(key.encode(), N.encode(number))], partition_of(key.encode(), partitions))
    config = eddy.Config(on_error=lambda record: eddy.Retry(after=0), max_epoch_records=most)
    running = [eddy.Worker(topology, log, config, member=str(number)) for number in range(workers)]
    step_to_rest(running)
    counts = {key: count for worker in running for key, count in worker.store("counts").all().items()}
    for worker in running:
        worker.close()
    found = [one for partition in range(partitions) for one in written(log, partition)]
    for key in "abc":
        mine = [number for number, (of, _) in enumerate(given_records) if of == key]
        assert [number for of, number in found if of == key.encode()] == mine
        assert counts.get(key, 0) == len(mine)


@pytest.mark.parametrize("after", [-1, 60.5, float("nan"), float("inf"), True, "5", None])
def test_a_time_that_is_none_is_refused(after: Any) -> None:
    with pytest.raises(TopologyError, match="retry: after="):
        eddy.Retry(after=after)


def test_the_driver_waits_for_no_other_attempt() -> None:
    config = eddy.Config(on_error=lambda record: eddy.Retry(after=60))
    with eddy.TopologyTestDriver(shares(), config) as driver, pytest.raises(ConnectorError, match="asks to try again"):
        driver.input("numbers").pipe("b", 0)


@pytest.mark.parametrize(
    ("topic", "value", "told"),
    [
        ("numbers", 0, "topic 'numbers' partition 0 offset 0 key b'1': step 'share'"),
        ("items", 101, "step 'left' failed on the row of key b'1', of 'items' partition 0 offset 0"),
    ],
)
def test_what_is_refused_ends_the_worker(topic: str, value: int, told: str) -> None:
    config = eddy.Config(on_error=lambda record: "fail")
    with eddy.TopologyTestDriver(shares(), config) as driver, pytest.raises(DataError, match=told):
        driver.input(topic).pipe("1", value)


@pytest.mark.parametrize(
    ("decide", "told"),
    [
        (lambda record: "ignore", "returned 'ignore' for FailedRecord.*'fail', 'skip', 'dead-letter', 'retry', or an"),
        (lambda record: eddy.Retry, "returned <class 'eddy.failed_record.Retry'>"),
        (lambda record: [], r"returned \[\]"),
        (lambda record: eddy.Retry(after=61), "raised TopologyError: retry: after=61; at most 60 seconds are possible"),
        (lambda record: None, "returned None"),
        (lambda record: record.none, "raised AttributeError"),
    ],
)  # fmt: skip
def test_a_function_that_decides_nothing_ends_the_worker_and_the_record_is_there_still(
    decide: Decide, told: str
) -> None:
    log = a_log()
    write(log, "numbers", [(b"a", N.encode(0)), (b"b", N.encode(4))])
    with pytest.raises(ConfigurationError, match=told):
        run(log, decide)
    run(log, lambda record: "skip")
    assert written(log) == [(b"b", 25)]


def a_log() -> LocalLog:
    log = LocalLog(None)
    log.create_topics(TopicSpec(topic, 1) for topic in ("numbers", "items", "shares", "left"))
    return log


def write(
    log: Any, topic: str, rows: Sequence[tuple[bytes, bytes | None]], partition: int = 0, headers: Headers = ()
) -> None:
    """Append records, each with these headers."""
    producer = log.producer(None)
    producer.begin()
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    producer.send(topic, partition, keys, values, [0] * len(rows), [headers] * len(rows) if headers else None)
    producer.commit({}, None)


def read(log: LocalLog, topic: str, partitions: int) -> list[tuple[bytes | None, bytes | None]]:
    found = [log.read(TopicPartition(topic, partition), 0, 100, 100) for partition in range(partitions)]
    return [pair for records in found for pair in zip(records.keys, records.values, strict=True)]


def written(log: LocalLog, partition: int = 0) -> list[tuple[bytes | None, int]]:
    found = log.read(TopicPartition("shares", partition), 0, 100, 100)
    return [(key, N.decode(value or b"")) for key, value in zip(found.keys, found.values, strict=True)]


def run(log: LocalLog, decide: Decide, topology: eddy.Topology | None = None, retry_s: float = 60.0) -> None:
    worker = eddy.Worker(topology or shares(), log, eddy.Config(on_error=decide, retry_s=retry_s))
    try:
        worker.run_until_idle()
    finally:
        worker.close()


def test_records_of_global_tables_are_decided_about() -> None:
    asked: list[tuple[Any, ...]] = []

    def decide(record: eddy.FailedRecord) -> str:
        asked.append((record.kind, record.topic, record.key, record.value))
        return "skip"

    topology = eddy.Topology("app")
    names = topology.global_table("names", key=S, value=N)
    orders = topology.stream("orders", key=S, value=S)
    orders.join(names, lambda order, name: (order, name), select=lambda key, order: order, value=eddy.Native).to("out")
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error=decide)) as driver:
        write(driver.log, "names", [(b"x", b"bad"), (b"y", N.encode(1))])
        driver.input("orders").pipe_all([("a", "x"), ("b", "y")])
        assert driver.output("out").read_key_values() == [("b", ("y", 1))]
    assert asked == [("decode", "names", b"x", b"bad")]
