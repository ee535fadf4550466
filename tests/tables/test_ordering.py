"""Ordered keys: the order of the bytes is the order of the keys, equal keys are equal bytes, and keys come back."""

import math
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.serde import Tuple
from eddy.tables.ordering import canonical_key, decode_key, encode_key, encoder_of, prefix_of

NUMBERS = st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False))
TEXTS = st.text()
KEYS = st.one_of(NUMBERS, TEXTS, st.binary(), st.none(), st.booleans())
TUPLES = st.tuples(KEYS, KEYS)


def native(key: Any) -> bytes:
    return encode_key(eddy.Native, key)


@given(st.lists(NUMBERS, min_size=2, max_size=8))
def test_numbers_are_in_order_and_equal_ones_are_one(keys: list[Any]) -> None:
    for one in keys:
        for other in keys:
            assert (one < other, one == other) == (native(one) < native(other), native(one) == native(other))


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=2, max_size=6))
def test_texts_and_tuples_are_in_order_of_their_characters(keys: list[tuple[str, str]]) -> None:
    as_bytes = sorted(keys, key=lambda key: tuple(item.encode() for item in key))
    assert [decode_key(eddy.Native, data) for data in sorted(map(native, keys))] == as_bytes


@given(st.one_of(KEYS, TUPLES, st.tuples(TUPLES, KEYS)))
def test_a_key_comes_back(key: Any) -> None:
    assert decode_key(eddy.Native, native(key)) == key


BOOLEANS = eddy.Json(bool)
BITS: Any = st.sampled_from([False, True, 0, 1, 1.0, 0.0, 2, -1])
ANY = st.one_of(BITS, st.none(), st.just("true"))
SERDES: list[tuple[eddy.Serde[Any], Any]] = [
    (eddy.Native, st.one_of(ANY, st.tuples(ANY, st.tuples(ANY)))),
    (eddy.Json(), ANY),
    (eddy.Json(int), st.sampled_from([False, True, 0, 1])),
    (eddy.Int64, st.sampled_from([False, True, 0, 1])),
    (eddy.Float64, BITS),
    (BOOLEANS, st.sampled_from([False, True, 0, 1])),
    (Tuple(BOOLEANS, eddy.Native), st.tuples(st.sampled_from([False, True, 0, 1, None]), ANY)),
    (Tuple(eddy.Native, ...), st.lists(ANY, max_size=3).map(tuple)),
]


@pytest.mark.parametrize(("serde", "keys"), SERDES, ids=lambda given: getattr(given, "name", ""))
@given(data=st.data())
def test_what_is_one_key_to_a_worker_is_one_key_of_a_table(serde: eddy.Serde[Any], keys: Any, data: Any) -> None:
    one, other = data.draw(keys), data.draw(keys)
    first, second = (serde.decode(stored) for stored in serde.identify_many([one, other]))
    same = serde.identify_many([one]) == serde.identify_many([other])
    assert same == (encode_key(serde, first) == encode_key(serde, second))
    assert encode_key(serde, canonical_key(serde, other)) == encode_key(serde, second)  # as somebody asks for it
    with suppress(msgspec.ValidationError):  # a topic of the user's has no such key
        assert encode_key(serde, serde.decode(serde.encode(one))) == encode_key(serde, first)
    found = decode_key(serde, encode_key(serde, first))
    assert (found, tells_booleans(found)) == (first, tells_booleans(first))


def tells_booleans(key: Any) -> Any:
    return tuple(map(tells_booleans, key)) if isinstance(key, tuple) else isinstance(key, bool)


@given(first=st.sampled_from([True, False, 1, 0]), second=ANY)
def test_a_prefix_with_booleans_is_where_its_keys_begin(first: Any, second: Any) -> None:
    for serde in (Tuple(BOOLEANS, eddy.Native), eddy.Native, Tuple(eddy.Native, ...)):
        assert encode_key(serde, canonical_key(serde, (first, second))).startswith(prefix_of(serde, (first,)))
        assert not encode_key(serde, canonical_key(serde, (not first, second))).startswith(prefix_of(serde, (first,)))


@given(TEXTS, TEXTS)
def test_a_prefix_is_where_its_keys_begin(prefix: str, rest: str) -> None:
    assert native(prefix + rest).startswith(prefix_of(eddy.Native, prefix))
    assert native((prefix, rest)).startswith(prefix_of(eddy.Native, (prefix,)))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_a_column_is_encoded_as_its_keys_are(keys: list[int]) -> None:
    assert encoder_of(eddy.Int64)(eddy.Int64.encode_many(keys)) == [encode_key(eddy.Int64, key) for key in keys]


def test_what_is_no_number_comes_back_after_all_numbers() -> None:
    assert native(math.inf) < native(math.nan)
    assert math.isnan(decode_key(eddy.Native, native(math.nan)))
