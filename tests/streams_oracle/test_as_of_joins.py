"""Joins with a versioned table, drawn: Kafka Streams and eddy write what their rules say, as bags of each key.

Both join a record with the last version of its key up to its time. They differ in which versions and which records
there are, and in when a record is joined; all that is here:

    Kafka Streams    a version is left out if the table has one of more than `history` later. A record is joined at
                     once, or with a grace once its stream has a record of `grace` later; one that is later already, at
                     once. It sees the versions that are there by then: of those from `history` before the latest one,
                     and of each key the last one.
    eddy             a version is left out if its topic has a record of more than `grace` later, a record if its topic
                     has one of more than `history` later. A record is joined once the other topic has a record of
                     more than `grace` later, so that no version can come any more.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.seeds import of_today, parts_of
from tests.streams_oracle import in_eddy
from tests.streams_oracle.case import Answer, Case, Input, Step
from tests.streams_oracle.functions import PAIRS, Key, Value
from tests.streams_oracle.oracle import Oracle

pytestmark = pytest.mark.xdist_group("streams-oracle")

STREAMS: list[Step] = [{"op": "stream", "topic": "a"}, {"op": "stream", "topic": "b"}]
Written = dict[Key, list[tuple[Value, int]]]
"""By key: the values and times that a join writes, sorted."""


class Asked(NamedTuple):
    """A record that is joined."""

    key: Key
    value: int
    time: int


def case(seed: int) -> Case:
    """A join of two topics, in whose records times go back and forth."""
    dice = random.Random(f"as of {seed}")
    history = dice.choice((10, 30, 100))
    join: Step = {"op": dice.choice(("as_of", "left_as_of")), "of": 0, "with": 1, "f": "mix", "history": history}
    if dice.random() < 0.7:
        join["grace"] = dice.choice((0, 5, 10))
    ends = join["op"] == "left_as_of" and "grace" in join  # of Kafka Streams, by a record without a key
    count, now = dice.randint(1, 25), 0
    records: list[Input] = []
    for _ in range(count):
        now += dice.randint(0, 12)
        key = None if dice.random() < 0.05 and not ends else dice.choice("aab")
        value = None if dice.random() < 0.15 else dice.randrange(8)
        records.append((dice.choice("ab"), key, value, max(0, now - dice.choice((0, 0, 0, 3, 10, 40)))))
    return Case([*STREAMS, join], records)


class Model:
    """The versions of each key by time, the records that wait, and what is written."""

    def __init__(self, step: Step) -> None:
        self.left, self.joiner = step["op"] == "left_as_of", PAIRS[step["f"]]
        self.history, self.grace = step["history"], step.get("grace", 0)
        self.buffers = "grace" in step
        self.versions: dict[str, dict[int, Value]] = {}
        self.waiting: list[Asked] = []
        self.asked = self.told = -1
        """The latest times of both topics."""
        self.out: list[tuple[Key, Value, int]] = []

    def run(self, records: list[Input]) -> Written:
        for topic, key, value, time in records:
            if topic == "b":
                self.version(key, value, time)
            else:
                self.record(key, value, time)
            for record in list(self.due()):
                self.waiting.remove(record)
                self.join(record)
        found: Written = {}
        for key, value, time in self.out:
            found.setdefault(key, []).append((value, time))
        return {key: sorted(rows, key=str) for key, rows in found.items()}

    def version(self, key: Key, value: Value, time: int) -> None:
        """A record of the other stream."""
        raise NotImplementedError

    def record(self, key: Key, value: Value, time: int) -> None:
        """A record of the stream."""
        raise NotImplementedError

    def due(self) -> Iterator[Asked]:
        """The records that wait no longer."""
        raise NotImplementedError

    def seen(self, key: Key, time: int) -> Value:
        """The value of a key at a time."""
        times = [at for at in self.versions.get(key or "", {}) if at <= time]
        return self.versions[key or ""][max(times)] if times and key is not None else None

    def join(self, record: Asked) -> None:
        value = self.seen(record.key, record.time)
        if value is not None or self.left:
            self.out.append((record.key, self.joiner(record.value, value), record.time))


class Streams(Model):
    """The rules of Kafka Streams."""

    def version(self, key: Key, value: Value, time: int) -> None:
        if key is None:
            return
        self.told = max(self.told, time)
        if time >= self.told - self.history:
            self.versions.setdefault(key, {})[time] = value

    def record(self, key: Key, value: Value, time: int) -> None:
        if value is None or (key is None and not self.left):
            return
        self.asked = max(self.asked, time)
        if self.buffers and key is not None and time >= self.asked - self.grace:
            self.waiting.append(Asked(key, value, time))
        else:
            self.join(Asked(key, value, time))

    def due(self) -> Iterator[Asked]:
        return (record for record in self.waiting if record.time <= self.asked - self.grace)

    def seen(self, key: Key, time: int) -> Value:
        if time < self.told - self.history and max(self.versions.get(key or "", {}), default=-1) > time:
            return None
        return super().seen(key, time)


class Eddy(Model):
    """The rules of eddy."""

    def version(self, key: Key, value: Value, time: int) -> None:
        self.told = max(self.told, time)
        if key is not None and time >= self.told - self.grace:
            self.versions.setdefault(key, {})[time] = value

    def record(self, key: Key, value: Value, time: int) -> None:
        self.asked = max(self.asked, time)
        if value is None or (key is None and not self.left):
            return
        if key is None:
            self.join(Asked(key, value, time))
        elif time >= self.asked - self.history:
            self.waiting.append(Asked(key, value, time))

    def due(self) -> Iterator[Asked]:
        return (record for record in self.waiting if record.time < self.told - self.grace)


def written(answer: Answer) -> Written:
    rows = {key: [(value, time) for value, time, _ in records] for key, records in answer.out[2].items()}
    return {key: sorted(found, key=str) for key, found in rows.items()}


@pytest.mark.parametrize("seeds", [of_today(200), *parts_of(of_today(2_000), 10)], ids=str)
def test_both_follow_their_rules(oracle: Oracle, seeds: range) -> None:
    same = 0
    for drawn in map(case, seeds):
        join = drawn.steps[2]
        ours, theirs = written(in_eddy.answer(drawn)), written(oracle.answer(drawn))
        assert ours == Eddy(join).run(drawn.records), drawn
        assert theirs == Streams(join).run(drawn.records), drawn
        same += ours == theirs
    assert 0 < same < len(seeds)


def both(oracle: Oracle, records: list[Input], **spans: int) -> tuple[Written, Written]:
    """What eddy and Kafka Streams write: seven times a value of topic a, and the value of topic b, or 5 for None."""
    step: Step = {"op": "left_as_of", "of": 0, "with": 1, "f": "mix", **spans}
    drawn = Case([*STREAMS, step], records)
    return written(in_eddy.answer(drawn)), written(oracle.answer(drawn))


def test_a_record_has_the_value_that_is_final_or_the_one_that_is_there(oracle: Oracle) -> None:
    records: list[Input] = [("b", "a", 2, 10), ("a", "a", 1, 20), ("b", "a", 3, 15), ("b", "a", 0, 21)]
    assert both(oracle, records, history=100) == ({"a": [(7 + 3, 20)]}, {"a": [(7 + 2, 20)]})


def test_a_record_waits_for_the_other_topics_time_or_for_its_own_with_a_grace(oracle: Oracle) -> None:
    records: list[Input] = [
        ("b", "a", 2, 10),
        ("a", "a", 1, 20),
        ("a", "b", None, 25),
        ("a", "b", 0, 25),
        ("b", "c", 0, 26),
    ]
    told = {"a": [(7 + 2, 20)]}
    for count, ours, theirs in ((3, {}, {}), (4, {}, told), (5, told, told)):
        assert both(oracle, records[:count], history=100, grace=5) == (ours, theirs)


def test_a_version_is_late_by_the_grace_or_by_the_history(oracle: Oracle) -> None:
    records: list[Input] = [("b", "a", 2, 50), ("b", "a", 3, 10), ("a", "a", 1, 20)]
    assert both(oracle, records, history=100) == ({"a": [(7 + 5, 20)]}, {"a": [(7 + 3, 20)]})


def test_a_record_is_late_by_its_own_topic_or_never(oracle: Oracle) -> None:
    records: list[Input] = [("b", "a", 2, 5), ("a", "b", 0, 40), ("a", "a", 1, 20), ("b", "c", 0, 41)]
    assert both(oracle, records, history=10) == ({"b": [(5, 40)]}, {"a": [(7 + 2, 20)], "b": [(5, 40)]})


def test_versions_are_kept_while_a_record_can_ask_for_them_or_for_the_history(oracle: Oracle) -> None:
    records: list[Input] = [("b", "a", 2, 5), ("b", "a", 3, 40), ("a", "a", 1, 20)]
    assert both(oracle, records, history=10) == ({"a": [(7 + 2, 20)]}, {"a": [(7 + 5, 20)]})


def test_a_record_without_a_key_is_passed_on_or_ends_kafka_streams_with_a_grace(oracle: Oracle) -> None:
    step: Step = {"op": "left_as_of", "of": 0, "with": 1, "f": "mix", "history": 10, "grace": 5}
    drawn = Case([*STREAMS, step], [("a", None, 1, 20)])
    assert written(in_eddy.answer(drawn)) == {None: [(7 + 5, 20)]}
    with pytest.raises(ValueError, match="StreamsException"):
        oracle.answer(drawn)
