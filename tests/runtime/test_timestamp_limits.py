"""Records whose timestamps lie too far ahead: left out alone, whatever the cut into epochs and the workers."""

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.errors import DataError
from eddy.partitioner import partition_of
from eddy.runtime.metadata import read_metadata
from eddy.runtime.timestamp_limits import TimestampLimit, TimestampLimits, timestamp_limits
from tests.simulation.witness import KeptStore

S = eddy.String
NOW_MS, HOUR_MS = 1_700_000_000_000, 3_600_000
AHEAD = "message.timestamp.after.max.ms"
TIMES = (0, NOW_MS - 1, NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, 1 << 50)
PARTITIONS = 2


class Sent(NamedTuple):
    """A record: a link from a key to another one, or its end."""

    key: str
    value: str | None
    time: int


def topology() -> eddy.Topology:
    """Rows as they come, merged after an exchange, and in a loop whose rows cross between owners."""
    made = eddy.Topology("app")
    made.stream("events", key=S, value=S).map_values(str.upper, value=S).to("echo")
    links = made.table("links", key=S, value=S, name="links")
    links.group_by(lambda key, value: (value, key), key=S, value=S).count("counts").to("counts", key=S)
    edges = links.to_relation()

    def further(reached: Any) -> Any:
        return reached.join(edges, lambda at, start, end: (end, start), key=S, value=S)

    reached = edges.map(lambda start, end: (end, start), key=S, value=S).recursively(further, "reached")
    starts = reached.map(lambda end, start: (start, end), key=S, value=S)
    starts.group_by_key().count("reaches").to("reaches", key=S)
    return made


def answers(events: list[Sent], links: list[Sent]) -> dict[str, Any]:
    """The oracle: what the topics hold, from the records that may pass."""
    table: dict[str, str] = {}
    for sent in links:
        table.pop(sent.key, None)
        if sent.value is not None:
            table[sent.key] = sent.value
    counts: dict[str, int] = {}
    for value in table.values():
        counts[value] = counts.get(value, 0) + 1
    reaches = {}
    for key in table:
        at, steps = key, 0
        while at in table:
            at, steps = table[at], steps + 1
        reaches[key] = steps
    echoed = sorted((sent.key, sent.value.upper()) for sent in events if sent.value)
    return {"echo": echoed, "counts": counts, "reaches": reaches}


class Case:
    """Random records, cut and owned at random."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.log = LocalLog(None)
        limited = {AHEAD: str(HOUR_MS)}
        self.log.create_topics(TopicSpec(name, PARTITIONS) for name in ("events", "links"))
        self.log.create_topics(TopicSpec(name, PARTITIONS, limited) for name in ("echo", "counts", "reaches"))
        self.of_an_earlier_version = dice.random() < 0.5
        if self.of_an_earlier_version:
            configs = limited | {"cleanup.policy": "delete", "retention.ms": "-1"}
            self.log.create_topics([TopicSpec("app-dead-letter", 1, configs)])
        self.sent: dict[str, list[Sent]] = {"events": [], "links": []}
        self.stores = [KeptStore() for _ in range(dice.choice((1, 1, 2)))]
        for _ in range(dice.randint(1, 3)):
            for _ in range(dice.randint(1, 12)):
                self.send(dice.choice(list(self.sent)))
            self.run(dice.randint(1, 9))

    def send(self, topic: str) -> None:
        """A record; links lead to greater keys, so that there is no cycle."""
        key = self.dice.randint(0, 7)
        value = str(self.dice.randint(key + 1, 9)) if topic == "events" or self.dice.random() < 0.8 else None
        sent = Sent(str(key), value, self.dice.choice(TIMES))
        self.sent[topic].append(sent)
        producer = self.log.producer(None)
        producer.begin()
        data = sent.key.encode()
        values = [None if value is None else value.encode()]
        producer.send(topic, partition_of(data, PARTITIONS), [data], values, [sent.time])
        producer.commit({}, None)
        producer.close()

    def run(self, epoch: int) -> None:
        """Workers from their start, with their stores or without, until all is taken in."""
        config = eddy.Config(on_error="dead-letter", max_epoch_records=epoch)
        if self.dice.random() < 0.3:
            self.stores = [KeptStore() for _ in self.stores]
        workers = [
            eddy.Worker(topology(), self.log, config, member=str(n), store=store, wall=lambda: NOW_MS / 1000)
            for n, store in enumerate(self.stores)
        ]
        for _ in range(2_000):
            if not sum(worker.step() for worker in workers) and all(worker.idle() for worker in workers):
                break
        else:
            raise AssertionError("not idle after 2,000 steps")
        for worker in workers:
            worker.close()

    def records(self, topic: str, partitions: int = PARTITIONS) -> list[tuple[bytes, bytes, int, Mapping[str, bytes]]]:
        found = []
        for partition in range(partitions):
            at = TopicPartition(topic, partition)
            records = self.log.read(at, 0, self.log.end_offsets([at])[at], 10_000)
            headers = [dict(one) for one in records.headers or [()] * len(records)]
            found += list(zip(records.keys, records.values, records.timestamps, headers, strict=True))
        return found  # type: ignore[return-value]

    def check(self) -> None:
        """Against the oracle, and the broker's rule."""
        good = {topic: [one for one in sent if one.time <= NOW_MS + HOUR_MS] for topic, sent in self.sent.items()}
        bad = [one for sent in self.sent.values() for one in sent if one.time > NOW_MS + HOUR_MS]
        wanted = answers(good["events"], good["links"])
        for topic in ("counts", "reaches"):
            rows = {key.decode(): value for key, value, *_ in self.records(topic)}
            table = {key: eddy.Int64.decode(value) for key, value in rows.items() if value is not None}
            assert table == wanted[topic], topic
        assert sorted((key.decode(), value.decode()) for key, value, *_ in self.records("echo")) == wanted["echo"]
        for topic in ("echo", "counts", "reaches"):
            assert max((time for _, _, time, _ in self.records(topic)), default=0) <= NOW_MS + HOUR_MS, topic
        assert len(read_metadata(self.log, "app-plan").left_out) == len(bad)
        letters = self.records("app-dead-letter", 1)
        if self.of_an_earlier_version:
            assert max((time for _, _, time, _ in letters), default=0) <= NOW_MS
            letters = [(*row, int(headers["eddy.timestamp"]), headers) for *row, _, headers in letters]
        told = [Sent(key.decode(), None if value is None else value.decode(), time) for key, value, time, _ in letters]
        assert sorted(map(repr, told)) == sorted(map(repr, bad))


@pytest.mark.slow
def test_they_are_left_out_alone() -> None:
    for seed in range(25):
        Case(seed).check()


@pytest.mark.long
def test_they_are_left_out_alone_in_many_cases() -> None:
    for seed in range(1_000, 3_000):
        Case(seed).check()


def test_the_law_finds_one_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimestampLimits, "refused", lambda self, records: {})
    with pytest.raises(AssertionError):
        test_they_are_left_out_alone()


def test_fail_names_the_record_the_topic_and_the_time() -> None:
    log = LocalLog(None)
    log.create_topics([TopicSpec("in", 1), TopicSpec("out", 1, {AHEAD: str(HOUR_MS)})])
    made = eddy.Topology("app")
    made.stream("in", key=S, value=S).to("out")
    producer = log.producer(None)
    producer.begin()
    producer.send("in", 0, [b"k", b"l"], [b"v", b"w"], [0, NOW_MS + 2 * HOUR_MS])
    producer.commit({}, None)
    producer.close()
    worker = eddy.Worker(made, log, wall=lambda: NOW_MS / 1000)
    with pytest.raises(
        DataError, match=r"offset 1 .*\(2023-11-15T00:13:20\+00:00\).*topic 'out' accepts .* 3600000 ms"
    ):
        worker.run_until_idle()
    worker.close()


def test_the_limit_is_the_least_of_the_topics_downstream() -> None:
    made = topology()
    specs = {
        "echo": TopicSpec("echo", 1, {AHEAD: "5"}),
        "counts": TopicSpec("counts", 1, {AHEAD: "7"}),
        "reaches": TopicSpec("reaches", 1, {AHEAD: "3", "message.timestamp.type": "LogAppendTime"}),
    }
    limits = timestamp_limits(made.plan, specs, [])
    assert limits == {"events": TimestampLimit(5, "echo"), "links": TimestampLimit(7, "counts")}
    specs["reaches"] = TopicSpec("reaches", 1, {AHEAD: "3"})
    assert timestamp_limits(made.plan, specs, [])["links"] == TimestampLimit(3, "reaches")
    exchange = TopicSpec("app-counts-repartition", 1, {AHEAD: "1"})
    assert set(timestamp_limits(made.plan, specs, [exchange]).values()) == {TimestampLimit(1, exchange.name)}
