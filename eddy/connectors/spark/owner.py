"""Steps that are one operator at one owner: the worker's own operator, in one task, over all rows at once.

    recursive_fixpoint   what is reached from roots over edges
    tree_totals          totals over subtrees

Their algorithms follow links one by one, in memory, so that one task holds the graph, as a worker does. What the
operator remembers comes out beside its rows, encoded by its states themselves.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.frames import Frames, names
from eddy.connectors.spark.passes import ROWS, RowsEntry, arrow_schema, encode_rows, stepped
from eddy.operators.batch import EMPTY, Batch, concat
from eddy.operators.operator import Operator
from eddy.serde import Serde
from eddy.topology.compile_reach import reachable, tree_totals
from eddy.topology.plan import Node, Reachable, TreeTotals

__all__ = ["at_one_owner", "state_rows"]

_MADE = f"state string, {ROWS}, key binary, value binary"
_ROWS_A_BATCH = 10_000
Serdes = tuple[Serde[Any], Serde[Any]]


def at_one_owner(
    frames: Frames, node: Reachable | TreeTotals, application: str, sides: list[tuple[DataFrame, Serdes]], out: Serdes
) -> DataFrame:
    """What the step makes, as rows where `state` is empty, and as rows of its states where it is not."""
    alone = replace(node, inputs=tuple(without_inputs(source) for source in node.inputs))
    parts = [frame.select(f.lit(at).alias("side"), *names(ROWS)) for at, (frame, _) in enumerate(sides)]
    whole = frames.union(parts, "").repartition(1)
    return frames.through(whole, _Owner(alone, application, tuple(serdes for _, serdes in sides), out), _MADE)


def without_inputs(node: Node) -> Node:
    """A step without what is before it."""
    return Node(name=node.name, label=node.label, kind=node.kind, key=node.key, value=node.value)


def state_rows(made: DataFrame, state: str) -> DataFrame:
    """The rows of one of the states, as they lie in its changelog."""
    return made.where(f.col("state") == state).select("k", "key", "value")


@dataclass(frozen=True)
class _Owner:
    """The task: an operator is made, takes everything in, and tells what it made and remembers."""

    node: Reachable | TreeTotals
    application: str
    sides: tuple[Serdes, ...]
    out: Serdes

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Rows of all sides in, `_MADE` rows out. Raises: DataError; LoopLimitError."""
        inputs = self._inputs(batches)
        if not any(len(batch) for batch in inputs):
            return
        operator: Operator = (
            reachable(self.node, self.application, None)
            if isinstance(self.node, Reachable)
            else tree_totals(self.node, self.application, None)
        )
        made = stepped(operator, *inputs).consolidated(self.node.name)
        encoded = encode_rows(made.rows, *self.out, f"step '{self.node.name}'", False)
        count = len(made)
        yield from _batches([[""] * count, *encoded, made.weights, [None] * count, [None] * count])
        for state in operator.states():
            changes = state.changes()
            rows = [(key, value) for key, value in zip(changes.keys, changes.values, strict=True) if value is not None]
            nothing: list[Any] = [None] * len(rows)
            keys, values = [key for key, _ in rows], [value for _, value in rows]
            yield from _batches([[state.spec.name] * len(rows), *([nothing] * 5), keys, values])

    def _inputs(self, batches: Iterable[Any]) -> list[Batch]:
        entries = [RowsEntry(*serdes) for serdes in self.sides]
        parts: list[list[Batch]] = [[] for _ in entries]
        for arrived in batches:
            for at, entry in enumerate(entries):
                rows = arrived.filter(pa.compute.equal(arrived.column("side"), at))
                columns = dict(zip(rows.schema.names, (column.to_pylist() for column in rows.columns), strict=True))
                parts[at].append(entry.batch(columns))
        return [concat(part) if part else EMPTY for part in parts]


def _batches(columns: list[list[Any]]) -> Iterator[Any]:
    schema = arrow_schema(_MADE)
    for at in range(0, len(columns[0]), _ROWS_A_BATCH):
        arrays = [
            pa.array(column[at : at + _ROWS_A_BATCH], field.type) for column, field in zip(columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
