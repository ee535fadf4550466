"""The assignment of partitions to members: the groups of one process, in memory.

A group's generation increases whenever a member joins, leaves, is evicted, or rejoins under its name. The partitions
are then reassigned by *range*: each of m sorted members gets n ÷ m consecutive partitions of a topic with n partitions,
and the first n mod m members get one more. So partition i of all topics with n partitions is assigned to the same
member.

Invariant: at any moment a partition has at most one owner in the newest generation, and only a member that knows that
generation passes `check`. Threads: callers hold the log's mutex.
"""

import pathlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from eddy.connectors.local.log_files import GroupLock, check_name, locked_groups
from eddy.connectors.log import TopicPartition
from eddy.errors import ConnectorError, FencedError, SlotTakenError

__all__ = ["ConsumerGroups", "Membership", "range_assignment"]

_LONGEST_GROUP_NAME = 200

Partitions = frozenset[TopicPartition]


class Membership(NamedTuple):
    """A member's view of its group.

    `joined` is the generation of its join, which differs for each member of one name.
    """

    group: str
    member: str
    joined: int
    generation: int


@dataclass(slots=True)
class _Member:
    joined: int
    topics: Mapping[str, int]
    owned: Partitions = frozenset()
    dealt: int = 0  # the generation that last changed `owned`


@dataclass(slots=True)
class _MemberGroup:
    generation: int = 0
    members: dict[str, _Member] = field(default_factory=dict)

    def rebalance(self) -> None:
        dealt = range_assignment({name: member.topics for name, member in self.members.items()})
        for name, member in self.members.items():
            if member.owned != dealt[name]:
                member.owned, member.dealt = dealt[name], self.generation


def range_assignment(members: Mapping[str, Mapping[str, int]]) -> dict[str, Partitions]:
    """Return the partitions of each member; `members` has each member's topics with their partition counts.

    >>> sorted(range_assignment({"a": {"t": 3}, "b": {"t": 3}})["a"])
    [TopicPartition(topic='t', partition=0), TopicPartition(topic='t', partition=1)]
    """
    owned: dict[str, set[TopicPartition]] = {name: set() for name in members}
    sizes = {topic: size for topics in members.values() for topic, size in topics.items()}
    for topic, size in sizes.items():
        takers = sorted(name for name, topics in members.items() if topic in topics)
        first = 0
        for i, name in enumerate(takers):
            last = first + size // len(takers) + (i < size % len(takers))
            owned[name].update(TopicPartition(topic, p) for p in range(first, last))
            first = last
    return {name: frozenset(partitions) for name, partitions in owned.items()}


class ConsumerGroups:
    """All groups of which this process has members. In a directory, one process at a time runs a group."""

    def __init__(self, directory: pathlib.Path | None, where: str) -> None:
        self._directory = directory
        self._where = where
        self._groups: dict[str, _MemberGroup] = {}
        self._locks: dict[str, GroupLock] = {}

    def join(self, group: str, member: str, topics: Mapping[str, int]) -> Membership:
        """Join a group, replacing a member of that name. Raises: ConnectorError."""
        check_name(self._where, "group", group, _LONGEST_GROUP_NAME)
        if self._directory is not None and group not in self._locks:
            self._locks[group] = GroupLock(self._directory, group, self._where)
        state = self._groups.setdefault(group, _MemberGroup())
        state.members[member] = _Member(state.generation + 1, topics)
        self._next_generation(group)
        return Membership(group, member, state.generation, state.generation)

    def subscribe(self, membership: Membership, topics: Mapping[str, int]) -> None:
        """Change the topics of a member, unless the member was evicted or replaced before."""
        if self.holds(membership):
            self._groups[membership.group].members[membership.member].topics = topics
            self._next_generation(membership.group)

    def leave(self, membership: Membership) -> None:
        """Remove a member that leaves, unless the member was evicted or replaced before."""
        if self.holds(membership):
            self.evict(membership.group, membership.member)

    def evict(self, group: str, member: str) -> None:
        """Remove a member, as a session timeout does."""
        state = self._groups.get(group)
        if state is not None and state.members.pop(member, None) is not None:
            self._next_generation(group)

    def _next_generation(self, group: str) -> None:
        state = self._groups[group]
        state.generation += 1
        state.rebalance()
        if not state.members and group in self._locks:
            self._locks.pop(group).release()

    def holds(self, membership: Membership) -> bool:
        """Whether the member is still in the group; False after an eviction.

        Raises: SlotTakenError if another member has joined under its name.
        """
        found = self._groups[membership.group].members.get(membership.member)
        if found is not None and found.joined != membership.joined:
            raise SlotTakenError(
                f"{self._where}: member {membership.member!r} of group {membership.group!r} was replaced by a"
                f" later one of the same name; a name belongs to one member. Stop one of them, or give each its "
                f"own name."
            )
        return found is not None

    def refresh(self, membership: Membership) -> tuple[Membership, Partitions, bool]:
        """Return the membership in the newest generation, its partitions, and whether these were reassigned.

        Equal partitions count as reassigned, too, if other members have owned them in between.
        """
        state = self._groups[membership.group]
        newest, member = membership._replace(generation=state.generation), state.members[membership.member]
        return newest, member.owned, member.dealt > membership.generation

    def check(self, membership: Membership, partitions: Iterable[TopicPartition]) -> None:
        """Check that a membership is of the newest generation and owns `partitions`. Raises: FencedError."""
        where = f"{self._where}: member {membership.member!r} of group {membership.group!r}"
        if not self.holds(membership):
            raise FencedError(f"{where} is no longer in it; only members commit. Poll to join again.")
        newest, owned, _ = self.refresh(membership)
        if newest.generation != membership.generation:
            raise FencedError(
                f"{where} commits in generation {membership.generation} of {newest.generation};"
                f" other members may own its partitions now. Abort, and poll to get its partitions."
            )
        if foreign := sorted(set(partitions) - owned):
            raise FencedError(
                f"{where} commits positions of {len(foreign)} partitions that it does not own, the first"
                f" {foreign[0].topic}-{foreign[0].partition}; it owns {len(owned)}. Commit those it polled."
            )

    def sizes(self) -> dict[str, int]:
        """Return the number of members of each group that has members; 1 if another process runs the group."""
        elsewhere = {} if self._directory is None else dict.fromkeys(locked_groups(self._directory), 1)
        here = {name: len(group.members) for name, group in self._groups.items() if group.members}
        return elsewhere | here

    def refuse_members(self, group: str) -> None:
        """Check that a group has no members. Raises: ConnectorError while it has."""
        if size := self.sizes().get(group):
            raise ConnectorError(
                f"{self._where}: group {group!r} has {size} members; a group must have none to be deleted or moved."
                f" Stop its workers first."
            )

    def close(self) -> None:
        """Release the groups for other processes."""
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()
