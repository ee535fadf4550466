"""A worker's share of the partitions, and other programs that are members of its group.

A partition number i of topics with n partitions belongs to a worker if the group has assigned it partition i of all
topics with n partitions. If a member reads other topics, such as a console consumer under the application's name, the
group may assign it single partitions. Their numbers then belong to no worker until that member leaves the group, and
the workers pause the other partitions with these numbers.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from eddy.connectors.log import Log, TopicPartition
from eddy.errors import ConnectorError

__all__ = ["Share", "Strangers"]

_log = logging.getLogger("eddy.worker")


@dataclass(frozen=True, slots=True)
class Share:
    """The partition numbers of one worker, by partition count, and the partitions of all topics with these numbers."""

    numbers: dict[int, frozenset[int]]
    partitions: frozenset[TopicPartition]

    @staticmethod
    def of(assignment: Collection[TopicPartition], counts: Mapping[str, int]) -> "Share":
        """Return the share of a worker with the partitions `assignment`; `counts` are the partition counts by topic.

        >>> a0, b0, a1 = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("a", 1)
        >>> Share.of({a0, b0, a1}, {"a": 2, "b": 2}).numbers
        {2: frozenset({0})}
        """
        numbers = {
            count: frozenset.intersection(
                *(
                    frozenset(number for name, number in assignment if name == topic)
                    for topic, many in counts.items()
                    if many == count
                )
            )
            for count in counts.values()
        }
        return Share(numbers, frozenset(tp for tp in assignment if tp.partition in numbers[counts[tp.topic]]))


class Strangers:
    """Warns in the log of a group's members that are not workers."""

    def __init__(self, log: Log, group: str) -> None:
        self._log, self._group = log, group
        self._told: list[str] = []

    def look(self) -> None:
        """Log a warning with the members that are not workers, if they have changed.

        If the request fails, the next call repeats it.
        """
        try:
            found = self._log.strangers(self._group)
        except ConnectorError as error:
            _log.info("group '%s': its members are not known: %s", self._group, error)
            return
        if found and found != self._told:
            _log.warning(
                "application '%s': %s of its consumer group; partitions of a member that is not a worker are not "
                "processed until it leaves. Stop it, or give it a group of its own: --group NAME",
                self._group,
                members(found),
            )
        self._told = found


def members(strangers: Collection[str]) -> str:
    """Return the words with which messages name members that are not workers."""
    return f"{', '.join(strangers)} {'is a member' if len(strangers) == 1 else 'are members'}"
