"""Checks that a static member's inherited assignment covers its current subscription.

A static member that restarts within its session gets its previous partitions, whatever its subscription is now. The
broker compares only the name of the assignor, and no member becomes leader, so no member looks at the topics again
(KIP-345, KIP-814). Then no member would read new topics, without an error. So the earlier session has to end first;
after that the partitions are assigned anew.
"""

import struct
from collections.abc import Iterable, Mapping

from eddy.connectors.log import TopicPartition

__all__ = ["assigned", "shares_out"]


def shares_out(owned: Iterable[frozenset[TopicPartition]], counts: Mapping[str, int]) -> bool:
    """Whether `owned`, the partitions of members, are a `range` assignment of topics with the counts `counts`.

    Together the members own all partitions and no others, and each owns the same partition numbers of all topics with
    equal counts.

    >>> a, b = frozenset({TopicPartition("a", 0)}), frozenset({TopicPartition("b", 0)})
    >>> shares_out([a | b, frozenset()], {"a": 1, "b": 1}), shares_out([a, b], {"a": 1, "b": 1})
    (True, False)
    """
    members = list(owned)
    everything = {TopicPartition(topic, partition) for topic, count in counts.items() for partition in range(count)}
    if frozenset().union(*members) != everything:
        return False
    for member in members:
        of_count: dict[int, set[frozenset[int]]] = {}
        for topic, count in counts.items():
            of_count.setdefault(count, set()).add(frozenset(tp.partition for tp in member if tp.topic == topic))
        if any(len(shares) > 1 for shares in of_count.values()):
            return False
    return True


def assigned(data: bytes) -> frozenset[TopicPartition]:
    """Decode a member's assignment, in its leader's encoding: a version, then topics with their partitions.

    >>> sorted(assigned(bytes.fromhex("0000 00000001 0001 61 00000002 00000000 00000003 00000000")))
    [TopicPartition(topic='a', partition=0), TopicPartition(topic='a', partition=3)]
    >>> assigned(b"")
    frozenset()
    """
    found: set[TopicPartition] = set()
    if not data:
        return frozenset()
    _, topics = struct.unpack_from(">hi", data)
    at = 6
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", data, at)
        topic = data[at + 2 : at + 2 + length].decode()
        (count,) = struct.unpack_from(">i", data, at + 2 + length)
        at += 6 + length
        found |= {TopicPartition(topic, partition) for partition in struct.unpack_from(f">{count}i", data, at)}
        at += 4 * count
    return frozenset(found)
