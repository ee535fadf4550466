"""Processors that sum the values of each key in a store: the same as in `Processors.java`."""

from datetime import timedelta
from typing import Any, Literal

import eddy

__all__ = ["Sums"]


class Sums:
    """Forwards each sum; every so often it also forwards all sums under the key "sum", and begins anew.

    `bare`: sums are forwarded without the headers of their records.
    """

    def __init__(
        self, store: str, bare: bool, every_ms: int | None, clock: Literal["event time", "wall clock"]
    ) -> None:
        self._store, self._bare, self._every_ms, self._clock = store, bare, every_ms, clock

    def init(self, context: eddy.ProcessorContext) -> None:
        self._context = context
        self._sums = context.store(self._store)
        if self._every_ms:
            context.schedule(timedelta(milliseconds=self._every_ms), self._clock, self._flush)

    def process(self, record: eddy.Record[Any, Any]) -> None:
        record = record.replace(headers=()) if self._bare else record
        if record.key is None or record.value is None:
            self._context.forward(record)
            return
        total = (self._sums.get(record.key) or 0) + record.value
        self._sums.put(record.key, total)
        self._context.forward(record.replace(value=total))

    def _flush(self, time_ms: int) -> None:
        for key, total in self._sums.all():
            self._context.forward(eddy.Record("sum", total))
            self._sums.delete(key)
