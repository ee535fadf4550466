"""One-off queries: a statement over rows that are at hand, computed by the circuit of a view in one epoch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eddy.errors import DataError, TopologyError
from eddy.operators.batch import Batch
from eddy.topology.compile import Environment, compile_plan
from eddy.topology.sql.algebra import Column
from eddy.topology.sql.statement import Ordering, bind_statement
from eddy.topology.sql.tables import Columns, as_relation, columns_named, reader_of
from eddy.topology.sql.text import Text
from eddy.topology.sql.types import PYTHON_TYPES, TEXT, Type, common_type
from eddy.topology.sql.view import build
from eddy.topology.table import add_sink
from eddy.topology.topology import Topology

__all__ = ["Result", "Table", "query", "run"]

_OUTPUT = "rows"


@dataclass(frozen=True)
class Table:
    """A table that is at hand: columns with their types, and rows of values of them."""

    columns: tuple[Column, ...]
    rows: Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Result:
    """The answer to a query: the names of its columns, their types in SQL's words, and its rows."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def query(text: str, tables: Mapping[str, tuple[Columns, Iterable[Sequence[Any]]]] | None = None) -> Result:
    """The answer of a SQL query over tables that are at hand, each as (columns, rows).

    Columns are names with their types, or names alone: their types are then those of the values.

    >>> edges = (["src", "dst"], [(1, 2), (2, 3)])
    >>> query("SELECT a.src, b.dst FROM edges a JOIN edges b ON a.dst = b.src", {"edges": edges}).rows
    [(1, 3)]

    Raises: TopologyError for what is wrong in the text, with its line and column; DataError for a row.
    """
    made = {name: _table(name, columns, list(rows)) for name, (columns, rows) in (tables or {}).items()}
    return run(Text(text, "query"), made)


def run(text: Text, tables: Mapping[str, Table]) -> Result:
    """The answer of the statement of a text."""
    statement = bind_statement(text, {name: t.columns for name, t in tables.items()}, "query", ordered=True)
    topology = Topology("query")
    relations = {
        name: as_relation(name, topology.stream(f"table-{index}")).at_one_owner(f"table-{index}")
        for index, name in enumerate(tables)
    }
    rows, compiler = build(topology, statement, relations, "query")
    add_sink(topology._builder, rows._node, _OUTPUT, None, None)
    limits = [
        (block, f"limit-{i}")
        for i, (block, errors) in enumerate(compiler.errors)
        if not add_sink(topology._builder, errors._node, f"limit-{i}", None, None)  # type: ignore[func-returns-value]
    ]
    sinks = {sink.topic: sink.name for sink in topology.plan.sinks()}
    circuit = compile_plan(topology.plan, Environment({f"table-{i}": 1 for i in range(len(tables))}))
    circuit.step(
        {
            f"table-{i}": Batch([((), row) for row in table.rows], [1] * len(table.rows))
            for i, table in enumerate(tables.values())
        }
    )
    for block, topic in limits:
        for batch in circuit.outputs[sinks[topic]].batches:
            for binding, _ in batch.zset("limit"):
                rounds = block.bound.rounds if block.bound else 0
                raise DataError(
                    f"sql '{text.name}': ERROR AT RECURSION LIMIT {rounds}: round {rounds} still changed binding "
                    f"'{binding}'; a higher limit is needed, or RETURN AT"
                )
    found: dict[tuple[Any, ...], int] = {}
    for batch in circuit.outputs[sinks[_OUTPUT]].batches:
        for (_, row), weight in batch.zset("rows").items():
            found[row] = found.get(row, 0) + weight
    answer = [row for row, weight in found.items() for _ in range(weight)]
    shown = [row[: statement.visible] for row in _ordered(answer, statement.ordering)]
    names = tuple(column.name for column in statement.columns)
    return Result(names, tuple(str(column.type) for column in statement.columns), shown)


def _ordered(rows: list[tuple[Any, ...]], ordering: Ordering) -> list[tuple[Any, ...]]:
    for index, down, nulls_first in reversed(ordering.keys):
        rows.sort(key=_rank(index, nulls_first is not down), reverse=down)
    end = None if ordering.limit is None else ordering.offset + ordering.limit
    return rows[ordering.offset : end]


def _rank(index: int, nulls_low: bool) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """What rows are ordered by: nulls at one end, NaN above all other numbers."""
    null = (0 if nulls_low else 2, False, 0)
    return lambda row: null if row[index] is None else (1, row[index] != row[index], row[index])


def _table(name: str, columns: Columns, rows: list[Sequence[Any]]) -> Table:
    known = None if isinstance(columns, Mapping) else _inferred(name, columns, rows)
    declared = columns_named(name, columns, known)
    readers = [reader_of(f"sql table '{name}' column '{column.name}'", column.type) for column in declared]
    width = len(declared)
    made = []
    for row in rows:
        if len(row) != width:
            raise DataError(f"sql table '{name}': the row {tuple(row)!r} has {len(row)} values; {width} are needed")
        made.append(tuple([read(value) for read, value in zip(readers, row, strict=True)]))
    return Table(declared, made)


def _inferred(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Column]:
    """The columns with the types of their values; text where all are null."""
    found = []
    for i, column in enumerate(columns):
        kinds = list(dict.fromkeys(type(row[i]) for row in rows if i < len(row) and row[i] is not None))
        types: list[Type] = [PYTHON_TYPES[kind] for kind in kinds if kind in PYTHON_TYPES]
        common = common_type(types) if len(types) == len(kinds) else None
        if common is None:
            raise TopologyError(
                f"sql table '{name}': column '{column}' has values of {', '.join(kind.__name__ for kind in kinds)}; "
                f"one type of SQL's is needed. Name it: {{'{column}': 'text', …}}"
            )
        found.append(Column(column, common if types else TEXT))
    return found
