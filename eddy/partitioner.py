"""Computes the partition of a key by Kafka's murmur2, so that eddy agrees with Java's producers.

Source: org.apache.kafka.common.utils.Utils.murmur2 and BuiltInPartitioner: partition =
toPositive(murmur2(key)) mod partitions. The function is written in Python, so that any installation has it. Where
Kafka's client is installed, its C function is used for many keys at once, and for all keys of the Kafka log.
"""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from struct import unpack_from

__all__ = ["Partitioner", "partition_of", "partitions_of"]

Partitioner = Callable[[bytes, int], int]
"""A function from an encoded key and a number of partitions to the key's partition."""

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_MANY = 1_000
"""The number of keys from which on Kafka's client is imported; the import takes as long as 25,000 keys in Python."""
_WORDS = [f"<{words}I" for words in range(64)]


def _murmur2(data: bytes) -> int:
    """Return the 32-bit hash of `data`, as an unsigned integer."""
    length = len(data)
    h = _SEED ^ length
    words = length >> 2
    for k in unpack_from(_WORDS[words] if words < len(_WORDS) else f"<{words}I", data):
        k = k * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    if length & 3:
        h = (h ^ int.from_bytes(data[words << 2 :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


@lru_cache(maxsize=131_072)
def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of `key` among `partitions`.

    >>> partition_of(b"21", 1000), partition_of(b"foobar", 1000)
    (340, 166)
    """
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


@cache
def _fastest() -> Partitioner:
    """Return Kafka's C function where its client is installed (0.1 µs a key instead of 2), else `partition_of`."""
    try:
        from confluent_kafka import murmur2
    except ImportError:
        return partition_of
    return murmur2


def partitions_of(keys: Sequence[bytes], partitions: int, partitioner: Partitioner, tail: int = 0) -> list[int]:
    """Return the partition of each encoded key. The last `tail` bytes of a key do not count.

    >>> partitions_of([b"21", b"21window"], 1000, partition_of), partitions_of([b"21window"], 1000, partition_of, 6)
    ([340, 737], [340])
    """
    if partitions == 1:
        return [0] * len(keys)
    if partitioner is partition_of and len(keys) >= _MANY:
        partitioner = _fastest()
    if tail:
        return [partitioner(key[:-tail], partitions) for key in keys]
    return [partitioner(key, partitions) for key in keys]
