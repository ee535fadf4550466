"""Source topics that are deleted and made anew: each record of each topic counts once, and it is said.

`test_topic_patterns.py` does the same with topics of a pattern, at random moments.
"""

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from datetime import timedelta

import pytest

import eddy
from eddy.cli.application import find
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.errors import ConnectorError, StateError
from eddy.runtime.own_positions import committed
from eddy.runtime.quiescence import Counters, quiescent, topics_made_anew
from tests.runtime.counted_keys import last_counts, send_keys
from tests.runtime.logs import log_of, send
from tests.waiting import PATIENCE_S, Deadline, wait_for

S, N = eddy.String, eddy.Int64
SOON = eddy.Config(topics_interval_s=0.3)


class Words:
    """Counts of the keys of a topic with two partitions, by two workers; `pattern`: the topic is found by one."""

    def __init__(self, log: Log, pattern: bool) -> None:
        self.log, self.name = log, f"w{uuid.uuid4().hex[:8]}"
        self.topic, self.out = f"{self.name}-in-a", f"{self.name}-out"
        self.topology = eddy.Topology(self.name)
        by_pattern = {"pattern": f"{self.name}-in-.*"}
        words = self.topology.stream(**by_pattern if pattern else {"topic": self.topic}, key=S, value=S)
        words.group_by_key().count("counts").to(self.out)
        log.create_topics([TopicSpec(self.topic, 2), TopicSpec(self.out, 2)])
        self.inputs = [TopicPartition(self.topic, partition) for partition in (0, 1)]
        self.sent = Counter[bytes]()

    def make_anew(self) -> None:
        self.log.delete_topics([self.topic])
        self.log.create_topics([TopicSpec(self.topic, 2)])

    def send(self, keys: Sequence[bytes]) -> None:
        send_keys(self.log, self.topic, keys)
        self.sent.update(keys)

    def run(self, stack: ExitStack) -> list[eddy.Worker]:
        return [stack.enter_context(closing(eddy.Worker(self.topology, self.log, SOON, member=m))) for m in "01"]

    def wait(self, workers: Sequence[eddy.Worker], what: str) -> None:
        """Step until everything is counted, and nothing more comes."""
        deadline = Deadline(PATIENCE_S)
        while last_counts(self.log, self.out) != self.sent or not quiescent(self.log, self.name, self.inputs, []):
            deadline.check(what)
            for worker in workers:
                worker.step(0.05)


KEYS = [b"k%d" % number for number in range(20)]


# The former topic has 20 records: the new one is longer, or shorter.
@pytest.mark.parametrize(("more", "pattern"), [(60, False), (3, True)])
def test_a_topic_that_is_made_anew_is_read_from_its_first_record(
    log: Log, more: int, pattern: bool, caplog: pytest.LogCaptureFixture
) -> None:
    words = Words(log, pattern)
    words.send(KEYS)
    with ExitStack() as stack:
        workers = words.run(stack)
        words.wait(workers, "the first topic")
        words.make_anew()
        words.send(KEYS[:1] * more + KEYS[7:9])
        words.wait(workers, "the topic that was made anew while workers ran")
    wait_for(lambda: not log.groups().get(words.name), PATIENCE_S, "the sessions' ends")
    words.make_anew()
    words.send(KEYS[:5] * (more // 3))
    with ExitStack() as stack:
        workers = words.run(stack)
        words.wait(workers, "the topic that was made anew while no worker ran")
        words.send(KEYS)
        words.wait(workers, "later records")
    assert f"topic '{words.topic}' was deleted and made anew: it is read from its first record" in caplog.text
    assert topics_made_anew(log, words.name, words.inputs) == [words.topic]
    assert {Counters.of(at).anew for at in committed(log, words.name, words.inputs).values()} == {2}


def counting(log: LocalLog) -> eddy.Topology:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).group_by_key().count("counts").to("out")
    return topology


def table(log: LocalLog) -> dict[bytes | None, int]:
    at = TopicPartition("out", 0)
    read = log.read(at, 0, log.end_offsets([at])[at], 1_000)
    return {key: N.decode(value) for key, value in zip(read.keys, read.values, strict=True) if value is not None}


@pytest.mark.parametrize("step", ["stepped", "begun", "outputs sent", "exchanges sent"])
def test_a_topic_that_is_made_anew_during_an_epoch_is_read_from_its_first_record(step: str) -> None:
    log = log_of({"in": 1, "out": 1})
    send(log, ("in", 0), [(b"a", b"v")])
    armed = [False]

    def observe(reached: str) -> None:
        if armed[0] and reached == step:
            armed[0] = False
            log.delete_topics(["in"])
            log.create_topics([TopicSpec("in", 1)])
            send(log, ("in", 0), [(b"c", b"v")] * 5)

    with closing(eddy.Worker(counting(log), log, observe=observe)) as worker:
        worker.run_until_idle()
        send(log, ("in", 0), [(b"b", b"v")])
        armed[0] = True
        worker.run_until_idle()
        assert not armed[0]
        worker.run_until_idle()
    # The record of the former topic may count, as it was read, or not: its epoch may have been undone.
    assert table(log) in ({b"a": 1, b"c": 5}, {b"a": 1, b"b": 1, b"c": 5})


def test_a_new_topic_with_as_many_offsets_is_seen_by_the_next_look() -> None:
    log, now = log_of({"in": 1, "out": 1}), [0.0]
    send(log, ("in", 0), [(b"a", b"v")])
    with closing(eddy.Worker(counting(log), log, clock=lambda: now[0])) as worker:
        worker.run_until_idle()
        log.delete_topics(["in"])
        log.create_topics([TopicSpec("in", 1)])
        send(log, ("in", 0), [(b"b", b"v")])
        assert not worker.idle()
        assert worker.lag() == 2
        now[0] += 10.0
        worker.run_until_idle()
        assert worker.idle()
    assert table(log) == {b"a": 1, b"b": 1}


@pytest.mark.parametrize("stopped", [True, False])
def test_a_table_whose_topic_was_made_anew_is_refused(stopped: bool) -> None:
    log = log_of({"in": 1, "out": 1})
    topology = eddy.Topology("app")
    topology.table("in", key=S, value=S).to("out")
    send(log, ("in", 0), [(b"a", b"v"), (b"b", b"v")])
    worker = eddy.Worker(topology, log)
    worker.run_until_idle()
    if stopped:
        worker.close()
    log.delete_topics(["in"])
    log.create_topics([TopicSpec("in", 1)])
    send(log, ("in", 0), [(b"a", b"w")] * 9)
    if stopped:
        worker = eddy.Worker(topology, log)
    with (
        closing(worker),
        pytest.raises(StateError, match="topic 'in' was deleted and made anew, and a table has the rows"),
    ):
        worker.run_until_idle()
    assert len(log.read(TopicPartition("out", 0), 0, 100, 100)) == 2


@pytest.mark.parametrize("where", [{"topic": "in"}, {"pattern": "in.*"}])
def test_a_topic_that_is_made_anew_with_more_partitions_is_refused(where: dict[str, str]) -> None:
    """Otherwise the records of the new partition would be read by nobody, and the worker would be idle."""
    log, now = log_of({"in": 2, "out": 2}), [0.0]
    topology = eddy.Topology("app")
    topology.stream(**where, key=S, value=S).group_by_key().count("counts").to("out")
    with closing(eddy.Worker(topology, log, clock=lambda: now[0])) as worker:
        worker.run_until_idle()
        log.delete_topics(["in"])
        log.create_topics([TopicSpec("in", 3)])
        send(log, ("in", 2), [(b"a", b"v")])
        now[0] += 10.0
        with pytest.raises(StateError, match="topic 'in' was deleted and made anew with 3 partitions, and had 2"):
            worker.run_until_idle()
        assert not log.committed("app", [TopicPartition("in", 2)])


@pytest.mark.parametrize("anew", [True, False])
def test_a_start_that_finds_nothing_to_read_says_which_topics_it_knows(anew: bool) -> None:
    log = log_of({"in-a": 2, "in-b": 2, "out": 2})
    topology = eddy.Topology("app")
    windows = eddy.TimeWindows(timedelta(seconds=10))
    topology.stream(pattern="in-.*", key=S, value=S).group_by_key().windowed_by(windows).count("counts").to("out")
    with closing(eddy.Worker(topology, log)) as worker:
        worker.run_until_idle()
    assert find(topology, log).quiescent(log)
    log.delete_topics(["in-b"])
    if anew:
        log.create_topics([TopicSpec("in-b", 2)])
    assert not find(topology, log).quiescent(log)
    with closing(eddy.Worker(topology, log)) as worker:
        worker.run_until_idle()
    assert find(topology, log).quiescent(log)


def test_windows_that_have_closed_stay_closed() -> None:
    log = log_of({"in": 1, "out": 1})
    topology = eddy.Topology("app")
    groups = topology.stream("in", key=S, value=S).group_by_key()
    counts = groups.windowed_by(eddy.TimeWindows(timedelta(seconds=10)), "close").count("counts").to_stream()
    counts.map(lambda window, n: (f"{window.key} {window.start_ms}", n), key=S).to("out", value=N)

    def write(*times_s: int) -> None:
        producer = log.producer(None)
        producer.begin()
        producer.send("in", 0, [b"k"] * len(times_s), [b"v"] * len(times_s), [1_000 * time for time in times_s])
        producer.commit({}, None)

    write(1, 2, 15)
    for times_s in [(), (3, 16, 31)]:
        if times_s:
            log.delete_topics(["in"])
            log.create_topics([TopicSpec("in", 1)])
            write(*times_s)
        with closing(eddy.Worker(topology, log)) as worker:
            worker.run_until_idle()
    assert table(log) == {b"k 0": 2, b"k 10000": 2}


@pytest.mark.parametrize("unanswered", [range(1, 2), range(2, 3), range(3, 4), range(2, 6)])
def test_a_log_that_does_not_answer_meanwhile_is_asked_again(
    unanswered: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, questions, now = log_of({"in": 1, "out": 1}), itertools.count(1), [0.0]
    send(log, ("in", 0), [(b"a", b"v")])
    answer = log.topic_ids

    def silent(names: Iterable[str]) -> Callable[[], dict[str, int]]:
        if next(questions) in unanswered:
            raise ConnectorError("no answer", retriable=True)
        return answer(names)

    with closing(eddy.Worker(counting(log), log, clock=lambda: now[0])) as worker:
        worker.run_until_idle()
        log.delete_topics(["in"])
        log.create_topics([TopicSpec("in", 1)])
        send(log, ("in", 0), [(b"b", b"v")] * 5)
        monkeypatch.setattr(log, "topic_ids", silent)
        deadline = Deadline(PATIENCE_S)
        while table(log) != {b"a": 1, b"b": 5}:
            deadline.check("the new topic's records")
            worker.step()
    assert next(questions) > unanswered.stop


@pytest.mark.parametrize("more", [1, 9])
def test_a_global_table_whose_topic_is_made_anew_is_read_whole(more: int) -> None:
    log = log_of({"names": 1, "in": 1, "out": 1})
    topology = eddy.Topology("app")
    names = topology.global_table("names", key=S, value=N)
    joined = topology.stream("in", key=S, value=N).join(names, lambda n, name: name, select=lambda key, n: key)
    joined.to("out", value=N)

    def write(topic: str, rows: Sequence[tuple[bytes, int]]) -> None:
        send(log, (topic, 0), [(key, N.encode(n)) for key, n in rows])

    write("names", [(b"a", 1), (b"b", 2)])
    write("in", [(b"a", 0), (b"b", 0)])
    with closing(eddy.Worker(topology, log)) as worker:
        worker.run_until_idle()
        assert table(log) == {b"a": 1, b"b": 2}
        log.delete_topics(["names"])
        log.create_topics([TopicSpec("names", 1)])
        write("names", [(b"c", 3), (b"a", 4), *[(b"d", n) for n in range(more)]])
        write("in", [(b"a", 0), (b"b", 0), (b"c", 0), (b"d", 0)])
        worker.run_until_idle()
    # "b" is in the former table alone, so its second record is joined with nothing.
    assert table(log) == {b"a": 4, b"b": 2, b"c": 3, b"d": more - 1}
    assert len(log.read(TopicPartition("out", 0), 0, 100, 100)) == 5
