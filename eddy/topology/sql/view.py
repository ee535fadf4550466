"""A view: the rows of a statement, kept up to date as its tables change."""

from collections.abc import Mapping, Sequence
from typing import Any

from eddy.errors import DataError
from eddy.topology.arguments import name_or
from eddy.topology.dsl.relation import Relation
from eddy.topology.dsl.table import KTable
from eddy.topology.sql.algebra import NamedColumn

__all__ = ["View"]

Row = tuple[Any, ...]


class View(Relation[Any, Row]):
    """The rows of a statement: a relation whose values are tuples of `columns`, under the requested key."""

    def __init__(
        self, rows: Relation[Any, Row], name: str, columns: Sequence[NamedColumn], errors: Relation[Any, Any] | None
    ):
        super().__init__(rows._builder, rows._node)
        self._builder.columns[self._node] = tuple(columns)
        self._name = name
        self.columns = tuple(column.name for column in columns)
        """The names of the columns, in order."""
        self.types = tuple(str(column.type) for column in columns)
        """Their types, in SQL's words."""
        self.errors = errors
        """Rows (binding, row as text) for which an ERROR AT RECURSION LIMIT is too low; None without one."""

    def as_object(self, row: Row) -> dict[str, Any]:
        """A row as a dict from column to value, for JSON."""
        return dict(zip(self.columns, row, strict=True))

    def to_table(self, name: str | None = None) -> KTable[Any, Row]:  # type: ignore[override]  # two rows are an error
        """The view as a table: the one row of each key.

        The store is called `name`, by default as the view. Two rows with one key raise DataError: use a key of columns
        that differ between the view's rows.
        """
        name, view = name_or(name, f"{self._name}-table"), self._name

        def only(key: Any, rows: Mapping[Row, int]) -> Sequence[Row]:
            if sum(rows.values()) > 1:
                raise DataError(
                    f"view '{view}': {sum(rows.values())} rows of key {key!r}, e.g. {next(iter(rows))!r}; one is "
                    "needed. Key the view by more columns: key=[…]"
                )
            return list(rows)

        key, value = self._node.key, self._node.value
        rows = self.reduce(only, f"{name}-only", key=key, value=value)
        table = rows.group_by_key(key, value).aggregate(tuple, _newer, _older, name, value)
        self._builder.columns[table._node] = self._builder.columns[self._node]
        return table


def _newer(key: Any, row: Row, old: Row) -> Row:
    return row


def _older(key: Any, row: Row, old: Row) -> Row:
    return old
