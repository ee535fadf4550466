"""eddy's circuit alone: the program of examples/family.py compiled and stepped in memory, no log, no store.

Timed: making each batch, the step, reading the sink's delta, the commit of the states.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import eddy
from benchmarks.systems.family import family
from benchmarks.systems.process import percentiles_ms, read_changes, read_rows, report, settle, write_counts
from benchmarks.workloads import SUM_EVERY
from eddy.cli.collector import OwnCollector
from eddy.operators.batch import Batch
from eddy.operators.circuit import Circuit
from eddy.topology.compiler.circuit_compiler import Environment, compile_plan

Row = tuple[Any, Any]


def compiled(of: eddy.Serde[Any] = eddy.Int64) -> Circuit:
    """The circuit of the example with nodes of this serde, over topics of one partition."""
    topology = family("family", "nodes", "descendants", of)
    return compile_plan(topology.plan, Environment({"nodes": 1, "descendants": 1}))


def run(circuit: Circuit, rows: Sequence[Row], size: int, weigh: Callable[[Any], int]) -> tuple[list[float], list[int]]:
    """Step `rows` through, `size` at a time; return the seconds and the gain in the checksum of each epoch."""
    (sink,) = circuit.outputs.values()
    collector = OwnCollector()
    seconds, gains = [], []
    for start in range(0, len(rows), size):
        begun = perf_counter()
        part = rows[start : start + size]
        circuit.step({"nodes": Batch(part, [1] * len(part))})
        gain = 0
        for batch in sink.batches:
            for (key, count), weight in zip(batch.rows, batch.weights, strict=True):
                gain += weight * count * weigh(key)
        circuit.commit()
        collector.after_epoch(at_rest=False)
        seconds.append(perf_counter() - begun)
        gains.append(gain)
    return seconds, gains


def load(arguments: argparse.Namespace) -> Circuit:
    """A tree, in one batch or in many."""
    text = arguments.keys == "str"
    rows = read_rows(arguments.file, "n{:0>8}".format if text else int)
    circuit, size = compiled(eddy.String if text else eddy.Int64), arguments.batch or len(rows)
    start = settle()
    _, gains = run(circuit, rows, size, lambda key: 1)
    report(start)
    assert sum(gains) == sum(count for _, count in counts(circuit)), "the sink's deltas are not the table"
    return circuit


def live(arguments: argparse.Namespace) -> Circuit:
    """Changes of a tree that is there."""
    changes = read_changes(arguments.changes)
    records = [(node, {"+": parent, "-": None, "m": target}[what]) for what, node, parent, target in changes]
    rows, circuit = read_rows(arguments.file), compiled()
    _, (total,) = run(circuit, rows, len(rows), _number)
    start = settle()
    seconds, gains = run(circuit, records, arguments.batch, _number)
    report(start, **percentiles_ms(seconds))
    write_sums(arguments.sums, total, gains, SUM_EVERY // arguments.batch)
    return circuit


def _number(node: int) -> int:
    return node + 1


def write_sums(path: str, total: int, gains: list[int], every: int) -> None:
    """The checksum after each `every` batches."""
    lines = []
    for number, gain in enumerate(gains, 1):
        total += gain
        if number % every == 0:
            lines.append(f"{total}\n")
    Path(path).write_text("".join(lines))


def counts(circuit: Circuit) -> list[tuple[Any, int]]:
    """The result: the table of the counts."""
    return list(circuit.states["descendants"].items())  # type: ignore[attr-defined]


def main() -> None:
    """Run as `python -m benchmarks.systems.circuit`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["load", "live"])
    parser.add_argument("file")
    parser.add_argument("out")
    parser.add_argument("batch", type=int, help="records an epoch; 0: all in one")
    parser.add_argument("changes", nargs="?")
    parser.add_argument("sums", nargs="?")
    parser.add_argument("--keys", choices=["int", "str"], default="int")
    arguments = parser.parse_args()
    circuit = (load if arguments.what == "load" else live)(arguments)
    text = arguments.keys == "str"
    write_counts(arguments.out, ((int(key[1:]) if text else key, count) for key, count in counts(circuit)))


if __name__ == "__main__":
    main()
