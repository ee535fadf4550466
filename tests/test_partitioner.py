"""The partitioner agrees with Java's producers, to the bit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.partitioner import partition_of

PUBLISHED = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""From org.apache.kafka.common.utils.UtilsTest.testMurmur2."""


@pytest.mark.parametrize(("key", "murmur2"), PUBLISHED.items(), ids=[key.decode()[:8] for key in PUBLISHED])
@pytest.mark.parametrize("partitions", [1, 3, 12, 1 << 31])
def test_a_key_goes_where_kafkas_partitioner_sends_it(key: bytes, murmur2: int, partitions: int) -> None:
    assert partition_of(key, partitions) == (murmur2 & 0x7FFFFFFF) % partitions


def test_the_empty_key_has_a_partition() -> None:
    assert partition_of(b"", 1 << 31) == 275646681


@given(st.binary(max_size=40), st.integers(1, 200))
def test_a_partition_is_one_of_those_there_are(key: bytes, partitions: int) -> None:
    assert 0 <= partition_of(key, partitions) < partitions
