"""Reachability from roots by ranked supports: the reached nodes with their depths and parents.

The inputs are rows (key, root) and (node, edge). The output has rows (key, Reached): for each key the rows of each of
its roots. Keys with a common root share the stored cells of its nodes.

If cycles are errors, a root that reaches a cycle has an additional row, which names the cycle. The root's other rows do
not change. The additional row is a function of the current links, so it disappears with the cycle.

While a root reaches a node beyond the limit, or too many nodes, it has no rows. Its depths are stored all the same, so
the rows are a function of the current links.

There is one row for a node, however many paths lead to it. A recursion with a row for each path is linear, and is
computed by waves.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from eddy.operators.batch import EMPTY, Batch, Row
from eddy.operators.context import Context
from eddy.operators.errors.failing_inputs import errors_of, step_without_failing
from eddy.operators.errors.set_aside import Aside
from eddy.operators.graph.beyond import Beyond
from eddy.operators.graph.cycles import Cycles
from eddy.operators.graph.depths import Depths
from eddy.operators.graph.links import LinkChanges, Links, presence
from eddy.operators.graph.reached import Reached
from eddy.operators.operator import Operator, State
from eddy.operators.path_text import path_text
from eddy.state.adjacency import Adjacency
from eddy.state.arrangement import pairs_of
from eddy.state.ranks import Cell, Ranks
from eddy.state.table_state import Table

__all__ = ["Ranked"]


class Ranked(Operator):
    """Input: deltas of roots and edges. Output: the delta of the rows, consolidated.

    Cost: proportional to the nodes whose depth or parent changes and their links, not to the size of the graph.
    """

    inputs_apart = True

    def __init__(
        self,
        name: str,
        roots: Adjacency,
        links: Links,
        ranks: Ranks,
        depths: Depths,
        cycles: Cycles | None = None,
        sizes: Table[Any, int] | None = None,
        beyond: Beyond | None = None,
    ) -> None:
        self.name, self._roots, self._links, self._ranks, self._depths = name, roots, links, ranks, depths
        self._cycles, self._sizes, self._beyond = cycles, sizes, beyond

    def states(self) -> Sequence[State]:
        """The ranks, the roots, the links, and the states of bounds and policies."""
        further = [] if self._cycles is None else self._cycles.states()
        sizes = [] if self._sizes is None else [self._sizes]
        beyond = [] if self._beyond is None else [self._beyond.state]
        return [self._ranks, self._roots, *self._links.states(), *sizes, *further, *beyond]

    def held(self) -> Mapping[int, str]:
        """Return the message for a root beyond a bound, or else, if cycles are errors, for a root that reaches one."""
        if self._beyond is not None and (beyond := self._beyond.held(self.name)):
            return beyond
        found = None if self._cycles is None else self._cycles.least()
        if found is None:
            return {}
        root, path = found
        return {
            0: f"recursive_fixpoint '{self.name}': from root {root!r} the path {path_text(path)} comes around; "
            "cycle_policy='error' needs a graph without cycles. Take back a link of it"
        }

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Apply roots and edges, follow what they change, and emit the changed rows.

        The rows of a root that is beyond a bound are withheld. Raises: DataError if the weight of a row is not above 0.
        """
        roots, edges = inputs
        changes = self._links.change(edges) if edges.rows else LinkChanges([], [], [])
        moved = self._move_roots(roots) if roots.rows else _UNMOVED
        self._depths.update(changes, moved.begun, moved.ended)
        noted = self._ranks.noted()
        if not noted and moved is _UNMOVED and self._cycles is None:
            return EMPTY
        emitted = _Delta()
        withheld = (
            {} if self._beyond is None else self._beyond.update([*noted, *moved.now], noted, self._ranks.resident())
        )
        for root, (was, is_now) in withheld.items():
            self._emit_withheld(emitted, root, moved, was, is_now)
        for root, notes in noted.items():
            if root in withheld:
                continue
            if root not in moved.now:
                self._emit_changes(emitted, root, notes, self._keys_of(root))
            elif root in moved.begun or root in moved.ended:
                self._emit_changes(emitted, root, notes, moved.now[root] or moved.before[root])
        if moved.now:
            for root in moved.now.keys() - moved.begun - moved.ended - withheld.keys():
                self._emit_keys(emitted, root, moved.before[root], moved.now[root])
        if self._cycles is not None:
            self._emit_cycles(emitted, changes, moved.before, moved.now)
        return emitted.batch(max(roots.time, edges.time))

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the edges that the author's functions do not accept, and rows that the states cannot write."""
        return step_without_failing(self, context, aside, inputs)

    def row_errors(self, index: int, batch: Batch) -> Mapping[int, Exception]:
        """Return the errors of the rows that the author's functions do not accept, by the row's index.

        `index` is 0 for the input of roots, 1 for the input of edges.
        """
        return errors_of(batch, self._links.check if index else lambda key, root: None)

    def _move_roots(self, roots: Batch) -> "_Moved":
        """Apply the delta of roots."""
        delta = {(root, key): weight for (key, root), weight in roots.zset(self.name).items()}
        came, went = presence(self._roots, delta)
        now = {root: self._keys_of(root) for root, _ in (*came, *went)}
        before = {root: [key for key in keys if (root, key) not in came] for root, keys in now.items()}
        for root, key in went:
            before[root].append(key)
        begun = {root for root in now if now[root] and not before[root]}
        return _Moved(before, now, begun, {root for root in now if before[root] and not now[root]})

    def _keys_of(self, root: Any) -> list[Any]:
        return [key for key, weight in pairs_of(self._roots.get(root)) if weight > 0]

    def _emit_changes(self, emitted: "_Delta", root: Any, notes: dict[Any, Cell | None], keys: list[Any]) -> None:
        """Emit the epoch's changes of a root's rows, for each of `keys`."""
        ranks, gone, come = self._ranks.resident(), emitted.old, emitted.new
        alone = keys[0] if len(keys) == 1 else None
        for node, old in notes.items():
            new = ranks[node].get(root)
            if old is not None:
                depth, parent, order, _ = old
                if new is not None and new[0] == depth and new[1] == parent and new[2] == order:
                    continue
                row = Reached(root, node, depth, parent, node if order is None else order)
                if alone is not None:
                    gone.append((alone, row))
                else:
                    gone += [(key, row) for key in keys]
            if new is not None:
                depth, parent, order, _ = new
                row = Reached(root, node, depth, parent, node if order is None else order)
                if alone is not None:
                    come.append((alone, row))
                else:
                    come += [(key, row) for key in keys]

    def _emit_keys(self, emitted: "_Delta", root: Any, before: list[Any], now: list[Any]) -> None:
        """Add the changes of rows for a root whose keys have changed from `before` to `now`.

        A key that has lost or gained the root changes all its rows. Any other key changes only the rows that the epoch
        has changed.
        """
        notes = self._ranks.notes(root)
        self._emit_changes(emitted, root, notes, [key for key in now if key in before])
        cells = self._cells_of(root)
        for key in now:
            if key not in before:
                emitted.new += [(key, reached(root, node, cell)) for node, cell in cells.items()]
        olds = {node: cell for node, cell in (cells | notes).items() if cell is not None}
        for key in before:
            if key not in now:
                emitted.old += [(key, reached(root, node, cell)) for node, cell in olds.items()]

    def _emit_withheld(self, emitted: "_Delta", root: Any, moved: "_Moved", was: bool, is_now: bool) -> None:
        """Retract all rows of a root that is newly beyond a bound; insert all rows of a root that no longer is."""
        keys = self._keys_of(root)
        if not is_now:
            cells = self._cells_of(root)
            emitted.new += [(key, reached(root, node, cell)) for key in keys for node, cell in cells.items()]
        if not was:
            known = self._cells_of(root) | self._ranks.notes(root)
            olds = {node: cell for node, cell in known.items() if cell is not None}
            before = moved.before.get(root, keys)
            emitted.old += [(key, reached(root, node, cell)) for key in before for node, cell in olds.items()]

    def _cells_of(self, root: Any) -> dict[Any, Cell]:
        """Return the cells of all nodes that a root reaches, by node."""
        found: dict[Any, Cell] = {}
        frontier = [root]
        while frontier:
            cells = zip(frontier, self._ranks.get_many(frontier), strict=True)
            there = {node: at[root] for node, at in cells if at and root in at and node not in found}
            found |= there
            bags = self._links.out.get_many(list(there))
            frontier = list({child: None for bag in bags for child, weight in pairs_of(bag) if weight > 0})
        return found

    def _emit_cycles(
        self, emitted: "_Delta", changes: LinkChanges, before: dict[Any, list[Any]], now: dict[Any, list[Any]]
    ) -> None:
        assert self._cycles is not None
        moved = self._cycles.update(changes, {root for root, keys in now.items() if not keys})
        for root in {**moved, **now}:
            old, new = moved.get(root, (self._cycles.of(root),) * 2)
            keys = self._keys_of(root) if root not in now else now[root]
            emitted.replace_error_rows(root, old, before.get(root, keys), new, keys)


class _Moved(NamedTuple):
    """The roots whose keys have changed.

    `before` and `now` have the keys of each such root. The roots in `begun` had no key before, and the roots in `ended`
    have no key any more.
    """

    before: dict[Any, list[Any]]
    now: dict[Any, list[Any]]
    begun: set[Any]
    ended: set[Any]


_UNMOVED = _Moved({}, {}, set(), set())


class _Delta(msgspec.Struct):
    """Retracted rows, `old`, and inserted rows, `new`."""

    old: list[Row] = []
    new: list[Row] = []

    def replace_error_rows(
        self,
        root: Any,
        old: tuple[Any, ...] | None,
        before: Iterable[Any],
        new: tuple[Any, ...] | None,
        now: Iterable[Any],
    ) -> None:
        """Replace a root's error rows, which name a cycle.

        The rows with the cycle `old` for the keys `before` are retracted, the rows with the cycle `new` for the keys
        `now` are inserted.
        """
        gone = [] if old is None else [(key, Reached(root, old[0], -1, cycle=old)) for key in before]
        come = [] if new is None else [(key, Reached(root, new[0], -1, cycle=new)) for key in now]
        self.old += [row for row in gone if row not in come]
        self.new += [row for row in come if row not in gone]

    def batch(self, time: int) -> Batch:
        """The rows with their weights."""
        if not (self.old or self.new):
            return EMPTY
        return Batch(self.old + self.new, [-1] * len(self.old) + [1] * len(self.new), time)


def reached(root: Any, node: Any, cell: Cell) -> Reached:
    """Return the output row for a node, made from the node's cell."""
    depth, parent, order, _ = cell
    return Reached(root, node, depth, parent, node if order is None else order)
