"""Graphs and their changes, for `fixpoint`: random, cyclic, with what has to come out after every batch.

    "r node"        a root
    "e id from to"  an edge of the graph at first
    "+ id from to"  an edge that comes        "- id from to"  one that goes
    sums            Σ (depth + 1) × (node + 1) over all reached nodes, after every batch
    expected        "node depth" at the end

The oracle is plain Python and shares no code with eddy: a new search for every batch.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workloads import CACHE, make

__all__ = ["Graph", "graph", "wide_tree"]

_FILES = CACHE / "graphs-1"  # another number for other graphs


@dataclass(frozen=True, slots=True)
class Graph:
    """Files of a graph with its changes, and of what is to come out; `batch` changes an epoch."""

    name: str
    nodes: int
    changes: int
    batch: int
    records: Path
    expected: Path
    sums: Path


def graph(nodes: int, edges: int, changes: int, batch: int, roots: int, swaps: bool = False) -> Graph:
    """Edges between any two nodes; half of the changes are edges that come, half edges that go.

    With `swaps` each edge that goes is followed by one that comes.
    """
    stem = f"{'swaps' if swaps else 'changes'}-{nodes}-{edges}-{changes}-{batch}-{roots}"
    records, expected, sums = (_FILES / f"{stem}{suffix}" for suffix in (".txt", ".expected", ".sums"))
    if not records.exists():
        lines, totals, depths = _story(nodes, edges, changes, batch, roots, swaps)
        make(sums, lambda: (f"{total}\n" for total in totals))
        make(expected, lambda: (f"{node} {depth}\n" for node, depth in sorted(depths.items())))
        make(records, lambda: lines)
    return Graph(f"{nodes:,} nodes, {edges:,} edges", nodes, changes, batch, records, expected, sums)


def _story(
    nodes: int, edges: int, changes: int, batch: int, roots: int, swaps: bool
) -> tuple[list[str], list[int], dict[int, int]]:
    rng = random.Random(7)
    starts = rng.sample(range(nodes), roots)
    there = {number: (rng.randrange(nodes), rng.randrange(nodes)) for number in range(edges)}
    lines = [f"r {root}\n" for root in starts]
    lines += [f"e {number} {a} {b}\n" for number, (a, b) in there.items()]
    below: dict[int, list[int]] = {}
    for a, b in there.values():
        below.setdefault(a, []).append(b)
    live, totals, depths = list(there), [], {}
    for number in range(changes):
        if number % 2 == 0 if swaps else rng.random() < 0.5:
            at = rng.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            edge = live.pop()
            a, b = there.pop(edge)
            below[a].remove(b)
            lines.append(f"- {edge} {a} {b}\n")
        else:
            a, b = there[edges + number] = rng.randrange(nodes), rng.randrange(nodes)
            live.append(edges + number)
            below.setdefault(a, []).append(b)
            lines.append(f"+ {edges + number} {a} {b}\n")
        if (number + 1) % batch == 0:
            depths = _depths(starts, below)
            totals.append(sum((depth + 1) * (node + 1) for node, depth in depths.items()))
    return lines, totals, depths


def _depths(roots: list[int], below: dict[int, list[int]]) -> dict[int, int]:
    depths = dict.fromkeys(roots, 0)
    frontier, depth = roots, 0
    while frontier:
        depth += 1
        frontier = list(
            dict.fromkeys(child for node in frontier for child in below.get(node, ()) if child not in depths)
        )
        depths.update(dict.fromkeys(frontier, depth))
    return depths


def wide_tree(nodes: int, fan: int = 100) -> Iterator[tuple[int, int]]:
    """(parent, child) of a tree in which every node has `fan` children, as far as they go."""
    return (((node - 1) // fan, node) for node in range(1, nodes))
