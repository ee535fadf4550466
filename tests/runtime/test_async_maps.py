"""Calls of coroutine functions: results exactly once in the order of the records, whatever fails, waits or ends."""

import asyncio
import random
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import chain, count
from typing import Any

import pytest

import eddy
from eddy.connectors.kafka.settings import KafkaSettings
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.errors import DataError, TopologyError
from tests.children import KilledError
from tests.connectors.steps import QUICK_SESSIONS, TidyKafkaLog
from tests.runtime.logs import log_of, send
from tests.seeds import of_today, share
from tests.waiting import Deadline, step_to_rest, wait_for

S, N = eddy.String, eddy.Int64


class Outside:
    """What is called: each call takes a moment; it notes which calls run at the same time."""

    def __init__(self, dice: random.Random, order: str = "none") -> None:
        self.dice, self.order = dice, order
        self.calls: Counter[str] = Counter()
        self.running: list[tuple[Any, ...]] = []
        self.most = 0
        self.overlapped = False

    async def __call__(self, key: str, value: int, record: eddy.RecordContext) -> tuple[str, int]:
        turn = (key,) if self.order == "key" else (record.topic, record.partition)
        self.overlapped |= self.order != "none" and turn in self.running
        self.running.append(turn)
        self.most = max(self.most, len(self.running))
        self.calls[f"{record.partition}/{record.offset}/{value}"] += 1
        try:
            for _ in range(self.dice.randrange(4)):
                await asyncio.sleep(self.dice.choice((0, 0.001)))  # pause: a call takes its time
            return key, 10 * value
        finally:
            self.running.remove(turn)


def calling(outside: Outside, at_most: int, order: Any) -> eddy.Topology:
    topology = eddy.Topology("app")
    numbers = topology.stream("numbers", key=S, value=N)
    pairs = numbers.filter(lambda key, value: value % 5 != 0).flat_map_values(lambda value: [value] * (value % 3))
    pairs.map_async(outside, at_most=at_most, order=order, key=S, value=N).to("out")
    return topology


def expected(values: list[int]) -> list[int]:
    return [10 * value for value in values if value % 5 != 0 for _ in range(value % 3)]


def written(log: Any, partitions: int, topic: str = "out") -> list[list[tuple[str, int]]]:
    found = [log.read(TopicPartition(topic, part), 0, 1 << 40, 1 << 20) for part in range(partitions)]
    return [
        [(S.decode(k or b""), N.decode(v or b"")) for k, v in zip(part.keys, part.values, strict=True)]
        for part in found
    ]


@pytest.mark.parametrize("order", ["key", "input", "none"])
def test_results_come_exactly_once_in_order_among_crashes_and_owners(order: str) -> None:
    for seed in of_today(share(4)):
        try:
            among_crashes(random.Random(seed), order)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def among_crashes(dice: random.Random, order: str) -> None:
    values = [dice.randint(0, 50) for _ in range(dice.randint(0, 30))]
    at_most, partitions, owners = dice.randint(1, 5), dice.randint(1, 3), dice.randint(1, 2)
    outside = Outside(dice, order)
    log = log_of({"numbers": partitions, "out": partitions})
    sent = {part: values[part::partitions] for part in range(partitions)}
    for part, own in sent.items():
        send(log, ("numbers", part), [(S.encode(f"{part}-{value % 2}"), N.encode(value)) for value in own])
    topology, config = calling(outside, at_most, order), eddy.Config(max_epoch_records=dice.randint(1, 20))
    run_among_crashes(dice, owners, lambda **given: eddy.Worker(topology, log, config, **given))
    came = defaultdict[str, list[int]](list)
    for key, value in chain(*written(log, partitions)):
        came[key].append(value)
    for part, own in sent.items():
        for half in (0, 1):
            assert came[f"{part}-{half}"] == expected([value for value in own if value % 2 == half])
    assert outside.most <= at_most * owners
    assert not (owners == 1 and outside.overlapped)


def run_among_crashes(dice: random.Random, owners: int, start: Callable[..., eddy.Worker]) -> None:
    """Step some workers in turn until all have come to rest; each may end at any step of an epoch and begin anew."""

    def observe(step: str) -> None:
        if dice.random() < 0.05:
            raise KilledError

    members = [str(number) for number in range(owners)]
    workers = {member: start(member=member, observe=observe) for member in members}
    deadline = Deadline()
    while not all(worker.idle() for worker in workers.values()):
        deadline.check("rest")
        member = dice.choice(members)
        try:
            workers[member].step()
        except KilledError:
            workers[member].close()
            workers[member] = start(member=member, observe=observe)
    for worker in workers.values():
        worker.close()


async def same(value: int) -> int:
    return value


def of_values(call: Callable[..., Awaitable[int]], **limits: Any) -> eddy.Topology:
    topology = eddy.Topology("app")
    topology.stream("numbers", key=S, value=N).map_values_async(call, value=N, **limits).to("out")
    return topology


def numbers(log: LocalLog, partition: int, *values: int) -> None:
    send(log, ("numbers", partition), [(str(partition).encode(), N.encode(value)) for value in values])


def results(log: Any, partition: int) -> list[int]:
    return [value for _, value in written(log, partition + 1)[partition]]


def test_a_call_that_waits_holds_up_its_partition_alone_and_is_made_again_by_the_next_worker() -> None:
    gate, begun = threading.Event(), list[int]()

    async def call(value: int) -> int:
        begun.append(value)
        while value == 0 and not gate.is_set():
            await asyncio.sleep(0.001)  # pause: a call takes its time
        return value

    log = log_of({"numbers": 2, "out": 2})
    numbers(log, 0, 1, 0, 2)
    numbers(log, 1, *range(1, 501))
    worker = eddy.Worker(of_values(call, at_most=3), log)
    wait_for(lambda: worker.step() == 0 and len(results(log, 0)) + len(results(log, 1)) == 501)
    assert worker.lag() == 3  # two records, and the end of their transaction
    worker.close()
    gate.set()
    assert begun.count(0) == 1
    worker = eddy.Worker(of_values(call, at_most=3), log)
    step_to_rest([worker])
    worker.close()
    assert (results(log, 0), results(log, 1)) == ([1, 0, 2], list(range(1, 501)))
    assert begun.count(0) == 2


def test_few_records_wait_behind_one_that_is_stuck() -> None:
    begun = list[int]()

    async def call(value: int) -> int:
        begun.append(value)
        return await asyncio.sleep(3_600 if value == 0 else 0, value)  # pause: a call takes its time

    log = log_of({"numbers": 1, "out": 1})
    numbers(log, 0, *range(2_000))
    config = eddy.Config(max_epoch_records=10)
    worker = eddy.Worker(of_values(call, at_most=5, order="none"), log, config)
    wait_for(lambda: worker.step() == 0 and len(begun) >= 20)
    for _ in range(20):
        worker.step()
    assert len(begun) <= 4 * 5 + 10
    assert results(log, 0) == []
    worker.close()


@pytest.mark.parametrize(("policy", "letters"), [("skip", 0), ("dead-letter", 2)])
def test_a_call_that_fails_is_for_the_error_policy(policy: Any, letters: int) -> None:
    async def call(value: int) -> int:
        if value == 7:
            await asyncio.sleep(3_600)  # pause: a call takes its time
        return 100 // value

    topology = of_values(call, timeout=timedelta(milliseconds=20))
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error=policy)) as driver:
        driver.input("numbers").pipe_all([("a", 5), ("a", 0), ("b", 7), ("b", 4)])
        assert driver.output("out").read_key_values() == [("a", 20), ("b", 25)]
        told = driver.output("app-dead-letter", eddy.Bytes, eddy.Bytes).read_records() if letters else []
    assert [dict(letter.headers)["eddy.error"].decode().partition(" (")[0] for letter in told] == [
        "map_values_async after 'numbers': the call raised ZeroDivisionError: integer division or modulo by zero",
        "map_values_async after 'numbers': the call raised TimeoutError: it took more than timeout=0.02 s",
    ][:letters]


def test_a_call_that_fails_ends_the_worker_where_nothing_else_is_asked_for() -> None:
    async def call(value: int) -> int:
        return 100 // value

    told = "topic 'numbers' partition 0 offset 1 .*map_values_async after 'numbers': the call raised ZeroDivisionError"
    with eddy.TopologyTestDriver(of_values(call)) as driver, pytest.raises(DataError, match=told):
        driver.input("numbers").pipe_all([("a", 5), ("a", 0)])


@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError])
def test_a_call_that_ends_its_task_or_thread_is_a_failure_and_others_go_on(error: type[BaseException]) -> None:
    async def call(value: int) -> int:
        if value == 2:
            raise error
        return value

    with eddy.TopologyTestDriver(of_values(call), eddy.Config(on_error="skip")) as driver:
        driver.input("numbers").pipe_all([("a", 1), ("a", 2), ("b", 3)])
        driver.input("numbers").pipe("a", 4)
        assert driver.output("out").read_key_values() == [("a", 1), ("b", 3), ("a", 4)]


def test_a_failed_call_is_repeated() -> None:
    tries = Counter[int]()

    async def call(value: int) -> int:
        tries[value] += 1
        if tries[value] <= value:
            raise OSError("nobody answers")
        return value

    config = eddy.Config(on_error="skip")
    with eddy.TopologyTestDriver(of_values(call, retries=2), config) as driver:
        driver.input("numbers").pipe_all([("a", 0), ("a", 3), ("b", 2), ("a", 1)])
        assert driver.output("out").read_key_values() == [("a", 0), ("b", 2), ("a", 1)]
    assert tries == {0: 1, 1: 2, 2: 3, 3: 3}


def test_the_decision_to_try_again_calls_again() -> None:
    tries = list[int]()

    async def call(value: int) -> int:
        tries.append(value)
        if len(tries) < 3:
            raise OSError("nobody answers")
        return value

    log = log_of({"numbers": 1, "out": 1})
    numbers(log, 0, 1)
    worker = eddy.Worker(of_values(call), log, eddy.Config(on_error=lambda record: "retry"))
    step_to_rest([worker])
    worker.close()
    assert (tries, results(log, 0)) == ([1, 1, 1], [1])


def test_steps_before_a_call_that_make_other_rows_the_second_time_are_told() -> None:
    made = count(2)
    topology = eddy.Topology("app")
    rows = topology.stream("numbers", key=S, value=N).flat_map_values(lambda value: range(next(made)))
    rows.map_values_async(same, value=N).to("out")
    with eddy.TopologyTestDriver(topology) as driver, pytest.raises(DataError, match="there was no call for the row"):
        driver.input("numbers").pipe("a", 1)


def test_records_that_no_step_can_read_are_not_called_for() -> None:
    called = list[int]()

    async def call(value: int) -> int:
        called.append(value)
        return value

    topology = eddy.Topology("app")
    read = topology.stream("numbers", key=S, value=N, timestamp=lambda key, value: value - 5)
    read.map_values(lambda value: 100 // (value - 7)).map_values_async(call, value=N).to("out")
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="skip")) as driver:
        driver.input("numbers").pipe_raw(b"a", b"none")
        driver.input("numbers").pipe_all([("a", 1), ("a", 7), ("a", 8)])
        assert driver.output("out").read_key_values() == [("a", 100)]
    assert called == [100]


def test_it_stands_among_other_steps_of_records() -> None:
    async def call(key: str, value: int, record: eddy.RecordContext) -> int:
        return value + record.timestamp_ms

    async def other(key: str, value: int) -> tuple[str, int]:
        return f"{key}!", -value

    topology = eddy.Topology("app")
    one, two = (topology.stream(topic, key=S, value=N) for topic in ("one", "two"))
    called = one.merge(two).map_values_async(call, value=N)
    called.map_values(lambda value, record: (value, record.topic), value=eddy.Native).to("out")
    windows = eddy.TimeWindows(timedelta(milliseconds=10))
    called.group_by_key(value=N).windowed_by(windows).count("counts")
    two.map_async(other, key=S, value=N).group_by_key(value=N).count("others")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("one").pipe("a", 1, 100)
        driver.input("two").pipe("a", 2, 105)
        driver.input("two").pipe("b", 3, 112)
        assert driver.output("out", S, eddy.Native).read_key_values() == [
            ("a", (101, "one")),
            ("a", (107, "two")),
            ("b", (115, "two")),
        ]
        counts = driver.store("counts").all()
        assert [(window.key, count) for window, count in counts.items()] == [("a", 2), ("b", 1)]
        assert driver.store("others").all() == {"a!": 1, "b!": 1}


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (
            lambda s: s.map_values_async(lambda value: value),
            "is not a coroutine function; one is needed. Write async def",
        ),
        (lambda s: s.map_async(5), "5 is not a coroutine function"),
        (lambda s: s.map_async(same), "same of .*test_async_maps.*takes \\(value\\) and is called with \\(key, value"),
        (lambda s: s.map_values_async(same, at_most=0), "at_most=0; 1 or more"),
        (lambda s: s.map_values_async(same, order="any"), "order='any'; 'key', 'input' or 'none' is needed"),
        (lambda s: s.map_values_async(same, timeout=3), "timeout=3; a timedelta"),
        (lambda s: s.map_values_async(same, retries=-1), "retries=-1; 0 or more"),
        (lambda s: s.repartition().map_values_async(same), "step 'numbers-repartition' has sent the rows"),
        (lambda s: s.map_values_async(same).map_values_async(same), "have been called for before; write one function"),
        (lambda s: s.to_table().to_stream().map_values_async(same), "makes rows that are not records of a source"),
        (
            lambda s: s.recursively(lambda rows: rows.map_values_async(same).filter(lambda key, value: False)),
            "rows inside recursively 'numbers-recursively' are not records of a source",
        ),
    ],
)
def test_mistakes_are_told_where_they_are_written(build: Callable[[Any], Any], told: str) -> None:
    with pytest.raises(TopologyError, match=told):
        build(eddy.Topology("app").stream("numbers", key=S, value=N))


@pytest.mark.parametrize(
    ("before", "needs"),
    [
        (lambda s, users, countries: s.left_join(users, max, name="named"), "a table"),
        (lambda s, users, countries: s.join(users, max, name="named").filter(bool).merge(s), "a table"),
        (lambda s, users, countries: s.left_join(countries, max, select=str, name="named"), "a table"),
        (
            lambda s, users, countries: s.deduplicate(within=timedelta(1), name="named").map_values(abs),
            "earlier records",
        ),
    ],
)
def test_a_call_needs_the_record_alone(before: Callable[..., Any], needs: str) -> None:
    topology = eddy.Topology("app")
    users, countries = topology.table("users", key=S, value=N), topology.global_table("countries", key=S, value=N)
    rows = before(topology.stream("numbers", key=S, value=N), users, countries)
    with pytest.raises(TopologyError, match=f"step 'named(-order)?' needs {needs} as of that epoch.*Call before"):
        rows.map_values_async(same)


def test_a_function_that_could_do_without_a_value_gets_key_and_value() -> None:
    async def call(key: str, value: int = -1, *, record: eddy.RecordContext) -> tuple[str, int]:
        return key, value + record.offset

    topology = eddy.Topology("app")
    topology.stream("numbers", key=S, value=N).map_async(call, key=S, value=N).to("out")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("numbers").pipe_all([("a", 5), ("b", 6)])
        assert driver.output("out").read_key_values() == [("a", 5), ("b", 7)]


def test_a_pair_is_needed() -> None:
    async def call(key: str, value: int) -> int:
        return value

    topology = eddy.Topology("app")
    wrong: Any = call
    topology.stream("numbers", key=S, value=N).map_async(wrong, value=N).to("out")
    told = "the function of .*test_async_maps.py:.* returned 1; a pair \\(key, value\\) is needed"
    with eddy.TopologyTestDriver(topology) as driver, pytest.raises(DataError, match=told):
        driver.input("numbers").pipe("a", 1)


def test_on_kafka_a_successor_calls_again_and_nothing_is_doubled(broker: str) -> None:
    outside, name = Outside(random.Random(1)), f"app-{uuid.uuid4().hex[:8]}"

    def topology() -> eddy.Topology:
        made = eddy.Topology(name)
        made.stream(f"{name}-in", key=S, value=N).map_async(outside, at_most=8, key=S, value=N).to(f"{name}-out")
        return made

    log = TidyKafkaLog(KafkaSettings.of(broker, pairs=QUICK_SESSIONS))
    log.create_topics(TopicSpec(f"{name}-{stem}", 2) for stem in ("in", "out"))
    values = list(range(200))
    log.write(f"{name}-in", [(str(value % 7), value) for value in values], key=S, value=N)
    commits = count()

    def observe(step: str) -> None:
        if step == "committed" and next(commits) == 2:
            raise KilledError

    def started(member: str) -> eddy.Worker:
        return eddy.Worker(topology(), log, eddy.Config(max_epoch_records=20), member=member, observe=observe)

    workers = [started("0"), started("1")]
    deadline = Deadline()
    while not all(worker.idle() for worker in workers):
        deadline.check("rest")
        for number, worker in enumerate(workers):
            try:
                worker.step(0.02)
            except KilledError:
                worker.close()
                workers[number] = started(str(number))
    for worker in workers:
        worker.close()
    rows = [row for part in written(log, 2, f"{name}-out") for row in part]
    log.close()
    assert sorted(rows) == sorted((str(value % 7), 10 * value) for value in values)
    assert min(outside.calls.values()) == 1
