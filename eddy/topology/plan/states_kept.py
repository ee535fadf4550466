"""Lists the states that each step has, so that the names of a plan's states are known before it is compiled."""

from typing import ClassVar, Literal, NamedTuple

__all__ = ["TABLE", "Rows", "StateKept", "StatefulStep"]

Rows = Literal["inputs", "results", "others"]
"""The rows that a state has: the step's input rows (`inputs`), its results, or any other rows (`others`)."""


class StateKept(NamedTuple):
    """A state of a step: the suffix of its name after the step's name, its kind, and the rows that it has."""

    suffix: str
    kind: str
    rows: Rows

    def name_of(self, step: str) -> str:
        """Return the state's name, for a step with this name."""
        return f"{step}-{self.suffix}" if self.suffix else step


TABLE = StateKept("", "table", "results")
"""The table of a step's rows, under its name."""


class StatefulStep:
    """The states of a step: the usual states in `keeps`, and states that it has only under some circumstances."""

    keeps: ClassVar[tuple[StateKept, ...]] = ()
    """The states of the step's operator outside loops by nested time."""
    store_names: ClassVar[tuple[str, ...]] = ()
    """The names of the topology's state stores that the step uses."""

    @property
    def has_table(self) -> bool:
        """Whether one of the step's states is a table of its rows."""
        return TABLE in self.keeps

    @property
    def retired(self) -> tuple[str, ...]:
        """The states that the step had in earlier releases, and no longer has."""
        return ()

    @property
    def looked_up_as(self) -> str | None:
        """The name of the state with the step's rows, if all joins inside its loop share one state; else None."""
        return None

    @property
    def errors_kept(self) -> tuple[str, ...]:
        """The step's states of errors, inside a loop by nested time."""
        return ()
