"""What is alike and what is near, by values."""

import math
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.spark.arrow_functions import arrow_schema, record_batch
from eddy.connectors.spark.verification.diff import DIFF
from eddy.connectors.spark.verification.equivalence import Classifying, RowFormat, WithCanonicalKeys
from eddy.serde import Plain

N, F = eddy.Native, eddy.Float64


class Mean(msgspec.Struct, frozen=True):
    """Of some numbers."""

    count: int
    mean: float


def how(serde: Any, expected: Any, found: Any, near: bool = True) -> str:
    return RowFormat(eddy.String, serde, near=near).how(serde.encode(expected), serde.encode(found), 1e-9)


def test_equal_values_are_alike_in_any_writing() -> None:
    assert how(N, 1, 1.0) == how(N, True, 1) == how(F, 0.0, -0.0) == "alike"
    assert how(N, (1, "a"), (1.0, "a"), near=False) == "alike"
    assert how(N, 1, 2) == how(N, "1", 1) == "differs"


def test_only_floats_are_near() -> None:
    off = 0.1 + 0.2
    assert how(F, 0.3, off) == how(N, ("x", 3, (0.3,)), ("x", 3, (off,))) == how(Plain, 0.3, off) == "near"
    assert how(eddy.Struct(Mean), Mean(2, 0.3), Mean(2, off)) == how(eddy.Json(), {"a": [0.3]}, {"a": [off]}) == "near"
    assert how(F, 0.3, off, near=False) == how(F, 0.3, 0.3001) == "differs"
    assert how(N, 10**15, 10**15 + 1) == how(N, ("x", 0.3), ("y", off)) == how(N, (0.3,), (off, 1)) == "differs"
    assert how(eddy.Struct(Mean), Mean(2, 0.3), Mean(3, off)) == "differs"
    assert how(F, math.inf, 1e300) == how(Plain, "abcdefgh", "abcdefgi") == how(Plain, 2**40, 2**40 + 1) == "differs"
    assert RowFormat(N, F, near=True).how(b"no float", F.encode(1.0), 1e-9) == "differs"


NUMBERS = st.integers(-(2**40), 2**40) | st.floats(-1e12, 1e12) | st.booleans()


@given(NUMBERS, NUMBERS)
def test_keys_are_known_as_python_knows_them(one: Any, other: Any) -> None:
    form = RowFormat(N, N)
    assert (form.canonical_key(N.encode(one)) == form.canonical_key(N.encode(other))) == (one == other)


@given(st.integers(-(2**53), 2**53) | st.floats(-1e12, 1e12).filter(lambda x: x == 0 or abs(x) > 1e-29))
def test_what_is_written_plainly_is_known_by_its_number(number: float) -> None:
    form = RowFormat(Plain, Plain)
    twins = [number, *([int(number), float(number)] if number == int(number) else [])]
    assert len({form.canonical_key(Plain.encode(twin)) for twin in twins}) == 1


@given(st.integers(-4 * 10**18, 4 * 10**18), st.integers(-4 * 10**18, 4 * 10**18) | st.just(1))
def test_identifiers_that_are_written_plainly_are_never_near(one: int, other: int) -> None:
    other = one + 1 if other == 1 else other
    assert how(Plain, one, other) == ("alike" if one == other else "differs")


@given(st.floats(-1e12, 1e12), st.floats(-1e-3, 1e-3))
def test_near_is_what_the_formula_says(number: float, off: float) -> None:
    other = number + off
    inside = abs(number - other) <= 1e-9 * max(1, abs(number), abs(other))
    assert how(F, number, other) in ({"near", "alike"} if inside else {"differs"})


def row_key(key: str, value: Any) -> bytes:
    """Where an arrangement keeps a row."""
    return len(key).to_bytes(4, "big") + key.encode() + N.identify_many([value])[0]


def settled(rows: list[tuple[bytes, bytes | None, bytes | None, int | None]], near: bool = True) -> list[str]:
    """How rows of a relation differ: row keys, what was expected, what was found, and where one lies misplaced."""
    schema = arrow_schema(DIFF)
    columns = list(
        zip(*[("t", k, e, f, int(e is not None), int(f is not None), p, True) for k, e, f, p in rows], strict=True)
    )
    forms = {"t": RowFormat(eddy.String, N, kind="arrangement", near=near)}
    made = Classifying(forms, 1e-9)(iter([record_batch(columns, schema)]))
    found = {row["k"]: row["how"] for batch in made for row in batch.to_pylist()}
    return [found[key] for key, *_ in rows]


def weight(number: int, came: bytes = b"") -> bytes:
    return eddy.Int64.encode(number) + came


def test_rows_of_relations_are_paired_within_their_key() -> None:
    off = 0.1 + 0.2
    expected = [row_key("a", ("x", 0.3)), row_key("a", ("x", 7.0)), row_key("a", ("y", 1.5))]
    found = [row_key("a", ("x", off)), row_key("a", ("y", 1.6))]
    rows = [*[(key, weight(1), None, None) for key in expected], *[(key, None, weight(1), None) for key in found]]
    assert settled(sorted(rows)) == [
        "near" if key in {expected[0], found[0]} else "differs" for key, *_ in sorted(rows)
    ]
    assert settled(sorted(rows), near=False) == ["differs"] * 5
    other_key = [(expected[0], weight(1), None, None), (row_key("b", ("x", off)), None, weight(1), None)]
    other_weight = [(expected[0], weight(1), None, None), (found[0], None, weight(2), None)]
    assert settled(other_key) == settled(sorted(other_weight)) == ["differs"] * 2


def test_what_a_row_came_as_is_no_difference_and_its_weight_and_place_are() -> None:
    key = row_key("a", 1)
    assert settled([(key, weight(2, N.encode(1.0)), weight(2), None)]) == ["alike"]
    assert settled([(key, weight(2), weight(3), None)]) == ["differs"]
    assert settled([(key, weight(2), weight(2, N.encode(5)), None)]) == ["differs"]
    assert settled([(key, weight(2), weight(2), 1)]) == ["differs"]


def test_keys_that_are_equal_get_one_name() -> None:
    schema = "topic string, k binary"
    batch = record_batch([["t"] * 4, [b"1", b"1.0", None, b"{"]], arrow_schema(schema))
    (made,) = WithCanonicalKeys(RowFormat(eddy.Json(), N), schema)(iter([batch]))
    one, other, none, broken = made.column("known").to_pylist()
    assert one == other
    assert (none, broken) == (None, b"{")
