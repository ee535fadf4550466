"""The partitioner agrees with Java's producers, to the bit."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy import partitioner
from eddy.partitioner import partition_of, partitions_of

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


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20), st.integers(2, 2**31 - 1), st.integers(0, 3))
def test_many_keys_have_the_partitions_of_each_alone(few: list[bytes], partitions: int, tail: int) -> None:
    """The C function of Kafka's client, which is installed for tests, and the Python one."""
    keys = [few[n % len(few)] + bytes([n % 256]) * (tail + n % 7) for n in range(1_000)]
    alone = [partition_of(key[: len(key) - tail], partitions) for key in keys]
    assert partitions_of(keys, partitions, partition_of, tail) == alone


@pytest.mark.parametrize("missing", [False, True])
def test_many_keys_have_partitions_without_kafkas_client(missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing:
        monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    partitioner._fastest.cache_clear()  # private: what is installed is asked once
    try:
        assert (partitioner._fastest() is partition_of) is missing  # private: the choice has no other effect
        assert (
            partitions_of(list(PUBLISHED) * 200, 1 << 20, partition_of)
            == [(murmur2 & 0x7FFFFFFF) % (1 << 20) for murmur2 in PUBLISHED.values()] * 200
        )
    finally:
        partitioner._fastest.cache_clear()  # private: as above
