"""The derivation of a row: the rows from which it is made, step by step back to the rows of source tables.

From a row of a loop the derivation goes on to the rows of the same loop from which the row was made. Rows are in the
order of their iterations, so a path that ends at a seed comes first. A row is explained once. Where the row occurs
again, it is marked as *repeated*. So paths around a cycle end.
"""

from collections import deque
from typing import Any

import msgspec

from eddy.topology.plan.bags import Row, identity
from eddy.topology.plan.facts import Fact
from eddy.topology.plan.plan import Node
from eddy.topology.tracing.evaluation import Evaluation
from eddy.topology.tracing.receipts import Receipt, Receipts
from eddy.topology.tracing.ways import Ways

__all__ = ["Derivation", "derive"]

_SHOWN_EACH = 20


class Derivation(msgspec.Struct, omit_defaults=True):
    """A row of a step, and the rows from which it is made.

    Each item of `of` is one way to make the row, with all input rows of this way.

    Args:
        weight: the weight of the row.
        iteration: for a row of a loop, the first iteration that made it.
        repeated: whether the row is explained elsewhere in this derivation.
        more: the number of further ways, or rows, that are not shown.
        sums: the counts and sums in the value, each as the sum of its parts; they replace `of`.
        record: for a row of a stream, its record's place and event time.
    """

    step: str
    does: str
    key: Any
    value: Any
    weight: int = 1
    iteration: int | None = None
    of: list[list["Derivation"]] = []
    repeated: bool = False
    more: int = 0
    sums: list[Receipt] = []
    record: str = ""


def derive(
    evaluation: Evaluation, ways: Ways, node: Node, row: Row, limit: int = 500, receipts: Receipts | None = None
) -> Derivation:
    """Return the derivation of a row, with about `limit` rows at most. Rows nearest to the row are preferred.

    Without `receipts`, counts and sums are derived from their rows, too.
    """
    root = _shown(evaluation, node, row)
    seen = {(node, identity(row))}
    todo = deque([(root, node, row)])
    count = 1
    while todo:
        made, at, of = todo.popleft()
        made.sums = [] if receipts is None else receipts.of(at, of)
        if made.sums:
            continue
        found = ways.of(at, of)
        for way in found:
            if count > limit or len(made.of) >= _SHOWN_EACH:
                made.more += 1
                continue
            made.of.append([])
            for source, part in way:
                count += 1
                below = _shown(evaluation, source, part)
                made.of[-1].append(below)
                known = (source, identity(part))
                if known in seen:
                    below.repeated = not source.begins
                else:
                    seen.add(known)
                    todo.append((below, source, part))
    return root


def _shown(evaluation: Evaluation, node: Node, row: Row) -> Derivation:
    """Return a row alone, without the rows from which it is made."""
    iteration = evaluation.iteration(node, row) if node.variables else None
    made = Derivation(node.name, node.does, row[0], row[1], evaluation.bags[node].weight(row), iteration)
    made.record = str(row.record) if isinstance(row, Fact) else ""
    return made
