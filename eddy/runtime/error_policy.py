"""The error policy: what happens to each record that cannot be processed."""

from collections.abc import Callable, Sequence
from functools import partial

from eddy.config import Config
from eddy.errors import ConfigurationError, ConnectorError, DataError
from eddy.failed_record import DECISIONS, FailedRecord, OnError, Retry
from eddy.runtime.decoding import Rejected
from eddy.runtime.encoding import DeadRow
from eddy.source_lines import describe_exception, line_of

__all__ = ["ErrorPolicy"]

_NEEDED = f"one of {', '.join(map(repr, DECISIONS))}, or an eddy.Retry, is needed"


class ErrorPolicy:
    """Decides about each record that fails, as `Config.on_error` says or the author's function returns.

    A record that is to be tried again fails the epoch. The worker undoes it, waits, and retries it as it retries any
    temporary failure.

    `refused`: the last decision was to end the worker.
    """

    def __init__(self, config: Config) -> None:
        self._on_error: OnError = config.on_error
        self.refused = False

    @property
    def leaves_out(self) -> bool:
        """Whether a record may be left out."""
        return self._on_error != "fail"

    @property
    def letters(self) -> bool:
        """Whether all rejected records and rows are written as dead letters."""
        return self._on_error == "dead-letter"

    def records(self, rejected: Sequence[Rejected]) -> list[Rejected]:
        """Decide about rejected records. Returns the records to write as dead letters; the other records are skipped.

        Raises: DataError for a record that may not be left out; a retriable ConnectorError for one to be tried again.
        """
        self.refused = False
        return [record for record in rejected if self._decided(_failed(record), record.error)]

    def rows(self, dead: Sequence[DeadRow]) -> list[DeadRow]:
        """Decide about rows that were set aside.

        Returns the rows to write as dead letters. Raises: as `records` does.
        """
        return [row for row in dead if self._decided(_failed_row(row), partial(_error_of, row))]

    def global_record(self, rejected: Rejected) -> bool:
        """Return whether to write a record of a global table as a dead letter. Raises: as `records` does."""
        self.refused = False
        return self._decided(_failed(rejected), rejected.error)

    def _decided(self, record: FailedRecord, error: Callable[[], DataError]) -> bool:
        decision = self._on_error if isinstance(self._on_error, str) else self._ask_author(record)
        if decision == "fail":
            self.refused = True
            raise error()
        if decision == "retry":
            decision = Retry()
        if isinstance(decision, Retry):
            told = f"{error()}; on_error asks to try again after {decision.after:g} s"
            raise ConnectorError(told, retriable=True, after_s=decision.after)
        return decision == "dead-letter"

    def _ask_author(self, record: FailedRecord) -> str | Retry:
        assert not isinstance(self._on_error, str)
        where = f"config: on_error={line_of(self._on_error)}"
        try:
            decision: object = self._on_error(record)
        except Exception as error:
            raise ConfigurationError(f"{where} raised {describe_exception(error)} for {record}; {_NEEDED}") from error
        if isinstance(decision, Retry) or (isinstance(decision, str) and decision in DECISIONS):
            return decision
        raise ConfigurationError(f"{where} returned {decision!r} for {record}; {_NEEDED}")


def _failed(record: Rejected) -> FailedRecord:
    return FailedRecord(
        "process" if record.processed else "decode",
        record.topic,
        record.partition,
        record.offset,
        record.key,
        record.value,
        record.reason,
        record.timestamp,
        tuple(record.headers),
    )


def _failed_row(row: DeadRow) -> FailedRecord:
    topic, partition, offset = row.origins.record or (None, None, None)
    return FailedRecord("row", topic, partition, offset, row.key, row.value, row.reason, row.time, step=row.step)


def _error_of(row: DeadRow) -> DataError:
    return DataError(f"step '{row.step}' failed on the row of key {row.key!r}, of {row.origins}: {row.reason}")
