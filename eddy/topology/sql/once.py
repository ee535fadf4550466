"""One-off queries: a statement over rows that are at hand, computed by the circuit of a view in one epoch."""

from collections.abc import Callable, Mapping
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import Batch
from eddy.topology.compile import Environment, compile_plan
from eddy.topology.sql.answer import Answer, Table
from eddy.topology.sql.build import build
from eddy.topology.sql.compile import Compiler
from eddy.topology.sql.statement import Ordering, bind_statement
from eddy.topology.sql.tables import as_relation
from eddy.topology.sql.text import Text
from eddy.topology.table import add_sink
from eddy.topology.topology import Topology

__all__ = ["run"]

_ROWS = "rows"


def run(text: Text, tables: Mapping[str, Table]) -> Answer:
    """The answer of the statement of a text. Raises: TopologyError; DataError for a row, or a limit that is too low."""
    statement = bind_statement(text, {name: t.columns for name, t in tables.items()}, "query", ordered=True)
    topology = Topology("query")
    topics = {name: f"table-{index}" for index, name in enumerate(tables)}
    relations = {name: as_relation(name, topology.stream(topic)).at_one_owner(topic) for name, topic in topics.items()}
    rows, compiler = build(topology, statement, relations, "query")
    add_sink(topology._builder, rows._node, _ROWS, None, None)
    for index, (_, errors) in enumerate(compiler.errors):
        add_sink(topology._builder, errors._node, f"limit-{index}", None, None)
    batches = {topics[name]: Batch([((), row) for row in t.rows], [1] * len(t.rows)) for name, t in tables.items()}
    found = _bags(topology, batches)
    _check_limits(text, compiler, found)
    bag: dict[tuple[Any, ...], int] = {}
    for (_, row), weight in found[_ROWS].items():
        bag[row] = bag.get(row, 0) + weight
    answer = _ordered([row for row, weight in bag.items() for _ in range(weight)], statement.ordering)
    columns = statement.columns
    return Answer(
        tuple(column.name for column in columns),
        tuple(str(column.type) for column in columns),
        [row[: statement.visible] for row in answer],
    )


def _bags(topology: Topology, batches: Mapping[str, Batch]) -> dict[str, dict[Any, int]]:
    """What the topology writes to each of its sinks, as a bag, after one epoch of these batches."""
    circuit = compile_plan(topology.plan, Environment(dict.fromkeys(batches, 1)))
    circuit.step(batches)
    found: dict[str, dict[Any, int]] = {}
    for sink in topology.plan.sinks():
        bag = found[sink.topic] = {}
        for batch in circuit.outputs[sink.name].batches:
            for row, weight in batch.zset(sink.topic).items():
                bag[row] = bag.get(row, 0) + weight
    return found


def _check_limits(text: Text, compiler: Compiler, found: Mapping[str, Mapping[Any, int]]) -> None:
    for index, (block, _) in enumerate(compiler.errors):
        for binding, _ in found[f"limit-{index}"]:
            rounds = block.bound.rounds if block.bound else 0
            raise DataError(
                f"sql '{text.name}': ERROR AT RECURSION LIMIT {rounds}: round {rounds} still changed binding "
                f"'{binding}'; a higher limit is needed, or RETURN AT"
            )


def _ordered(rows: list[tuple[Any, ...]], ordering: Ordering) -> list[tuple[Any, ...]]:
    for index, down, nulls_first in reversed(ordering.keys):
        rows.sort(key=_rank(index, nulls_first is not down), reverse=down)
    end = None if ordering.limit is None else ordering.offset + ordering.limit
    return rows[ordering.offset : end]


def _rank(index: int, nulls_low: bool) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """What rows are ordered by: nulls at one end, NaN above all other numbers."""
    null = (0 if nulls_low else 2, False, 0)
    return lambda row: null if row[index] is None else (1, row[index] != row[index], row[index])
