"""Types and schemas that several tests use."""

import datetime
from dataclasses import dataclass

import msgspec

NOW = datetime.datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=datetime.UTC)


class Address(msgspec.Struct, frozen=True):
    street: str
    town: str = "Ulm"


class Person(msgspec.Struct, frozen=True):
    name: str
    age: int
    score: float = 0.0
    since: datetime.datetime | None = None
    address: Address | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class PersonId:
    number: int


ANN = Person("ann", 31, 1.5, NOW, Address("Main St"), ("a", "b"))
BOB = Person("bob", 7)

PERSON = {
    "type": "record",
    "name": "Person",
    "namespace": "com.example",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": "int"},
        {"name": "score", "type": "double", "default": 0.0},
        {"name": "since", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
    ],
}
