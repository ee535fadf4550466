"""The frames of the steps compiled so far, with stateless steps that are not applied yet.

Stateless steps are deferred until another step needs the rows; then one Arrow function applies all of them. So a chain
of such steps costs one pass over the data, and only its last result is encoded.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from eddy.connectors.spark.arrow_functions import ArrowFunction, BatchEntry, RowsEntry, RowsExit
from eddy.connectors.spark.decoded_rows import Step
from eddy.connectors.spark.frames import Frames
from eddy.serde import Serde
from eddy.topology.plan.plan import Node

__all__ = ["Capture", "PendingRows", "StepFrames"]


@dataclass(frozen=True)
class PendingRows:
    """Rows that are not computed yet: a frame, the entry that decodes its batches, and stateless steps to apply."""

    frame: DataFrame
    entry: BatchEntry
    steps: tuple[Step, ...] = ()

    @property
    def facts(self) -> bool:
        """Whether the rows are facts, which are the rows of streams."""
        return self.entry.facts

    def then(self, step: Step) -> "PendingRows":
        """Return the same rows with one more step to apply."""
        return replace(self, steps=(*self.steps, step))

    def under(self, frames: Frames, key: Serde[object], value: Serde[object], where: str) -> DataFrame:
        """Apply the steps, and return the rows, encoded by the serdes `key` and `value`; they are not consolidated."""
        entry = self.entry
        if (
            isinstance(entry, RowsEntry)
            and not self.steps
            and (entry.key.name, entry.value.name) == (key.name, value.name)
        ):
            return self.frame
        exit_ = RowsExit(where, key, value, self.facts)
        return frames.through(self.frame, ArrowFunction(entry, self.steps, exit_), exit_.schema)


Capture = Callable[[str, str, Node, DataFrame], None]
"""A function that is called with the name and kind of a state, its step, and its consolidated rows."""


@dataclass
class StepFrames:
    """The frames of the steps of a plan, or of one iteration of a loop.

    `captures` says whether states of steps are captured. `nested` is None outside loops, False in a linear loop and
    True in an iteration of nested time.
    """

    capture: Capture
    nested: bool | None = None
    captures: bool = True
    around: "StepFrames | None" = None
    pending: dict[Node, PendingRows] = field(default_factory=dict)
    rows: dict[Node, DataFrame] = field(default_factory=dict)

    def home(self, node: Node) -> "StepFrames":
        """Return the innermost scope, this one or one around it, that has a step."""
        scope: StepFrames | None = self
        while scope is not None:
            if node in scope.pending:
                return scope
            scope = scope.around
        raise KeyError(node.name)

    def __getitem__(self, node: Node) -> PendingRows:
        return self.home(node).pending[node]

    def __setitem__(self, node: Node, rows: PendingRows) -> None:
        self.pending[node] = rows
