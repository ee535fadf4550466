"""What is known of each step while a plan is compiled to Spark: its rows so far, and what has yet to be done to them.

A *pipe* is a frame and the steps without memory that wait for it; they are done in one pass when somebody needs
the rows themselves. So a chain of such steps costs one pass, and what it makes needs a serde only at its end.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from eddy.connectors.spark.frames import Frames
from eddy.connectors.spark.passes import Entry, Pass, RowsEntry, RowsExit
from eddy.operators.operator import Operator
from eddy.serde import Serde
from eddy.topology.plan import Node

__all__ = ["Capture", "Pipe", "Scope"]


@dataclass(frozen=True)
class Pipe:
    """A frame, how a batch comes of it, and the steps that wait."""

    frame: DataFrame
    entry: Entry
    steps: tuple[Operator, ...] = ()

    @property
    def facts(self) -> bool:
        """Whether it is of a stream."""
        return self.entry.facts

    def then(self, step: Operator) -> "Pipe":
        """One step more."""
        return replace(self, steps=(*self.steps, step))

    def under(self, frames: Frames, key: Serde[object], value: Serde[object], where: str) -> DataFrame:
        """The rows themselves, under these serdes; not consolidated."""
        entry = self.entry
        if (
            isinstance(entry, RowsEntry)
            and not self.steps
            and (entry.key.name, entry.value.name) == (key.name, value.name)
        ):
            return self.frame
        exit_ = RowsExit(where, key, value, self.facts)
        return frames.through(self.frame, Pass(entry, self.steps, exit_), exit_.schema)


Capture = Callable[[str, str, Node, DataFrame], None]
"""Called with the name and kind of a state, the step whose rows it holds, and these, consolidated."""


@dataclass
class Scope:
    """The pipes and rows of the steps of a plan, or of one round of a loop.

    `captures` tells whether what steps remember is asked for. `nested` is None at the top, False in a wave and
    True in a round of nested time.
    """

    capture: Capture
    nested: bool | None = None
    captures: bool = True
    around: "Scope | None" = None
    pipes: dict[Node, Pipe] = field(default_factory=dict)
    rows: dict[Node, DataFrame] = field(default_factory=dict)

    def home(self, node: Node) -> "Scope":
        """The scope in which a step is."""
        scope: Scope | None = self
        while scope is not None:
            if node in scope.pipes:
                return scope
            scope = scope.around
        raise KeyError(node.name)

    def __getitem__(self, node: Node) -> Pipe:
        return self.home(node).pipes[node]

    def __setitem__(self, node: Node, pipe: Pipe) -> None:
        self.pipes[node] = pipe
