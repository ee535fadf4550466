"""Isolation: a failed epoch is retried in parts, without the failing records.

    the failing records are known    the same part without them
    they are unknown                  its two halves; a record that fails alone is the cause
    none may be rejected              the records before the first failing one, then this one alone

Parts are slices of one poll's records, kept in memory: nothing is read again. Each is an epoch of its own. If nothing
is known, k failing records among n take at most k (log2 n + 1) failing attempts.

Invariant: the parts, in order, hold the polled records that are not yet committed, each once. After an abort not caused
by a record, and after a rebalance, the records are polled again, so the parts are dropped.

Source: binary splitting, Hwang, "A method for detecting all defective members in a population by group testing", 1972.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eddy.connectors.log import Records
from eddy.runtime.decoding import Place, Rejected, reject

__all__ = ["Isolation", "Part"]

_MAX_TRIES = 8
"""The number of attempts with ever fewer records before a part is halved: each attempt may find only one failing
record."""


@dataclass(slots=True)
class Part:
    """Records to process together. The records in `left_out` are not processed, but their positions are committed.

    `suspect`: the part is the second half of a failed part. It has the cause if the first half succeeds.
    """

    records: list[Records]
    left_out: dict[Place, Rejected] = field(default_factory=dict)
    tries: int = 0
    suspect: bool = False

    def __len__(self) -> int:
        return sum(map(len, self.records))

    def numbers(self) -> list[int]:
        """Return the numbers of the records to process; 0 is the first record of the part."""
        if not self.left_out:
            return list(range(len(self)))
        places = ((r.topic, r.partition, offset) for r in self.records for offset in r.offsets)
        return [number for number, place in enumerate(places) if place not in self.left_out]

    def where(self, number: int) -> tuple[Records, int]:
        """Return the `Records` with the record `number`, and the record's index in them."""
        for records in self.records:
            if number < len(records):
                return records, number
            number -= len(records)
        raise IndexError(number)

    def leave_out(self, errors: Mapping[int, Exception]) -> None:
        """Stop processing these records, each with its error."""
        self.tries += 1
        for number in sorted(errors):
            records, index = self.where(number)
            found = reject(records, index, str(errors[number]), errors[number], processed=True)
            self.left_out[found.place] = found

    def split(self, *at: int) -> list["Part"]:
        """Divide the part before the records with these rising numbers."""
        stops = [*at, len(self)]
        starts = [0, *at]
        parts = [Part(list(self._between(a, b)), self.left_out) for a, b in zip(starts, stops, strict=True) if a < b]
        parts[-1].records += [records for records in self.records if not len(records)]
        return parts

    def _between(self, start: int, stop: int) -> Iterator[Records]:
        for records in self.records:
            low, high = max(start, 0), min(stop, len(records))
            if low < high:
                yield records.slice(low, high)
            start, stop = start - len(records), stop - len(records)


class Isolation:
    """The parts of one poll's records that are not committed yet. `began_s` is the time of the first failure."""

    def __init__(self, part: Part, began_s: float) -> None:
        self.began_s = began_s
        self._parts = [part]  # in reverse order: the next part is last

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def next(self) -> Part:
        """The part to process."""
        return self._parts[-1]

    def advance(self) -> None:
        """Remove the first part, which was committed.

        If it was the first half of a failed part, the second half has the cause, so this is halved without an attempt.
        """
        self._parts.pop()
        if self and self.next.suspect and len(self.next.numbers()) > 1:
            self._halve()

    def narrow(self, errors: Mapping[int, Exception], may_leave_out: bool) -> bool:
        """After the next part has failed, remove its failing records or divide it.

        `errors` has the error of each known failing record, by its number. Returns False if there is nothing to divide:
        the part has no record, or only one, which may not be rejected.
        """
        part, numbers = self.next, self.next.numbers()
        if len(self._parts) > 1:
            self._parts[-2].suspect = False
        if errors and may_leave_out and (part.tries < _MAX_TRIES or len(numbers) == 1):
            part.leave_out(errors)
            return True
        if len(numbers) < 2:
            return False
        first = min(errors, default=None)
        if first is None or may_leave_out:
            self._halve()
        else:
            self._parts.pop()
            self._parts += reversed(part.split(*(at for at in (first, first + 1) if 0 < at < len(part))))
        return True

    def _halve(self) -> None:
        part = self._parts.pop()
        numbers = part.numbers()
        first, second = part.split(numbers[len(numbers) // 2])
        second.suspect = True
        self._parts += [second, first]
