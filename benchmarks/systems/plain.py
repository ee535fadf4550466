"""The floor: the same counts by a dict of parents and a dict of counts, written for this question alone."""

import sys
from pathlib import Path
from time import perf_counter

from benchmarks.systems.process import (
    Change,
    percentiles_ms,
    read_changes,
    read_rows,
    report,
    settle,
    write_counts,
)
from benchmarks.workloads import SUM_EVERY


class Counts:
    """Every node's parent and count, kept by walking the ancestors of what changes."""

    def __init__(self) -> None:
        self.parents: dict[int, int] = {}
        self.counts: dict[int, int] = {}
        self.total = 0

    def fill(self, rows: list[tuple[int, int]]) -> None:
        """Count a whole tree bottom-up, each node after its children."""
        parents, counts = self.parents, self.counts
        parents.update(rows)
        waiting: dict[int, int] = {}
        for parent in parents.values():
            waiting[parent] = waiting.get(parent, 0) + 1
        ready = [node for node in parents if node not in waiting]
        for node in ready:
            parent = parents.get(node)
            if parent is None:
                continue
            counts[parent] = counts.get(parent, 0) + counts.get(node, 0) + 1
            waiting[parent] -= 1
            if not waiting[parent]:
                ready.append(parent)

    def hang(self, node: int, parent: int | None, weight: int) -> None:
        """Add `weight` to all above `node`."""
        counts, parents = self.counts, self.parents
        while parent is not None:
            counts[parent] = counts.get(parent, 0) + weight
            self.total += weight * (parent + 1)
            parent = parents.get(parent)

    def grow(self, rows: list[tuple[int, int]]) -> None:
        """Take new nodes in, in any order."""
        for node, parent in rows:
            self.parents[node] = parent
            self.hang(node, parent, self.counts.get(node, 0) + 1)

    def change(self, changes: list[Change]) -> None:
        """Follow changes of the tree."""
        for what, node, parent, target in changes:
            weight = self.counts.get(node, 0) + 1
            if what == "+":
                self.parents[node] = parent
                self.hang(node, parent, weight)
                continue
            self.hang(node, parent, -weight)
            if what == "-":
                del self.parents[node]
            elif target is not None:
                self.parents[node] = target
                self.hang(node, target, weight)


def load(file: str, size: int) -> Counts:
    """A tree, in one batch or in many."""
    rows, state = read_rows(file), Counts()
    start = settle()
    if size:
        for at in range(0, len(rows), size):
            state.grow(rows[at : at + size])
    else:
        state.fill(rows)
    report(start)
    return state


def live(file: str, size: int, changes_file: str, sums_file: str) -> Counts:
    """Changes of a tree that is there."""
    changes, state = read_changes(changes_file), Counts()
    state.fill(read_rows(file))
    state.total = sum(count * (node + 1) for node, count in state.counts.items())
    start, seconds, sums = settle(), [], []
    for at in range(0, len(changes), size):
        begun = perf_counter()
        state.change(changes[at : at + size])
        seconds.append(perf_counter() - begun)
        if (at + size) % SUM_EVERY == 0:
            sums.append(f"{state.total}\n")
    report(start, **percentiles_ms(seconds))
    Path(sums_file).write_text("".join(sums))
    return state


if __name__ == "__main__":
    what, file, out, size, *rest = sys.argv[1:]
    state = load(file, int(size)) if what == "load" else live(file, int(size), *rest)
    write_counts(out, state.counts.items())
