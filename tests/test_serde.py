"""Serdes: the bytes, the way back, and what is refused."""

import math
from typing import Any, Generic, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.errors import DataError, TopologyError
from eddy.serde import Bytes, Float64, Int64, Json, Native, Plain, Serde, String, Struct

T = TypeVar("T")


class Node(msgspec.Struct, frozen=True):
    name: str
    depth: int = 0


class Draft(msgspec.Struct):
    text: str


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (Bytes, b"\x00\xff", b"\x00\xff"),
        (String, "añ€🌊", b"a\xc3\xb1\xe2\x82\xac\xf0\x9f\x8c\x8a"),
        (String, "", b""),
        (Int64, 0, b"\0\0\0\0\0\0\0\0"),
        (Int64, 258, b"\0\0\0\0\0\0\x01\x02"),
        (Int64, -1, b"\xff\xff\xff\xff\xff\xff\xff\xff"),
        (Int64, 2**63 - 1, b"\x7f\xff\xff\xff\xff\xff\xff\xff"),
        (Int64, -(2**63), b"\x80\0\0\0\0\0\0\0"),
        (Float64, 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        (Float64, -0.0, b"\x80\0\0\0\0\0\0\0"),
        (Float64, math.inf, b"\x7f\xf0\0\0\0\0\0\0"),
        (Json(), {"b": [1, None], "a": "é"}, '{"a":"é","b":[1,null]}'.encode()),
        (Json(int), 7, b"7"),
        (Struct(Node), Node("a", 2), b'{"depth":2,"name":"a"}'),
        (Struct(Node, "msgpack"), Node("a", 2), b"\x82\xa4name\xa1a\xa5depth\x02"),
        (Native, None, b"\xc0"),
        (Native, "a", b"\xa1a"),
        (Native, 1, b"\x01"),
        (Native, ("a", (1, None)), b"\x92\xa1a\x92\x01\xc0"),
    ],
)
def test_a_value_has_these_bytes(serde: Serde[Any], value: Any, data: bytes) -> None:
    """Numbers as Java's LongSerializer and DoubleSerializer write them, strings as UTF-8."""
    assert serde.encode(value) == data
    assert serde.decode(data) == value
    assert type(serde.decode(data)) is type(value)


natives = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)
jsons = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
nodes = st.builds(Node, st.text(), st.integers(-(2**63), 2**63 - 1))
ROUND_TRIPS = {
    "bytes": (Bytes, st.binary()),
    "string": (String, st.text()),
    "int64": (Int64, st.integers(-(2**63), 2**63 - 1)),
    "float64": (Float64, st.floats()),
    "json": (Json(), jsons),
    "json(str)": (Json(str), st.text()),
    "struct": (Struct(Node), nodes),
    "struct, msgpack": (Struct(Node, "msgpack"), nodes),
    "native": (Native, natives),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
@given(data=st.data())
def test_what_is_encoded_comes_back(name: str, data: st.DataObject) -> None:
    serde, values = ROUND_TRIPS[name]
    several = data.draw(st.lists(values, max_size=4))
    back = serde.decode_many(serde.encode_many(several))
    assert back == several or repr(back) == repr(several), "a NaN is equal only by its looks"


@given(natives)
def test_whatever_has_a_native_form_can_be_a_key(value: Any) -> None:
    assert Native.identify_many([value])


@pytest.mark.parametrize("value", [1e300, -1e300, float(2**64), float(2**63), -float(2**63), math.inf])
def test_floats_beyond_all_integers_can_be_keys(value: float) -> None:
    assert Native.decode(Native.identify_many([value])[0]) == value


@pytest.mark.parametrize("name", [name for name in ROUND_TRIPS if name != "json"])
@given(data=st.data())
def test_equal_values_are_known_by_equal_bytes(name: str, data: st.DataObject) -> None:
    serde, values = ROUND_TRIPS[name]
    one, other = data.draw(values), data.draw(values)
    if one == other:
        assert serde.identify_many([one]) == serde.identify_many([other])


@pytest.mark.parametrize("pair", [(1, 1.0), (1, True), (0.0, -0.0), ((1, "a"), (True, "a")), (2**60, float(2**60))])
def test_native_values_that_are_equal_in_python_are_known_by_equal_bytes(pair: tuple[Any, Any]) -> None:
    one, other = Native.identify_many(pair)
    assert pair[0] == pair[1]
    assert one == other


@pytest.mark.parametrize("pair", [(1, 2), (1, "1"), (b"a", "a"), (1.5, 1), (None, False), ((1,), 1), (0, None)])
def test_native_values_that_differ_are_known_by_other_bytes(pair: tuple[Any, Any]) -> None:
    one, other = Native.identify_many(pair)
    assert one != other


def test_a_decoded_nan_is_always_the_same_object() -> None:
    """A row with a NaN is retracted by being met again, and NaN is equal to nothing but itself."""
    assert Float64.decode(Float64.encode(float("nan"))) is math.nan
    assert Native.decode(Native.encode(float("nan"))) is math.nan


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (Bytes, "text"),
        (Bytes, bytearray(b"x")),
        (String, b"bytes"),
        (String, 1),
        (String, None),
        (Int64, 1.5),
        (Int64, 2**63),
        (Int64, "1"),
        (Float64, "1"),
        (Json(), object()),
        (Native, [1]),
        (Native, {"a": 1}),
        (Native, ("a", [1])),
        (Native, Node("a")),
        (Plain, None),
        (Plain, True),
        (Plain, ("a", 1)),
    ],
)
def test_a_value_of_another_kind_is_not_encoded(serde: Serde[Any], value: Any) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the codec raises; the worker names the record
        serde.encode(value)


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (String, b"\xff"),
        (Int64, b"\0"),
        (Int64, b"\0" * 9),
        (Float64, b""),
        (Json(), b"{"),
        (Json(int), b'"a"'),
        (Struct(Node), b"{}"),
        (Struct(Node, "msgpack"), b"\x81\xa4name\x01"),
        (Native, b"\xc1"),
        (Plain, b"a"),
    ],
)
def test_bytes_of_another_kind_are_not_decoded(serde: Serde[Any], data: bytes) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011
        serde.decode(data)


def test_native_says_which_value_has_no_native_form() -> None:
    with pytest.raises(TypeError, match=r"list has no native form: \[1\]"):
        Native.encode([1])


def test_plain_writes_strings_bytes_and_numbers_and_reads_nothing() -> None:
    assert [Plain.encode(value) for value in ("é", b"\xff", 258, 1.5)] == [
        b"\xc3\xa9",
        b"\xff",
        b"\0\0\0\0\0\0\x01\x02",
        b"\x3f\xf8\0\0\0\0\0\0",
    ]
    with pytest.raises(DataError, match="a named serde is needed to read"):
        Plain.decode(b"a")


@pytest.mark.parametrize(
    ("serde", "name", "hashable"),
    [
        (String, "string", True),
        (Json(), "json", False),
        (Json(str), "json(str)", True),
        (Json(list), "json(list)", False),
        (Struct(Node), "struct(Node, json)", True),
        (Struct(Node, "msgpack"), "struct(Node, msgpack)", True),
        (Struct(Draft), "struct(Draft, json)", False),
        (Native, "native", True),
    ],
)
def test_a_serde_knows_its_name_and_whether_what_it_reads_can_be_a_key(
    serde: Serde[Any], name: str, hashable: bool
) -> None:
    assert (serde.name, serde.hashable) == (name, hashable)


class Unreadable:
    """A class that msgspec does not know."""


class Inner(msgspec.Struct, Generic[T]):
    odd: T


class Tree(msgspec.Struct):
    children: "list[Tree]" = []
    odd: Unreadable | None = None


@pytest.mark.parametrize(
    "type",
    [Unreadable, list[Unreadable], dict[str, tuple[int, Unreadable]], Unreadable | None, Inner[Unreadable], Tree],
)
def test_a_type_that_cannot_be_read_is_refused_wherever_it_is(type: Any) -> None:
    with pytest.raises(TopologyError, match=r"Json: .* is not a type: .*msgspec knows no form of it in JSON"):
        eddy.Json(type)


def test_a_struct_with_a_field_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"Tree'> has a field that cannot be read: .*Unreadable'> is in it"):
        Struct(Tree)
    assert Json(Inner[int]).decode(b'{"odd": 1}') == Inner(1)


@pytest.mark.parametrize(("type", "format"), [(dict, "json"), (Node, "xml"), (Node("a"), "json")])
def test_struct_refuses_what_is_no_struct_or_no_format(type: Any, format: str) -> None:
    with pytest.raises(
        TopologyError, match=r"is not a serde; a msgspec.Struct class and 'json' or 'msgpack' are needed"
    ):
        eddy.Struct(type, format)
