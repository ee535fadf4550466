"""The rows that cycles reach, found by several workers with messages through the loop's topic.

    SEARCH     follow op from this row, for a number of steps; a search that returns to its origin has found a cycle
    BEGIN      to every partition: reached rows are marked again, in this generation
    MARK       a stop of this generation reaches this row
    RELEASE    to every partition, once no message is in flight: all marks of this generation are set

A worker begins a generation when its stops change, or when op derives other rows from a marked row. It marks the rows
that op derives from its stops, and owners of marked rows mark the next ones. A release removes older marks, and opens
stops without a mark: no cycle reaches them. Until then their keys have no rows downstream.

A message is a row of the loop's topic whose iteration is below 0; its weight is the number of steps, or the generation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

import msgspec

from eddy.operators.batch import Batch, Row
from eddy.operators.body import Body
from eddy.operators.exchange import Gate, Outgoing, Received
from eddy.operators.withheld import Withheld
from eddy.state.row_layout import row_key, split

__all__ = ["FIRST_SEARCH", "Marking", "without_messages"]

FIRST_SEARCH = 16
"""The iteration at which the first search begins."""

_SEARCH, _BEGIN, _MARK, _RELEASE = -1, -2, -3, -4
_UNKNOWN = 0
"""A generation: the sender has started, and does not know how far the others are. They begin one after theirs."""
_ORIGIN, _PATH, _NUMBER = "eddy.origin", "eddy.way", "eddy.search"
_MOST_SEARCHES = 256
_LONGEST_PATH = 64


def without_messages(received: Batch) -> tuple[Batch, Batch | None]:
    """Split the records of the loop's topic into rows and messages, None if there are none."""
    if not isinstance(received, Received) or min(received.iterations, default=0) >= 0:
        return received, None
    rows = [iteration >= 0 for iteration in received.iterations]
    messages = [not row for row in rows]

    def part(mask: list[bool]) -> Received:
        return Received(received.select(mask), list(compress(received.iterations, mask)))

    return part(rows), part(messages)


Place = int | None
"""Where a row is: None at the start of op, or the number of the exchange inside op that it has passed."""

Path = list[str]


class Marking:
    """The messages of one worker. `part` is the part of a row that errors show."""

    def __init__(self, gate: Gate, body: Body, withheld: Withheld, part: Callable[[Row], Any]) -> None:
        self._gates: dict[Place, Gate] = {None: gate, **dict(enumerate(body.gates))}
        self._gate, self._body, self._withheld, self._part = gate, body, withheld, part
        self._seen: dict[bytes, set[tuple[Place, Row]]] = {}
        self._searches = self._released = 0
        self.paths: dict[Row, Path] = {}
        self._passed: set[Any] = set()
        self.greets = False

    @property
    def unsettled(self) -> bool:
        """Whether a release is due at the next quiescent moment."""
        return self._released < self._withheld.latest

    def receive(self, messages: Mapping[Place, Batch]) -> tuple[list[Row], bool, list[tuple[Place, Row, int]]]:
        """Take messages in. Returns rows that lie on cycles; whether a release came; rows to be marked."""
        found: list[Row] = []
        marks: list[tuple[Place, Row, int]] = []
        released = False
        for place, batch in messages.items():
            assert isinstance(batch, Received)
            headers = batch.headers_of_rows()
            for row, weight, iteration, noted in zip(batch.rows, batch.weights, batch.iterations, headers, strict=True):
                if iteration == _SEARCH:
                    found += self._received(place, row, weight, dict(noted))
                elif iteration == _RELEASE:
                    released |= weight == self._withheld.latest
                else:
                    marks.append((place, row, weight if iteration == _MARK else -weight))
        return found, released, marks

    def _received(self, place: Place, row: Row, turns: int, note: dict[str, bytes]) -> list[Row]:
        origin, path = self._decode(note[_ORIGIN]), msgspec.json.decode(note[_PATH], type=Path)
        if place is None and row == origin and path:
            self.paths[row] = path
            return [row]
        return self._follow(origin, note[_NUMBER], [(place, row, path)], turns)

    def search(self, origins: Sequence[Row], turns: int, time: int) -> list[Row]:
        """Begin a search from each row, by its owner. Returns those that are found to lie on a cycle here."""
        found: list[Row] = []
        noted = [((_ORIGIN, self._encode(origin)), (_NUMBER, self._number(time)), (_PATH, b"[]")) for origin in origins]
        own = self._gate.own(Batch(list(origins), [turns] * len(origins), headers=noted), _SEARCH)
        for origin, note in zip(own.rows, own.headers_of_rows(), strict=True):
            found += self._follow(origin, dict(note)[_NUMBER], [(None, origin, [])], turns)
        return found

    def _number(self, time: int) -> bytes:
        """A different number for each search of any worker."""
        self._searches += 1
        return f"{time}-{self._gate.first}-{self._searches}".encode()

    def _follow(self, origin: Row, number: bytes, starts: list[tuple[Place, Row, Path]], turns: int) -> list[Row]:
        """Follow op from rows of this worker; rows of others continue there."""
        while len(self._seen) >= _MOST_SEARCHES and number not in self._seen:
            del self._seen[next(iter(self._seen))]
        seen = self._seen.setdefault(number, set())
        encoded = self._encode(origin)
        while starts and turns > 0:
            turns -= 1
            made: dict[Place, list[tuple[Row, Any]]] = {}
            for place, row, path in starts:
                if (place, row) in seen:
                    continue
                seen.add((place, row))
                on = [*path, str(self._part(row))] if place is None and len(path) < _LONGEST_PATH else path
                noted = ((_ORIGIN, encoded), (_NUMBER, number), (_PATH, msgspec.json.encode(on)))
                for child_place, child in self._successors(place, row):
                    if (child_place, child) not in seen or (child_place is None and child == origin):
                        made.setdefault(child_place, []).append((child, noted))
            starts = []
            for place, rows in made.items():
                batch = Batch([row for row, _ in rows], [turns] * len(rows), headers=[noted for _, noted in rows])
                own = self._gates[place].own(batch, _SEARCH)
                for row, noted in zip(own.rows, own.headers_of_rows(), strict=True):
                    path = msgspec.json.decode(dict(noted)[_PATH], type=Path)
                    if place is None and row == origin:
                        self.paths[row] = path
                        return [row]
                    starts.append((place, row, path))
        return []

    def _successors(self, place: Place, row: Row) -> list[tuple[Place, Row]]:
        """The rows that op makes of a row, and those that it sends to other owners on the way."""
        made, left = self._body.follow(row, place)
        return [*((None, one) for one in made), *left]

    def mark(self, marks: list[tuple[Place, Row, int]], anew: bool) -> None:
        """At rest: begin a generation, if `anew`, or join in one that another worker has begun; mark on."""
        withheld = self._withheld
        heard = max((abs(mark) for _, _, mark in marks), default=0)
        latest = max(withheld.latest, heard)
        if anew or any(mark == _UNKNOWN for _, _, mark in marks):
            latest += 1
            self._tell_all(_BEGIN, latest)
            if self.greets:
                self._tell_all(_BEGIN, _UNKNOWN)
                self.greets = False
        if latest > withheld.latest:
            withheld.latest, self._passed = latest, set()
            self._flood([child for stop in withheld.waiting for child in self._successors(None, stop)])
        self._flood([(place, row) for place, row, mark in marks if mark == latest], received=True)

    def passed(self, keys: Iterable[Any]) -> bool:
        """Whether marks of this generation have passed an exchange inside op here, under one of these keys."""
        return not self._passed.isdisjoint(keys)

    def _flood(self, reached: list[tuple[Place, Row]], received: bool = False) -> None:
        """Mark rows, and all that op makes of them; rows of other owners are sent. `received` rows were sent here."""
        withheld, latest = self._withheld, self._withheld.latest
        passed: set[tuple[Place, Row]] = set()
        while reached:
            new: dict[Place, dict[Row, None]] = {}
            for place, row in reached:
                if (place, row) not in passed and (place is not None or withheld.mark_of(row) != latest):
                    new.setdefault(place, {})[row] = None
            reached = []
            for place, rows in new.items():
                own = list(rows)
                if not received:
                    own = self._gates[place].own(Batch(own, [latest] * len(own)), _MARK).rows
                for row in own:
                    if place is None:
                        withheld.mark(row, latest)
                    else:
                        self._passed.add(row[0])
                    passed.add((place, row))
                    reached += self._successors(place, row)
            received = False

    def settle(self) -> None:
        """One worker owns all rows, and has found what cycles reach by itself."""
        self._released = self._withheld.latest

    def release(self) -> dict[Row, int]:
        """The generation is complete: forget older marks, open stops without one. Returns the rows waiting there."""
        withheld, latest = self._withheld, self._withheld.latest
        self._released = latest
        for row, mark in withheld.marked().items():
            if mark != latest:
                withheld.mark(row, 0)
        return withheld.open(
            [row for row, weight in withheld.stops.items() if not weight or withheld.mark_of(row) != latest]
        )

    def tell_release(self) -> None:
        """Nothing is under way anywhere."""
        self._tell_all(_RELEASE, self._withheld.latest)

    def _tell_all(self, message: int, generation: int) -> None:
        count = self._gate.partitions
        rows: list[Row] = [(None, None)] * count
        self._gate.outbox.append(Outgoing(Batch(rows, [generation] * count), list(range(count)), message))

    def _encode(self, row: Row) -> bytes:
        key, value = row
        return row_key(self._gate.key.encode(key), b"" if value is None else b"\x01" + self._gate.value.encode(value))

    def _decode(self, data: bytes) -> Row:
        key, value = split(data)
        return self._gate.key.decode(key), self._gate.value.decode(value[1:]) if value else None
