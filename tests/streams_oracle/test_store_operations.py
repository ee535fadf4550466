"""Random processors on window, session and versioned stores: both engines read what a model of dicts says.

A record says what its processor does: put, get, fetch, find, delete, over one key or several, forward or backward;
every so often it is punctuated. All rows that it reads are compared, in their order. The engines differ in four rules:

    punctuations   Kafka Streams: after the first record, and after the record that reaches a moment; eddy: before it
    sessions       with one end are by key, the latest start first, in Kafka Streams' store in memory; in eddy by start
    versions       have the time of the next one in eddy; Kafka Streams' own `get` leaves it out
    deletions      at the very time of a key's latest version, which is not noted as the end of the one before:
                   Kafka Streams forgets them, and a value that is put later with an earlier time is the latest one
"""

import random
from typing import Any

import pytest

from tests.seeds import of_today, parts_of
from tests.streams_oracle import in_eddy
from tests.streams_oracle.case import Answer, Case, Input, Step
from tests.streams_oracle.oracle import Oracle
from tests.streams_oracle.store_operations import OPERATIONS, encoded

pytestmark = pytest.mark.xdist_group("streams-oracle")

Row = tuple[str, int, int]
"""A key, and the start and the end of its window or session."""


KINDS = ("window", "session", "versioned")


def case(seed: int) -> Case:
    """A processor with one store, whose times go back and forth."""
    dice = random.Random(f"stores {seed}")
    size = dice.choice((1, 5, 10))
    step: Step = {"op": "operations", "of": 0, "kind": dice.choice(KINDS), "size": size}
    step |= {"retention": dice.choice((size, 20, 60)), "every": dice.choice((0, 0, 15))}
    records: list[Input] = []
    now = 0
    for _ in range(dice.randint(5, 60)):
        now = min(120, now + dice.choice((0, 0, 1, 3, 10)))
        one, two = sorted((dice.randrange(4), dice.randrange(4)))
        a, b = (max(0, min(127, now + dice.randint(-25, 5))) for _ in range(2))
        operation = dice.choice((0, 0, 0, 0, *range(3, OPERATIONS)))
        if step["kind"] == "window":
            a, b = min(a, b), max(a, b)
        records.append(("a", "x", encoded(operation, one, two, a, b, dice.randrange(1, 9)), now))
    return Case([{"op": "stream", "topic": "a"}, step], records)


class Model:
    """The store of a case, and the rows that have been read from it: under call, number and row, as they are told."""

    def __init__(self, step: Step, streams: bool) -> None:
        self.step, self.streams, self.is_window = step, streams, step["kind"] == "window"
        self.rows: dict[Row, int] = {}
        self.observed = self.calls = -1
        self.told: dict[str, list[int]] = {}

    def there(self) -> list[Row]:
        """The rows that are not gone, in their order."""
        first = self.observed - self.step["retention"]
        if self.is_window:
            return sorted((row for row in self.rows if row[1] > first), key=lambda row: (row[1], row[0]))
        found = [row for row in self.rows if row[2] > first]
        return sorted(found, key=lambda row: (row[2], row[0], -row[1]) if self.streams else (row[2], row[1], row[0]))

    def put(self, row: Row, value: int | None) -> None:
        self.observed = max(self.observed, row[1] if self.is_window else row[2])
        if value is None:
            self.rows.pop(row, None)
        else:
            self.rows[row] = value  # one that is gone stays out of sight, as the observed time does not go back

    def tell(self, rows: list[tuple[str, int]]) -> None:
        self.calls += 1
        self.told |= {f"{self.calls}:{number} {text}": [value] for number, (text, value) in enumerate(rows)}

    def shown(self, rows: list[Row]) -> list[tuple[str, int]]:
        return [(f"{key}@{start}-{end}", self.rows[key, start, end]) for key, start, end in rows]

    def punctuate(self) -> None:
        there = self.there()
        self.tell(self.shown(there))
        if there:
            del self.rows[there[0]]

    def process(self, value: int) -> None:
        left, operation = divmod(value, 16)
        left, one = divmod(left, 8)
        left, two = divmod(left, 8)
        left, a = divmod(left, 128)
        value, b = divmod(left, 128)
        call = self.of_windows if self.is_window else self.of_sessions
        self.tell(call(operation, f"k{one}", f"k{two}", a, b, value))

    def of_windows(self, operation: int, one: str, two: str, a: int, b: int, value: int) -> list[tuple[str, int]]:
        row, there = (one, a, a + self.step["size"]), self.there()
        if operation < 5:
            self.put(row, None if operation == 4 else value)
            return []
        if operation == 5:
            return [("", self.rows[row] if row in there else -1)]
        within = [row for row in there if a <= row[1] <= b]
        match operation:
            case 6 | 7:
                found = [row for row in within if row[0] == one]
                found = found[::-1] if operation == 7 else found
                return [(str(row[1]), self.rows[row]) for row in found]
            case 8 | 9:
                found = [row for row in within if one <= row[0] <= two]
            case 10 | 11:
                found = within
            case 12 | 13:
                found = there
            case 14:
                found = [row for row in within if row[0] <= two]
            case _:
                found = [row for row in within if row[0] >= one]
        return self.shown(found[::-1] if operation in (9, 11, 13, 15) else found)

    def of_sessions(self, operation: int, one: str, two: str, a: int, b: int, value: int) -> list[tuple[str, int]]:
        row, there = (one, min(a, b), max(a, b)), self.there()
        if operation == 4:
            self.rows.pop(row, None)
            return []
        if operation < 5:
            self.put(row, value)
            return []
        if operation == 5:
            return [("", self.rows[row] if row in there else -1)]
        within = [row for row in there if row[2] >= a and row[1] <= b]
        own, several = [row for row in there if row[0] == one], [row for row in there if one <= row[0] <= two]
        match operation:
            case 6 | 7:
                found = [row for row in within if row in own]
            case 8 | 9:
                found = [row for row in within if row in several]
            case 10 | 11:
                found = own
            case 12 | 13:
                found = several
            case 14:
                found = [row for row in there if row[0] <= two]
            case _:
                found = [row for row in within if row[0] >= one]
        return self.shown(found[::-1] if operation in (7, 9, 11, 13) else found)


class VersionedModel(Model):
    """A versioned store: all versions that were ever put, by key and time."""

    def __init__(self, step: Step, streams: bool) -> None:
        super().__init__(step, streams)
        self.versions: dict[str, dict[int, int | None]] = {f"k{number}": {} for number in range(4)}
        self.noted: set[tuple[str, int]] = set()  # times of versions that are noted as the end of the one before

    def punctuate(self) -> None:
        found = {key: self.version(key) for key in self.versions}
        rows = list(found.values())
        first = next((key for key, (_, value) in found.items() if value != -1), None)
        if first:
            rows.append(self.delete_version(first, max(self.versions[first])))
        self.tell(rows)

    def process(self, value: int) -> None:
        left, operation = divmod(value, 16)
        left, one = divmod(left, 8)
        left, a = divmod(left // 8, 128)
        key = f"k{one}"
        if operation < 5:
            self.tell([("put", int(self.put_version(key, a, None if operation == 4 else left // 128)))])
            return
        if operation > 12:
            self.tell([self.delete_version(key, a)])
            return
        self.tell([self.version(key, None if operation in (5, 6) else a)])

    def put_version(self, key: str, at: int, value: int | None) -> bool:
        if at < self.observed - self.step["retention"]:
            return False
        self.observed = max(self.observed, at)
        versions = self.versions[key]
        latest = max(versions, default=-1)
        is_there = versions.get(latest) is not None
        if at == latest and is_there and value is None and self.streams and (key, at) not in self.noted:
            del versions[at]
            return True
        if is_there and at < latest and at >= max((time for time in versions if time < latest), default=-1):
            self.noted.add((key, latest))
        if at >= latest and (value is None or (is_there and at > latest)):
            self.noted.add((key, at))
        versions[at] = value
        return True

    def delete_version(self, key: str, at: int) -> tuple[str, int]:
        old = self.version(key, at)
        return old if self.put_version(key, at, None) else ("", -1)

    def version(self, key: str, as_of: int | None = None) -> tuple[str, int]:
        """The version as of a time, by default the latest one, as it is told."""
        versions = self.versions[key]
        times = [at for at in sorted(versions) if as_of is None or at <= as_of]
        value = versions[times[-1]] if times else None
        until = min((at for at in versions if at > times[-1]), default="") if times else ""
        past = as_of is not None and as_of < self.observed - self.step["retention"]
        if value is None or (past and until != ""):
            return "", -1
        return f"{times[-1]}-{'' if self.streams else until}", value


def expected(case: Case, streams: bool) -> dict[str, list[int]]:
    """The rows that an engine reads: Kafka Streams, or eddy."""
    kind = VersionedModel if case.steps[1]["kind"] == "versioned" else Model
    model, every, before = kind(case.steps[1], streams), case.steps[1]["every"], None
    for _, _, value, now in case.records:
        assert value is not None
        if every and not streams and before is not None and now // every > before // every:
            model.punctuate()
        model.process(value)
        if every and streams and (before is None or now // every > before // every):
            model.punctuate()
        before = now
    return model.told


def read(answer: Answer) -> dict[str, Any]:
    return {str(key): [value for value, *_ in records] for key, records in answer.out[1].items()}


@pytest.mark.parametrize("seeds", [of_today(150), *parts_of(of_today(1_500), 5)], ids=str)
def test_both_read_what_the_model_says(oracle: Oracle, seeds: range) -> None:
    rows = 0
    for seed in seeds:
        drawn = case(seed)
        theirs, ours = expected(drawn, True), expected(drawn, False)
        assert read(oracle.answer(drawn)) == theirs, f"Kafka Streams, seed {seed}: {drawn.steps[1]}"
        assert read(in_eddy.answer(drawn)) == ours, f"eddy, seed {seed}: {drawn.steps[1]}"
        rows += len(ours)
    assert rows > 10 * len(seeds)
