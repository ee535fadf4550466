"""Plain data as bytes: it comes back as it was, with its types."""

from decimal import Decimal
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from eddy.live.dataflow.cells import cell_bytes, cell_of
from eddy.live.dataflow.values import same_value

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.decimals(allow_nan=False)
)


@given(st.recursive(VALUES, lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)), max_leaves=8))
@example({"a": [Decimal("1.10"), (1, Decimal("Infinity")), 10**30, 1.0, True, b"x", "\ud800", -0.0]})
def test_plain_data_comes_back_with_its_types(value: Any) -> None:
    found = cell_of(cell_bytes(value))
    assert repr(found) == repr(value)
    assert same_value(found, value)
