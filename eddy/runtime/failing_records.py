"""Retries the records of a failed epoch, without the failing ones or in parts, as the error policy decides.

    a row cannot be written        the whole part again, with a check of each row
    steps may set rows aside       the whole part again, and failing rows are set aside
    otherwise                      without the failing records (`provenance.py`), or in smaller parts (`isolation.py`)

The records of the epoch are kept in memory until each part is committed. docs/adr/0020 and 0028 have the reasons.
"""

from eddy.errors import DataError, UnwritableRowError
from eddy.runtime.epoch import Parts
from eddy.runtime.epoch_room import EpochRoom
from eddy.runtime.isolation import Isolation, Part
from eddy.runtime.provenance import records_to_blame

__all__ = ["FailingRecords"]


class FailingRecords:
    """The parts of a worker's failed epoch that are not committed yet; false if no part remains.

    After `max_epoch_s` seconds their records are polled again. Each of the next epochs then takes at most as many
    records as the next part has (`room.narrow`).
    """

    def __init__(self, parts: Parts, room: EpochRoom) -> None:
        self._parts, self._room = parts, room
        self._isolation: Isolation | None = None
        parts.circuit.care.possible = parts.rejections.policy.leaves_out

    def __bool__(self) -> bool:
        return self._isolation is not None

    def drop(self) -> None:
        """Forget the remaining parts, because their records will be polled again, or are all committed."""
        self._isolation = None

    def next(self) -> Part | None:
        """Return the part to retry; None if its records have to be polled again, because `max_epoch_s` is over.

        An epoch without records is retried by a poll, too, because records may have arrived meanwhile.
        """
        assert self._isolation is not None
        part = self._isolation.next
        if len(part) and (
            part.tries or self._parts.clock() - self._isolation.began_s <= self._parts.config.max_epoch_s
        ):
            return part
        self._room.narrow(len(part))
        return None

    def check(self, error: DataError) -> None:
        """Raise `error` if the error policy has decided that this record ends the worker."""
        if self._parts.rejections.policy.refused:
            raise error

    def narrow(self, error: DataError, part: Part) -> None:
        """After `part` has failed, prepare the next attempt: without the failing records, or in smaller parts.

        If records that follow may remove the cause, the next attempt is made together with these records.

        Raises: DataError naming the record, if it may not be rejected.
        """
        circuit, policy = self._parts.circuit, self._parts.rejections.policy
        if self._isolation is None:
            self._isolation = Isolation(part, self._parts.clock())
        if isinstance(error, UnwritableRowError) and circuit.be_careful(error.place):
            return
        if policy.leaves_out and not circuit.care.on:
            circuit.care.on = True
            if circuit.may_set_aside:
                return
        numbers = part.numbers()
        alone = {numbers[0]: error} if len(numbers) == 1 else None
        blamed = alone or self._blamed(part, error)
        internal = any(part.where(number)[0].topic in self._parts.internal.exchanges for number in blamed)
        if self._isolation.narrow(blamed, policy.leaves_out and not internal):
            return
        if alone is None:
            raise error
        raise self._parts.decoder.refusal(*part.where(numbers[0]), error) from error

    def _blamed(self, part: Part, error: DataError) -> dict[int, DataError]:
        parts = self._parts
        context = parts.clocks.context(part, parts.decoder.rejected)
        return records_to_blame(parts.circuit, parts.decoder, parts.sinks, part, error, context)

    def committed(self) -> bool:
        """Note that a poll, or the next part, is committed. Returns whether further parts remain."""
        if self._isolation is not None:
            self._isolation.advance()
            if self._isolation:
                return True
        self._room.widen()
        self._parts.circuit.care.on = False
        self._parts.rejections.forget()
        return False
