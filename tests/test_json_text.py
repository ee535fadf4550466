"""JSON that is sent: what `json` reads back is the value, at any depth, with numbers that JSON lacks as text."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eddy
from eddy import json_text
from eddy.json_text import encode
from eddy.live.dataflow.patch import Insert
from tests.seeds import EXAMPLES

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(),
    st.sampled_from([math.inf, -math.inf, math.nan]),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner), st.tuples(inner)), max_leaves=20
)
NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def shown(value: Any) -> Any:
    """The value as a reader of JSON gets it."""
    if isinstance(value, float):
        return NAMES.get(str(value), value)
    if isinstance(value, dict):
        return {name: shown(item) for name, item in value.items()}
    return list(map(shown, value)) if isinstance(value, list | tuple) else value


def read(data: bytes) -> Any:
    def refused(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(data, parse_constant=refused)


def check_law() -> None:
    @settings(max_examples=max(EXAMPLES, 40))
    @given(VALUES)
    def law(value: Any) -> None:
        assert repr(read(encode(value))) == repr(shown(value))
        assert repr(read(json_text.written(value))) == repr(shown(value))

    law()


def test_what_is_read_is_what_was_written() -> None:
    check_law()


def test_null_for_a_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "has_unwritable", lambda value: False)
    with pytest.raises(AssertionError):
        check_law()


@pytest.mark.parametrize("leaf", [1, None, math.inf])
def test_depth_has_no_bound(leaf: Any) -> None:
    tree: Any = leaf
    for level in range(20_000):
        tree = {"level": level, "below": [tree]}
    inside = b'"Infinity"' if leaf == math.inf else json.dumps(leaf).encode()
    ends = b'{"level":19999,"below":[{"level":19998,', b'{"level":0,"below":[%b]}]}' % inside
    data = encode(tree)
    assert data.startswith(ends[0])
    assert ends[1] in data


def test_structs_and_raw_parts_are_as_the_encoder_has_them() -> None:
    op = Insert("b", 0, {"x": math.inf, "y": None}, {"n": None})
    assert read(encode([op, msgspec.Raw(b'{"a":null}')])) == [
        {"type": "insert", "bucket": "b", "index": 0, "row": {"x": "Infinity", "y": None}, "below": {"n": None}},
        {"a": None},
    ]


class Reading(msgspec.Struct, frozen=True):
    at: float


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_json_refuses_to_write_null_for_a_number(value: float) -> None:
    for serde, held in [
        (eddy.Json(), {"a": [value, None]}),
        (eddy.Json(float), value),
        (eddy.Struct(Reading), Reading(value)),
    ]:
        with pytest.raises(ValueError, match="JSON has no infinite numbers and no NaN"):
            serde.encode(held)
    assert eddy.Json().encode({"a": None, "b": 0.5}) == b'{"a":null,"b":0.5}'
