"""A view: what a statement says, kept up to date as the tables that it is over change."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eddy.errors import DataError, TopologyError
from eddy.topology.relation import Relation
from eddy.topology.sql.algebra import Column
from eddy.topology.sql.compile import Compiler
from eddy.topology.sql.rows import row_serde
from eddy.topology.sql.statement import Statement, bind_statement
from eddy.topology.sql.tables import rows_relation
from eddy.topology.sql.text import Text
from eddy.topology.table import KTable

if TYPE_CHECKING:
    from eddy.topology.topology import Topology

__all__ = ["View", "build", "create_view"]

Row = tuple[Any, ...]


class View(Relation[Any, Row]):
    """The rows of a statement: a relation whose values are tuples of `columns`, under the key that was asked for."""

    def __init__(
        self, rows: Relation[Any, Row], name: str, columns: Sequence[Column], errors: Relation[Any, Any] | None
    ):
        super().__init__(rows._builder, rows._node)
        self._name = name
        self.columns = tuple(column.name for column in columns)
        """The names of the columns, in order."""
        self.types = tuple(str(column.type) for column in columns)
        """Their types, in SQL's words."""
        self.errors = errors
        """Rows that say which bindings an ERROR AT RECURSION LIMIT was too low for, while it is; None without one."""

    def as_object(self, row: Row) -> dict[str, Any]:
        """A row as a dict from column to value, as JSON wants it."""
        return dict(zip(self.columns, row, strict=True))

    def to_table(self, name: str | None = None) -> KTable[Any, Row]:
        """The view as a table: the one row of each key.

        The store is called `name`, or like the view. Two rows of a key raise DataError: key the view by columns that
        tell its rows apart.
        """
        name = name or f"{self._name}-table"

        def only(key: Any, rows: Mapping[Row, int]) -> Sequence[Row]:
            if sum(rows.values()) > 1:
                raise DataError(
                    f"view '{self._name}': {sum(rows.values())} rows of key {key!r}, e.g. {next(iter(rows))!r}; one is "
                    "needed. Key the view by more columns: key=[…]"
                )
            return list(rows)

        key, value = self._node.key, self._node.value
        rows = self.reduce(only, f"{name}-only", key=key, value=value)
        return rows.group_by_key(key, value).aggregate(tuple, _newer, _older, name, value)


def _newer(key: Any, row: Row, old: Row) -> Row:
    return row


def _older(key: Any, row: Row, old: Row) -> Row:
    return old


def create_view(
    topology: "Topology", text: str, tables: Mapping[str, Any], name: str, key: str | Sequence[str] | None
) -> View:
    """Build the steps of a statement into a topology. Raises: TopologyError, with line and column."""
    relations, columns = {}, {}
    for table, source in tables.items():
        relations[table], columns[table] = rows_relation(table, source, f"{name}-{table}")
    statement = bind_statement(Text(text, name), columns, name, ordered=False)
    rows, compiler = build(topology, statement, relations, name)
    errors = [found for _, found in compiler.errors]
    return View(_keyed(rows, statement.columns, key, name), name, statement.columns, errors[0] if errors else None)


def build(
    topology: "Topology", statement: Statement, relations: Mapping[str, Relation[Any, Any]], name: str
) -> tuple[Relation[Any, Row], Compiler]:
    """The rows of a statement over the rows of its tables, under the empty key."""
    compiler = Compiler(topology, relations, name)
    return compiler.rows(statement.node), compiler


def _keyed(
    rows: Relation[Any, Row], columns: Sequence[Column], key: str | Sequence[str] | None, name: str
) -> Relation[Any, Row]:
    if key is None:
        return rows
    names = [column.name for column in columns]
    wanted = [key] if isinstance(key, str) else list(key)
    for column in wanted:
        if names.count(column) != 1:
            raise TopologyError(f"sql '{name}': key column '{column}'; one of {names} is needed, which is there once")
    places = [names.index(column) for column in wanted]
    value = row_serde(tuple(column.type for column in columns))
    if isinstance(key, str):
        (place,) = places
        return rows.map(lambda _, row: (row[place], row), None, None, value)
    serde = row_serde(tuple(columns[place].type for place in places))
    return rows.map(lambda _, row: (tuple(row[place] for place in places), row), None, serde, value)
