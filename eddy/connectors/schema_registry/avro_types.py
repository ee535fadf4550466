"""Avro schemas of Python types, and the check of a schema against a type.

    bool int float str bytes       boolean long double string bytes
    datetime date time UUID        the logical types timestamp-micros date time-micros uuid
    Enum, Literal of str           enum, if all values are Avro names; otherwise string
    list tuple set frozenset       array
    dict of str                    map
    T | None                       ["null", T]
    Struct, dataclass              record, with the defaults of its fields

Source: Avro 1.11, "Schema Declaration" and "Logical Types". A Decimal has no type here: its precision is not known.
"""

import datetime
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from eddy.connectors.schema_registry.avro_values import listed
from eddy.errors import TopologyError

__all__ = ["check_type", "record_name", "schema_of"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: dict[type, Any] = {
    inspect.BoolType: "boolean",
    inspect.IntType: "long",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.BytesType: "bytes",
    inspect.DateTimeType: {"type": "long", "logicalType": "timestamp-micros"},
    inspect.DateType: {"type": "int", "logicalType": "date"},
    inspect.TimeType: {"type": "long", "logicalType": "time-micros"},
    inspect.UUIDType: {"type": "string", "logicalType": "uuid"},
    inspect.NoneType: "null",
}
_LOGICAL = (datetime.date, datetime.time, uuid.UUID)
_READS: dict[type, frozenset[str]] = {
    inspect.BoolType: frozenset({"boolean"}),
    inspect.IntType: frozenset({"int", "long"}),
    inspect.FloatType: frozenset({"float", "double", "int", "long"}),
    inspect.StrType: frozenset({"string", "enum"}),
    inspect.BytesType: frozenset({"bytes", "fixed"}),
    inspect.DateTimeType: frozenset(
        f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos")
    ),
    inspect.DateType: frozenset({"date"}),
    inspect.TimeType: frozenset({"time-millis", "time-micros"}),
    inspect.UUIDType: frozenset({"uuid"}),
    inspect.DecimalType: frozenset({"decimal"}),
    inspect.NoneType: frozenset({"null"}),
    inspect.EnumType: frozenset({"enum", "string"}),
    inspect.LiteralType: frozenset({"enum", "string"}),
    inspect.DictType: frozenset({"map"}),
}
"""The Avro types whose values each type of msgspec accepts."""
_ITEMS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)
_RECORDS = (inspect.StructType, inspect.DataclassType)


def schema_of(type: Any, name: str | None = None) -> Any:
    """Return the Avro schema of a Struct or a dataclass, as JSON data. Its full name is `name`, by default the type's.

    Raises: TopologyError naming the field without a schema.
    """
    info = inspect.type_info(type)
    if not isinstance(info, _RECORDS):
        raise TopologyError(
            f"registry.avro: {type!r} is not a record; a msgspec.Struct, a dataclass or a schema is needed. "
            "Write: class Person(msgspec.Struct, frozen=True): ..."
        )
    schema = _schema(info, type.__name__, {})
    if name is None:
        return schema
    namespace, _, short = name.rpartition(".")
    if not all(map(_NAME.fullmatch, name.split("."))):
        raise TopologyError(
            f"registry.avro: name={name!r} is not an Avro name; letters, digits and _ are needed. "
            "Write: name='com.example.Person'"
        )
    renamed = {**_renamed(schema, type.__name__, short), "name": short}
    return {**renamed, "namespace": namespace} if namespace else renamed


def _renamed(schema: Any, old: str, new: str) -> Any:
    """Return a schema that calls the type `old` by the name `new` wherever it refers to the type."""
    if isinstance(schema, list):
        return [_renamed(part, old, new) for part in schema]
    if not isinstance(schema, Mapping):
        return new if schema == old else schema
    parts = {part: _renamed(schema[part], old, new) for part in ("type", "items", "values") if part in schema}
    if "fields" in schema:
        parts["fields"] = [{**field, "type": _renamed(field["type"], old, new)} for field in schema["fields"]]
    return {**schema, **parts}


def record_name(schema: Any) -> str:
    """Return the full name of a schema's type, such as `com.example.Person`, `string` or `array`."""
    if isinstance(schema, list):
        return "union"
    if not isinstance(schema, Mapping):
        return str(schema)
    name, namespace = schema.get("name"), schema.get("namespace")
    if name is None:
        return record_name(schema["type"]) if "logicalType" not in schema else str(schema["logicalType"])
    return f"{namespace}.{name}" if namespace and "." not in name else str(name)


def _schema(info: Any, where: str, named: dict[str, Any]) -> Any:
    found = _PLAIN.get(type(info))
    if found is not None:
        return found
    match info:
        case inspect.UnionType():
            return _union(info, where, named)
        case inspect.EnumType() | inspect.LiteralType():
            return _enum(info, where, named)
        case inspect.DictType() if isinstance(info.key_type, inspect.StrType):
            return {"type": "map", "values": _schema(info.value_type, f"{where}[…]", named)}
        case inspect.StructType() | inspect.DataclassType():
            return _record(info, named)
    if isinstance(info, _ITEMS):
        return {"type": "array", "items": _schema(info.item_type, f"{where}[…]", named)}
    raise TopologyError(
        f"registry.avro: {where} is of type {_shown(info)}, which has no Avro schema here; a type of docs/schemas.md "
        "is needed, or the schema: registry.avro('schema.avsc', Person)"
    )


def _union(info: inspect.UnionType, where: str, named: dict[str, Any]) -> list[Any]:
    parts = [part for part in info.types if not isinstance(part, inspect.NoneType)]
    if len(parts) != 1 or len(info.types) != 2:
        raise TopologyError(
            f"registry.avro: {where} is a union of {len(info.types)} types, whose values would not tell their type; "
            "a type, or a type and None, is needed. Give the schema alone, and rows are dicts: "
            "registry.avro('schema.avsc')"
        )
    return ["null", _schema(parts[0], where, named)]


def _enum(info: Any, where: str, named: dict[str, Any]) -> Any:
    values = [member.value for member in info.cls] if isinstance(info, inspect.EnumType) else list(info.values)
    if not all(isinstance(value, str) for value in values):
        raise TopologyError(f"registry.avro: {where} has the values {values}; texts are needed in an Avro enum")
    if not isinstance(info, inspect.EnumType) or not all(map(_NAME.fullmatch, values)):
        return "string"
    return _once(info.cls, named, lambda: {"type": "enum", "name": info.cls.__name__, "symbols": values})


def _record(info: Any, named: dict[str, Any]) -> Any:
    if getattr(info, "array_like", False) or getattr(info, "tag", None) is not None:
        raise TopologyError(
            f"registry.avro: {info.cls.__name__} has a tag or is array_like; a Struct whose fields are all is needed"
        )

    def made() -> dict[str, Any]:
        return {
            "type": "record",
            "name": info.cls.__name__,
            "fields": [_field(field, info.cls.__name__, named) for field in info.fields],
        }

    return _once(info.cls, named, made)


def _once(of: type, named: dict[str, Any], made: Callable[[], Any]) -> Any:
    """Return the schema of a named type at its first use, and only its name at later uses, as Avro demands."""
    name = of.__name__
    if name in named:
        if named[name] is not of:
            raise TopologyError(
                f"registry.avro: two types are called {name}: {named[name]!r} and {of!r}; a schema has one of a name"
            )
        return name
    named[name] = of
    return made()


def _field(field: inspect.Field, of: str, named: dict[str, Any]) -> dict[str, Any]:
    where = f"{of}.{field.name}"
    if not _NAME.fullmatch(field.encode_name):
        raise TopologyError(
            f"registry.avro: {where} is written as {field.encode_name!r}, which is not an Avro name; letters, digits "
            "and _ are needed"
        )
    found = {"name": field.encode_name, "type": _schema(field.type, where, named)}
    default = _default(field)
    if default is not msgspec.NODEFAULT:
        if default is not None and isinstance(found["type"], list):
            found["type"].reverse()  # Avro demands a default of the union's first type, which is null here
        found["default"] = default
    return found


def _default(field: inspect.Field) -> Any:
    """Return a field's default as JSON; NODEFAULT if there is none.

    A default that is a date, time or UUID is omitted, too: fastavro would read it as a number or a text.
    """
    value = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT:
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return msgspec.NODEFAULT if isinstance(value, _LOGICAL) else listed(msgspec.to_builtins(value))


def check_type(schema: Any, of: Any) -> None:
    """Check, field by field, that all values of a schema are values of a type, and the other way around.

    A field of the schema that the type does not have needs a default. Types that other schemas define are not checked.
    Raises: TopologyError naming the field.
    """
    _Check().check(schema, inspect.type_info(of), getattr(of, "__name__", str(of)))


class _Check:
    """Checks a schema against a type. Keeps the schema's named types, and the pairs that were checked."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._seen: set[tuple[str, str]] = set()

    def check(self, schema: Any, info: Any, where: str) -> None:
        if isinstance(info, inspect.AnyType | inspect.CustomType):
            return
        if isinstance(info, inspect.UnionType) or isinstance(schema, list):
            self._union(schema, info, where)
            return
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        kind = _kind(schema)
        if isinstance(info, _RECORDS):
            self._record(schema, kind, info, where)
        elif isinstance(info, _ITEMS):
            self._fits(kind == "array", schema, info, where)
            self.check(schema["items"], info.item_type, f"{where}[…]")
        elif kind in _PRIMITIVES:
            self._fits(kind in _READS.get(type(info), ()), schema, info, where)
            if kind == "map":
                self.check(schema["values"], info.value_type, f"{where}[…]")

    def _union(self, schema: Any, info: Any, where: str) -> None:
        """Check that for each branch of an Avro union one of the Python types accepts the values of the branch."""
        branches = schema if isinstance(schema, list) else [schema]
        types = info.types if isinstance(info, inspect.UnionType) else (info,)
        for branch in branches:
            if not any(self._accepts(branch, part, where) for part in types):
                self._fits(False, branch, info, where)

    def _accepts(self, schema: Any, info: Any, where: str) -> bool:
        if isinstance(info, _RECORDS) and _kind(self._named.get(str(schema), schema)) == "record":
            self.check(schema, info, where)  # its error names the field
            return True
        try:
            self.check(schema, info, where)
        except TopologyError:
            return False
        return True

    def _record(self, schema: Any, kind: str, info: Any, where: str) -> None:
        if kind not in _PRIMITIVES | {"record"}:
            return  # another schema defines this type
        self._fits(kind == "record", schema, info, where)
        self._named[schema["name"]] = self._named[record_name(schema)] = schema
        if (record_name(schema), info.cls.__name__) in self._seen:
            return
        self._seen.add((record_name(schema), info.cls.__name__))
        fields = {field["name"]: field for field in schema["fields"]}
        here = {field.encode_name: field for field in info.fields}
        for name in here.keys() - fields.keys():
            raise TopologyError(
                f"registry.avro: {where}.{name} is not in the schema {record_name(schema)}, so that its values would "
                f"be lost; one of {sorted(fields)} is needed. Add it to the schema, or remove it from the type"
            )
        for name, field in fields.items():
            if name in here:
                self.check(field["type"], here[name].type, f"{where}.{name}")
            elif "default" not in field:
                raise TopologyError(
                    f"registry.avro: the schema {record_name(schema)} has the field '{name}' without a default, and "
                    f"{where} has none of this name; it is needed to write. Add it to the type, or, to read "
                    "without it, remove it from the schema"
                )

    def _fits(self, fits: bool, schema: Any, info: Any, where: str) -> None:
        if not fits:
            raise TopologyError(
                f"registry.avro: {where} is of type {_shown(info)}, and {_kind(schema)} in the schema; a type that "
                "accepts these values is needed"
            )


_PRIMITIVES = frozenset().union(*_READS.values()) | {"array", "record", "map", "fixed"}


def _kind(schema: Any) -> str:
    """Return the type of a schema: its logical type, if fastavro converts values of that; else its plain type."""
    if not isinstance(schema, Mapping):
        return str(schema)
    logical = schema.get("logicalType")
    return str(logical) if logical in _PRIMITIVES else _kind(schema["type"])


def _shown(info: Any) -> str:
    cls = getattr(info, "cls", None)
    return cls.__name__ if cls is not None else type(info).__name__.removesuffix("Type").lower()
