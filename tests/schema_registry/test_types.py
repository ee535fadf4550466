"""Avro schemas of types, and schemas that do not fit: every error names the field."""

import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import uuid
from typing import Any, Literal

import msgspec
import pytest

import eddy
from eddy.connectors.schema_registry.avro_types import schema_of
from eddy.errors import TopologyError
from tests.schema_registry.people import ANN, PERSON, Address, Person

REGISTRY = eddy.SchemaRegistry("mock://types")


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Every(msgspec.Struct, frozen=True):
    flag: bool
    number: int
    part: float
    text: str
    data: bytes
    at: datetime.datetime
    day: datetime.date
    time: datetime.time
    id: uuid.UUID
    size: Size
    word: Literal["a", "b"]
    items: list[Address]
    names: dict[str, int]
    pair: tuple[str, ...] | None = ("string", "x")
    more: list[int] = msgspec.field(default_factory=list)
    home: Address | None = None
    blob: bytes = b"\xff"


EVERY = Every(
    True,
    2**40,
    0.5,
    "é",
    b"\0\1",
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC),
    datetime.date(2026, 1, 2),
    datetime.time(1, 2, 3, 4),
    uuid.UUID(int=5),
    Size.LARGE,
    "b",
    [Address("Main St"), Address("High St", "Bonn")],
    {"b": 1, "a": 2},
    home=Address("Low St"),
)


def test_a_type_has_a_schema_with_its_defaults() -> None:
    assert schema_of(Person) == {
        "type": "record",
        "name": "Person",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "age", "type": "long"},
            {"name": "score", "type": "double", "default": 0.0},
            {"name": "since", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
            {
                "name": "address",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "Address",
                        "fields": [
                            {"name": "street", "type": "string"},
                            {"name": "town", "type": "string", "default": "Ulm"},
                        ],
                    },
                ],
                "default": None,
            },
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        ],
    }


@pytest.mark.parametrize("form", ["avro", "json"])
def test_values_of_every_type_come_back(form: str) -> None:
    serde = getattr(REGISTRY, form)(Every)
    in_topic = serde.in_topic(f"every-{form}", "value")
    assert in_topic.decode(in_topic.encode(EVERY)) == EVERY
    assert serde.decode(serde.encode(EVERY)) == EVERY


def test_defaults_are_those_that_a_reader_gets() -> None:
    """A record of the required fields, read by the whole schema."""
    less = {**schema_of(Every), "fields": [part for part in schema_of(Every)["fields"] if "default" not in part]}
    assert {part["name"] for part in schema_of(Every)["fields"]} - {part["name"] for part in less["fields"]} == {
        "pair", "more", "home", "blob",
    }  # fmt: skip
    kept = {name: getattr(EVERY, name) for name in (part["name"] for part in less["fields"])}
    sent = {**kept, "size": "large", "items": msgspec.to_builtins(EVERY.items)}
    data = REGISTRY.avro(less).in_topic("less", "value").encode(sent)
    for schema, read in ((Every, lambda value: value), (schema_of(Every), vars_of)):
        found = REGISTRY.avro(schema).in_topic("less", "value").decode(data)
        defaults = Every(**kept)
        assert read(found) == (defaults if read is not vars_of else vars_of(defaults))


def vars_of(value: Any) -> tuple[Any, ...]:
    """The fields with defaults."""
    get = value.get if isinstance(value, dict) else lambda name: getattr(value, name)
    return [*get("pair")], get("more"), get("home"), get("blob")


def test_a_dataclass_is_a_type_too() -> None:
    @dataclasses.dataclass(frozen=True)
    class Point:
        x: int
        y: int = 0

    serde = REGISTRY.avro(Point)
    in_topic = serde.in_topic("points", "value")
    assert in_topic.decode(in_topic.encode(Point(1))) == Point(1, 0)
    assert serde.hashable


def test_a_recursive_type_names_itself() -> None:
    in_topic = REGISTRY.avro(Tree).in_topic("trees", "value")
    tree = Tree("a", (Tree("b"), Tree("c", (Tree("d"),))))
    assert in_topic.decode(in_topic.encode(tree)) == tree
    with pytest.raises(
        ValueError, match=r"children\[…\]\.size: 1\.5 is not a valid long|size: 1\.5 is not a valid long"
    ):
        in_topic.encode(Tree("a", (Tree("b", (), 1.5),)))  # type: ignore[arg-type]


class Tree(msgspec.Struct, frozen=True):
    name: str
    children: "tuple[Tree, ...]" = ()
    size: int = 0


def test_a_schema_can_have_another_name_than_its_type() -> None:
    """Other programs have a namespace, and names that are no classes here."""
    named = schema_of(Tree, "com.example.Node")
    assert (named["namespace"], named["name"]) == ("com.example", "Node")
    assert named["fields"][1]["type"] == {"type": "array", "items": "Node"}
    serde = REGISTRY.avro(Tree, name="com.example.Node")
    tree = Tree("a", (Tree("b"),))
    data = serde.in_topic("nodes", "value").encode(tree)
    assert serde.name == "avro(com.example.Node)"
    assert REGISTRY.avro(Tree, name="Node").in_topic("nodes", "value").decode(data) == tree


@pytest.mark.parametrize(
    ("schema", "value", "bad"),
    [("string", "a", 1), ('"long"', 5, 1.5), ({"type": "bytes"}, b"\0", 1), ("double", 0.5, "x"), ("boolean", True, 2)],
)
def test_scalars_have_schemas_too(schema: Any, value: Any, bad: Any) -> None:
    """Also in keys, where equal values have equal bytes."""
    serde = REGISTRY.avro(schema)
    for part in ("key", "value"):
        in_topic = serde.in_topic(f"scalars-{serde.name}", part)  # type: ignore[arg-type]
        assert in_topic.decode(in_topic.encode(value)) == value == serde.decode(serde.encode(value))
        with pytest.raises((ValueError, TypeError, AttributeError)):
            in_topic.encode(bad)


@pytest.mark.parametrize(("schema", "value"), [({"type": "array", "items": "int"}, [1]), (["null", "int"], 3)])
def test_arrays_and_unions_are_values(schema: Any, value: Any) -> None:
    serde = REGISTRY.avro(schema)
    in_topic = serde.in_topic(f"values-{serde.name}", "value")
    assert in_topic.decode(in_topic.encode(value)) == value == serde.decode(serde.encode(value))


def test_only_frozen_types_can_be_keys() -> None:
    class Loose(msgspec.Struct):
        n: int

    assert [REGISTRY.avro(of).hashable for of in (Person, Loose, PERSON, "string", '"long"')] == [
        True, False, False, True, True,
    ]  # fmt: skip


def test_a_schema_is_a_file_a_text_or_data(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "person.avsc"
    file.write_text(json.dumps(PERSON))
    names = [REGISTRY.avro(given).name for given in (file, str(file), json.dumps(PERSON), PERSON)]
    assert names == ["avro(com.example.Person)"] * 4


def test_a_type_and_a_schema_that_fit() -> None:
    class Short(msgspec.Struct, frozen=True):
        name: str
        age: int

    in_topic = REGISTRY.avro(PERSON, Short).in_topic("short", "value")
    assert in_topic.decode(in_topic.encode(Short("ann", 3))) == Short("ann", 3)


class WrongAge(msgspec.Struct):
    name: str
    age: str


class NoAge(msgspec.Struct):
    name: str


class MoreFields(msgspec.Struct):
    name: str
    age: int
    town: str


class NeverNone(msgspec.Struct):
    name: str
    age: int
    since: datetime.datetime


@pytest.mark.parametrize(
    ("of", "told"),
    [
        (WrongAge, r"WrongAge\.age is of type str, and int in the schema"),
        (NoAge, r"has the field 'age' without a default, and NoAge has none of this name"),
        (MoreFields, r"MoreFields\.town is not in the schema com\.example\.Person"),
        (NeverNone, r"NeverNone\.since is of type datetime, and null in the schema"),
    ],
)
def test_a_type_that_does_not_fit_its_schema_is_refused(of: Any, told: str) -> None:
    with pytest.raises(TopologyError, match=told):
        REGISTRY.avro(PERSON, of)


class HasDecimal(msgspec.Struct):
    price: decimal.Decimal


class HasUnion(msgspec.Struct):
    id: int | str


class HasNumbers(msgspec.Struct):
    by_number: dict[int, str]


class Tagged(msgspec.Struct, tag=True):
    n: int


SEVERAL = [{"type": "record", "name": name, "fields": [{"name": "n", "type": "long"}]} for name in "AB"]


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: REGISTRY.avro(HasDecimal), r"HasDecimal\.price is of type decimal, which has no Avro schema here"),
        (lambda: REGISTRY.avro(HasUnion), r"HasUnion\.id is a union of 2 types"),
        (lambda: REGISTRY.avro(HasNumbers), r"HasNumbers\.by_number is of type dict"),
        (lambda: REGISTRY.avro(Tagged), r"Tagged has a tag or is array_like"),
        (lambda: REGISTRY.avro(int), r"registry\.avro: <class 'int'> is not a schema"),
        (lambda: REGISTRY.avro("{"), r"registry\.avro: the schema is not JSON"),
        (lambda: REGISTRY.avro({"type": "recrod", "name": "x"}), r"the schema uses the type|is not an Avro schema"),
        (lambda: REGISTRY.avro("nowhere.avsc"), r"the schema nowhere\.avsc cannot be read: .*; a file is needed"),
        (lambda: REGISTRY.avro(Person, Person), r"type=.* besides the type"),
        (lambda: REGISTRY.avro(PERSON, int), r"type=<class 'int'>; a msgspec\.Struct, a dataclass or None"),
        (lambda: REGISTRY.avro(SEVERAL, Person), r"has a union of several records"),
        (lambda: REGISTRY.avro(Person, subject=""), r"subject=''; the name of a subject"),
        (lambda: REGISTRY.avro(Person, register=1), r"register=1; True or False"),  # type: ignore[arg-type]
        (lambda: REGISTRY.avro(PERSON, references={"a": "b"}), r"references\['a'\]='b'"),  # type: ignore[dict-item]
        (lambda: REGISTRY.avro(Person, name="a b"), r"name='a b' is not an Avro name"),
        (lambda: REGISTRY.avro(PERSON, name="Person"), r"name='Person' besides a schema"),
        (lambda: REGISTRY.json({"type": 7}), r"registry\.json: the schema is not a JSON Schema"),
        (lambda: REGISTRY.protobuf(Person), r"registry\.protobuf: .* is not a message"),
        (lambda: eddy.SchemaRegistry("localhost:8081"), r"SchemaRegistry: url='localhost:8081'; an address"),
        (lambda: eddy.SchemaRegistry("http://x", user="ann"), r"user= has no colon"),
        (lambda: eddy.SchemaRegistry("http://x", settings={"a": []}), r"a dict of texts and numbers is needed"),
    ],
)
def test_mistakes_are_refused_when_the_topology_is_built(build: Any, told: str) -> None:
    with pytest.raises(TopologyError, match=told):
        build()


def test_a_setting_that_the_client_does_not_know_is_named() -> None:
    registry = eddy.SchemaRegistry("mock://x", settings={"colour": "blue"})
    with pytest.raises(eddy.ConfigurationError, match="Unrecognized properties: colour"):
        registry.avro(Person).in_topic("people", "value").encode(ANN)


def test_records_of_a_union_are_pairs_of_name_and_fields() -> None:
    serde = REGISTRY.avro(SEVERAL)
    in_topic = serde.in_topic("several", "value")
    for value in (("A", {"n": 1}), ("B", {"n": 1})):
        assert in_topic.decode(in_topic.encode(value)) == value
        assert serde.decode(serde.encode(value)) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 2**31),
        ("int", 1.5),
        ("long", True),
        ("boolean", 1),
        ({"type": "long", "logicalType": "timestamp-micros"}, datetime.datetime(2026, 1, 1)),
        ({"type": "array", "items": "int"}, [1, 1.5]),
        ({"type": "map", "values": "int"}, {"a": 1.5}),
        (["null", "int"], 1.5),
    ],
)
def test_values_that_fastavro_would_change_are_refused(kind: Any, value: Any) -> None:
    schema = {"type": "record", "name": "One", "fields": [{"name": "field", "type": kind}]}
    in_topic = REGISTRY.avro(schema).in_topic("one", "value")
    with pytest.raises(ValueError, match="field"):
        in_topic.encode({"field": value})


@pytest.mark.parametrize("row", [{}, {"field": 1, "other": 2}])
def test_rows_with_other_fields_than_the_schema_are_refused(row: dict[str, int]) -> None:
    schema = {"type": "record", "name": "One", "fields": [{"name": "field", "type": ["null", "int"]}]}
    with pytest.raises(ValueError, match="field"):
        REGISTRY.avro(schema).in_topic("fields", "value").encode(row)
