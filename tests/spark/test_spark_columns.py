"""Values of serdes as columns of Spark, and back."""

import dataclasses
import datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eddy
from eddy.connectors.spark.source.spark_columns import arrow_schema_of, column_of
from tests.seeds import share

pytestmark = pytest.mark.xdist_group("spark")


class Leaf(msgspec.Struct, frozen=True):
    name: str | None
    at: datetime.datetime
    day: datetime.date | None = None
    data: bytes = b""


@dataclasses.dataclass(frozen=True)
class Twig:
    leaves: list[Leaf]
    length: float = 0.0


class Branch(msgspec.Struct, frozen=True, rename="camel"):
    the_leaves: tuple[Leaf, ...]
    best_leaf: Leaf | None
    weights: dict[str, float]
    by_number: dict[int, str]
    either: int | str
    good: bool


TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
DAYS = st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))
TIMES = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(datetime.UTC))
LEAVES = st.builds(Leaf, st.none() | TEXT, TIMES, st.none() | DAYS, st.binary(max_size=4))
BRANCHES = st.builds(
    Branch,
    st.lists(LEAVES, max_size=2).map(tuple),
    st.none() | LEAVES,
    st.dictionaries(TEXT, FLOATS, max_size=2),
    st.dictionaries(NUMBERS, TEXT, max_size=2),
    NUMBERS | TEXT,
    st.booleans(),
)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
).filter(lambda value: value is not None)
LEAF = "struct<`name`:string,`at`:timestamp,`day`:date,`data`:binary>"
CASES = [
    (eddy.String, TEXT, "string"),
    (eddy.Int64, NUMBERS, "bigint"),
    (eddy.Float64, FLOATS, "double"),
    (eddy.Bytes, st.binary(), "binary"),
    (eddy.Json(), DOCUMENTS, "string"),
    (eddy.Json(list[int | None]), st.lists(st.none() | NUMBERS), "array<bigint>"),
    (eddy.Struct(Leaf), LEAVES, LEAF),
    (
        eddy.Json(Twig),
        st.builds(Twig, st.lists(LEAVES, max_size=2), FLOATS),
        f"struct<`leaves`:array<{LEAF}>,`length`:double>",
    ),
    (
        eddy.TimeWindowed(eddy.String, datetime.timedelta(minutes=1)),
        st.builds(lambda key, start: eddy.Windowed(key, start, start + 60_000), TEXT, st.integers(0, 2**40)),
        "struct<`key`:string,`start_ms`:bigint,`end_ms`:bigint>",
    ),
    (
        eddy.Struct(Branch, "msgpack"),
        BRANCHES,
        f"struct<`the_leaves`:array<{LEAF}>,`best_leaf`:{LEAF},`weights`:map<string,double>,`by_number`:string,"
        "`either`:string,`good`:boolean>",
    ),
]


@pytest.mark.parametrize(("serde", "values", "ddl"), CASES, ids=[case[0].name for case in CASES])
def test_a_value_comes_back_through_its_column(serde: Any, values: Any, ddl: str, spark: Any) -> None:
    column = column_of(serde)
    assert column.ddl == ddl
    schema = arrow_schema_of(spark.createDataFrame([], f"x {ddl}").schema)

    @settings(max_examples=share(1))
    @given(st.lists(st.none() | values, max_size=4))
    def law(given: list[Any]) -> None:
        stored = pa.array(column.values(given), schema.field("x").type).to_pylist()
        back = [value if value is None or column.back is None else column.back(value) for value in stored]
        assert back == given

    law()


def test_a_type_without_a_column_is_json() -> None:
    column = column_of(eddy.Native)
    assert (column.ddl, column.values([("a", 1), None])) == ("string", ['["a",1]', None])
