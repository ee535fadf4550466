"""Reports of the error policy: log, dead letters, and the application's metadata.

records    rejected as a whole, if rows reach the failing step from a source without an exchange
rows       set aside at a step after an exchange, with the source records from which the rows were made
keys       withheld from a table's topic, because their values cannot be written
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from eddy.config import Config
from eddy.connectors.log import Producer, Records
from eddy.errors import RecordRefusedError, UnknownSchemaError
from eddy.operators.circuit import Circuit
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, Found, written
from eddy.operators.nested.fixpoint import Fixpoint
from eddy.runtime.decoding import Decoder, Rejected
from eddy.runtime.encoding import DeadRow, Encoder, SinkTopic
from eddy.runtime.error_policy import ErrorPolicy
from eddy.runtime.global_tables import GlobalTables
from eddy.runtime.internal_topics import InternalTopics
from eddy.runtime.isolation import Part
from eddy.runtime.metadata import write_left_out, write_set_aside
from eddy.runtime.origins import Origins, Senders
from eddy.runtime.provenance import rows_set_aside

__all__ = ["Rejections"]

_log = logging.getLogger("eddy.worker")


class Rejections:
    """Writes one worker's reports of rejected records and rows, as its `policy` decides."""

    def __init__(
        self, internal: InternalTopics, restorable: Collection[str | None], config: Config, senders: Senders
    ) -> None:
        self._internal, self._restorable, self._senders = internal, restorable, senders
        self.policy = ErrorPolicy(config)
        self._traced: dict[tuple[str, bytes], Origins] = {}

    def trace(
        self, circuit: Circuit, decoder: Decoder, sinks: Mapping[str, SinkTopic], part: Part, context: Context
    ) -> None:
        """Compute the epoch once more, to find the source records of the rows that it sets aside."""
        for name, numbers in rows_set_aside(circuit, decoder, sinks, part, context).items():
            found = [self._senders.of_record(*part.where(number)) for number in sorted(numbers)]
            self._traced[name] = Origins(one for origins in found for one in origins.ranges)

    def forget(self) -> None:
        """Forget the source records that `trace` has found: the traced parts are committed."""
        self._traced = {}

    def send(
        self,
        producer: Producer,
        out: Encoder,
        rejected: Sequence[Rejected],
        letters: Sequence[Rejected],
        asides: Iterable[Aside],
        polled: Sequence[Records],
    ) -> int:
        """Report rejected records and rows set aside, within the open transaction. Returns the number of these rows.

        Raises: as `ErrorPolicy.rows` does.
        """
        self._records(producer, out, rejected, letters)
        return self._rows(producer, out, asides, polled)

    def of_tables(self, producer: Producer, out: Encoder, tables: GlobalTables) -> list[Rejected]:
        """Report the records that global tables have left out, within the open transaction. Returns them."""
        rejected, letters = tables.unreported, tables.letters
        write_left_out(producer, self._internal.plan, rejected)
        if letters:
            out.dead_letters(self._internal.dead_letter, letters)
        return rejected

    def beyond_limits(self, out: Encoder, circuit: Circuit) -> int:
        """Report rows that loops had to cut, within the open transaction. Returns their number."""
        rows = 0
        for loop in circuit.recursions.values():
            for row in loop.circulating[:1]:
                what = "%s has passed through its loop %d times and continues; mend the cycle in the data"
                _log.error(what, loop.bound.subject(loop.name, row), loop.bound.limit)
            for batch in loop.cut:
                rows += len(batch)
                what = "recursively '%s': %d row(s) beyond limit %d, the first %r"
                _log.warning(what, loop.name, len(batch), loop.bound.limit, batch.rows[0])
                if loop.bound.on_limit != "dead-letter" and not (self.policy.letters and not loop.bound.by_depth):
                    continue
                if not isinstance(loop, Fixpoint):
                    out.cut_rows(self._internal.dead_letter, loop.gate, batch, loop.name, loop.bound.limit)
        return rows

    def _records(
        self, producer: Producer, out: Encoder, rejected: Sequence[Rejected], letters: Sequence[Rejected]
    ) -> None:
        for record in rejected:
            where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            _log.warning("record rejected: %s", record.error(), extra={"fields": where})
        write_left_out(producer, self._internal.plan, filter(self._is_noted, rejected))
        if letters:
            out.dead_letters(self._internal.dead_letter, letters)

    def _is_noted(self, record: Rejected) -> bool:
        """Whether the metadata has to note the record: from its bytes alone a restore or Spark would not reject it."""
        if isinstance(record.cause, RecordRefusedError | UnknownSchemaError):
            return True
        return record.topic in self._restorable and record.cause is not None

    def _rows(self, producer: Producer, out: Encoder, asides: Iterable[Aside], polled: Sequence[Records]) -> int:
        active = [aside for aside in asides if aside.changed]
        if not active:
            return 0
        epoch, dead = self._senders.of(polled), []
        for aside in active:
            write_set_aside(producer, self._internal.plan, aside.changes())
            dead += [self._dead_row(aside, found, epoch) for found in aside.new_rows()]
        if letters := self.policy.rows(dead):
            out.dead_rows(self._internal.dead_letter, letters)
        return len(dead)

    def _dead_row(self, aside: Aside, found: Found, epoch: Origins) -> DeadRow:
        origins = self._traced.get((aside.step, found.identity), epoch)
        key, value = found.row
        _log.warning(
            "row set aside: step '%s', key %r, value %r, weight %d, of %s: %s",
            *(aside.step, key, value, found.weight, origins, found.reason),
            extra={"fields": {"step": aside.step, "key": repr(key), "weight": found.weight, "sources": str(origins)}},
        )
        return DeadRow(
            None if key is None else written(key, aside.key),
            None if value is None else written(value, aside.value),
            aside.step,
            found.weight,
            found.reason,
            origins,
        )
