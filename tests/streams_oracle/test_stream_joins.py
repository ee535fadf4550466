"""Joins of two streams in time, drawn: Kafka Streams and eddy write what their rules say, as bags of each key.

Both models have the same pairs of records. They differ in the records that are late, and in the moment at which an
unmatched one is passed on; all that is here:

    Kafka Streams    one time, the greatest of both topics; a record is in its window store while it is less than
                     before + after + grace older than the greatest one there, and is looked up whatever its age.
                     Unmatched: at once if the time is after its window, else once it is `grace` after it, and
                     only if a time that it keeps beside them says so. A window before 1970 has the moment 0.
    eddy             the time of a record's own topic: a record is late by `grace` after its window, and after itself.
                     Unmatched: once no record of the other topic can match it that is not late.
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
OUTER = {"near": (False, False), "left_near": (True, False), "outer_near": (True, True)}
NEVER = 1 << 62
Written = dict[Key, list[tuple[Value, int]]]
"""By key: the values and times that a join writes, sorted."""


class Row(NamedTuple):
    key: str
    value: int
    time: int


def case(seed: int) -> Case:
    """A join of two topics, in whose records times go back and forth."""
    dice = random.Random(f"joins {seed}")
    before, after = dice.choice(((5, 5), (0, 10), (10, 0), (20, 5), (-5, 15), (15, -5), (0, 0)))
    join: Step = {"op": dice.choice([*OUTER]), "of": 0, "with": 1, "f": dice.choice(("plus", "mix", "first"))}
    join |= {"before": before, "after": after, "grace": dice.choice((0, 5, 30))}
    count, now = dice.randint(1, 20), 0
    records: list[Input] = []
    for _ in range(count):
        now += dice.randint(0, 12)
        key = None if dice.random() < 0.05 else dice.choice("aab")
        value = None if dice.random() < 0.05 else dice.randrange(8)
        records.append((dice.choice("ab"), key, value, max(0, now - dice.choice((0, 0, 0, 3, 10, 40)))))
    return Case([*STREAMS, join], records)


class Model:
    """What both engines do alike: `rows` of each side, and those without a match."""

    def __init__(self, step: Step) -> None:
        self.outer, self.joiner = OUTER[step["op"]], PAIRS[step["f"]]
        self.later, self.grace = (step["after"], step["before"]), step["grace"]
        self.rows: tuple[list[Row], list[Row]] = ([], [])
        self.alone: tuple[list[Row], list[Row]] = ([], [])
        self.out: list[tuple[Key, Value, int]] = []

    def run(self, records: list[Input]) -> Written:
        for topic, key, value, time in records:
            side = "ab".index(topic or "")
            self.read(side, key, time)
            if value is not None and (key is not None or self.outer[side]):
                if key is None:
                    self.single(side, None, value, time)
                else:
                    self.take(side, Row(key, value, time))
            self.passed(side, time, key is not None and value is not None)
        found: Written = {}
        for key, value, time in self.out:
            found.setdefault(key, []).append((value, time))
        return {key: sorted(rows, key=str) for key, rows in found.items()}

    def read(self, side: int, key: Key, time: int) -> None:
        """A record of a time is read."""

    def take(self, side: int, row: Row) -> None:
        """A record with a key and a value."""
        raise NotImplementedError

    def passed(self, side: int, time: int, whole: bool) -> None:
        """A record of a time was read; `whole`: it has a key and a value."""

    def single(self, side: int, key: Key, value: int, time: int) -> None:
        self.out.append((key, self.joiner(*((None, value) if side else (value, None))), time))

    def matches(self, side: int, row: Row) -> Iterator[Row]:
        """The rows of the other side in the window of a row."""
        first, last = max(0, row.time - self.later[1 - side]), self.last(row.time + self.later[side])
        return (other for other in self.rows[1 - side] if other.key == row.key and first <= other.time <= last)

    def last(self, time: int) -> int:
        """The last moment of a window that ends at a time, which may be before all times."""
        return time

    def join(self, side: int, row: Row) -> bool:
        """Make the pairs of a row. Returns whether there are any."""
        found = list(self.matches(side, row))
        for other in found:
            values = (other.value, row.value) if side else (row.value, other.value)
            self.out.append((row.key, self.joiner(*values), max(row.time, other.time)))
            alone = self.alone[1 - side]
            alone[:] = [one for one in alone if (one.key, one.time) != (other.key, other.time)]
        return bool(found)


class Streams(Model):
    """The rules of Kafka Streams."""

    def __init__(self, step: Step) -> None:
        super().__init__(step)
        self.retention = sum(self.later) + self.grace
        self.stored = [-1, -1]
        self.time = -1
        self.least = NEVER
        """What it takes for the least time of the unmatched rows; after a search the last time that was looked at."""

    def read(self, side: int, key: Key, time: int) -> None:
        self.time = max(self.time, time)
        if key is not None:
            self.stored[side] = max(self.stored[side], time)

    def take(self, side: int, row: Row) -> None:
        if row.time > self.stored[side] - self.retention:
            self.rows[side].append(row)
        if row.time == self.time and any(self.outer):
            self.close(side)
        if not self.join(side, row) and self.outer[side]:
            if max(0, row.time + self.later[side]) < self.time:
                self.single(side, *row)
            else:
                self.least = min(self.least, row.time)
                self.alone[side].append(row)

    def last(self, time: int) -> int:
        return max(0, time)

    def matches(self, side: int, row: Row) -> Iterator[Row]:
        kept = self.stored[1 - side] - self.retention
        return (other for other in super().matches(side, row) if other.time > kept)

    def close(self, side: int) -> None:
        """Pass on the unmatched rows whose windows have closed, unless the least time is said to be too late."""
        if self.least < NEVER and self.least + self.later[side] + self.grace >= self.time:
            return
        self.least = NEVER
        still_open = [False, False]
        for time, which in sorted((row.time, one) for one in (0, 1) for row in set(self.alone[one])):
            self.least = time
            if all(still_open):
                break
            still_open[which] = time + self.later[which] + self.grace >= self.time
        for one in (0, 1):
            over = [row for row in self.alone[one] if row.time + self.later[one] + self.grace < self.time]
            self.alone[one][:] = [row for row in self.alone[one] if row not in over]
            for row in over:
                self.single(one, *row)


class Eddy(Model):
    """The rules of eddy."""

    def __init__(self, step: Step) -> None:
        super().__init__(step)
        self.times = [-1, -1]

    def lag(self, side: int) -> int:
        return max(self.later[side], 0) + self.grace

    def take(self, side: int, row: Row) -> None:
        if row.time + self.lag(side) >= max(self.times[side], row.time):
            self.rows[side].append(row)
            if not self.join(side, row):
                self.alone[side].append(row)

    def passed(self, side: int, time: int, whole: bool) -> None:
        self.times[side] = max(self.times[side], time)
        for one in (0, 1):
            frontier = self.times[1 - one] - self.lag(1 - one) - 1
            over = [row for row in self.alone[one] if max(0, row.time + self.later[one]) <= frontier]
            self.alone[one][:] = [row for row in self.alone[one] if row not in over]
            for row in over if self.outer[one] else ():
                self.single(one, *row)


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


def test_an_unmatched_record_is_passed_on_by_both_topics_time_or_by_the_other_topics(oracle: Oracle) -> None:
    join: Step = {"op": "left_near", "of": 0, "with": 1, "f": "plus", "before": 5, "after": 5, "grace": 2}
    records: list[Input] = [("a", "a", 1, 10), ("a", "a", 2, 18), ("b", "b", 3, 22), ("b", "b", 3, 23)]
    for count, theirs, ours in ((1, [], []), (2, [(1, 10)], []), (3, [(1, 10)], []), (4, [(1, 10)], [(1, 10)])):
        drawn = Case([*STREAMS, join], records[:count])
        assert written(oracle.answer(drawn)).get("a", []) == theirs
        assert written(in_eddy.answer(drawn)).get("a", []) == ours


def test_a_late_record_is_joined_with_what_is_still_stored_or_not_at_all(oracle: Oracle) -> None:
    join: Step = {"op": "near", "of": 0, "with": 1, "f": "plus", "before": 5, "after": 5, "grace": 0}
    drawn = Case([*STREAMS, join], [("b", "a", 1, 10), ("a", "b", 9, 40), ("a", "a", 2, 10)])
    assert written(oracle.answer(drawn)) == {"a": [(3, 10)]}
    assert written(in_eddy.answer(drawn)) == {}
