"""Flat values: bytes that order, are equal and lead back as the values that they are made of."""

import math
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eddy.live.dataflow.values import (
    EMPTY,
    ascending,
    flat,
    flat_key,
    join_key,
    key_of,
    order_key,
    order_of,
    plain,
    values_of,
)

near = st.one_of(
    st.sampled_from([0, 2**53, 2**60, 2**63, 2**64, 2**1024, 10**22, 1, -(2**53)]),
    st.sampled_from([1.5, 2.0**53, 5e-324, 1.7976931348623157e308, -0.0, 0.1]),
)
offsets = st.sampled_from([0, 1, -1, 2, -2, 0.5, -0.5, 1e-300])
decimals = st.decimals(allow_nan=False, min_value=-(10**30), max_value=10**30) | st.sampled_from(
    [Decimal("0.1"), Decimal("1e400"), Decimal("-1e400"), Decimal("1e-400"), Decimal("Infinity"), Decimal("NaN")]
)
numbers = st.one_of(
    st.integers(),
    st.integers(-10, 10),
    st.floats(),
    near,
    st.tuples(near, offsets).map(lambda pair: pair[0] + pair[1] if abs(pair[0]) < 2**1000 else pair[0]),
    decimals,
)
texts = st.text(max_size=6) | st.sampled_from(["", "\0", "a", "a\0", "ab", "\U0010ffff"])
plain_values = st.one_of(st.none(), st.booleans(), numbers, texts, st.binary(max_size=4))
values = (
    plain_values
    | st.lists(st.integers() | st.text(max_size=3), max_size=3)
    | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)
)
rows = st.lists(values, min_size=3, max_size=3).map(lambda items: dict(zip("abc", items, strict=True)))


class Opposite:
    """A value in the opposite order."""

    def __init__(self, value: Any) -> None:
        self.pair = ascending(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opposite) and self.pair == other.pair

    def __lt__(self, other: "Opposite") -> bool:
        return other.pair < self.pair

    __hash__ = None  # type: ignore[assignment]


@example(2**53, 2.0**53)
@example(2**53 + 1, 2.0**53)
@example(2**1024, math.inf)
@example(2**1024, 1.7976931348623157e308)
@example(-(2**1024), -math.inf)
@example(2**1024 + 1, 2**1024)
@example(0.1, Decimal("0.1"))
@example(-0.1, Decimal("-0.1"))
@example(Decimal("1.000000000000000000000000000000000000001"), 1)
@example(Decimal("-1.000000000000000000000000000000000000001"), -1)
@example(Decimal("1E+400"), 10**400)
@example("a", "a\0")
@example(b"\xff", b"\xff\xff")
@given(values, values)
def test_flat_values_compare_as_the_values_do(one: Any, two: Any) -> None:
    assert (flat(one) < flat(two), flat(one) == flat(two)) == (
        ascending(one) < ascending(two),
        ascending(one) == ascending(two),
    )


@given(values, values)
def test_no_value_begins_with_another(one: Any, two: Any) -> None:
    assert flat(one) == flat(two) or not flat(one).startswith(flat(two))


@given(
    rows,
    rows,
    st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=2),
    st.sampled_from(["c", "bc", "", "abc"]),
)
def test_positions_compare_as_rows_do(
    one: dict[str, Any], two: dict[str, Any], order: list[tuple[str, bool]], key: str
) -> None:
    def expected(row: dict[str, Any]) -> list[Any]:
        return [
            *(Opposite(row[column]) if falls else ascending(row[column]) for column, falls in order),
            *(ascending(row[column]) for column in key),
        ]

    position = order_key(order, flat_key(list(key)))
    assert (position(one) < position(two)) == (expected(one) < expected(two))
    assert (position(one) == position(two)) == (expected(one) == expected(two))
    assert position(one) == order_of(order)(one) + flat_key(list(key))(one)
    assert key_of(position(one)) == flat_key(list(key))(one)


@given(rows)
def test_a_key_leads_to_its_values(row: dict[str, Any]) -> None:
    found = values_of(flat_key(["a", "b", "c"])(row))
    assert [ascending(value) for value in found] == [ascending(value) for value in row.values()]
    assert not any(type(value) is float and value.is_integer() for value in found)


@given(rows, rows)
@example({"a": "x", "b": 2**70, "c": None}, {"a": "x", "b": 2.0**70, "c": None})
def test_bucket_names_are_equal_where_values_are(one: dict[str, Any], two: dict[str, Any]) -> None:
    keys = flat_key(["a", "b", "c"])(one), flat_key(["a", "b", "c"])(two)
    names = [msgspec.json.encode([plain(value) for value in values_of(key)]) for key in keys]
    assert (names[0] == names[1]) == (keys[0] == keys[1])


@pytest.mark.parametrize("length", [0, 1, 252, 253, 254, 255, 256, 70_000])
def test_a_key_of_any_length_is_found_at_the_end_of_a_position(length: int) -> None:
    row = {"id": "x" * length, "rank": 1}
    key = flat_key(["id"])(row)
    assert key_of(order_of([("rank", True)])(row) + key) == key
    assert values_of(key) == (row["id"],)


def test_a_key_with_a_null_joins_with_nothing() -> None:
    assert join_key(["a"])({"a": None}) is join_key(["a", "b"])({"a": 1}) is None
    assert join_key([])({}) == flat_key([])({}) == EMPTY
    assert join_key(["a", "b"])({"a": 1, "b": 2}) == flat_key(["a", "b"])({"a": 1.0, "b": 2})
