"""Why a key has no row: the filters, joins and holds that dropped the rows from which it would have been made.

Missing rows are followed from step to step, so a step is named only if there would be a row with the wanted key without
its drop. If a side of a join lacks a row, the same question is asked about that side.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

import msgspec

from eddy.topology.plan.bags import identity
from eddy.topology.plan.missing import UNKNOWN
from eddy.topology.plan.node import DropReason, Missing
from eddy.topology.plan.plan import Node, Plan
from eddy.topology.tracing.evaluation import Evaluation

__all__ = ["DroppedRow", "WhyNot"]

_MOST_MISSING = 100_000
_SHOWN = 5
_DEEPEST = 8


class DroppedRow(msgspec.Struct, omit_defaults=True):
    """A step that has dropped a row needed for the wanted key, or a step that makes no row with this key.

    Args:
        step: the step's name.
        where: the step in the author's words.
        reason: a verb and its object.
        key: the key of the dropped row.
        value: its value.
        maybe: whether the row might have had another key, since its key is unknown.
        more: the number of further rows that the step has dropped for the same key.
        of: why a side of the join lacks the key, or the filters downstream that would drop the row, too.
    """

    step: str
    where: str
    reason: str
    key: Any = None
    value: Any = None
    maybe: bool = False
    more: int = 0
    of: list["DroppedRow"] = []


class WhyNot:
    """Answers why steps of an evaluation have no row with a key."""

    def __init__(self, plan: Plan, evaluation: Evaluation) -> None:
        self._evaluation, self._bags = evaluation, evaluation.bags
        self._variables = {variable for loop in plan.loops() for variable in loop.variables}
        self._missing: dict[Node, list[Missing]] = {}

    def of(self, node: Node, keys: Sequence[Any], depth: int = 0) -> list[DroppedRow]:
        """Return the steps whose drops are the reason why `node` has no row with one of `keys`.

        The keys are the meanings that one text may have.
        """
        wanted = set(map(identity, keys))
        sure: dict[Node, list[DropReason]] = {}
        maybe: dict[Node, list[DropReason]] = {}
        for key, _, drop, _ in self._of(node):
            if key is UNKNOWN:
                maybe.setdefault(drop.step, []).append(drop)
            elif identity(key) in wanted:
                sure.setdefault(drop.step, []).append(drop)
        held = {step: [drop for drop in drops if drop.held] for step, drops in sure.items()}
        sure = {step: drops for step, drops in held.items() if drops} or sure
        found = [self._dropped_row(drops, depth, False) for drops in sure.values()]
        if not found:
            found = [self._dropped_row(drops, _DEEPEST, True) for drops in maybe.values()]
        return found[:_SHOWN] + ([] if sure else self._ends(node, keys))

    def _dropped_row(self, drops: list[DropReason], depth: int, maybe: bool) -> DroppedRow:
        first = min(drops, key=lambda drop: repr(drop.row))
        below = [DroppedRow(also.step.name, also.step.in_words, also.reason, *also.row) for also in first.then]
        if first.lacks is not None and depth < _DEEPEST:
            below += self.of(first.lacks, [first.row[0]], depth + 1)
        more = len({identity(drop.row) for drop in drops}) - 1
        return DroppedRow(first.step.name, first.step.in_words, first.reason, *first.row, maybe, more, below)

    def _of(self, node: Node) -> list[Missing]:
        """Return the missing rows of a step. They are computed once for each step, so loops end."""
        if node not in self._missing:
            self._missing[node] = []
            self._missing[node] = list(islice(self._made(node), _MOST_MISSING))
        return self._missing[node]

    def _made(self, node: Node) -> Iterable[Missing]:
        if node in self._variables or node.begins:
            return ()
        waiting = [
            Missing(*row, DropReason(node, reason, row)) for row, reason in self._evaluation.waiting.get(node, ())
        ]
        if node.same_rows_as is not None:
            return [*waiting, *self._of(node.same_rows_as)]
        if node.results:
            return [*self._held(node), *(row for source in (*node.inputs, *node.results) for row in self._of(source))]
        missing = node.missing([self._bags[source] for source in node.inputs], list(map(self._of, node.inputs)))
        return missing if not waiting else chain(waiting, missing)

    def _held(self, loop: Node) -> list[Missing]:
        """Return the rows that a recursion holds, because they are missing downstream."""
        held = self._evaluation.held.get(loop)
        if held is None:
            return []
        reason = f"holds it: the path {held.path} is a cycle. Mend the data"
        return [Missing(row[0], UNKNOWN, DropReason(loop, reason, row, held=True)) for row in held.rows.values()]

    def _ends(self, node: Node, keys: Sequence[Any]) -> list[DroppedRow]:
        """Return the upstream steps at which the search ends: tables without the key, and steps that make it."""
        found: list[DroppedRow] = []
        todo, seen = [node], {node}
        for at in todo:  # the list grows in the loop
            if at.begins:
                reason = f"has no row with this key, among {len(self._bags[at]):,}"
                found.append(DroppedRow(at.name, at.in_words, reason))
                continue
            sources = [at.same_rows_as] if at.same_rows_as is not None else [*at.inputs, *at.results]
            if reason := at.outside(keys, [self._bags[source] for source in sources]):
                found.append(DroppedRow(at.name, at.in_words, reason))
                continue
            if at.rekeys or (at.bilinear and at.rekeyed):
                size = max(len(self._bags[source]) for source in sources)
                found.append(DroppedRow(at.name, at.in_words, f"makes this key of none of its {size:,} rows"))
                continue
            news = [each for each in sources if each not in seen and each not in self._variables]
            todo += news
            seen.update(news)
        return found[:_SHOWN]
