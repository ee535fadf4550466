"""eddy's `recursive_fixpoint` in memory, no log, no store: the least depths of a graph that changes.

Mode `nested` asks the same of nested time: a block of a join and a reduction. `circuit` steps the whole program:
the table of the edges, the fixpoint, its delta read row by row, the commit of the states. `operator` steps the
fixpoint's operator alone, its delta read apart. `churn` is a wide tree in which one leaf moves an epoch. The roots
are the children of one more node, so a node's depth is one less.
"""

import argparse
import random
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import eddy
from benchmarks.graphs import wide_tree
from benchmarks.systems.process import percentiles_ms, report, settle
from eddy.operators.batch import EMPTY, Batch
from eddy.operators.circuit import Circuit
from eddy.operators.context import OUTSIDE
from eddy.operators.graph.ranked import Ranked
from eddy.operators.nested.fixpoint import Take
from eddy.operators.operator import Operator
from eddy.topology.compiler.circuit_compiler import Environment, compile_plan

_TOP = -1
_MODES = {"affected": "recompute-affected", "counts": "support-counts"}
_NESTED = "nested"


class Sum:
    """Σ (depth + 1) × (node + 1) of what came out, and the depths."""

    def __init__(self) -> None:
        self.depths: dict[int, int] = {}
        self.total = 0

    def add(self, batches: list[Batch]) -> None:
        """Read a delta."""
        depths = self.depths
        for batch in batches:
            for (_, row), weight in zip(batch.rows, batch.weights, strict=True):
                node = row.node
                self.total += weight * row.depth * (node + 1)
                if weight > 0:
                    depths[node] = row.depth
                elif depths.get(node) == row.depth:
                    del depths[node]


class PairSum(Sum):
    """The same of rows (node, depth)."""

    def add(self, batches: list[Batch]) -> None:
        """Read a delta."""
        depths = self.depths
        for batch in batches:
            for (node, depth), weight in zip(batch.rows, batch.weights, strict=True):
                self.total += weight * depth * (node + 1)
                if weight > 0:
                    depths[node] = depth
                elif depths.get(node) == depth:
                    del depths[node]


def nested() -> tuple[Circuit, list[Batch]]:
    """The program as a block, and where the delta of each epoch goes."""
    topology = eddy.Topology("reach")
    starts = topology.table("roots", key=eddy.Int64, value=eddy.Int64).to_relation().map(lambda _, root: (root, 0))
    links = topology.table("edges", key=eddy.Int64, value=eddy.Native).to_relation().map(lambda number, edge: edge)

    def step(depths: eddy.Relation[int, int]) -> eddy.Relation[int, int]:
        offered = depths.join(links, lambda _, depth, to: (to, depth + 1), name="hop")
        return starts.union(offered).reduce(lambda node, offers: (min(offers),), "least")

    topology.mutually_recursive(step, name="reach")
    circuit = compile_plan(topology.plan, Environment({"roots": 1, "edges": 1}))
    return circuit, listen(next(op for op in circuit.operators if isinstance(op, Take)))


def listen(operator: Operator) -> list[Batch]:
    """Where all that an operator makes will go."""
    out: list[Batch] = []
    step = operator.step

    def kept(*inputs: Batch) -> Batch:
        out.append(step(*inputs))
        return out[-1]

    operator.step = kept  # type: ignore[method-assign]
    return out


def compiled(mode: str, max_depth: int | None = None) -> tuple[Circuit, list[Batch]]:
    """The program, and where the delta of each epoch goes."""
    topology = eddy.Topology("reach")
    roots = topology.table("roots", key=eddy.Int64, value=eddy.Int64).to_relation()
    edges = topology.table("edges", key=eddy.Int64, value=eddy.Native).to_relation()
    links = edges.map(lambda number, edge: edge)
    topology.recursive_fixpoint(
        roots=roots,
        edges=links,
        name="reach",
        deletion_mode=_MODES[mode],
        max_depth=max_depth,  # type: ignore[arg-type]
    )
    circuit = compile_plan(topology.plan, Environment({"roots": 1, "edges": 1}))
    return circuit, listen(operator(circuit))


def operator(circuit: Circuit) -> Ranked:
    """The fixpoint's operator."""
    (found,) = (operator for operator in circuit.operators if isinstance(operator, Ranked))
    return found


def read(path: str) -> tuple[list[tuple[int, Any]], list[tuple[str, int, tuple[int, int]]]]:
    """The records of the graph, and its changes."""
    graph: list[tuple[int, Any]] = []
    changes = []
    for line in Path(path).read_text().splitlines():
        what, *numbers = line.split()
        if what == "r":
            graph.append((-1 - len(graph), (_TOP, int(numbers[0]))))
            continue
        number, a, b = map(int, numbers)
        if what == "e":
            graph.append((number, (a, b)))
        else:
            changes.append((what, number, (a, b)))
    return graph, changes


def timed(
    epochs: list[Any], run: Callable[[Any], None], out: list[Batch], sums: Sum, reads: bool = True
) -> tuple[list[float], list[int]]:
    """The seconds of each epoch, with reading its delta where `reads`, and the checksum after it."""
    seconds, totals = [], []
    for epoch in epochs:
        begun = perf_counter()
        run(epoch)
        if reads:
            sums.add(out)
        seconds.append(perf_counter() - begun)
        if not reads:
            sums.add(out)
        totals.append(sums.total)
        out.clear()
    return seconds, totals


def follow(arguments: argparse.Namespace) -> None:
    """The graph in one epoch, then its changes."""
    graph, changes = read(arguments.file)
    circuit, out = nested() if arguments.mode == _NESTED else compiled(arguments.mode)
    sums = PairSum() if arguments.mode == _NESTED else Sum()
    circuit.step({"roots": Batch([(0, _TOP)], [1]), "edges": Batch(graph, [1] * len(graph))})
    circuit.commit()
    sums.add(out)
    out.clear()
    sums.total -= sums.depths.pop(_TOP)
    parts = [changes[at : at + arguments.batch] for at in range(0, len(changes), arguments.batch)]
    if arguments.what == "circuit":
        run, epochs = whole(circuit), [[(number, edge if what == "+" else None) for what, number, edge in part]
                                       for part in parts]  # fmt: skip
    else:
        run, epochs = (
            alone(circuit, out),
            [Batch([edge for _, _, edge in part], [1 if what == "+" else -1 for what, _, _ in part]) for part in parts],
        )
    start = settle()
    seconds, totals = timed(epochs, run, out, sums, reads=arguments.what == "circuit")
    report(start, **percentiles_ms(seconds), seconds=sum(seconds))
    Path(arguments.out).write_text("".join(f"{node} {depth - 1}\n" for node, depth in sums.depths.items()))
    Path(arguments.sums).write_text("".join(f"{total}\n" for total in totals))


def whole(circuit: Circuit) -> Callable[[Any], None]:
    """An epoch of records through the circuit."""

    def run(records: list[tuple[int, Any]]) -> None:
        circuit.step({"edges": Batch(records, [1] * len(records))})
        circuit.commit()

    return run


def alone(circuit: Circuit, out: list[Batch]) -> Callable[[Any], None]:
    """An epoch of a delta through the operator."""
    ranked = operator(circuit)
    states = ranked.states()

    def run(batch: Batch) -> None:
        out.append(Ranked.step(ranked, OUTSIDE, EMPTY, batch))
        for state in states:
            state.commit()

    return run


def churn(arguments: argparse.Namespace) -> None:
    """A wide tree; a leaf moves an epoch, to any node that was not a leaf."""
    nodes, epochs = arguments.batch, 5_000
    circuit, out = compiled(arguments.mode, max_depth=16)
    parents = {child: parent for parent, child in wide_tree(nodes)}
    records = [(child, (parent, child)) for child, parent in parents.items()]
    circuit.step({"roots": Batch([(0, 0)], [1]), "edges": Batch(records, [1] * len(records))})
    circuit.commit()
    out.clear()
    rng, inner = random.Random(3), max(1, nodes // 100)
    moves = [
        [(child, (rng.randrange(inner), child))] for child in (rng.randrange(nodes // 2, nodes) for _ in range(epochs))
    ]
    start = settle()
    seconds, _ = timed(moves, whole(circuit), out, Sum())
    report(start, **percentiles_ms(seconds))


def main() -> None:
    """Run as `python -m benchmarks.systems.reach`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["circuit", "operator", "churn"])
    parser.add_argument("mode", choices=[*_MODES, _NESTED])
    parser.add_argument("batch", type=int, help="changes an epoch; for churn the nodes of the tree")
    parser.add_argument("file", nargs="?")
    parser.add_argument("out", nargs="?")
    parser.add_argument("sums", nargs="?")
    arguments = parser.parse_args()
    (churn if arguments.what == "churn" else follow)(arguments)


if __name__ == "__main__":
    main()
