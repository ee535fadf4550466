"""The event times until which a step's rows wait, and at which they are removed."""

from typing import Any, ClassVar

from eddy.topology.plan.bags import Row
from eddy.topology.plan.row_closing import Closing

__all__ = ["TimedStep"]


class TimedStep:
    """A step's use of event time. By default a step assigns no windows, waits for none and closes none."""

    topics_of_windows: ClassVar[tuple[str, ...]] = ()
    """If the step assigns windows: the topics whose event times decide which windows are over for its records."""
    placed_through: ClassVar[tuple[Any, ...]] = ()
    """The exchanges before the step through which records carry their places to it, since it needs their order."""
    waits_for: ClassVar[tuple[Any, ...]] = ()
    """The assignments of windows for whose source partitions its rows wait."""
    closes: ClassVar[bool] = False
    """Whether rows are removed from its table, without a retraction, when their windows are over."""
    final: ClassVar[bool] = False
    """Whether each row is sent downstream once, and never changed or retracted."""

    def closing(self, row: Row) -> Closing | None:
        """Return the event times at which a row is passed on, and at which it is removed from the step's table.

        None if there are no such times.
        """
        return None
