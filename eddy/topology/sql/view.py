"""A view: the rows of a statement, kept up to date as its tables change."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eddy.errors import DataError, TopologyError
from eddy.topology.arguments import name_or
from eddy.topology.dsl.builder import serdes
from eddy.topology.dsl.relation import Relation
from eddy.topology.dsl.table import KTable
from eddy.topology.plan import plan
from eddy.topology.sql.algebra import NamedColumn
from eddy.topology.sql.answer import SEVERAL_COLUMNS, repeated_name

__all__ = ["View"]

Row = tuple[Any, ...]


class View(Relation[Any, Row]):
    """The rows of a statement: a relation whose values are tuples of `columns`, and whose keys are as requested."""

    def __init__(
        self, rows: Relation[Any, Row], name: str, columns: Sequence[NamedColumn], errors: Relation[Any, Any] | None
    ):
        super().__init__(rows._builder, rows._node)
        self._builder.columns[self._node] = tuple(columns)
        self._name = name
        self.columns = tuple(column.name for column in columns)
        """The names of the columns, in order."""
        self.types = tuple(str(column.type) for column in columns)
        """The types of the columns, in SQL's words."""
        self.errors = errors
        """Rows (binding, row as text) beyond an ERROR AT RECURSION LIMIT; None if the statement has no such limit."""

    @property
    def as_object(self) -> Callable[[Row], dict[str, Any]]:
        """A function that returns a row as a dict from column to value, for JSON.

        Raises: TopologyError if several columns have one name.
        """
        columns = self.columns
        if name := repeated_name(columns):
            raise TopologyError(f"view '{self._name}': {SEVERAL_COLUMNS.format(name)}")

        def as_object(row: Row) -> dict[str, Any]:
            return dict(zip(columns, row, strict=True))

        return as_object

    def to_table(self, name: str | None = None) -> KTable[Any, Row]:  # type: ignore[override]  # two rows are an error
        """Return the view as a table, which has the one row of each key as its value.

        The store is called `name`, by default like the view. Two rows with equal keys raise DataError. So use a key of
        columns whose values differ between the view's rows.
        """
        name, view = name_or(name, f"{self._name}-table"), self._name

        def several(key: Any, rows: Mapping[Row, int]) -> DataError:
            return DataError(
                f"view '{view}': {sum(rows.values())} rows of key {key!r}, e.g. {next(iter(rows))!r}; one is "
                "needed. Key the view by more columns: key=[…]"
            )

        source = self._builder.by_key(self._node, f"{name}-only", self._node.key)
        node = self._builder.add(plan.OneRow, name, kind="table", inputs=(source,), refusal=several, **serdes(source))
        self._builder.columns[node] = self._builder.columns[self._node]
        return KTable(self._builder, node)
