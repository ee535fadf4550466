"""The columns of files that have the parts of records: `--map TOPIC:ROLE=COLUMN`, and Debezium's envelope.

    key, value, timestamp   columns of these names, unless others are named
    value=A,B  value=*      a JSON object of some columns, or of all columns without another role; of typed columns only
    order                   a column of whole numbers, times or days by which records are sorted, before file and place

With `envelope=debezium` each row is a change event. An event with `op` c, u or r has the new row in `after`; an event
with `op` d has the old row in `before`, and makes a tombstone. Columns of key and value are fields of that row, the
timestamp is the event's `ts_ms`, and `order` may be a field of the source, such as `source.lsn`. Text events may be in
`payload`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StringType, StructType

from eddy.errors import ConfigurationError

__all__ = ["DEBEZIUM", "FileColumns", "as_bytes", "event_rows", "order_of"]

DEBEZIUM = "debezium"
_ROLES = ("key", "value", "timestamp", "order", "envelope")
_NESTED = ("struct", "array", "map", "variant")
EVENT_TEXT = "before string, after string, op string, ts_ms long, source string, payload string"
"""The fields of events in JSON lines; a nested field is read as its text."""
_EVENT = ("before", "after", "op", "ts_ms", "source")


@dataclass(frozen=True)
class FileColumns:
    """The columns' names by role. `order` is empty if records are sorted by times, files and places."""

    key: str = "key"
    values: tuple[str, ...] = ("value",)
    timestamp: str = "timestamp"
    order: str = ""
    envelope: str = ""

    @classmethod
    def of(cls, topic: str, roles: Mapping[str, str]) -> "FileColumns":
        """Return the columns that roles name. Raises: ConfigurationError for an unknown role, or without a column."""
        for role, column in roles.items():
            if role not in _ROLES or not column or (role == "envelope" and column != DEBEZIUM):
                raise ConfigurationError(
                    f"files for topic '{topic}': '{role}={column}' names no column of a role; a role of "
                    f"{', '.join(_ROLES[:4])} is needed, with a column. Write --map {topic}:key=COLUMN"
                )
        others: dict[str, Any] = {role: column for role, column in roles.items() if role != "value"}
        values = roles.get("value", "*" if "envelope" in roles else "value").split(",")
        return replace(cls(values=tuple(name.strip() for name in values)), **others)

    @property
    def single(self) -> bool:
        """Whether the value is one column, rather than an object of several columns."""
        return self.values != ("*",) and len(self.values) == 1

    def text_schema(self) -> str:
        """Return the schema by which JSON lines are read: text, the timestamp and the order as whole numbers."""
        if self.envelope:
            return EVENT_TEXT
        kinds = {self.key: "string", self.values[0]: "string", self.timestamp: "bigint"}
        kinds |= {self.order: "bigint"} if self.order else {}
        return ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())

    def check(self, names: list[str], where: str) -> None:
        """Check that all columns are among `names`. Raises: ConfigurationError if a column is missing."""
        wanted = {self.key, *self.values, self.order} - {"", "*"}
        if self.timestamp != "timestamp":
            wanted.add(self.timestamp)
        if self.envelope:
            wanted = {"after", "before", "op", "ts_ms"}
        if missing := sorted(wanted - set(names)):
            raise ConfigurationError(
                f"{where}: there is no column '{missing[0]}' among {', '.join(names)}; the columns key and value are "
                "needed, and timestamp, in milliseconds, may be there. Name others: --map TOPIC:key=COLUMN"
            )

    def all_of(self, names: list[str]) -> list[str]:
        """Return the columns of a frame that are read."""
        if self.envelope:
            return [name for name in _EVENT if name in names]
        wanted = names if self.values == ("*",) else [self.key, *self.values, self.timestamp, self.order]
        return [name for name in dict.fromkeys(wanted) if name in names]

    def value_of(self, types: Mapping[str, str]) -> tuple[Column, str]:
        """Return the column of values and its type."""
        if self.single:
            return f.col(f"`{self.values[0]}`"), types[self.values[0]]
        others = {self.key, self.timestamp, self.order}
        chosen = [name for name in types if name not in others] if self.values == ("*",) else list(self.values)
        return f.struct(*(f.col(f"`{name}`") for name in chosen)), "struct"


def as_bytes(column: Column, kind: str) -> Column:
    """Convert a column: binary is unchanged, nested types become JSON, all other types text."""
    if kind == "binary":
        return column
    text = f.to_json(column, {"ignoreNullFields": "false"}) if kind.startswith(_NESTED) else column.cast("string")
    return text.cast("binary")


def order_of(column: str, types: Mapping[str, str], where: str) -> Column:
    """Convert a column to a number by which rows are sorted. Raises: ConfigurationError for an unsuitable type."""
    kind = types[column]
    if kind.startswith("timestamp"):
        return f.unix_micros(f.col(f"`{column}`").cast("timestamp"))
    if kind == "date":
        return f.unix_date(f.col(f"`{column}`")).cast("bigint")
    if kind in {"tinyint", "smallint", "int", "bigint"}:
        return f.col(f"`{column}`").cast("bigint")
    raise ConfigurationError(
        f"{where}: column '{column}' is {kind}, and rows are not ordered by it; whole numbers, times or days are "
        "needed. Name another one: --map TOPIC:order=COLUMN"
    )


def event_rows(frame: DataFrame, columns: FileColumns, where: str) -> tuple[DataFrame, dict[str, str]]:
    """Read events of Debezium as columns `k v t seq wrong`; return also the types of key and value, `binary` or `text`.

    Raises: ConfigurationError if the row has no such field, or is neither a struct nor text.
    """
    if "payload" in frame.columns:
        frame = _unpacked(frame)
    kind = frame.schema["after"].dataType
    deleted, row = f.col("op") == "d", f.when(f.col("op") == "d", f.col("before")).otherwise(f.col("after"))
    if not (columns.single or columns.values == ("*",)):
        raise ConfigurationError(
            f"{where}: an event of Debezium has one column as its value, or all of them; value="
            f"{','.join(columns.values)} names several. Write --map TOPIC:value=COLUMN, or leave it out"
        )
    key, key_type = _field(row, kind, columns.key, where)
    value, value_type = as_bytes(f.col("after"), kind.simpleString()), "text"
    if columns.single:
        value, value_type = _field(f.col("after"), kind, columns.values[0], where)
    shown = f.coalesce(f.concat(f.lit("'"), "op", f.lit("'")), f.lit("null"))
    wrong = (
        f.when(~f.coalesce(f.col("op").isin("c", "u", "r", "d"), f.lit(False)), f.concat(f.lit("op is "), shown))
        .when(row.isNull(), f.lit("it has no row"))
        .when(key.isNull(), f.lit(f"its row has no field '{columns.key}'"))
    )
    time = "ts_ms" if columns.timestamp == "timestamp" else columns.timestamp
    order = _of_event(frame, columns.order) if columns.order else f.lit(None)
    made = {"k": key, "v": f.when(~deleted, value), "t": _of_event(frame, time).cast("bigint")}
    made |= {"seq": order.cast("bigint"), "wrong": wrong}
    return frame.withColumns(made), {"key": key_type, "value": value_type}


def _unpacked(frame: DataFrame) -> DataFrame:
    """Return events in JSON lines, with the fields of `payload` if the event has a payload."""
    inside = {name: f.get_json_object("payload", f"$['{name}']") for name in _EVENT}
    kinds = dict(frame.dtypes)
    there = f.col("payload").isNotNull()
    return frame.withColumns(
        {name: f.when(there, text.cast(kinds[name])).otherwise(f.col(name)) for name, text in inside.items()}
    )


def _field(row: Column, kind: DataType, name: str, where: str) -> tuple[Column, str]:
    """Return a field of a row as bytes, and its type. Raises: ConfigurationError."""
    if isinstance(kind, StringType):
        return f.get_json_object(row, f"$['{name}']").cast("binary"), "text"
    if not isinstance(kind, StructType):
        raise ConfigurationError(
            f"{where}: column 'after' is {kind.simpleString()}; a struct, or JSON as text, is needed. Name files of "
            "Debezium's events"
        )
    if name not in kind.names:
        raise ConfigurationError(
            f"{where}: a row has no field '{name}' among {', '.join(kind.names)}; a field for each part is needed. "
            "Name it: --map TOPIC:key=FIELD"
        )
    of_field = kind[name].dataType.simpleString()
    return as_bytes(row.getField(name), of_field), "binary" if of_field == "binary" else "text"


def _of_event(frame: DataFrame, name: str) -> Column:
    """Return a field of the event, or of its source."""
    outer, _, inner = name.partition(".")
    if inner and dict(frame.dtypes).get(outer) == "string":
        return f.get_json_object(outer, f"$['{inner}']")
    return f.col(name)
