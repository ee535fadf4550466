"""Processors that sum the values of each key in a store: the same as in `Processors.java`."""

from datetime import timedelta
from typing import Any

import eddy
from tests.streams_oracle.case import GLOBAL, Step, is_even

__all__ = ["Sums"]


class Sums:
    """Forwards each sum; every so often it also forwards all sums under the key "sum", and begins anew.

    The step says how, as in `case.py`; it has the names of `children`, if there are any.
    """

    def __init__(self, store: str, step: Step, children: list[str] | None) -> None:
        self._store, self._step, self._children = store, step, children

    def init(self, context: eddy.ProcessorContext) -> None:
        self._context = context
        self._sums = context.store(self._store)
        self._table = context.store(GLOBAL) if self._step.get("looks") else None
        if "every" in self._step:
            every = timedelta(milliseconds=self._step["every"])
            self._schedule = context.schedule(every, self._step["by"], self._flush)

    def process(self, record: eddy.Record[Any, Any]) -> None:
        record = record.replace(headers=()) if self._step.get("bare") else record
        if record.key is not None and record.value is not None:
            total = (self._sums.get(record.key) or 0) + record.value
            self._sums.put(record.key, total)
            record = record.replace(value=total + (self._table.get(record.key) or 0) if self._table else total)
        self._context.forward(record, self._children and self._children[not is_even(record.value)])

    def _flush(self, time_ms: int) -> None:
        for key, total in self._sums.all():
            self._context.forward(eddy.Record("sum", total))
            self._sums.delete(key)
        if self._step.get("once"):
            self._schedule.cancel()
