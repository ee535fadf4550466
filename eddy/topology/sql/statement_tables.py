"""Tables of a statement: a collection of the topology, and the SQL columns of its rows (key, value).

If the serdes have types, the columns follow from them: a key that is a struct gives a column for each field, any other
key the column `key`; the same for the value and `value`. For serdes without types, or for other names, the author
declares the columns: (collection, {"name": "type", …}). Fields of the value (a struct's, a dict's) fill the declared
columns of their names, and the key fills the others. A value without field names fills columns in order, after the key;
a tuple fills one for each element.
"""

import datetime
import decimal
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from eddy.errors import DataError, TopologyError
from eddy.serde import Serde
from eddy.topology.dsl.relation import Relation
from eddy.topology.plan.plan import Exchange, Latest, Transform, Upsert, WeightFunction
from eddy.topology.sql.algebra import NamedColumn
from eddy.topology.sql.casts import LIMITS, cast_function
from eddy.topology.sql.rows import row_serde
from eddy.topology.sql.types import BIGINT, PYTHON_TYPES, TEXT, TYPE_NAMES, Type, parse_type

__all__ = ["Columns", "as_relation", "columns_named", "reader_of", "rows_relation"]

Columns = Mapping[str, "str | type"] | Sequence[str]
"""Names with types, which are SQL's names of types or Python types; or names alone, if the types are known."""


def columns_named(table: str, columns: Columns, known: Sequence[NamedColumn] | None = None) -> tuple[NamedColumn, ...]:
    """The columns given by a user. Raises: TopologyError for an unknown or missing type."""
    if not isinstance(columns, Mapping):
        if known is None or len(known) != len(columns):
            there = "their types are not known" if known is None else f"there are {len(known)}"
            raise TopologyError(
                f"sql table '{table}': {len(columns)} names of columns, and {there}; names with types are needed. "
                f"Write {{'{next(iter(columns), 'name')}': 'text', …}}"
            )
        return tuple(NamedColumn(name, found.type) for name, found in zip(columns, known, strict=True))
    made = []
    for name, written in columns.items():
        type = parse_type(written) if isinstance(written, str) else PYTHON_TYPES.get(written)
        if type is None:
            raise TopologyError(
                f"sql table '{table}': column '{name}' of the unknown type {written!r}; {TYPE_NAMES} is needed"
            )
        made.append(NamedColumn(name, type))
    if not made:
        raise TopologyError(
            f"sql table '{table}' has no columns; one is needed at least. Give them: {{'name': 'text'}}"
        )
    return tuple(made)


def rows_relation(name: str, source: Any, where: str) -> tuple[Relation[Any, Any], tuple[NamedColumn, ...]]:
    """A table's rows as tuples of its columns, at one owner. Raises: TopologyError if `source` is not a table."""
    collection, given = source if isinstance(source, tuple) and len(source) == 2 else (source, None)
    relation = as_relation(name, collection)
    named = _columns_of_rows(relation)
    if named is not None and (given is None or len(given) == len(named)):
        return _renamed(name, relation, named, given, where)
    key, value = relation._node.key, relation._node.value
    known = _known_columns(name, key, value, given is None)
    columns = tuple(known or ()) if given is None else columns_named(name, given, known)
    duplicates = [c.name for i, c in enumerate(columns) if c.name in {other.name for other in columns[:i]}]
    if duplicates:
        raise TopologyError(
            f"sql table '{name}': two columns '{duplicates[0]}', of its key and of its value; names are unique. "
            f"Give the columns: (table, {{'{duplicates[0]}': …}})"
        )
    read = _row_function(name, columns, key, value)
    serde = row_serde(_types(columns))
    rows = relation.map(lambda k, v: ((), read(k, v)), None, row_serde(()), serde)
    return rows.at_one_owner(where), columns


def _renamed(
    name: str, relation: Relation[Any, Any], named: tuple[NamedColumn, ...], given: Columns | None, where: str
) -> tuple[Relation[Any, Any], tuple[NamedColumn, ...]]:
    """The rows of another statement, under any key, with its own column names or new ones."""
    columns = named if given is None else columns_named(name, given, named)
    read = _row_function(name, columns, None, None) if columns != named else lambda _, row: row
    rows = relation.map(lambda _, row: ((), read((), row)), None, row_serde(()), row_serde(_types(columns)))
    return rows.at_one_owner(where), columns


def _types(columns: Sequence[NamedColumn]) -> tuple[Type, ...]:
    return tuple(column.type for column in columns)


def _columns_of_rows(relation: Relation[Any, Any]) -> tuple[NamedColumn, ...] | None:
    """The columns of a view, or of a relation made from one by steps that keep rows; None for anything else."""
    node, known = relation._node, relation._builder.columns
    while node not in known and isinstance(node, _KEEP_ROWS) and getattr(node, "verb", "filter") in _KEEPING:
        node = node.inputs[0]
    return known.get(node)


_KEEP_ROWS = (Transform, WeightFunction, Exchange, Latest, Upsert)
_KEEPING = {"filter", "filter-not", "peek", "select-key"}


def as_relation(name: str, collection: Any) -> Relation[Any, Any]:
    """A collection as a relation. Raises: TopologyError for any other object."""
    if isinstance(collection, Relation):
        return collection
    builder, node = getattr(collection, "_builder", None), getattr(collection, "_node", None)
    if builder is None or node is None or hasattr(collection, "count"):
        raise TopologyError(
            f"sql table '{name}': {type(collection).__name__} is no table; a KTable, a KStream or a Relation is "
            "needed. Write tables={'name': topology.table('topic', …)}"
        )
    return Relation(builder, node)  # a stream's records are rows that are never retracted


def _known_columns(
    name: str, key: Serde[Any] | None, value: Serde[Any] | None, needed: bool
) -> list[NamedColumn] | None:
    """The columns known from the serdes; None if unknown, or, if `needed`, an error."""
    found: list[NamedColumn] = []
    for part, serde in (("key", key), ("value", value)):
        python = None if serde is None else serde.type
        fields = _fields(python) if python is not None else None
        for column, annotation in (fields or {part: python}).items():
            type = _type_of(annotation)
            if type is None and needed:
                raise TopologyError(
                    f"sql table '{name}': the type of column '{column}' is not known from its serde "
                    f"({serde.name if serde else 'none'}). Name a serde that tells it, e.g. value=eddy.Struct(Node), "
                    f"or give the columns: (table, {{'{column}': 'text', …}})"
                )
            if type is None:
                return None
            found.append(NamedColumn(column, type))
    return found


def _fields(python: Any) -> dict[str, Any] | None:
    if isinstance(python, type) and issubclass(python, msgspec.Struct):
        return {field.name: field.type for field in msgspec.structs.fields(python)}
    return None


def _type_of(annotation: Any) -> Type | None:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        options = [option for option in typing.get_args(annotation) if option is not type(None)]
        annotation = options[0] if len(options) == 1 else None
    return PYTHON_TYPES.get(annotation)


def _row_function(
    name: str, columns: Sequence[NamedColumn], key: Serde[Any] | None, value: Serde[Any] | None
) -> Callable[[Any, Any], tuple[Any, ...]]:
    """The function from (key, value) to the row."""
    names = [column.name for column in columns]
    readers = [reader_of(f"sql table '{name}' column '{column.name}'", column.type) for column in columns]

    def row(key: Any, value: Any) -> tuple[Any, ...]:
        cells = _cells(names, key, value)
        if len(cells) != len(readers):
            raise DataError(
                f"sql table '{name}': the row {key!r}, {value!r} has {len(cells)} columns; {len(readers)} are "
                f"declared: {', '.join(names)}"
            )
        return tuple([read(cell) for read, cell in zip(readers, cells, strict=True)])

    return row


def _cells(names: Sequence[str], key: Any, value: Any) -> Sequence[Any]:
    """A function that returns the cells of a row: named fields by name, other fields in order."""
    if isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__
        others = iter(_elements(key))
        return [getattr(value, name) if name in fields else _field(key, name, others) for name in names]
    if isinstance(value, dict):
        return [key if name == "key" and name not in value else value.get(name) for name in names]
    return [*_elements(key), *_elements(value)]


def _field(key: Any, name: str, others: Any) -> Any:
    return getattr(key, name) if isinstance(key, msgspec.Struct) else next(others, None)


def _elements(part: Any) -> Sequence[Any]:
    if isinstance(part, tuple):
        return part
    if isinstance(part, msgspec.Struct):
        return [getattr(part, name) for name in part.__struct_fields__]
    return (part,)


def reader_of(where: str, type: Type) -> Callable[[Any], Any]:
    """A function that converts a Python value to this type, and raises DataError if it cannot."""
    accepted = _ACCEPTED[type.kind]
    fit = cast_function(TEXT if type.kind == "text" else BIGINT, type) if type.kind in LIMITS else None

    def read(value: Any) -> Any:
        if value is None or (value.__class__ is accepted[0] and value == value):
            return value if fit is None or value is None else _fitted(value)
        return _converted(value)

    def _fitted(value: Any) -> Any:
        if not -LIMITS[type.kind] <= value < LIMITS[type.kind]:
            raise DataError(f"{where}: {value} is out of range of {type}; a wider type is needed")
        return value

    def _converted(value: Any) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and type.kind != "boolean"):
            raise DataError(f"{where}: {value!r} is no {type}; a value of that type is needed, or another type")
        try:
            return _CONVERSIONS[type.kind](value)
        except (ValueError, decimal.InvalidOperation) as error:
            raise DataError(f"{where}: {value!r} is no {type}") from error

    if type.precision is None:
        return read
    scaled = cast_function(Type("numeric"), type)
    assert scaled is not None
    return lambda value: None if value is None else scaled(read(value))


_ACCEPTED: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "smallint": (int,),
    "integer": (int,),
    "bigint": (int,),
    "numeric": (decimal.Decimal, int, float, str),
    "real": (float, int),
    "double": (float, int),
    "text": (str,),
    "timestamp": (datetime.datetime, str),
}


def _number(value: Any) -> decimal.Decimal:
    number = decimal.Decimal(value)
    if not number.is_finite():
        raise ValueError(value)
    return number


def _moment(value: Any) -> datetime.datetime:
    moment = value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(value)
    return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "boolean": bool,
    "smallint": int,
    "integer": int,
    "bigint": int,
    "numeric": lambda value: _number(repr(value) if isinstance(value, float) else value),
    "real": lambda value: float(value) if value == value else math.nan,
    "double": lambda value: float(value) if value == value else math.nan,
    "text": str,
    "timestamp": _moment,
}
