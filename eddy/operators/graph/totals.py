"""Maintains totals over subtrees by deltas: every node sends its parent the change of its sum.

    sum(v)  =  own(v) + Σ sum(c) over the children c        reported(v)  =  sum(v)

Invariant: between epochs every node has reported its sum to its parent, whatever the order in which nodes and
parents arrived. All links of an epoch are applied before any sum is sent, so a cycle that exists only in the middle of
an epoch does not count. A node on a remaining cycle has no finite sum. It reports no sum, and has no total, until a
link of the cycle changes. The nodes below it have totals.

Changes move up the tree and stop where they cancel. So to move a subtree costs the length of the paths from the old and
the new place up to their first common ancestor, and not the size of the subtree. The check for a cycle costs the path
up to the root; a leaf needs no check. Trees of which no node was there before are summed from the leaves up; see
`new_trees.py`.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from typing import Any

from eddy.operators.batch import EMPTY, Batch, Row
from eddy.operators.context import Context
from eddy.operators.errors.failing_inputs import errors_of, step_without_failing
from eddy.operators.errors.set_aside import Aside
from eddy.operators.graph.new_trees import cycle_of, new_trees
from eddy.operators.operator import Operator, State
from eddy.state.table_state import Table

__all__ = ["CYCLE", "TOTAL", "TreeTotals"]

TOTAL, CYCLE = "total", "cycle"
"""The kinds of output rows: the first item of the value."""


class _Cell:
    """The previous and the current values of a node during an epoch."""

    __slots__ = ("before", "children", "held", "own", "parent", "present", "reported", "sum")

    def __init__(self, before: tuple[Any, ...] | None) -> None:
        self.before = before
        self.present, self.parent, self.own, self.sum, self.children, self.held = before or (
            False,
            None,
            0,
            0,
            0,
            False,
        )
        self.reported = 0 if self.held or self.parent is None else self.sum

    @property
    def above(self) -> Any:
        """The parent to which the node reports its sum; None if there is none, or the node is on a cycle."""
        return None if self.held else self.parent

    def after(self) -> tuple[Any, ...] | None:
        """The value to store; None for a node without a row and without children."""
        if not (self.present or self.children):
            return None
        return (self.present, self.parent, self.own, self.sum, self.children, self.held)


class TreeTotals(Operator):
    """Input: deltas of the table node -> value. Output: rows (node, (TOTAL, sum)) and (node, (CYCLE, the cycle)).

    With `include_self` a node's total includes the node's own value. Otherwise it is the sum over the descendants, and
    nodes without children have no total. A parent without a row of its own has a total, too.
    """

    def __init__(
        self,
        name: str,
        table: Table[Any, Any],
        parent: Callable[[Any, Any], Any],
        own: Callable[[Any, Any], Any],
        include_self: bool = True,
    ) -> None:
        self.name, self._table, self._parent, self._own, self._include_self = name, table, parent, own, include_self

    def states(self) -> Sequence[State]:
        """The nodes with their sums."""
        return (self._table,)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Apply all links, find cycles, then send changed sums up the tree."""
        (batch,) = inputs
        delta = batch.zset(self.name)
        values = {node: value for (node, value), weight in delta.items() if weight > 0}
        parents = dict(zip(values, starmap(self._parent, values.items()), strict=True))
        owns = dict(zip(values, starmap(self._own, values.items()), strict=True))
        mended: list[Any] = []
        if self._are_new(parents, delta):
            after, cycles = new_trees(parents, owns)
            before = dict.fromkeys(after)
        else:
            epoch = _Epoch(self._table, dict.fromkeys(node for node, _ in delta), parents, owns)
            mended, cycles = epoch.run()
            before, after = epoch.moved()
        if after:
            self._table.put_many(after, list(before.values()))
        gone, come = self._totals(before, after)
        gone += [(cycle[0], (CYCLE, cycle)) for cycle in mended if cycle not in cycles]
        come += [(cycle[0], (CYCLE, cycle)) for cycle in cycles if cycle not in mended]
        return Batch(gone + come, [-1] * len(gone) + [1] * len(come), batch.time) if gone or come else EMPTY

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows that the author's functions do not accept, and rows whose sums cannot be written."""
        return step_without_failing(self, context, aside, inputs)

    def row_errors(self, index: int, batch: Batch) -> Mapping[int, Exception]:
        """Return the errors of the rows that have no parent, or no number, by the row's index."""

        def check(node: Any, value: Any) -> None:
            hash((node, self._parent(node, value)))
            self._own(node, value) + 0

        return errors_of(batch, check)

    def _are_new(self, parents: Mapping[Any, Any], delta: Mapping[Row, int]) -> bool:
        """Return whether none of the delta's nodes, and none of their parents, was there before."""
        if len(parents) < len(delta) or any(self._table.get_many(list(parents))):
            return False
        above = dict.fromkeys(parents.values())
        above.pop(None, None)
        return not any(self._table.get_many(list(above)))

    def _totals(self, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> tuple[list[Row], list[Row]]:
        """Return the retracted rows and the inserted rows of totals, for the nodes whose cells have changed."""
        gone: list[Row] = []
        come: list[Row] = []
        totals = zip(before, map(self._total, before.values()), map(self._total, after.values()), strict=True)
        for node, old, new in totals:
            if old != new:
                if old is not None:
                    gone.append((node, (TOTAL, old)))
                if new is not None:
                    come.append((node, (TOTAL, new)))
        return gone, come

    def _total(self, kept: tuple[Any, ...] | None) -> Any:
        if kept is None:
            return None
        present, _, own, total, children, held = kept
        if held or not (self._include_self or children):
            return None
        return total if self._include_self or not present else total - own


class _Epoch:
    """The work of one epoch, on the nodes that it touches.

    `changed` are the nodes whose rows have changed; `parents` and `owns` have the new values of those that are present.
    """

    def __init__(
        self, table: Table[Any, Any], changed: Mapping[Any, None], parents: Mapping[Any, Any], owns: Mapping[Any, Any]
    ) -> None:
        self._table, self._changed, self._parents, self._owns = table, changed, parents, owns
        self.cells = {node: _Cell(kept) for node, kept in zip(changed, table.get_many(list(changed)), strict=True)}
        self._deltas: defaultdict[Any, Any] = defaultdict(int)
        self._flows: defaultdict[Any, Any] = defaultdict(int)
        self._climbed: set[Any] = set()

    def run(self) -> tuple[list[Any], list[Any]]:
        """Apply all links, find cycles, then send changed sums up the tree.

        Returns the cycles that the epoch has broken, and the cycles that it has closed.
        """
        mended = self.unhold()
        self.link()
        found = self.hold()
        self.tell()
        return mended, found

    def cell(self, node: Any) -> _Cell:
        """Return a node's cell, to read or change it."""
        found = self.cells.get(node)
        if found is None:
            found = self.cells[node] = _Cell(self._table.get(node))
        return found

    def unhold(self) -> list[tuple[Any, ...]]:
        """Break the cycles that lose a link, so that their nodes send sums again. Returns these cycles."""
        found = []
        for node in self._changed:
            cell = self.cells[node]
            if cell.held and self._parents.get(node) != cell.parent:
                cycle = self._cycle_of(node)
                found.append(cycle)
                for member in cycle[:-1]:
                    self.cell(member).held = False
                    self._flows[member] += self.cell(member).sum
        return found

    def link(self) -> None:
        """Set every node's new parent and own value."""
        for node in self._changed:
            cell = self.cells[node]
            parent, own = self._parents.get(node), self._owns.get(node, 0)
            if parent != cell.parent:
                if cell.parent is None:
                    self._flows[node] += cell.sum
                else:
                    self.cell(cell.parent).children -= 1
                    self._retract_from_parent(node, cell)
                if parent is not None:
                    self.cell(parent).children += 1
                cell.parent = parent
            cell.present = node in self._parents
            if own != cell.own:
                self._deltas[node] += own - cell.own
                self._flows[node] += own - cell.own
                cell.own = own
            self._flows[node] += 0

    def _retract_from_parent(self, node: Any, cell: _Cell) -> None:
        """Subtract a node's sum from its parent's sum.

        Later the node sends its sum again, to the parent that it has then.
        """
        if cell.reported:
            self._deltas[cell.parent] -= cell.reported
            self._flows[cell.parent] -= cell.reported
            self._flows[node] += cell.reported
            cell.reported = 0

    def hold(self) -> list[tuple[Any, ...]]:
        """Find the cycles that new links close, and let the nodes on them send no sum. Returns these cycles."""
        found = []
        done: set[Any] = set()
        for start in self._changed:
            if not self.cells[start].children:
                continue  # a leaf is on no cycle
            path: dict[Any, None] = {}
            node = start
            while node is not None and node not in done and node not in path:
                path[node] = None
                node = self.cell(node).above
            if node is not None and node in path:
                members = list(path)[list(path).index(node) :]
                for member in members:
                    cell = self.cell(member)
                    self._retract_from_parent(member, cell)
                    cell.held = True
                found.append(self._cycle_of(node))
            done.update(path)
        return found

    def _cycle_of(self, node: Any) -> tuple[Any, ...]:
        return cycle_of(node, lambda member: self.cell(member).parent)

    def tell(self) -> None:
        """Send the changes of sums up: each node sends once, after all its changed children have sent."""
        waiting = self._trails()
        ready = [node for node, below in waiting.items() if not below]
        deltas = self._deltas
        while ready:
            node = ready.pop()
            cell = self.cell(node)
            cell.sum += deltas.pop(node, 0)
            above = cell.above
            if above is None:
                cell.reported = 0
                continue
            more = cell.sum - cell.reported
            if more:
                deltas[above] += more
                cell.reported = cell.sum
            if node in self._climbed:
                waiting[above] -= 1
                if not waiting[above]:
                    ready.append(above)
            elif more and not waiting.get(above):  # floats that cancel may leave a small remainder
                ready.append(above)

    def _trails(self) -> dict[Any, int]:
        """Find the nodes whose sums may change. Returns for each the number of its children that are also among them.

        Trails follow parent links from the changed nodes, one step each in turn. Two trails that meet continue as one
        trail, and end if their deltas cancel.
        """
        waiting = dict.fromkeys(self._flows, 0)
        group_of = {node: _SubtreeGroup(node, flow) for node, flow in self._flows.items()}
        walkers = list(group_of.values())
        while walkers:
            still = []
            for group in walkers:
                if group.joined is not None or not group.flow:
                    group.walks = False
                    continue
                above = self.cell(group.head).above
                if above is None:
                    group.walks = False
                    continue
                self._climbed.add(group.head)
                if above not in waiting:
                    waiting[above] = 1
                    group_of[above] = group
                    group.head = above
                    still.append(group)
                    continue
                waiting[above] += 1
                group.joined = met = group_of[above].leader()
                met.flow += group.flow
                if not met.walks and met.flow:
                    met.walks = True
                    still.append(met)
            walkers = still
        return waiting

    def moved(self) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Return two maps, of the nodes whose cells have changed: their cells before the epoch, and after it."""
        after = {node: new for node, cell in self.cells.items() if (new := cell.after()) != cell.before}
        return {node: self.cells[node].before for node in after}, after


class _SubtreeGroup:
    """Nodes whose trails have met. Together they send the change `flow` up the tree; it has reached the node `head`."""

    __slots__ = ("flow", "head", "joined", "walks")

    def __init__(self, head: Any, flow: Any) -> None:
        self.head, self.flow = head, flow
        self.joined: _SubtreeGroup | None = None
        self.walks = True

    def leader(self) -> "_SubtreeGroup":
        """Return the group into which this group was merged in the end; itself if it was not merged."""
        group = self
        while group.joined is not None:
            group = group.joined
        return group
