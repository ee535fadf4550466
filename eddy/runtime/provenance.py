"""Provenance: the records from which the failing rows of an epoch were made.

The epoch is computed again. Each row has, in place of its time, the number of its record. Row-wise operators keep the
times of rows. Merging operators do not: a row without a time of its own has the time of its batch, here 0, which is no
record's number. So if the same step fails again, the times of its failing rows are the numbers of all failing records.
A sink's serde is tested row by row in the same way.

Other failing records are found by splitting the epoch: failures in operators that merge or join rows, inside
recursions and in states' serdes, and records that a topic refuses.

Source: Cui, Widom, Wiener, "Tracing the lineage of view data in a warehousing environment", TODS 2000.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from eddy.errors import DataError, RecordRefusedError
from eddy.operators.batch import Batch
from eddy.operators.circuit import Circuit
from eddy.operators.context import Context
from eddy.runtime.decoding import Decoder
from eddy.runtime.encoding import SinkTopic
from eddy.runtime.isolation import Part

__all__ = ["records_to_blame", "rows_set_aside"]

_NO_NUMBER = 0


def records_to_blame(
    circuit: Circuit, decoder: Decoder, sinks: Mapping[str, SinkTopic], part: Part, error: DataError, context: Context
) -> dict[int, DataError]:
    """Return the errors of the failing records, by number in `part`; none if the records cannot be determined.

    `context` is the failed epoch's context. Called after that epoch was rolled back; the circuit is rolled back again.
    """
    if isinstance(error, RecordRefusedError) or not (circuit.failed is None or circuit.failed.operator.tells_failures):
        return {}
    rejected = decoder.rejected
    try:
        return dict(_failures(circuit, numbered(decoder, part), sinks, by_number(context, part)))
    finally:
        circuit.rollback()
        decoder.rejected = rejected


def rows_set_aside(
    circuit: Circuit, decoder: Decoder, sinks: Mapping[str, SinkTopic], part: Part, context: Context
) -> dict[tuple[str, bytes], set[int]]:
    """Find the source records of each row that a step sets aside because it cannot process the row.

    Returns the numbers of the records in `part`, by step and the row's identity. A row is missing if its records cannot
    be determined. Called between two epochs: the circuit computes `part` once more and is rolled back afterwards.
    """
    rejected = decoder.rejected
    try:
        circuit.step(numbered(decoder, part), by_number(context, part))
        for name, sink in sinks.items():
            output = circuit.outputs[name]
            if output.aside is not None:
                sink.columns_setting_aside(sink.batch(output.batches), output.aside)
    except DataError:
        # The failing step does not set rows aside. Its records are found in other ways; rows that earlier steps have
        # set aside are returned.
        pass
    try:
        numbers: dict[tuple[str, bytes], set[int]] = {}
        for aside in circuit.asides:
            for found in aside.found:
                numbers.setdefault((aside.step, found.identity), set()).add(found.time - 1)
        return {name: found for name, found in numbers.items() if _NO_NUMBER - 1 not in found}
    finally:
        circuit.rollback()
        decoder.rejected = rejected


def numbered(decoder: Decoder, part: Part) -> dict[str, Batch]:
    """Decode the records of `part`; the time of each row is the number of its record, from 1."""
    polled, first = [], 1
    for records in part.records:
        polled.append(replace(records, timestamps=range(first, first + len(records))))
        first += len(records)
    batches = decoder.decode(polled, part.left_out)
    for batch in batches.values():
        batch.time = _NO_NUMBER
    return batches


def by_number(context: Context, part: Part) -> Context:
    """Return the context of an epoch in which times are numbers of records.

    The epoch is not divisible: a loop with too much input queues it for later.
    """
    stamps = [stamp for records in part.records for stamp in records.timestamps]
    return context._replace(divisible=False, timestamps=stamps)


def _failures(
    circuit: Circuit, batches: Mapping[str, Batch], sinks: Mapping[str, SinkTopic], context: Context
) -> Iterable[tuple[int, DataError]]:
    try:
        circuit.step(batches, context)
    except DataError:
        if circuit.failed is not None:
            yield from _of_records(circuit.failed.inputs[0], circuit.failed.rows())
        return
    for name, sink in sinks.items():
        if circuit.care.on and circuit.outputs[name].aside is not None:
            continue
        batch = sink.batch(circuit.outputs[name].batches)
        yield from _of_records(batch, sink.failures(batch))


def _of_records(batch: Batch, errors: Mapping[int, DataError]) -> Iterable[tuple[int, DataError]]:
    numbers = batch.times_of_rows()
    return [(numbers[row] - 1, error) for row, error in errors.items() if numbers[row] != _NO_NUMBER]
