"""Descriptions of Spark's jobs, as its own page shows them:  command: stage: step.

Frames are lazy, so a job of the comparison computes all steps that no earlier job needed. Loops, parts in one task and
counts of files have jobs of their own, which are named after the loop, the part or the file.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext

__all__ = ["JobDescriptions"]

_PROPERTY = "spark.job.description"


class JobDescriptions:
    """Sets the description of the jobs of this thread, until `close` restores the former description."""

    def __init__(self, context: SparkContext, command: str) -> None:
        self._context, self._command = context, command
        self._stage = ""
        self._steps: list[str] = []
        self._former = context.getLocalProperty(_PROPERTY)

    def stage(self, name: str) -> None:
        """Begin a stage of the command."""
        self._stage = name
        self._show()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Name the step in the description of jobs that run within the block."""
        self._steps.append(name)
        self._show()
        try:
            yield
        finally:
            self._steps.pop()
            self._show()

    def close(self) -> None:
        """Restore the former description."""
        self._set(self._former)

    def _show(self) -> None:
        self._set(": ".join(part for part in (self._command, self._stage, *self._steps) if part))

    def _set(self, text: str | None) -> None:
        # PySpark's types forbid None, with which Spark removes the description.
        self._context.setLocalProperty(_PROPERTY, text)  # type: ignore[arg-type]
