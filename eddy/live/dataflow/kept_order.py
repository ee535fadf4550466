"""Keeps the positions of all rows of a table in memory, while the rows are on disk, for windows at the root.

So a window moves to any place in O(log n), and finds its next rows even if many are removed. A position takes about a
tenth of the memory of its row. Once the table has more rows than positions may be in memory, the order is *spent*: new
queries sort on disk, and the owners of the windows are notified to open them anew there.
"""

from eddy.live.dataflow.dataflow import Schedule
from eddy.live.dataflow.ordered import Ordered

__all__ = ["KeptOrder"]


class KeptOrder(Ordered):
    """Sorts the rows of a table on disk, with the positions of all rows in memory."""

    def step(self, schedule: Schedule) -> None:
        """Update the positions, and send the changes to the windows.

        Warn the windows once there are too many positions.
        """
        super().step(schedule)
        if not self.is_spent and not self.table.can_keep_order:
            self.is_spent = True
            for bucket in self.buckets.values():
                for window in bucket.windows:
                    window.owner.warned(is_short=False, schedule=schedule)
