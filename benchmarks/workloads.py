"""The workloads: trees, and changes of a tree, each with what has to come out of it.

    tree      "node parent", one line a record, in random order; the root has no record
    changes   "+ node parent" a new leaf (half of them), "- node parent" a leaf that goes (a quarter),
              "m node old new" a subtree that moves (a quarter), never into itself
    expected  "node count": the number of all descendants, for nodes that have any
    sums      Σ count × (node + 1) over all nodes, after every 100 changes

The oracle is plain Python and shares no code with eddy: it counts bottom-up, and follows each
change by walking the ancestors. Seeds are fixed; files are made once, under `.cache`.
"""

import csv
import gzip
import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CACHE", "ROOT", "SUM_EVERY", "Workload", "counts", "make", "read_counts", "tree", "tree_with_changes"]

ROOT = Path(__file__).parent.parent
CACHE = ROOT / "benchmarks" / ".cache"
SUM_EVERY = 100
_FILES = CACHE / "workloads-1"  # another number for other workloads
_WORDNET = ROOT / "examples" / "wordnet" / "nouns.tsv.gz"
_NO_PARENT = -1
_DEEP = 50


@dataclass(frozen=True, slots=True)
class Workload:
    """Files of records and of what is to come out. `changes` and `sums` go with changes alone."""

    name: str
    nodes: int
    records: Path
    expected: Path
    changes: Path | None = None
    sums: Path | None = None


def tree(shape: str, nodes: int = 0) -> Workload:
    """`random`: each of `nodes` under a random earlier one; `deep`: one of the last 50; `wordnet`: the 82,115 nouns."""
    if shape == "wordnet":
        parents = _wordnet_parents()
    else:
        parents = _random_parents(nodes, nearest=_DEEP if shape == "deep" else None)
    name = "wordnet" if shape == "wordnet" else f"{shape}-{nodes}"
    records, expected = _FILES / f"{name}.txt", _FILES / f"{name}.expected"
    make(records, lambda: _shuffled(f"{node} {up}\n" for node, up in enumerate(parents) if up != _NO_PARENT))
    make(expected, lambda: _lines_of_counts(enumerate(counts(parents))))
    return Workload(name, len(parents), records, expected)


def tree_with_changes(nodes: int, changes: int) -> Workload:
    """A random tree and `changes` changes of it."""
    base = tree("random", nodes)
    stem = f"changes-{nodes}-{changes}"
    made, expected, sums = (_FILES / f"{stem}{suffix}" for suffix in (".txt", ".expected", ".sums"))
    if not made.exists():
        forest = _Forest(_random_parents(nodes))
        lines, totals = [], []
        for number in range(1, changes + 1):
            lines.append(forest.change())
            if number % SUM_EVERY == 0:
                totals.append(f"{forest.total}\n")
        make(sums, lambda: totals)
        make(expected, lambda: _lines_of_counts(sorted(forest.counts.items())))
        make(made, lambda: lines)
    return Workload(f"live-{nodes}-{changes}", nodes, base.records, expected, made, sums)


def counts(parents: list[int]) -> list[int]:
    """How many descendants each node has, where every parent's number is below its children's."""
    found = [0] * len(parents)
    for node in range(len(parents) - 1, -1, -1):
        if parents[node] != _NO_PARENT:
            found[parents[node]] += found[node] + 1
    return found


def read_counts(path: Path) -> dict[str, str]:
    """A file of counts, as text by text."""
    with path.open() as lines:
        return dict(line.split() for line in lines)


def _random_parents(nodes: int, seed: int = 7, *, nearest: int | None = None) -> list[int]:
    """Parents among the `nearest` earlier nodes, or all of them."""
    among = random.Random(seed).randrange
    return [_NO_PARENT, *(among(max(0, node - (nearest or node)), node) for node in range(1, nodes))]


def _wordnet_parents() -> list[int]:
    """WordNet's nouns, numbered from the root down."""
    with gzip.open(_WORDNET, "rt", encoding="utf-8", newline="") as file:
        parent_of = {row[0]: row[1] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}
    children: dict[str, list[str]] = {}
    for node, parent in parent_of.items():
        children.setdefault(parent, []).append(node)
    order = list(children[""])
    for node in order:
        order.extend(children.get(node, ()))
    number = {node: i for i, node in enumerate(order)} | {"": _NO_PARENT}
    return [number[parent_of[node]] for node in order]


class _Forest:
    """A tree under change, with its counts."""

    def __init__(self, parents: list[int]) -> None:
        self.parents = dict(enumerate(parents))
        self.counts = dict(enumerate(counts(parents)))
        self.total = sum(count * (node + 1) for node, count in self.counts.items())
        self._children = dict.fromkeys(self.parents, 0)
        for parent in parents[1:]:
            self._children[parent] += 1
        self._live = list(self.parents)
        self._next = len(parents)
        self._random = random.Random(13)

    def change(self) -> str:
        """Make one change; return its line."""
        make = self._random.choice((self._add, self._add, self._remove, self._move))
        return make()

    def _add(self) -> str:
        node, parent = self._next, self._random.choice(self._live)
        self._next += 1
        self.parents[node], self.counts[node], self._children[node] = parent, 0, 0
        self._live.append(node)
        self._hang(node, parent, 1)
        return f"+ {node} {parent}\n"

    def _remove(self) -> str:
        at = self._random.randrange(len(self._live))
        while self._children[self._live[at]] or self.parents[self._live[at]] == _NO_PARENT:
            at = self._random.randrange(len(self._live))
        node, self._live[at] = self._live[at], self._live[-1]
        self._live.pop()
        parent = self.parents.pop(node)
        self._hang(node, parent, -1)
        del self.counts[node], self._children[node]
        return f"- {node} {parent}\n"

    def _move(self) -> str:
        node, target = self._random.choice(self._live), self._random.choice(self._live)
        while self.parents[node] in {_NO_PARENT, target} or node in self._ancestors(target):
            node, target = self._random.choice(self._live), self._random.choice(self._live)
        parent = self.parents[node]
        self._hang(node, parent, -1)
        self.parents[node] = target
        self._hang(node, target, 1)
        return f"m {node} {parent} {target}\n"

    def _ancestors(self, node: int) -> list[int]:
        """A node and all above it."""
        found = []
        while node != _NO_PARENT:
            found.append(node)
            node = self.parents[node]
        return found

    def _hang(self, node: int, parent: int, sign: int) -> None:
        """Add a subtree under `parent`, or with sign -1 take it off."""
        weight = sign * (self.counts[node] + 1)
        self._children[parent] += sign
        for above in self._ancestors(parent):
            self.counts[above] += weight
            self.total += weight * (above + 1)


def _shuffled(lines: Iterable[str]) -> list[str]:
    mixed = list(lines)
    random.Random(11).shuffle(mixed)
    return mixed


def _lines_of_counts(found: Iterable[tuple[int, int]]) -> list[str]:
    return [f"{node} {count}\n" for node, count in found if count]


def make(path: Path, lines: Callable[[], Iterable[str]]) -> None:
    """Write a file that is not there yet, whole or not at all."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        with partial.open("w") as file:
            file.writelines(lines())
        partial.rename(path)
