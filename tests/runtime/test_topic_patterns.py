"""Topics by a pattern, on logs where they come and go: what is read, how often, and what the cuts say.

The laws draw topics, records, looks, restarts, crashes and workers, and compare with plain sums over the records.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import eddy
from eddy.cli.application import find
from eddy.cli.reset import reset
from eddy.cli.status import print_status
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Position, TopicPartition, TopicSpec
from eddy.errors import ConfigurationError, NoTopicMatchesError, PlanChangedError
from eddy.partitioner import partition_of
from eddy.runtime.matching_topics import MatchingTopics, gone_topics
from eddy.runtime.own_positions import topic_id, write_positions
from eddy.runtime.quiescence import last_cut
from eddy.state.memory import MemoryStore
from tests.waiting import PATIENCE_S, step_to_rest, wait_for

S, N = eddy.String, eddy.Int64
NAMES = ["in-a", "in-b", "in-c", "in-d"]
OTHERS = ["other", "pre-in-a", "in-a.x/y".replace("/", "_"), "app-in-x-changelog"]
EVERY_S = 5.0


class KilledError(BaseException):
    """The process ends here."""


async def called(value: str) -> str:
    return value


def counting(rekeyed: bool = False, calls: bool = False) -> eddy.Topology:
    """How many records of each key, or of each value, all topics have; `calls`: a function calls out for each."""
    topology = eddy.Topology("app")
    stream = topology.stream(pattern="in-[a-z]", key=S, value=S)
    if calls:
        stream = stream.map_values_async(called, value=S)
    grouped = stream.group_by(lambda key, value: value, key=S) if rekeyed else stream.group_by_key()
    grouped.count("counts").to("out")
    return topology


class Stage:
    """A log, its records as sent, and workers whose clock the test moves."""

    def __init__(self, partitions: int, rekeyed: bool, calls: bool = False) -> None:
        self.log, self.partitions, self.rekeyed = LocalLog(None), partitions, rekeyed
        self.topology, self.left = counting(rekeyed, calls), 10_000
        self.now = {"0": 0.0, "1": 0.0}
        self.sent: dict[str, list[list[tuple[str, str]]]] = {}
        self.former = Counter[str]()  # of topics that were deleted
        self.log.create_topics([TopicSpec("out", partitions)])
        self.workers: dict[str, eddy.Worker] = {}
        self.stores: dict[str, MemoryStore] = {}

    def make(self, topic: str, partitions: int | None = None) -> None:
        if topic not in self.log.topics():
            self.log.create_topics([TopicSpec(topic, partitions or self.partitions)])
            self.sent[topic] = [[] for _ in range(partitions or self.partitions)]

    def make_anew(self, topic: str) -> None:
        """Delete a topic that was read to its end, and make it again."""
        self.left = 10_000
        if topic in self.sent and self.workers:
            self.rest()
            rows = [row for part in self.sent[topic] for row in part]
            self.former.update(value if self.rekeyed else key for key, value in rows)
            self.log.delete_topics([topic])
            del self.sent[topic]
            self.make(topic)

    def send(self, topic: str, rows: list[tuple[str, str]]) -> None:
        producer = self.log.producer(None)
        producer.begin()
        for key, value in rows:
            partition = partition_of(key.encode(), len(self.sent[topic]))
            producer.send(topic, partition, [key.encode()], [value.encode()], [0])
            self.sent[topic][partition].append((key, value))
        producer.commit({}, None)

    def start(self, member: str, lose_state: bool) -> None:
        if lose_state or member not in self.stores:
            self.stores[member] = KeptStore()
        self.workers[member] = eddy.Worker(
            self.topology,
            self.log,
            eddy.Config(topics_interval_s=EVERY_S, cut_interval_s=0.0, retry_s=1e9),
            member=member,
            store=self.stores[member],
            clock=lambda: self.now[member],
            observe=self.observe,
        )

    def observe(self, step: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise KilledError(step)

    def step(self, member: str) -> None:
        """A step; a worker that is killed in it is gone, and its rows in memory, too."""
        try:
            self.workers[member].step()
        except KilledError:
            self.left = 10_000
            self.kill(member)
        self.check_cut()

    def learn(self, member: str) -> None:
        """Let a worker look for topics, and process what it then owns."""
        self.now[member] += EVERY_S
        for _ in range(5):
            if member in self.workers:
                self.step(member)

    def kill(self, member: str) -> None:
        self.workers.pop(member)
        self.log.evict("app", member)

    def table(self, ends: dict[str, list[int]] | None = None) -> dict[str, int]:
        """The table that readers of `out` have, up to these offsets."""
        found: dict[str, int] = {}
        for partition in range(self.partitions):
            at = TopicPartition("out", partition)
            end = self.log.end_offsets([at])[at] if ends is None else ends["out"][partition]
            read = self.log.read(at, 0, end, 100_000)
            for key, value in zip(read.keys, read.values, strict=True):
                assert key is not None
                assert value is not None
                found[key.decode()] = N.decode(value)
        return found

    def wanted(self, ends: dict[str, list[int]] | None = None) -> dict[str, int]:
        """The same from scratch, of the records of these topics up to these offsets."""
        found = Counter(self.former)
        for topic, parts in self.sent.items():
            if topic not in NAMES or len(parts) != self.partitions:
                continue
            for partition, rows in enumerate(parts):
                if ends is None:
                    read = len(rows)
                else:
                    at = TopicPartition(topic, partition)
                    offsets = ends.get(topic, [0] * self.partitions)
                    read = len(self.log.read(at, 0, offsets[partition], 100_000)) if offsets[partition] else 0
                found.update(value if self.rekeyed else key for key, value in rows[:read])
        return dict(found)

    def check_cut(self) -> None:
        """The outputs of the last cut are those of its inputs. The inputs may be gone with a former topic."""
        if not self.former and "app-cuts" in self.log.topics() and (cut := last_cut(self.log, "app-cuts")) is not None:
            assert self.table(dict(cut.outputs)) == self.wanted(dict(cut.inputs)), cut

    def rest(self) -> None:
        """Let all workers learn of all topics, and process everything."""
        for _ in range(3):
            for member in list(self.workers):
                self.now[member] += EVERY_S
                self.step(member)
        step_to_rest(list(self.workers.values()))
        self.check_cut()
        assert self.table() == self.wanted()
        assert all(worker.idle() for worker in self.workers.values())


class KeptStore(MemoryStore):
    """A store whose rows outlive a worker."""

    def close(self) -> None:
        """Keep the rows."""


rows = st.lists(st.tuples(st.sampled_from("klmn"), st.sampled_from("vw")), min_size=1, max_size=4)
actions = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(NAMES), rows),
    st.tuples(st.just("step"), st.sampled_from("01")),
    st.tuples(st.just("step"), st.sampled_from("01")),
    st.tuples(st.just("wait"), st.sampled_from("01")),
    st.tuples(st.just("learn"), st.sampled_from("01")),
    st.tuples(st.just("restart"), st.sampled_from("01"), st.booleans()),
    st.tuples(st.just("kill"), st.sampled_from("01"), st.booleans()),
    st.tuples(st.just("crash in"), st.integers(1, 12)),
    st.tuples(st.just("make"), st.sampled_from([*NAMES, *OTHERS])),
    st.tuples(st.just("make of another count"), st.just("in-z")),
    st.tuples(st.just("make anew"), st.sampled_from(NAMES), rows),
)


@example(
    [("make of another count", "in-z"), ("make anew", "in-a", [("k", "v")]), ("restart", "0", False)],
    *(1, False, False, False),
)
@given(
    script=st.lists(actions, max_size=30),
    partitions=st.integers(1, 3),
    two=st.booleans(),
    rekeyed=st.booleans(),
    calls=st.booleans(),
)
def test_each_record_of_each_topic_counts_once_whoever_learns_of_it_when(
    script: list[tuple[Any, ...]], partitions: int, two: bool, rekeyed: bool, calls: bool
) -> None:
    stage = Stage(partitions, rekeyed, calls)
    stage.make("in-a")
    stage.send("in-a", [("k", "v")])
    members = ["0", "1"] if two else ["0"]
    for member in members:
        stage.start(member, lose_state=True)
    stage.rest()  # so that the topic has joined before another one has another count
    for what, *arguments in script:
        play(stage, members, what, *arguments)
    for member in members:
        if member not in stage.workers:
            stage.start(member, lose_state=False)
    stage.left = 10_000
    stage.rest()
    for worker in stage.workers.values():
        worker.close()


def play(stage: Stage, members: list[str], what: str, *arguments: Any) -> None:
    if what == "send":
        topic, sent = arguments
        stage.make(topic)
        stage.send(topic, sent)
    elif what == "wait":
        stage.now[arguments[0]] += EVERY_S
    elif what == "learn":
        stage.learn(*arguments)
    elif what == "crash in":
        stage.left = arguments[0]
    elif what == "make":
        stage.make(arguments[0])
        stage.send(arguments[0], [("k", "w")])
    elif what == "make anew":
        topic, sent = arguments
        stage.make_anew(topic)
        stage.make(topic)
        stage.send(topic, sent)
    elif what == "make of another count":
        stage.make(arguments[0], stage.partitions + 1)
    elif (member := arguments[0]) in members:
        if member not in stage.workers:
            stage.start(member, lose_state=what != "step" and arguments[1])
        elif what == "step":
            stage.step(member)
        else:
            (stage.workers[member].close if what == "restart" else lambda: None)()
            stage.kill(member)
            stage.start(member, lose_state=arguments[1])


def of_two_workers() -> Stage:
    """One worker has learned of a topic and processed its part, the other one has not."""
    stage = Stage(2, rekeyed=False)
    stage.make("in-a")
    stage.send("in-a", [("k", "v"), ("n", "v")])
    for member in "01":
        stage.start(member, lose_state=True)
    stage.rest()
    stage.make("in-b")
    stage.send("in-b", [("k", "v"), ("n", "v")])
    stage.learn("1")
    assert stage.table() == {"k": 1, "n": 2}
    return stage


def test_a_worker_that_does_not_know_a_topic_writes_no_cut_of_what_another_has_read() -> None:
    stage = of_two_workers()
    for _ in range(3):
        stage.step("0")
        assert not stage.workers["0"].idle()
    stage.rest()


def test_a_worker_that_takes_over_reads_the_topics_of_the_one_before_it() -> None:
    stage = of_two_workers()
    stage.kill("1")
    stage.send("in-a", [("n", "v")])
    for _ in range(5):
        stage.step("0")
    assert stage.table() == stage.wanted() == {"k": 2, "n": 3}
    stage.rest()


def matching(pattern: str) -> eddy.Topology:
    topology = eddy.Topology("app")
    topology.stream(pattern=pattern, key=S, value=S).group_by_key().count("counts").to("out")
    return topology


def send(log: LocalLog, topic: str, *keys: str) -> None:
    producer = log.producer(None)
    producer.begin()
    producer.send(topic, 0, [key.encode() for key in keys], [b"v"] * len(keys), [0] * len(keys))
    producer.commit({}, None)


def table(log: LocalLog) -> dict[str, int]:
    at = TopicPartition("out", 0)
    read = log.read(at, 0, log.end_offsets([at])[at], 1_000)
    return {key.decode(): N.decode(value) for key, value in zip(read.keys, read.values, strict=True)}  # type: ignore[union-attr, arg-type]


@pytest.fixture
def log() -> Iterator[LocalLog]:
    made = LocalLog(None)
    made.create_topics([TopicSpec("out", 1)])
    yield made
    made.close()


class TestTopics:
    def test_no_internal_topic_is_read_and_none_of_kafkas_own(self, log: LocalLog) -> None:
        log.create_topics([TopicSpec("app-in", 1), TopicSpec("__consumer_offsets", 50)])
        send(log, "app-in", "a", "b")
        with closing(eddy.Worker(matching("(?!out$).*"), log, eddy.Config(topics_interval_s=0))) as worker:
            for _ in range(10):
                worker.step()
            assert set(worker.lags()) == {"app-in"}
        with closing(eddy.Worker(matching("(?!out$).*"), log)) as worker:
            worker.run_until_idle()
        assert table(log) == {"a": 1, "b": 1}
        assert {"app-cuts", "app-plan", "app-dead-letter", "app-counts-changelog"} < log.topics().keys()

    @pytest.mark.parametrize("pattern", ["app-.*-changelog", r"^app\-cuts$", "app-dead-letter", "app-.*-loop"])
    def test_a_pattern_of_internal_topics_alone_is_refused(self, pattern: str) -> None:
        with pytest.raises(eddy.TopologyError, match="only topics that eddy makes for application 'app'"):
            matching(pattern)

    def test_the_whole_name_has_to_match(self, log: LocalLog) -> None:
        log.create_topics([TopicSpec(name, 1) for name in ("orders-1", "my-orders-1", "orders-10")])
        found = MatchingTopics.of(matching("orders-[0-9]"), log)
        assert (found.names, found.refused) == ({"orders-1"}, {})

    def test_a_topic_of_another_count_is_not_read_and_stops_nothing(
        self, log: LocalLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        log.create_topics([TopicSpec("in-a", 1)])
        send(log, "in-a", "a")
        why = "topic 'in-b' is not read: it has 2 partitions, and 'in-a' of the same pattern 'in-.*' has 1"
        with closing(eddy.Worker(matching("in-.*"), log, eddy.Config(topics_interval_s=0))) as worker:
            worker.run_until_idle()
            log.create_topics([TopicSpec("in-b", 2), TopicSpec("in-c", 1)])
            send(log, "in-b", "b")
            send(log, "in-c", "c")
            for _ in range(9):
                worker.step()
            assert worker.idle()
        assert table(log) == {"a": 1, "c": 1}
        assert caplog.text.count(why) == 1
        with closing(eddy.Worker(matching("in-.*"), log)) as worker:  # nor does it stop the next start
            worker.run_until_idle()
        assert caplog.text.count(why) == 2
        assert find(matching("in-.*"), log).not_read.keys() == {"in-b"}

    def test_topics_of_two_counts_of_which_none_was_read_are_an_error(self, log: LocalLog) -> None:
        log.create_topics([TopicSpec("in-a", 1), TopicSpec("in-b", 3)])
        with pytest.raises(ConfigurationError, match=r"'in-a' with 1 partitions and topic 'in-b' with 3"):
            eddy.Worker(matching("in-.*"), log)

    def test_a_topic_that_another_step_reads_or_writes_is_not_read(self, log: LocalLog) -> None:
        topology = eddy.Topology("app")
        topology.stream(pattern="in-.*", key=S, value=S).to("in-out")
        topology.stream(pattern=".*-b", key=S, value=S).to("out")
        log.create_topics([TopicSpec(name, 1) for name in ("in-a", "in-b", "x-b", "in-out")])
        found = MatchingTopics.of(topology, log)
        assert found.names == {"in-a", "x-b"}
        assert found.refused["in-out"].startswith("the topology itself writes it; one step a topic is needed")
        assert found.refused["in-b"].startswith("pattern 'in-.*' matches it, too")

    def test_nothing_matches_yet(self, log: LocalLog) -> None:
        topology = matching("in-.*")
        with pytest.raises(NoTopicMatchesError, match=r"'app' waits: no topic matches pattern 'in-\.\*' yet"):
            eddy.Worker(topology, log)
        with eddy.run(topology, log) as running:
            log.create_topics([TopicSpec("in-a", 1)])
            send(log, "in-a", "a")
            wait_for(lambda: table(log) == {"a": 1}, PATIENCE_S, "the topic's records")
            running.wait_idle(PATIENCE_S)
        with eddy.run(matching("never-.*"), log):
            pass  # stopped while it waits

    def test_a_topic_that_is_deleted_leaves_its_rows(self, log: LocalLog) -> None:
        log.create_topics([TopicSpec("in-a", 1), TopicSpec("in-b", 1)])
        send(log, "in-a", "a")
        send(log, "in-b", "b")
        topology = matching("in-.*")
        with closing(eddy.Worker(topology, log)) as worker:  # the interval does not pass: its own poll tells it
            worker.run_until_idle()
            log.delete_topics(["in-b"])
            send(log, "in-a", "a", "b")
            for _ in range(9):
                worker.step()
            assert worker.idle()
            assert set(worker.lags()) == {"in-a"}
        assert table(log) == {"a": 2, "b": 2}
        assert gone_topics(topology, log, log.topics()) == ["in-b"]
        with closing(eddy.Worker(topology, log)) as worker:
            log.delete_topics(["in-a"])
            with pytest.raises(NoTopicMatchesError, match=r"no topic matches pattern 'in-\.\*' yet"):
                worker.run(lambda: False)

    @pytest.mark.parametrize("partitions", [1, 2])
    @pytest.mark.parametrize("records", [2, 9])  # the topic before it ended at offset 4
    @pytest.mark.parametrize("seen", [True, False])
    def test_a_topic_that_is_made_anew_is_read_from_its_first_record(
        self, log: LocalLog, caplog: pytest.LogCaptureFixture, seen: bool, records: int, partitions: int
    ) -> None:
        log.create_topics([TopicSpec("in-a", 1), TopicSpec("in-b", 1)])
        send(log, "in-a", "a", "b", "c")
        send(log, "in-b", "b")
        topology = matching("in-.*")
        with closing(eddy.Worker(topology, log, eddy.Config(topics_interval_s=0))) as worker:
            worker.run_until_idle()
            log.delete_topics(["in-a"])
            if seen:
                worker.run_until_idle()
            else:
                worker.close()
            log.create_topics([TopicSpec("in-a", partitions)])
            send(log, "in-a", *(f"new{number}" for number in range(records)))
            send(log, "in-b", "b")
            if seen:
                worker.run_until_idle()
                assert worker.idle()
        with closing(eddy.Worker(topology, log)) as worker:
            worker.run_until_idle()
            assert set(worker.lags()) == ({"in-a", "in-b"} if partitions == 1 else {"in-b"})
        if partitions == 1:
            news = {f"new{number}": 1 for number in range(records)}
            assert "topic 'in-a' was deleted and made anew: it is read from its first record" in caplog.text
            assert "the former one was read up to offset 4 in partition 0" in caplog.text
        else:
            news = {}
            assert "topic 'in-a' is not read: it has 2 partitions, and 'in-b' of the same pattern" in caplog.text
        assert table(log) == {"a": 1, "b": 3, "c": 1} | news
        assert find(topology, log).not_read.keys() == ({"in-a"} if partitions == 2 else set())

    def test_a_position_of_an_earlier_version_does_not_say_which_topic_it_is_in(
        self, log: LocalLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        log.create_topics([TopicSpec("in-a", 1), TopicSpec("in-b", 1)])
        send(log, "in-a", "a")
        send(log, "in-b", "b")
        topology = matching("in-.*")
        with closing(eddy.Worker(topology, log)) as worker:
            worker.run_until_idle()
        places = [TopicPartition(topic, 0) for topic in ("in-a", "in-b")]
        olds = {tp: Position(at.offset, "0 0") for tp, at in log.committed("app", places).items()}
        producer = log.producer(None)
        producer.begin()
        write_positions(producer, "app-cuts", olds, 0)
        producer.commit({}, None)
        log.set_positions("app", olds)
        log.delete_topics(["in-a"])
        log.create_topics([TopicSpec("in-a", 1)])
        send(log, "in-a", "new1", "new2", "new3")
        with closing(eddy.Worker(topology, log)) as worker:
            worker.run_until_idle()
            worker.step()  # commits the ids
        assert table(log) == {"a": 1, "b": 1}
        assert "topic 'in-a' is not read: it was deleted and made anew, or its positions" in caplog.text
        assert topic_id(log.committed("app", places)[places[1]]) == log.topic_ids(["in-b"])()["in-b"]
        reset(log, topology, None, "", yes=True, dead_letter=True)
        assert find(topology, log).not_read == {}

    def test_a_group_that_the_log_has_forgotten_is_no_topic_made_anew(self, log: LocalLog) -> None:
        log.create_topics([TopicSpec("in-a", 1), TopicSpec("in-b", 1)])
        send(log, "in-a", "a")
        send(log, "in-b", "b")
        topology = matching("in-.*")
        with closing(eddy.Worker(topology, log)) as worker:
            worker.run_until_idle()
        log.delete_group("app")
        send(log, "in-a", "a")
        send(log, "in-b", "b")
        with closing(eddy.Worker(topology, log)) as worker:
            worker.run_until_idle()
        assert table(log) == {"a": 2, "b": 2}


class TestReaders:
    def test_open_tables_are_exact_also_after_a_topic_has_joined(self, log: LocalLog) -> None:
        topology = matching("in-.*")
        log.create_topics([TopicSpec("in-a", 1)])
        send(log, "in-a", "a")
        with eddy.run(topology, log, eddy.Config(topics_interval_s=0.0)) as running:
            running.wait_idle(PATIENCE_S)
            with eddy.open_tables(topology, log) as tables:
                tables.wait(exact=True, timeout_s=PATIENCE_S)
                assert dict(tables["counts"].all()) == {"a": 1}
                log.create_topics([TopicSpec("in-b", 1)])
                send(log, "in-b", "a", "b")
                wait_for(lambda: dict(tables["counts"].all()) == {"a": 2, "b": 1}, PATIENCE_S, "the new topic's rows")
                assert tables.wait(exact=True, timeout_s=PATIENCE_S).exact

    def test_status_says_what_is_not_read(self, log: LocalLog, capsys: pytest.CaptureFixture[str]) -> None:
        log.create_topics([TopicSpec("in-a", 1)])
        send(log, "in-a", "a")
        topology = matching("in-.*")
        with closing(eddy.Worker(topology, log)) as worker:
            worker.run_until_idle()
            log.create_topics([TopicSpec("in-b", 2), TopicSpec("in-c", 1)])
            send(log, "in-c", "c")
            print_status(log, topology, "json")
            told = json.loads(capsys.readouterr().out)
            assert (told["quiescent"], told["not_read"].keys()) == (False, {"in-b"})
            assert {(part["topic"], part["lag"]) for part in told["partitions"]} == {("in-a", 0), ("in-c", 2)}
            print_status(log, topology, "table")
            assert "it has 2 partitions, and 'in-a' of the same" in " ".join(capsys.readouterr().out.split())
        log.delete_topics(["in-a", "in-b", "in-c"])
        with pytest.raises(NoTopicMatchesError, match="'app' waits: no topic matches pattern"):
            print_status(log, topology, "table")

    def test_a_reset_needs_no_topic_that_matches(self, log: LocalLog, capsys: pytest.CaptureFixture[str]) -> None:
        topology = matching("in-.*")
        log.create_topics([TopicSpec("in-a", 1)])
        send(log, "in-a", "a")
        with closing(eddy.Worker(topology, log)) as worker:
            worker.run_until_idle()
        log.delete_topics(["in-a"])
        reset(log, topology, None, "", yes=True, dead_letter=True)
        assert log.topics().keys() == {"out"}
        log.create_topics([TopicSpec("in-b", 3)])  # another number than before
        with closing(eddy.Worker(topology, log)) as worker:
            worker.run_until_idle()


class TestMistakes:
    @pytest.mark.parametrize("pattern", ["(", "", b"in-.*", 7, ["in-a"]])
    def test_what_is_no_pattern(self, pattern: Any) -> None:
        with pytest.raises(eddy.TopologyError, match="regular expression"):
            eddy.Topology("app").stream(pattern=pattern)

    def test_a_topic_and_a_pattern(self) -> None:
        with pytest.raises(eddy.TopologyError, match="one of them is needed"):
            eddy.Topology("app").stream("in", pattern="in-.*")

    def test_a_topic_that_is_read_already(self) -> None:
        topology = eddy.Topology("app")
        topology.table("in-a")
        with pytest.raises(eddy.TopologyError, match="matches topic 'in-a', which is read already"):
            topology.stream(pattern="in-.*")
        topology.stream(pattern="other-.*")
        with pytest.raises(eddy.TopologyError, match=r"topic 'other-a' is read already, by pattern 'other-\.\*'"):
            topology.stream("other-a")

    def test_steps_that_need_one_topic(self) -> None:
        topology = eddy.Topology("app")
        stream = topology.stream(pattern="in-.*", key=S, value=S)
        with pytest.raises(eddy.TopologyError, match="reads topics by a pattern; one topic is needed"):
            stream.to_table("t", timedelta(seconds=1), "event time")
        table = stream.to_table("u", timedelta(seconds=1), "wall clock")
        with pytest.raises(eddy.TopologyError, match="reads topics by a pattern; one topic is needed"):
            table.to_relation().valid(until=lambda key, value: 1, clock="event time", name="v")
        with pytest.raises(eddy.TopologyError, match="idle_after"):
            eddy.Topology("app").stream(pattern="in-.*", idle_after=timedelta(0))

    def test_a_schedule_by_event_time(self, log: LocalLog) -> None:
        class Scheduling:
            def init(self, context: eddy.ProcessorContext) -> None:
                context.schedule(timedelta(seconds=1), "event time", print)

            def process(self, record: eddy.Record[str, str]) -> None:
                """Take a record."""

        topology = eddy.Topology("app")
        topology.stream(pattern="in-.*", key=S, value=S).process(Scheduling, name="scheduling")
        log.create_topics([TopicSpec("in-a", 1)])
        with (
            closing(eddy.Worker(topology, log)) as worker,
            pytest.raises(eddy.ProcessorError, match="reads topics by a pattern, and event time is the time of one"),
        ):
            worker.run_until_idle()

    def test_another_pattern_is_another_plan(self, log: LocalLog) -> None:
        log.create_topics([TopicSpec("in-a", 1)])
        with closing(eddy.Worker(matching("in-.*"), log)) as worker:
            worker.run_until_idle()
            send(log, "in-a", "a")
            worker.run_until_idle()
        with pytest.raises(PlanChangedError, match=r"- pattern in-\.\* as stream"):
            eddy.Worker(matching("in-[a-z]"), log)
