"""The event times for which the rows of a step wait, and after which it has them no more."""

from typing import Any, ClassVar

from eddy.topology.plan.bags import Row
from eddy.topology.plan.row_closing import Closing

__all__ = ["TimedStep"]


class TimedStep:
    """The use that a step makes of event time. By default it assigns no windows, waits for none and closes none."""

    topics_of_windows: ClassVar[tuple[str, ...]] = ()
    """The topics whose event times tell which windows are over for its records, if the step assigns windows."""
    waits_for: ClassVar[tuple[Any, ...]] = ()
    """The assignments of windows for whose source partitions its rows wait."""
    closes: ClassVar[bool] = False
    """Whether rows are removed from its table, without a retraction, when their windows are over."""
    final: ClassVar[bool] = False
    """Whether each row is passed on once, and never changed or retracted."""

    def closing(self, row: Row) -> Closing | None:
        """The event times for which a row waits, or after which the step's table has it no more, if there are any."""
        return None
