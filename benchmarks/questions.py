"""Three questions in SQL about a graph that changes, for `sql`, and the answers that have to come out.

    closure      (a, b): b can be reached from a
    components   (node, least node of its strongly connected component), of nodes that have an edge
    paths        (node, weight of the shortest path to it from the root)

A graph is a file of `graphs.py` with one root; an edge's weight is a function of its ends. The oracle is plain Python
and shares no code with eddy: it begins anew for every batch.

    sums      Σ (x + 1) × (y + 1) over all rows (x, y) of the answer, after every batch
    expected  "x y" at the end
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

from benchmarks.graphs import Graph
from benchmarks.workloads import CACHE, make

__all__ = ["QUESTIONS", "Answers", "Edges", "answers", "duckdb_text", "eddy_text", "read", "weight"]

Pair = tuple[int, int]
Change = tuple[str, int, Pair]
Oracle = Callable[[int, Collection[Pair]], Iterable[Pair]]

QUESTIONS = ("closure", "components", "paths")
_FILES = CACHE / "answers-1"  # another number for other answers

_CLOSURE = """
    WITH RECURSIVE reach (a, b) AS (
        SELECT src, dst FROM edges
        UNION
        SELECT reach.a, edges.dst FROM reach JOIN edges ON reach.b = edges.src
    )
    SELECT a, b FROM reach
"""
_COMPONENTS = """
    WITH RECURSIVE
        nodes (node) AS (SELECT src FROM edges UNION SELECT dst FROM edges),
        reach (a, b) AS (
            SELECT node, node FROM nodes
            UNION
            SELECT reach.a, edges.dst FROM reach JOIN edges ON reach.b = edges.src
        )
    SELECT there.a AS node, min(there.b) AS component
    FROM reach AS there JOIN reach AS back ON there.a = back.b AND there.b = back.a
    GROUP BY there.a
"""
_PATHS = """
    WITH MUTUALLY RECURSIVE paths (node bigint, cost bigint) AS (
        SELECT node, min(cost) FROM (
            SELECT {root} AS node, 0 AS cost
            UNION ALL
            SELECT edges.dst, paths.cost + edges.w FROM paths JOIN edges ON paths.node = edges.src
        ) AS offered GROUP BY node
    )
    SELECT node, cost FROM paths
"""
_DUCKDB_PATHS = """
    WITH RECURSIVE paths (node, cost) USING KEY (node) AS (
        SELECT {root}::bigint, 0::bigint
        UNION
        SELECT edges.dst, min(paths.cost + edges.w)
        FROM paths JOIN edges ON paths.node = edges.src LEFT JOIN recurring.paths AS known ON known.node = edges.dst
        WHERE known.cost IS NULL OR paths.cost + edges.w < known.cost
        GROUP BY edges.dst
    )
    SELECT node, cost FROM paths
"""


def eddy_text(question: str, root: int) -> str:
    """The question as eddy is asked: over edges (src, dst, w)."""
    return {"closure": _CLOSURE, "components": _COMPONENTS, "paths": _PATHS.format(root=root)}[question]


def duckdb_text(question: str, root: int) -> str:
    """The same as DuckDB is asked, which has keyed recursion where eddy has recursion through an aggregate."""
    return _DUCKDB_PATHS.format(root=root) if question == "paths" else eddy_text(question, root)


def weight(a: int, b: int) -> int:
    """An edge's weight."""
    return 1 + (7 * a + 13 * b) % 10


@dataclass(frozen=True, slots=True)
class Edges:
    """A graph's file: its root, the edges at first by number, and the changes ("+" or "-", number, edge)."""

    root: int
    first: dict[int, Pair]
    changes: list[Change]

    def last(self) -> dict[int, Pair]:
        """The edges once all changes are made."""
        there = dict(self.first)
        for change in self.changes:
            _apply(change, there)
        return there


def read(path: Path) -> Edges:
    """What a graph's file holds."""
    roots: list[int] = []
    first: dict[int, Pair] = {}
    changes: list[Change] = []
    for line in path.read_text().splitlines():
        what, *numbers = line.split()
        if what == "r":
            roots.append(int(numbers[0]))
            continue
        number, a, b = map(int, numbers)
        if what == "e":
            first[number] = (a, b)
        else:
            changes.append((what, number, (a, b)))
    (root,) = roots
    return Edges(root, first, changes)


@dataclass(frozen=True, slots=True)
class Answers:
    """Files of what is to come out of a question about a graph."""

    expected: Path
    sums: Path

    def rows(self) -> set[str]:
        """The rows at the end."""
        return set(self.expected.read_text().splitlines())


def answers(question: str, graph: Graph) -> Answers:
    """What is to come out of a question about a graph."""
    stem = f"{question}-{graph.records.stem}"
    expected, sums = (_FILES / f"{stem}{suffix}" for suffix in (".expected", ".sums"))
    if not expected.exists():
        totals, rows = _story(_ORACLES[question], read(graph.records), graph.batch)
        make(sums, lambda: (f"{total}\n" for total in totals))
        make(expected, lambda: (f"{x} {y}\n" for x, y in sorted(rows)))
    return Answers(expected, sums)


def _story(answer: Oracle, edges: Edges, batch: int) -> tuple[list[int], list[Pair]]:
    there, totals, rows = dict(edges.first), [], []
    for at in range(0, len(edges.changes), batch):
        for change in edges.changes[at : at + batch]:
            _apply(change, there)
        rows = list(answer(edges.root, there.values()))
        totals.append(sum((x + 1) * (y + 1) for x, y in rows))
    return totals, rows


def _apply(change: Change, there: dict[int, Pair]) -> None:
    what, number, edge = change
    if what == "+":
        there[number] = edge
    else:
        del there[number]


def _below(edges: Collection[Pair]) -> dict[int, list[int]]:
    below: dict[int, list[int]] = {}
    for a, b in edges:
        below.setdefault(a, []).append(b)
    return below


def _reached(edges: Collection[Pair]) -> dict[int, set[int]]:
    """For every node that edges leave all that can be reached in one step or more."""
    below = _below(edges)
    found: dict[int, set[int]] = {}
    for node in below:
        seen, open_ = set(below[node]), list(below[node])
        while open_:
            fresh = set(below.get(open_.pop(), ())) - seen
            seen |= fresh
            open_ += fresh
        found[node] = seen
    return found


def _closure(root: int, edges: Collection[Pair]) -> Iterable[Pair]:
    return ((a, b) for a, reached in _reached(edges).items() for b in reached)


def _components(root: int, edges: Collection[Pair]) -> Iterable[Pair]:
    reached = _reached(edges)
    for node in {end for edge in edges for end in edge}:
        yield node, min([b for b in reached.get(node, ()) if node in reached.get(b, ())], default=node)


def _paths(root: int, edges: Collection[Pair]) -> Iterable[Pair]:
    below, open_ = _below(edges), [(0, root)]
    costs: dict[int, int] = {}
    while open_:
        cost, node = heappop(open_)
        if node not in costs:
            costs[node] = cost
            for to in below.get(node, ()):
                heappush(open_, (cost + weight(node, to), to))
    return costs.items()


_ORACLES = {"closure": _closure, "components": _components, "paths": _paths}
