"""Laws of the form in states: values come back, and equal values have equal bytes, whatever schema they came by."""

import datetime
import decimal
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import eddy
from eddy.connectors.schema_registry import stored_form
from tests.schema_registry.people import ANN, Person

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.uuids()
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.datetimes(timezones=st.just(datetime.UTC))
    | st.decimals(allow_nan=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.tuples(st.text(), st.dictionaries(st.text(), inner, max_size=2))
    ),
    max_leaves=8,
)
DICTS = stored_form.of_dicts(marks=True)


@given(VALUES)
@example({"b": (1, [datetime.date(2026, 1, 1)]), "a": decimal.Decimal("1.50")})
def test_values_come_back_with_their_types(value: Any) -> None:
    found = DICTS.decode(DICTS.encode(value))
    assert (found, typed(found)) == (value, typed(value))


def typed(value: Any) -> Any:
    """The types of all parts."""
    if isinstance(value, dict):
        return {name: typed(part) for name, part in value.items()}
    return (type(value), [*map(typed, value)]) if isinstance(value, list | tuple) else type(value)


def other_form(value: Any) -> Any:
    """An equal value, of other types and in another order."""
    if isinstance(value, dict):
        return {name: other_form(part) for name, part in reversed(value.items())}
    if isinstance(value, list | tuple):
        return type(value)(map(other_form, value))
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int) and abs(value) < 2**53:
        return decimal.Decimal(value) if value % 2 else float(value)
    if isinstance(value, decimal.Decimal) and value.is_finite():
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        return decimal.Decimal((sign, (*digits, 0), exponent - 1))
    return value


@given(VALUES)
@example({"a": 1, "b": 2})
@example([True, 3])
@example(decimal.Decimal("1.1544860119977462547396722406E-12"))
def test_equal_values_have_equal_bytes(value: Any) -> None:
    other = other_form(value)
    assert other == value
    assert DICTS.identify(other) == DICTS.identify(value)


@given(VALUES, VALUES)
@example(decimal.Decimal("1." + "0" * 40 + "1"), decimal.Decimal("1." + "0" * 40 + "2"))
def test_different_values_have_different_bytes(value: Any, other: Any) -> None:
    assert (DICTS.identify(value) == DICTS.identify(other)) <= (value == other)


@given(st.integers(-(2**40), 2**40), st.booleans())
def test_equal_values_of_a_type_have_equal_bytes(number: int, as_json: bool) -> None:
    serde = getattr(eddy.SchemaRegistry("mock://laws"), "json" if as_json else "avro")(Person)
    one, other = Person("a", 1, number), Person("a", 1, float(number))
    assert serde.identify(one) == serde.identify(other)
    assert serde.identify(one) != serde.identify(msgspec.structs.replace(one, age=2))


def test_the_bytes_of_a_state_have_no_schema_id() -> None:
    """The same value by two schemas of one subject, as two writers have them."""
    registry = eddy.SchemaRegistry("mock://ids")
    older = {"type": "record", "name": "P", "fields": [{"name": "n", "type": "int"}]}
    newer = {**older, "fields": [*older["fields"], {"name": "m", "type": "int", "default": 5}]}  # type: ignore[misc]
    writer, other = (registry.avro(schema, subject="p") for schema in (older, newer))
    reader = registry.avro(newer, subject="p")
    one = writer.in_topic("p", "value").encode({"n": 1})
    two = other.in_topic("p", "value").encode({"n": 1, "m": 5})
    assert one[:5] != two[:5]
    decode = reader.in_topic("p", "value").decode
    assert reader.identify is not None
    assert reader.identify(decode(one)) == reader.identify(decode(two))


def test_json_without_a_null_for_nan() -> None:
    serde = eddy.SchemaRegistry("mock://nan").json({"type": "object"})
    for form in (serde, serde.in_topic("x", "value")):
        with pytest.raises(ValueError, match="JSON has no infinite numbers and no NaN"):
            form.encode({"a": float("nan")})


def test_a_message_of_another_class_is_refused() -> None:
    from google.rpc import error_details_pb2

    registry = eddy.SchemaRegistry("mock://messages")
    serde = registry.protobuf(error_details_pb2.ErrorInfo)
    for form in (serde, serde.in_topic("x", "value")):
        with pytest.raises((TypeError, ValueError), match="ErrorInfo"):
            form.encode(error_details_pb2.Help())
    with pytest.raises(TypeError, match="is not a valid Person"):
        registry.avro(Person).in_topic("x", "value").encode({"name": "ann"})  # type: ignore[arg-type]
    assert registry.avro(Person).in_topic("x", "value").encode(ANN)
