"""Global tables: every worker has them whole, and records are joined with them by any key, where they are."""

import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

import eddy
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import TopicSpec
from tests.connectors.steps import QUICK_SESSIONS, values_of, wait_for

S, N = eddy.String, eddy.Int64


def joined(name: str = "app", left: bool = False) -> eddy.Topology:
    """Orders of people, each with the name of its country."""
    topology = eddy.Topology(name)
    countries = topology.global_table(f"{name}-countries", S, S)
    orders = topology.stream(f"{name}-orders", S, S)
    join = orders.left_join if left else orders.join
    join(countries, lambda code, country: f"{code}:{country}", value=S, select=lambda code: code).to(f"{name}-out")
    return topology


@pytest.mark.parametrize("left", [False, True])
def test_records_are_joined_by_the_selected_key_in_their_own_partitions(left: bool) -> None:
    with eddy.TopologyTestDriver(joined(left=left), partitions=3) as driver:
        driver.input("app-countries").pipe_all([("ch", "Schweiz"), ("de", "Deutschland"), ("fr", "France")])
        driver.input("app-orders").pipe_all([("a", "ch"), ("b", "xx"), (None, "fr"), ("c", None)])
        found = driver.output("app-out").read_records()
        told = {(record.key, record.value) for record in found}
        assert told == {("a", "ch:Schweiz"), (None, "fr:France"), *([("b", "xx:None")] if left else [])}
        assert driver.worker.internal.exchanges == {}
        assert driver.store("app-countries").all() == {"ch": "Schweiz", "de": "Deutschland", "fr": "France"}


def test_changes_take_effect_and_make_no_record() -> None:
    with eddy.TopologyTestDriver(joined()) as driver:
        countries, orders, out = driver.input("app-countries"), driver.input("app-orders"), driver.output("app-out")
        orders.pipe("a", "ch")
        countries.pipe("ch", "Suisse")
        assert out.read_key_values() == []
        orders.pipe("a", "ch")
        countries.pipe("ch", "Svizra")
        orders.pipe("b", "ch")
        countries.pipe("ch", None)
        orders.pipe("b", "ch")
        assert out.read_key_values() == [("a", "ch:Suisse"), ("b", "ch:Svizra")]


@pytest.mark.parametrize("lose_state", [False, True])
def test_a_worker_reads_the_table_anew_before_its_first_record(lose_state: bool) -> None:
    with eddy.TopologyTestDriver(joined()) as driver:
        driver.input("app-countries").pipe_all([("ch", "Schweiz"), ("de", "Deutschland"), ("ch", None)])
        driver.restart(lose_state=lose_state)
        assert driver.store("app-countries").all() == {"de": "Deutschland"}
        driver.input("app-orders").pipe_all([("a", "ch"), ("b", "de")])
        assert driver.output("app-out").read_key_values() == [("b", "de:Deutschland")]


def test_a_select_with_the_key_and_a_joiner_with_the_key() -> None:
    topology = eddy.Topology("app")
    names = topology.global_table("names", S, N, name="by-name")
    sums = topology.stream("in", S, N).join(
        names, lambda key, value, other: f"{key}{value + other}", "sums", S, select=lambda key, value: key[:1]
    )
    minutes = eddy.TimeWindows(timedelta(milliseconds=10))
    sums.group_by_key().windowed_by(minutes).reduce(lambda one, other: one + other, "texts").to("out")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("names").pipe("a", 10)
        driver.input("in").pipe_all([("ab", 1), ("ab", 2), ("b", 3)], 5)
        assert driver.store("texts").all() == {eddy.Windowed("ab", 0, 10): "ab11ab12"}


@pytest.mark.parametrize("policy", ["fail", "skip", "dead-letter"])
def test_a_record_that_does_not_decode_is_an_error_or_left_out(policy: Any, caplog: pytest.LogCaptureFixture) -> None:
    topology = eddy.Topology("app")
    numbers = topology.global_table("numbers", S, N)
    topology.stream("in", S, N).join(numbers, lambda one, other: one + other, value=N, select=lambda one: "a").to("out")
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error=policy)) as driver:
        driver.input("numbers").pipe("a", 1)
        if policy == "fail":
            with pytest.raises(eddy.DataError, match="topic 'numbers' partition 0 offset 2 key b'a': the value b'x'"):
                driver.input("numbers").pipe_raw(b"a", b"x")
            with pytest.raises(eddy.DataError, match="topic 'numbers' partition 0 offset 2 key b'a'"):
                driver.input("in").pipe("k", 2)  # the worker steps again, and meets the record again
            assert driver.output("out").read_key_values() == []
            return
        driver.input("numbers").pipe_raw(b"a", b"x")
        assert "global table 'numbers': record left out: topic 'numbers' partition 0 offset 2" in caplog.text
        driver.input("in").pipe("k", 2)
        assert driver.output("out").read_key_values() == [("k", 3)]


def test_a_record_whose_key_cannot_be_selected_is_rejected_alone() -> None:
    topology = eddy.Topology("app")
    numbers = topology.global_table("numbers", N, S)
    joined = topology.stream("in", S, S).join(numbers, lambda one, other: other, value=S, select=lambda text: int(text))
    joined.to("out")
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="skip")) as driver:
        driver.input("numbers").pipe(7, "seven")
        driver.input("in").pipe_all([("a", "7"), ("b", "x"), ("c", "7")])
        assert driver.output("out").read_key_values() == [("a", "seven"), ("c", "seven")]
        assert driver.worker.statistics.skipped == 1


@pytest.mark.parametrize("policy", ["fail", "skip", "dead-letter"])
def test_a_selected_key_that_cannot_be_hashed_is_decided_about_as_a_record(policy: Any) -> None:
    topology = eddy.Topology("app")
    names = topology.global_table("names", S, S)
    select = lambda text: text.split() if " " in text else text  # noqa: E731
    topology.stream("in", S, S).left_join(names, lambda one, two: f"{one} {two}", "named", S, select=select).to("out")
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error=policy)) as driver:
        driver.input("names").pipe("ch", "Schweiz")
        rows = [("a", "ch"), ("b", "c h"), ("c", "de"), ("d", None)]
        if policy == "fail":
            with pytest.raises(eddy.DataError, match=r"step 'named': select returned \['c', 'h'\], which cannot be"):
                driver.input("in").pipe_all(rows)
            return
        driver.input("in").pipe_all(rows)
        assert driver.output("out").read_key_values() == [("a", "ch Schweiz"), ("c", "de None")]
        assert driver.worker.statistics.skipped == 1


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda s, g, t: s.join(g, lambda a, b: a), "join 'in-g-join': .*select=None; a function is needed"),
        (lambda s, g, t: s.left_join(g, lambda a, b: a, select="key"), "left_join 'in-g-left-join': "),
        (lambda s, g, t: s.join(t, lambda a, b: a, select=lambda a: a), "makes the key of a global table, and 't' is"),
        (
            lambda s, g, t: s.recursively(lambda r: r.join(g, lambda a, b: a, select=lambda a: a), "r"),
            "lies inside recursively 'r', where a global table",
        ),
        (lambda s, g, t: t.join(g, lambda a, b: a), "GlobalKTable"),
        (lambda s, g, t: s.join(eddy.Topology("o").global_table("g", S, S), max, select=lambda a: a), "topolog"),
    ],
)
def test_what_a_global_table_is_not_for_is_refused_where_it_is_written(
    build: Callable[[Any, Any, Any], object], told: str
) -> None:
    topology = eddy.Topology("app")
    stream, table = topology.stream("in", S, S), topology.table("t", S, S)
    with pytest.raises(eddy.TopologyError, match=told):
        build(stream, topology.global_table("g", S, S), table)


def test_a_topic_is_read_once() -> None:
    topology = eddy.Topology("app")
    topology.global_table("g", S, S)
    for read in (topology.stream, topology.table, topology.global_table):
        with pytest.raises(eddy.TopologyError, match="topic 'g' is read twice"):
            read("g", S, S)


def test_on_kafka_each_of_two_workers_has_the_whole_table(broker: str) -> None:
    name = f"global-{uuid.uuid4().hex[:8]}"
    log = KafkaLog(KafkaSettings.of(broker, pairs=QUICK_SESSIONS))
    log.create_topics([TopicSpec(f"{name}-{topic}", 2) for topic in ("orders", "out")])
    log.create_topics([TopicSpec(f"{name}-countries", 3)])

    def send(topic: str, rows: list[tuple[int, bytes, bytes | None]]) -> None:
        with closing(log.producer(f"{name}-writer")) as producer:
            producer.begin()
            for partition, key, value in rows:
                producer.send(f"{name}-{topic}", partition, [key], [value], [1_000])
            producer.commit({}, None)

    send("countries", [(0, b"ch", b"Schweiz"), (1, b"de", b"Deutschland"), (2, b"fr", b"France"), (1, b"de", None)])
    workers = [eddy.Worker(joined(name), log, member=str(n)) for n in range(2)]

    def stepped() -> bool:
        for worker in workers:
            worker.step(0.05)
        return all(len(worker.circuit.ownership.partitions.get(2, ())) == 1 for worker in workers)

    with closing(log), closing(workers[0]), closing(workers[1]):
        wait_for(lambda: stepped() and all(worker.state.name == "PROCESSING" for worker in workers))
        for worker in workers:
            assert worker.store(f"{name}-countries").all() == {"ch": "Schweiz", "fr": "France"}
        send("countries", [(0, b"it", b"Italia")])
        wait_for(lambda: stepped() and all(w.store(f"{name}-countries").get("it") for w in workers))
        send("orders", [(0, b"a", b"it"), (1, b"b", b"ch"), (1, b"c", b"de")])

        def written() -> list[bytes | None]:
            return [value for p in range(2) for value in values_of(log, f"{name}-out", p)]

        # The rows, and not the ends: an epoch that is undone on a busy machine moves these, too.
        wait_for(lambda: stepped() and len(written()) >= 2)
        assert sorted(written()) == [b"ch:Schweiz", b"it:Italia"]  # type: ignore[type-var]
