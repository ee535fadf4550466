"""Answers a one-off query by a circuit: the steps of its view process the given rows in one epoch."""

from collections.abc import Mapping
from typing import Any

from eddy.errors import DataError, LoopLimitError
from eddy.operators.batch import Batch
from eddy.operators.nested.outermost import RESTLESS
from eddy.topology.compiler.circuit_compiler import Environment, compile_plan
from eddy.topology.dsl.table import add_sink
from eddy.topology.sql.answer import AnswerTable
from eddy.topology.sql.names import built
from eddy.topology.sql.rows import row_serde
from eddy.topology.sql.statement import Statement
from eddy.topology.sql.statement_compiler import StatementCompiler
from eddy.topology.sql.statement_tables import as_relation
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.view_builder import build
from eddy.topology.topology import Topology

__all__ = ["rows_of_circuit"]

_ROWS = "rows"


def rows_of_circuit(
    text: StatementText, statement: Statement, tables: Mapping[str, AnswerTable]
) -> list[tuple[Any, ...]]:
    """Return the rows of a statement whose names are resolved.

    Raises: TopologyError; DataError for a row, or a limit that is too low.
    """
    topology = Topology("query")
    topics = {name: f"table-{index}" for index, name in enumerate(tables)}
    relations = {}
    for name, topic in topics.items():
        value = row_serde(tuple(column.type for column in tables[name].columns))
        relations[name] = as_relation(name, topology.stream(topic, row_serde(()), value)).at_one_owner(topic)
    plan = topology._builder.plan
    rows, compiler = built(plan, lambda names: build(topology._builder, statement, relations, "query", names))
    add_sink(topology._builder, rows._node, _ROWS, None, None)
    for index, (_, errors) in enumerate(compiler.errors):
        add_sink(topology._builder, errors._node, f"limit-{index}", None, None)
    batches = {topics[name]: Batch([((), row) for row in t.rows], [1] * len(t.rows)) for name, t in tables.items()}
    found, held = _bags(topology, batches)
    _check_limits(text, compiler, found)
    if held:
        raise LoopLimitError(held)
    bag: dict[tuple[Any, ...], int] = {}
    for (_, row), weight in found[_ROWS].items():
        bag[row] = bag.get(row, 0) + weight
    return [row for row, weight in bag.items() for _ in range(weight)]


def _bags(topology: Topology, batches: Mapping[str, Batch]) -> tuple[dict[str, dict[Any, int]], str]:
    """Run one epoch with these batches.

    Returns (bags, reason). `bags` has, for each sink's topic, the rows with their weights. `reason` says why a part
    has no finite answer; it is empty if all parts have one.
    """
    circuit = compile_plan(topology.plan, Environment(dict.fromkeys(batches, 1)))
    circuit.step(batches)
    found: dict[str, dict[Any, int]] = {}
    for sink in topology.plan.sinks():
        bag = found[sink.topic] = {}
        for batch in circuit.outputs[sink.name].batches:
            for row, weight in batch.zset(sink.topic).items():
                bag[row] = bag.get(row, 0) + weight
    return found, min(circuit.held().values(), default="")


def _check_limits(text: StatementText, compiler: StatementCompiler, found: Mapping[str, Mapping[Any, int]]) -> None:
    for index, (block, _) in enumerate(compiler.errors):
        for binding, row in found[f"limit-{index}"]:
            if row[1] == RESTLESS:
                continue
            iterations = compiler.limit(block, binding)
            raise DataError(
                f"sql '{text.name}': ERROR AT RECURSION LIMIT {iterations}: iteration {iterations} still changed "
                f"binding '{binding}'; a higher limit is needed, or RETURN AT"
            )
