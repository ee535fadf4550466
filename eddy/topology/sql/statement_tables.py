"""Tables of a statement: a collection of the topology, and the SQL columns of its rows (key, value).

If the serdes have types, the columns follow from the types. A key that is a struct gives a column for each field; any
other key gives the column `key`. The value gives its fields, or the column `value`, in the same way. For serdes without
types, or for other names, the author declares the columns: (collection, {"name": "type", …}). Then the fields of the
value (a struct's, a dict's) fill the declared columns with their names, and the key fills the others. A value without
field names fills the columns in order, after the key; a tuple fills one column with each element.
"""

import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from eddy.errors import DataError, TopologyError
from eddy.serde import Serde
from eddy.topology.dsl.relation import Relation
from eddy.topology.plan.plan import Exchange, Latest, Transform, Upsert, WeightFunction
from eddy.topology.sql.algebra import NamedColumn
from eddy.topology.sql.rows import row_serde
from eddy.topology.sql.table_columns import Columns, columns_named, reader_of
from eddy.topology.sql.types import PYTHON_TYPES, Type

__all__ = ["as_relation", "rows_relation"]


def rows_relation(name: str, source: Any, where: str) -> tuple[Relation[Any, Any], tuple[NamedColumn, ...]]:
    """Return a table's rows as tuples of its columns, at one owner. Raises: TopologyError if `source` is no table."""
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
    """Return the rows of another statement, under any key, with their own column names or with new ones."""
    columns = named if given is None else columns_named(name, given, named)
    read = _row_function(name, columns, None, None) if columns != named else lambda _, row: row
    rows = relation.map(lambda _, row: ((), read((), row)), None, row_serde(()), row_serde(_types(columns)))
    return rows.at_one_owner(where), columns


def _types(columns: Sequence[NamedColumn]) -> tuple[Type, ...]:
    return tuple(column.type for column in columns)


def _columns_of_rows(relation: Relation[Any, Any]) -> tuple[NamedColumn, ...] | None:
    """Return the columns of a view, or of a relation made from a view by steps that keep rows; else None."""
    node, known = relation._node, relation._builder.columns
    while node not in known and isinstance(node, _KEEP_ROWS) and getattr(node, "verb", "filter") in _KEEPING:
        node = node.inputs[0]
    return known.get(node)


_KEEP_ROWS = (Transform, WeightFunction, Exchange, Latest, Upsert)
_KEEPING = {"filter", "filter-not", "peek", "select-key"}


def as_relation(name: str, collection: Any) -> Relation[Any, Any]:
    """Return a collection as a relation. Raises: TopologyError for any other object."""
    if isinstance(collection, Relation):
        return collection
    builder, node = getattr(collection, "_builder", None), getattr(collection, "_node", None)
    if builder is None or node is None or hasattr(collection, "count"):
        raise TopologyError(
            f"sql table '{name}': {type(collection).__name__} is not a table; a KTable, a KStream or a Relation is "
            "needed. Write tables={'name': topology.table('topic', …)}"
        )
    return Relation(builder, node)  # a stream's records are rows that are never retracted


def _known_columns(
    name: str, key: Serde[Any] | None, value: Serde[Any] | None, needed: bool
) -> list[NamedColumn] | None:
    """Return the columns known from the serdes. If they are unknown, return None or, if `needed`, raise an error."""
    found: list[NamedColumn] = []
    for part, serde in (("key", key), ("value", value)):
        python = None if serde is None else serde.type
        fields = _fields(python) if python is not None else None
        for column, annotation in (fields or {part: python}).items():
            type = _type_of(annotation)
            if type is None and needed:
                raise TopologyError(
                    f"sql table '{name}': the type of column '{column}' is not known from its serde "
                    f"({serde.name if serde else 'none'}). Name a serde with the type, e.g. value=eddy.Struct(Node), "
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
    """Return the function that makes a table's row from (key, value)."""
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
    """Return the values of the columns: named fields by their names, other fields in order."""
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
