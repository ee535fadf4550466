"""A query that begins beside the others: its operators are made over copies of tables, while others go on.

    aside = Aside(engine, select)    with the lock: copies of the tables' rows, and a journal of keys that change
    aside.open(max_rows)             without it: filters, sorted tables, buckets, for as long as it takes
    aside.join()                     with it: takes in the journal as one batch, and hands the operators over

Operators that another query has begun meanwhile are not shared with that one. Nothing is changed before `join`.
"""

from eddy.errors import NotReadyError
from eddy.operators.views.dataflow import Operator
from eddy.operators.views.patch import Op
from eddy.operators.views.values import Flat
from eddy.topology.queries.engine import LiveQueries
from eddy.topology.queries.planning import View, tables_of
from eddy.topology.queries.syntax import Select

__all__ = ["Aside", "is_long"]

_LONG = 20_000
"""Rows of its tables from which on a query begins aside."""


def is_long(engine: LiveQueries, select: Select) -> bool:
    """Whether operators of a query over many rows are still to be made."""
    rows = sum(len(engine.tables[name].rows) for name in tables_of(select))
    return rows >= _LONG and not engine.has_begun(select)


class Aside:
    """One query on its way. `close` it in the end, with the lock."""

    def __init__(self, engine: LiveQueries, select: Select) -> None:
        self._main, self._select = engine, select
        self._tables = {name: engine.tables[name] for name in sorted(tables_of(select))}
        self._journals: dict[str, set[Flat]] = {name: set() for name in self._tables}
        self._own = LiveQueries()
        for name, table in self._tables.items():
            self._own.load(name, dict(table.rows))
            table.journals.append(self._journals[name])

    @property
    def engine(self) -> LiveQueries:
        """The engine that the view is for."""
        return self._main

    def open(self, max_rows: int) -> View:
        """Make the operators. Raises: QueryError."""
        self.view = self._own.open(self._select, max_rows=max_rows)
        return self.view

    def join(self) -> list[Op]:
        """Let the engine keep the view up to date. Returns the patch of all changes since the beginning.

        Raises: NotReadyError where a table was read anew; QueryError where the view has too many rows.
        """
        for name, table in self._tables.items():
            if self._main.tables.get(name) is not table:
                raise NotReadyError(f"live query: table '{name}' has to be read anew. Try again")
        deltas = {
            name: {key: self._tables[name].rows.get(key) for key in journal}
            for name, journal in self._journals.items()
            if journal
        }
        patches = dict(self._own.apply(deltas))
        if self.view.operator.failure is not None:
            raise self.view.operator.failure
        found: dict[Operator, Operator] = {self._own.tables[name]: table for name, table in self._tables.items()}
        self._main.adopt(self._own, self.view, found)
        return patches.get(self.view, [])

    def close(self) -> None:
        """Keep no journal any more."""
        for name, table in self._tables.items():
            table.journals = [journal for journal in table.journals if journal is not self._journals[name]]
