"""A session of `eddy sql`: tables by name, and statements one after the other.

CREATE TABLE name (column type, …) declares the columns of a table given by --table. CREATE VIEW name AS query, or
CREATE TABLE name AS query, makes a table of the query's rows. Any other statement is a query.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from eddy.cli.logs import Target, opened
from eddy.cli.sql_sources import SqlSource, load
from eddy.program.sql_evaluation import run
from eddy.topology.sql.algebra import NamedColumn
from eddy.topology.sql.answer import Answer, AnswerTable
from eddy.topology.sql.declare import declared_table
from eddy.topology.sql.once.plan_text import explained_query
from eddy.topology.sql.parsing import created_query, named_tables, split
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.types import TEXT, parse_type

__all__ = ["Session"]


@dataclass
class Session:
    """The tables that statements can name. Sources are read when a statement first needs them.

    A name that is not a table is a topic's.

    `registry` is the address of the schema registry that has the schemas of topics.
    """

    target: Target
    registry: str | None = None
    sources: dict[str, SqlSource] = field(default_factory=dict)
    declared: dict[str, tuple[NamedColumn, ...]] = field(default_factory=dict)
    tables: dict[str, AnswerTable] = field(default_factory=dict)

    def answers(self, text: str, name: str) -> Iterator[Answer]:
        """Yield the answers of the queries in a text, which messages call `name`."""
        for statement in split(StatementText(text, name)):
            answer = self.run(statement)
            if answer is not None:
                yield answer

    def run(self, statement: StatementText) -> Answer | None:
        """Return the answer of a query, or None for a declaration. Raises: TopologyError, DataError."""
        name, query = created_query(statement)
        if query is not None:
            self.tables[name] = _as_table(self._answer(query))
            return None
        if name:
            table, columns = declared_table(statement)
            self.declared[table] = columns
            self.tables.pop(table, None)
            return None
        return self._answer(statement)

    def table(self, name: str) -> AnswerTable:
        """Return a table; its source is read at the first call. Raises: DataError, ConnectorError."""
        if name not in self.tables:
            source = self.sources.get(name)
            declared = self.declared.get(name)
            self.tables[name] = (
                AnswerTable(declared or (), [])
                if source is None
                else load(source, declared, self.target, self.registry)
            )
        return self.tables[name]

    def names(self) -> list[str]:
        """Return the names of the tables."""
        return list(dict.fromkeys([*self.sources, *self.declared, *self.tables]))

    def _answer(self, query: StatementText) -> Answer:
        return run(query, {name: self.table(name) for name in self._named(query)})

    def _named(self, query: StatementText) -> Sequence[str]:
        """Return the tables whose names occur in a query."""
        self._find_topics(query)
        text = query.text.lower()
        found = [name for name in self.names() if name.lower() in text]
        return found or self.names()

    def _find_topics(self, query: StatementText) -> None:
        """For tables of a query that have no other source, use the topics with their names. Raises: ConnectorError."""
        known = {name.lower() for name in self.names()}
        unknown = {name for name in named_tables(explained_query(query) or query) if name.lower() not in known}
        if unknown and self.target.exists():
            with opened(self.target) as log:
                self.sources |= {name: SqlSource(name, topic=name) for name in log.topics(unknown)}


def _as_table(answer: Answer) -> AnswerTable:
    columns = [NamedColumn(n, parse_type(t) or TEXT) for n, t in zip(answer.columns, answer.types, strict=True)]
    return AnswerTable(tuple(columns), answer.rows)
