"""Transactions that commit positions of a group without members, guarded by a member of another group.

A transaction may move positions of several groups. The broker accepts positions of a group without members from any
program. So these positions are sent first. Then one position of the guarding group is sent, in which another program
has a member, with the generation of that member. The broker refuses this position if the group has a newer generation
without the member, and then the transaction cannot commit (KIP-447). Until the transaction ends, the positions are
pending, and a worker that takes over waits.
"""

import struct
from dataclasses import dataclass

from eddy.connectors.log import TopicPartition

__all__ = ["GuardedGroup", "Member"]

_NO_GENERATION = -1
_GENERATION = struct.Struct("=i")


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group in one generation, with its static name, if it has one."""

    group: str
    generation: int = _NO_GENERATION
    member: str = ""
    instance: str | None = None

    def metadata(self) -> bytes:
        """Encode the member in librdkafka's form, version 2, as `Consumer.consumer_group_metadata` returns it."""
        parts = [b"CGMDv2:", _GENERATION.pack(self.generation), self.group.encode(), b"\0", self.member.encode(), b"\0"]
        named = b"\1" if self.instance is None else b"\0" + self.instance.encode() + b"\0"
        return b"".join([*parts, named])


@dataclass(frozen=True, slots=True)
class GuardedGroup:
    """For `Producer.commit`: positions of `group`, accepted only while `guard` is a member in its generation.

    `anchor` is a partition of an internal topic, for the position in the guard's group; that position is never read.
    """

    group: str
    guard: Member
    anchor: TopicPartition
