"""What serdes of a registry cost beside confluent-kafka's bare serializers: Avro records of six fields, each way.

The registry is the client's own `mock://` registry: after the first record nothing asks a registry. Bare and eddy take
turns in one process, and each turn's values are compared.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import eddy
from benchmarks.report import Section, Target, number
from benchmarks.runs import median, ratios
from eddy.connectors.schema_registry.avro_types import schema_of
from eddy.connectors.schema_registry.client import client_of

__all__ = ["run"]


class Order(msgspec.Struct, frozen=True):
    id: int
    customer: str
    product: str
    amount: int
    price: float
    paid: bool


_CONTEXT = SerializationContext("orders", MessageField.VALUE)
Many = Callable[[list[Any]], list[Any]]


def _bare(schema: str, client: Any, typed: bool) -> tuple[Many, Many]:
    """As a program without eddy uses them: with its own conversion to dicts and back if it has a type."""
    settings = {"subject.name.strategy.type": "TOPIC"}
    to_dict = (lambda value, context: msgspec.to_builtins(value)) if typed else None
    from_dict = (lambda value, context: msgspec.convert(value, Order)) if typed else None
    write = AvroSerializer(client, schema, to_dict, settings)
    read = AvroDeserializer(client, schema, from_dict, conf=settings)
    return lambda values: [write(v, _CONTEXT) for v in values], lambda data: [read(d, _CONTEXT) for d in data]


def run(quick: bool) -> Section:
    """Dicts and values of a Struct."""
    records, repetitions = (2_000, 3) if quick else (20_000, 9)
    section = Section(
        f"schema-registry: {records:,} Avro records of six fields; ×: speed by that of confluent-kafka's serializer",
        ["values", "what", "bare records/s", "eddy records/s", "×", "result"],
    )
    section.notes = ["eddy checks integers and booleans before it writes, and dicts for further fields; bare does not."]
    registry = eddy.SchemaRegistry("mock://benchmarks")
    orders = [Order(n, f"customer-{n % 97}", f"product-{n % 31}", n % 7, n / 4, n % 2 == 0) for n in range(records)]
    schema = json.dumps(schema_of(Order))
    measured: dict[str, float] = {}
    for values, serde in (("dict", registry.avro(schema)), ("Struct", registry.avro(Order))):
        given: list[Any] = orders if values == "Struct" else [msgspec.to_builtins(order) for order in orders]
        ours = serde.in_topic("orders", "value")
        bare_write, bare_read = _bare(schema, client_of(registry.client_settings), values == "Struct")
        data = bare_write(given)
        for what, bare, own, rows, result in (
            ("write", bare_write, ours.encode_many, given, data),
            ("read", bare_read, ours.decode_many, data, given),
        ):
            runs: dict[str, list[dict[str, Any]]] = {"bare": [], "eddy": []}
            wrong = ""
            for _ in range(repetitions):
                for name, function in (("bare", bare), ("eddy", own)):
                    begun = time.perf_counter()
                    made = function(rows)
                    runs[name].append({"seconds": time.perf_counter() - begun, "wrong": ""})
                    wrong = wrong or ("" if made == result else f"{name} {what}s other records")
            section.runs[f"{values}, {what}"] = runs
            section.wrong += [f"{values}: {wrong}"] if wrong else []
            speed = median([{"x": x} for x in ratios(runs["bare"], runs["eddy"], "seconds")], "x")
            measured[f"{values}, {what}"] = speed
            rates = (number(records / median(runs[name], "seconds")) for name in ("bare", "eddy"))
            section.rows.append([values, what, *rates, number(speed), wrong or "ok"])
    section.targets = [
        Target("schema-registry: Avro", 0.8, "× the speed of confluent-kafka's serializer", measured, at_least=True)
    ]
    return section
