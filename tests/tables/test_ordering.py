"""Ordered keys: the order of the bytes is the order of the keys, equal keys are equal bytes, and keys come back."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.tables.ordering import decode_key, encode_key, encoder_of, prefix_of

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
    found = decode_key(eddy.Native, native(key))
    assert (found, tells_booleans(found)) == (key, tells_booleans(key))


def tells_booleans(key: Any) -> Any:
    return tuple(map(tells_booleans, key)) if isinstance(key, tuple) else isinstance(key, bool)


def test_true_is_no_number_unless_all_keys_are_numbers() -> None:
    keys = [None, False, True, -1, 0, 1, "true"]
    data = [encode_key(eddy.Json(), key) for key in keys]
    assert data == sorted(set(data))
    assert [repr(decode_key(eddy.Json(), each)) for each in data] == list(map(repr, keys))
    assert encode_key(eddy.Int64, True) == encode_key(eddy.Int64, 1)
    of_bools = eddy.Json(bool)
    assert of_bools.decode(of_bools.identify_many([True])[0]) is True


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
