"""Serdes for Faust's models and codecs: byte for byte as Faust writes them, and back."""

from decimal import Decimal

import faust
import pytest

import eddy


class Point(faust.Record, serializer="json"):
    x: float
    label: str = ""


class Path(faust.Record):
    points: list[Point]


class Signed(faust.Record, serializer="pickle"):
    x: int


class Price(faust.Record, coerce=True, decimals=True):
    amount: Decimal


def test_a_model_is_written_and_read_as_by_a_topic_of_faust() -> None:
    serde = eddy.faust.record(Point)
    assert serde.encode(Point(x=1.5, label="a")) == Point(x=1.5, label="a").dumps()
    assert serde.decode(Point(x=1.5, label="a").dumps()) == Point(x=1.5, label="a")
    assert serde.type is Point


def test_a_model_without_a_serializer_is_json_unless_another_is_named() -> None:
    path = Path(points=[Point(x=1.0)])
    assert eddy.faust.record(Path).encode(path) == path.dumps(serializer="json")
    assert eddy.faust.record(Path, "json|binary").encode(path) == path.dumps(serializer="json|binary")
    assert eddy.faust.record(Path, "json|binary").decode(path.dumps(serializer="json|binary")) == path
    assert eddy.faust.record(Price).decode(b'{"amount": "1.10"}') == Price(amount=Decimal("1.10"))


def test_equal_models_have_equal_key_bytes_which_are_read_back() -> None:
    serde = eddy.faust.record(Point)
    one, same = Point(x=1), Point(x=1.0)
    assert one == same
    assert serde.identify_many([one]) == serde.identify_many([same])
    assert serde.decode(serde.identify_many([same])[0]) == one


def test_only_models_whose_fields_can_be_in_keys_are_hashable() -> None:
    assert eddy.faust.record(Point).hashable
    assert not eddy.faust.record(Path).hashable


@pytest.mark.parametrize("data", [b"{}", b"[1]", b"no json"])
def test_bytes_that_are_no_model_are_refused_by_the_error_policy(data: bytes) -> None:
    topology = eddy.Topology("points")
    topology.stream("in", eddy.String, eddy.faust.record(Point)).to("out")
    with eddy.TopologyTestDriver(topology) as driver, pytest.raises(eddy.DataError, match="'in'"):
        driver.input("in").pipe_raw(b"k", data)


def test_a_codec_of_another_type_is_refused() -> None:
    assert eddy.faust.codec("json").decode(b'{"a": [1]}') == {"a": [1]}
    with pytest.raises(TypeError, match="1 is not a valid str"):
        eddy.faust.codec("json", str).decode(b"1")


@pytest.mark.parametrize(
    "make",
    [
        lambda: eddy.faust.codec("pickle"),
        lambda: eddy.faust.codec("json|pickle"),
        lambda: eddy.faust.record(Signed),
        lambda: eddy.faust.codec("pickle_restricted"),
    ],
)
def test_what_unpickles_is_refused(make: object) -> None:
    with pytest.raises(eddy.TopologyError, match="can execute code"):
        make()  # type: ignore[operator]


def test_an_unknown_codec_and_a_class_that_is_no_model_are_refused() -> None:
    with pytest.raises(eddy.TopologyError, match="there is none of this name"):
        eddy.faust.codec("yason")
    with pytest.raises(eddy.TopologyError, match="is not a model"):
        eddy.faust.record(str)  # type: ignore[type-var]
