"""The event times until which a step's rows wait, and at which they are removed."""

from typing import Any, ClassVar

from eddy.topology.plan.bags import Row
from eddy.topology.plan.row_closing import Closing

__all__ = ["TimedStep"]


class TimedStep:
    """A step's use of event time. By default a step assigns no windows, waits for none and closes none."""

    topics_of_windows: ClassVar[tuple[str, ...]] = ()
    """If the step assigns windows: the topics whose event times decide whether a record is late for a window."""
    placed_through: ClassVar[tuple[Any, ...]] = ()
    """The exchanges through which records carry their places to the step, because it needs their order."""
    waits_for: ClassVar[tuple[Any, ...]] = ()
    """The steps that assigned windows, for the event times of whose source partitions this step's rows wait."""
    closes: ClassVar[bool] = False
    """Whether rows are removed from its table, without a retraction, when their windows are over."""
    final: ClassVar[bool] = False
    """Whether each row is sent downstream once, and never changed or retracted."""

    def closing(self, row: Row) -> Closing | None:
        """Return the event times at which a row is passed on, and at which it is removed from the step's table.

        None if there are no such times.
        """
        return None
