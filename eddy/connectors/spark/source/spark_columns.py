"""Columns of Spark for values of serdes.

str, int, float, bool, bytes     string, bigint, double, boolean, binary
datetime, date                   timestamp, date
a struct                         struct of its fields
a list, a set, a tuple with ...  array
a dict with keys of text         map
None | T                         the column of T, with null
other types, and untyped JSON    string: the value as JSON
"""

import dataclasses
import datetime
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import inspect as types
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from eddy.json_text import encode
from eddy.serde import Serde
from eddy.windows import Windowed

__all__ = ["HEADERS", "SparkColumn", "arrow_schema_of", "column_of"]

HEADERS = "array<struct<key:string,value:binary>>"
_BUILTIN = (bytes, bytearray, datetime.datetime, datetime.date)


@dataclasses.dataclass(frozen=True)
class SparkColumn:
    """A Spark type, with the functions that convert values to the type and back; None if values need no conversion.

    `fields` are the columns of a struct's fields. Each name is an attribute of the values, too.
    """

    ddl: str
    out: Callable[[Any], Any] | None = None
    back: Callable[[Any], Any] | None = None
    fields: tuple[tuple[str, "SparkColumn"], ...] = ()

    def values(self, decoded: Sequence[Any]) -> Sequence[Any]:
        """Convert decoded values to values that Arrow accepts."""
        out = self.out
        return decoded if out is None else [None if value is None else out(value) for value in decoded]


def column_of(serde: Serde[Any]) -> SparkColumn:
    """Return the column for the values of a serde. For a serde without a type, the column has the values as JSON."""
    if serde.type is None:
        return _JSON
    if serde.type is Windowed and serde.recipe is not None:
        return _windowed(column_of(next(part for part in serde.recipe[1] if isinstance(part, Serde))))
    try:
        info = types.type_info(serde.type)
    except (TypeError, ValueError):
        return _JSON
    column, given = _of(info), serde.type
    if isinstance(info, (types.StrType, types.IntType, types.FloatType, types.BoolType, types.BytesType)):
        return column

    def back(value: Any) -> Any:
        return msgspec.convert(
            column.back(value) if column.back else value, given, builtin_types=_BUILTIN, str_keys=True
        )

    return dataclasses.replace(column, back=back)


def arrow_schema_of(schema: StructType) -> Any:
    """Turn a schema of Spark into a schema of Arrow, with times in UTC."""
    # Before PySpark 4.3 the function has no such parameter, and times are in UTC.
    zone = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)  # type: ignore[arg-type]


def _of(info: types.Type) -> SparkColumn:
    for kind, ddl in _SCALARS.items():
        if isinstance(info, kind):
            return SparkColumn(ddl)
    made: SparkColumn | None = None
    match info:
        case types.DateTimeType():
            made = SparkColumn("timestamp", _in_utc)
        case types.UnionType(types=parts) if len(parts) == 2 and any(isinstance(p, types.NoneType) for p in parts):
            made = _of(next(part for part in parts if not isinstance(part, types.NoneType)))
        case types.ListType() | types.SetType() | types.FrozenSetType() | types.VarTupleType():
            made = _array(_of(info.item_type))
        case types.DictType(key_type=types.StrType()):
            made = _map(_of(info.value_type))
        case types.StructType(array_like=False, fields=fields) | types.DataclassType(fields=fields) if fields:
            made = _struct([(field.name, field.encode_name, _of(field.type)) for field in fields])
        case _:
            pass
    return made or _JSON


_SCALARS: dict[type[types.Type], str] = {
    types.StrType: "string",
    types.IntType: "bigint",
    types.FloatType: "double",
    types.BoolType: "boolean",
    types.BytesType: "binary",
    types.DateType: "date",
}
_JSON = SparkColumn("string", lambda value: encode(value).decode(), msgspec.json.decode)


def _in_utc(value: datetime.datetime) -> datetime.datetime:
    return value if value.tzinfo else value.replace(tzinfo=datetime.UTC)


def _each(function: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if function is None:
        return lambda value: value
    return lambda value: None if value is None else function(value)


def _array(item: SparkColumn) -> SparkColumn:
    out, back = _each(item.out), _each(item.back)
    return SparkColumn(
        f"array<{item.ddl}>", lambda values: [out(v) for v in values], lambda values: [back(v) for v in values]
    )


def _map(item: SparkColumn) -> SparkColumn:
    out, back = _each(item.out), _each(item.back)
    return SparkColumn(
        f"map<string,{item.ddl}>",
        lambda values: [(key, out(value)) for key, value in values.items()],
        lambda pairs: {key: back(value) for key, value in pairs},
    )


def _windowed(key: SparkColumn) -> SparkColumn:
    out, back = _each(key.out), _each(key.back)
    return SparkColumn(
        f"struct<`key`:{key.ddl},`start_ms`:bigint,`end_ms`:bigint>",
        lambda value: {"key": out(value.key), "start_ms": value.start_ms, "end_ms": value.end_ms},
        lambda row: Windowed(back(row["key"]), row["start_ms"], row["end_ms"]),
        (("key", key), ("start_ms", SparkColumn("bigint")), ("end_ms", SparkColumn("bigint"))),
    )


def _struct(fields: list[tuple[str, str, SparkColumn]]) -> SparkColumn:
    """Return the column for structs.

    `fields` has for each field its attribute, its name in the encoded form, which `msgspec.convert` reads, and its
    column.
    """
    outs = [(name, _each(column.out)) for name, _, column in fields]
    backs = [(name, encoded, _each(column.back)) for name, encoded, column in fields]
    return SparkColumn(
        f"struct<{','.join(f'`{name}`:{column.ddl}' for name, _, column in fields)}>",
        lambda value: {name: out(getattr(value, name)) for name, out in outs},
        lambda row: {encoded: back(row[name]) for name, encoded, back in backs},
        tuple((name, column) for name, _, column in fields),
    )
