"""The columns of a frame of records: all, or the ones that the option `columns` names.

key, value                                     the key and the value, as `spark_columns.py` has them
key.FIELD, value.FIELD, value.FIELD.FIELD      a field of a struct; null if the struct is null
topic, partition, offset, timestamp, headers   the record's own
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eddy.connectors.spark.source.source_options import option_error
from eddy.connectors.spark.source.spark_columns import HEADERS, SparkColumn, column_of
from eddy.serde import Serde

__all__ = ["FrameColumn", "chosen_paths", "frame_columns"]

_RECORD = {
    "topic": SparkColumn("string"),
    "partition": SparkColumn("int"),
    "offset": SparkColumn("bigint"),
    "timestamp": SparkColumn("timestamp"),
    "headers": SparkColumn(HEADERS),
}


@dataclass(frozen=True)
class FrameColumn:
    """A column: the part of a record, such as `value`, and the fields that lead to the column from the part."""

    part: str
    fields: tuple[str, ...]
    column: SparkColumn

    @property
    def name(self) -> str:
        """The column's name in the frame, which is the field's, as by Spark's `select`."""
        return self.fields[-1] if self.fields else self.part

    def values(self, parts: Sequence[Any]) -> Sequence[Any]:
        """Convert the parts of records to values that Arrow accepts."""
        for field in self.fields:
            parts = [None if part is None else getattr(part, field) for part in parts]
        return self.column.values(parts)


def frame_columns(key: Serde[Any], value: Serde[Any], paths: Sequence[str] | None) -> list[FrameColumn]:
    """Return the columns that `paths` names, in its order; all if it is None. Raises: ConfigurationError."""
    parts = {"key": column_of(key), "value": column_of(value), **_RECORD}
    return [_found(path, parts) for path in (parts if paths is None else paths)]


def chosen_paths(text: str, key: Serde[Any], value: Serde[Any]) -> tuple[str, ...]:
    """Parse the option `columns`. Raises: ConfigurationError for an unknown column, none, and two of one name."""
    paths = tuple(path.strip() for path in text.split(","))
    if "" in paths:
        raise option_error(
            "read",
            f"option 'columns' is '{text}': a name is empty; names with commas between them are needed. "
            "Write .option('columns', 'key,value'), or omit it for all columns",
        )
    seen: dict[str, str] = {}
    for path, column in zip(paths, frame_columns(key, value, paths), strict=True):
        # Spark's names are equal without regard to case, unless a session sets otherwise.
        if (other := seen.setdefault(column.name.casefold(), path)) is not path:
            raise option_error(
                "read",
                f"option 'columns' is '{text}': '{other}' and '{path}' are two columns of one name; different names "
                "are needed. Omit one, or name the struct in place of its field",
            )
    return paths


def _found(path: str, parts: Mapping[str, SparkColumn]) -> FrameColumn:
    part, *fields = path.split(".")
    known, column, owner = parts, SparkColumn(""), ""
    for field in (part, *fields):
        if field not in known:
            there = f"'{owner}' is {column.ddl}, without such a field" if owner else "a frame has no such column"
            needs = f"one is needed: {', '.join(known)}" if known else "a column is needed"
            raise option_error("read", f"option 'columns': '{path}': {there}; {needs}. Correct it, or omit it")
        column, owner = known[field], f"{owner}.{field}" if owner else field
        known = dict(column.fields)
    return FrameColumn(part, tuple(fields), column)
