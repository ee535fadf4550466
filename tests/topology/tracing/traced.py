"""A topology that is evaluated over the rows of its tables, the receipts of its rows, and trees in plain Python."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import eddy
from eddy.topology.plan.plan import Node
from eddy.topology.tracing.derivation import Derivation, derive
from eddy.topology.tracing.evaluation import Evaluation
from eddy.topology.tracing.receipts import Receipt, Receipts
from eddy.topology.tracing.ways import Ways

__all__ = ["NAMES", "Traced", "Tree", "below", "check", "step_of"]

S = eddy.String
NAMES = [f"n{number}" for number in range(12)]
Tree = dict[str, Any]


def step_of(topology: eddy.Topology, name: str) -> Node:
    return next(node for node in topology.plan.nodes if node.name == name)


class Traced(NamedTuple):
    """A topology that is evaluated over the rows of its tables."""

    topology: eddy.Topology
    step: str
    tables: dict[str, dict[str, Any]]

    def trace(self, key: Any, *path: str) -> tuple[Derivation, Receipts]:
        rows = {source.topic: list(self.tables[source.topic].items()) for source in self.topology.plan.sources()}
        node = step_of(self.topology, self.step)
        evaluation = Evaluation(self.topology.plan, node, rows)
        ways = Ways(self.topology.plan, evaluation)
        receipts = Receipts(self.topology.plan, evaluation, ways, path)
        (row,) = (row for row, _ in evaluation.bags[node] if row[0] == key)
        return derive(evaluation, ways, node, row, receipts=receipts), receipts

    def receipt(self, key: Any, *path: str) -> Receipt:
        """The last receipt that the path opens."""
        made, receipts = self.trace(key, *path)
        assert receipts.opened
        return list(levels(made.sums[0]))[-1]


def levels(receipt: Receipt | None) -> Iterator[Receipt]:
    while receipt is not None:
        yield receipt
        receipt = receipt.opened


def check(receipt: Receipt, expected: dict[Any, Any], direct: Any) -> None:
    """A receipt has the largest of these parts, the direct ones first, and its numbers add up."""
    assert receipt.number == sum(part.number for part in receipt.parts) + receipt.rest
    assert sum(part.number for part in receipt.parts if part.word) == direct
    shown = {part.key: part.number for part in receipt.parts if not part.word}
    wanted = {key: number for key, number in expected.items() if number}
    assert all(wanted[key] == number for key, number in shown.items())
    assert receipt.more == len(wanted) - len(shown)
    assert receipt.rest == sum(wanted.values()) - sum(shown.values())
    sizes = [abs(number) for number in shown.values()]
    assert sizes == sorted(sizes, reverse=True)
    assert all(abs(number) <= min(sizes) for key, number in wanted.items() if key not in shown)


# Trees, in plain Python


def below(tree: Tree, node: str) -> list[str]:
    """The children of a node: the rows with this parent."""
    return [child for child, row in tree.items() if (row if isinstance(row, str) else row["of"]) == node]
