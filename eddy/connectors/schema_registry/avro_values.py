"""Checks for values that fastavro would change without an error.

fastavro writes 1.5 as the integer 1, 2 as the boolean true, and a datetime without a time zone as one in the machine's
zone. Such values are refused. It reads a default of bytes as text, which is converted to bytes here.
"""

import datetime
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

__all__ = ["bytes_defaults", "check_of", "has_arrays_in_unions", "has_several_records", "listed"]

Check = Callable[[Any], None]

_RANGES = {"int": 2**31, "long": 2**63}


def check_of(schema: Any) -> Check | None:
    """Return a function that raises ValueError, naming the field, for a value that fastavro would change.

    Returns None if no value of the schema could be changed.

    `schema` is a schema as JSON data. Parts that other schemas define are not checked.
    """
    return _Checks().of(schema, "")


def has_several_records(schema: Any) -> bool:
    """Whether a union in the schema has several records or references, so that the type of a dict is ambiguous."""
    return any(sum(_type(part) not in _UNNAMED for part in union) > 1 for union in _unions(schema))


def has_arrays_in_unions(schema: Any) -> bool:
    """Whether a union has an array as one of its types: there fastavro reads a tuple as (type, value)."""
    return any("array" in map(_type, union) for union in _unions(schema))


def listed(value: Any) -> Any:
    """Return a value with lists in place of tuples, at all levels."""
    if isinstance(value, dict):
        return {name: listed(part) for name, part in value.items()}
    return list(map(listed, value)) if isinstance(value, list | tuple) else value


def bytes_defaults(schema: Any) -> Callable[[Any], Any] | None:
    """Return a function that turns bytes' defaults, which fastavro reads as text, into bytes; None without such."""
    named: dict[str, Any] = {}
    if not any(_has_text_for_bytes(record) for record in _records(schema, named)):
        return None
    return partial(_mended, schema, named)


def _has_text_for_bytes(record: Mapping[str, Any]) -> bool:
    return any(_is_bytes(field["type"]) and isinstance(field.get("default"), str) for field in record["fields"])


def _is_bytes(schema: Any) -> bool:
    """Whether values are bytes, or None."""
    parts = schema if isinstance(schema, list) else [schema]
    plain = not any(isinstance(part, Mapping) and "logicalType" in part for part in parts)
    return plain and {_type(part) for part in parts} - {"null"} in ({"bytes"}, {"fixed"})


def _mended(schema: Any, named: Mapping[str, Any], value: Any) -> Any:
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(value, str):
        return value.encode("latin-1") if _is_bytes(schema) else value
    if isinstance(schema, list):
        parts = [part for part in schema if part != "null"]
        return _mended(parts[0], named, value) if len(parts) == 1 else value
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, dict):
        kinds = {field["name"]: field["type"] for field in schema.get("fields", ())}
        return {name: _mended(kinds.get(name, schema.get("values")), named, part) for name, part in value.items()}
    return [_mended(schema["items"], named, part) for part in value] if isinstance(value, list) else value


def _records(schema: Any, named: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield all records in a schema, and add each to `named` by its names."""
    if isinstance(schema, list):
        for part in schema:
            yield from _records(part, named)
    elif isinstance(schema, Mapping):
        if "fields" in schema:
            named[schema["name"]] = schema
            if "namespace" in schema:
                named[f"{schema['namespace']}.{schema['name']}"] = schema
            yield schema
        parts = [field["type"] for field in schema.get("fields", ())]
        for part in [*parts, *(schema[name] for name in ("type", "items", "values") if name in schema)]:
            yield from _records(part, named)


def _unions(schema: Any) -> Iterator[list[Any]]:
    """Yield all unions in a schema."""
    if isinstance(schema, list):
        yield schema
        parts = schema
    elif isinstance(schema, Mapping):
        parts = [field["type"] for field in schema.get("fields", ())]
        parts += [schema[name] for name in ("type", "items", "values") if name in schema]
    else:
        return
    for part in parts:
        yield from _unions(part)


_UNNAMED = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string", "array", "map", "enum", "fixed"}
)


def _type(schema: Any) -> str:
    return _type(schema["type"]) if isinstance(schema, Mapping) else str(schema)


class _Checks:
    def __init__(self) -> None:
        self._named: dict[str, list[Check | None]] = {}

    def of(self, schema: Any, where: str) -> Check | None:
        if isinstance(schema, list):
            return self._of_union(schema, where)
        if not isinstance(schema, Mapping):
            if schema in self._named:
                return self._of_name(str(schema))
            return _of_scalar(str(schema), where)
        logical, kind = schema.get("logicalType"), schema["type"]
        if logical is not None:
            return _zoned(where) if str(logical).startswith("timestamp-") else None
        match kind:
            case "record":
                return self._of_record(schema, where)
            case "array":
                items = self.of(schema["items"], f"{where}[…]")
                return None if items is None else partial(_each, items)
            case "map":
                parts = self.of(schema["values"], f"{where}[…]")
                return None if parts is None else partial(_each_value, parts)
            case _:
                return self.of(kind, where)

    def _of_name(self, name: str) -> Check:
        cell = self._named[name]

        def check(value: Any) -> None:
            if cell[0] is not None:
                cell[0](value)

        return check

    def _of_union(self, schema: list[Any], where: str) -> Check | None:
        parts = [part for part in schema if part != "null"]
        if len(parts) != 1 or len(schema) > 2:
            return None  # no check is needed: fastavro compares the value with each branch
        inner = self.of(parts[0], where)
        if inner is None:
            return None
        found = inner

        def check(value: Any) -> None:
            if value is not None:
                found(value)

        return check

    def _of_record(self, schema: Mapping[str, Any], where: str) -> Check | None:
        cell: list[Check | None] = [None]
        self._named[schema["name"]] = cell
        if "namespace" in schema:
            self._named[f"{schema['namespace']}.{schema['name']}"] = cell
        fields = [(field["name"], self.of(field["type"], f"{where}.{field['name']}")) for field in schema["fields"]]
        checks = [(name, check) for name, check in fields if check is not None]
        if not checks:
            return None

        def check(value: Any) -> None:
            for name, part in checks:
                if name in value:
                    part(value[name])

        cell[0] = check
        return check


def _each(check: Check, values: Any) -> None:
    for value in values:
        check(value)


def _each_value(check: Check, values: Mapping[str, Any]) -> None:
    _each(check, values.values())


def _of_scalar(kind: str, where: str) -> Check | None:
    at = where.lstrip(".") or "the value"
    if kind == "boolean":

        def check_bool(value: Any) -> None:
            if value is not True and value is not False:
                raise ValueError(f"{at}: {value!r} is not a valid boolean")

        return check_bool
    if kind not in _RANGES:
        return None
    limit = _RANGES[kind]

    def check(value: Any) -> None:
        if type(value) is not int or not -limit <= value < limit:
            raise ValueError(f"{at}: {value!r} is not a valid {kind}")

    return check


def _zoned(where: str) -> Check:
    def check(value: Any) -> None:
        if isinstance(value, datetime.datetime) and value.tzinfo is None:
            raise ValueError(f"{where.lstrip('.')}: {value!r} has no time zone, e.g. tzinfo=datetime.UTC")

    return check
