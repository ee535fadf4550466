"""Makes the receipt of a count or a sum: the number as the sum of its parts, one level at a time.

    f(X) = Σ weight(row) · f(row)        a count has f = 1, a sum has f(row) = the row's number

A step whose rows are linear in its input's rows passes f on: an input row's number is the sum of the numbers of the
rows made from it. So the same total is a sum over the rows upstream. The walk upstream ends at rows of source tables,
at records of streams, at steps that are not linear, and at the rows of a recursion X = seed + op(X). If all rows at
which it ends in the recursion have one key, they are opened: the numbers that come from the seed are *direct*. The rest
are the rows of X to which op was applied, by their keys, and each of these can be opened in turn.

A sum over a subtree of a forest, such as a total of `tree_totals`, is the *own* number of the node plus the sums of the
subtrees below it. A number that is made from rows below one another, such as the rows of `recursive_fixpoint`, is such
a sum, too.
"""

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from math import isclose, isfinite
from typing import Any, NamedTuple

import msgspec

from eddy.errors import QueryError
from eddy.topology.plan.addends import Addend
from eddy.topology.plan.bags import Row, identity, is_grouped
from eddy.topology.plan.facts import Fact, moment_text
from eddy.topology.plan.plan import Loop, Node, Plan
from eddy.topology.tracing.evaluation import Evaluation
from eddy.topology.tracing.summands import DIRECT, OWN, RowGroup, RowShare, RowShares, SubtreeSums, add_share, not_zero
from eddy.topology.tracing.titles import key_text, label, title_of
from eddy.topology.tracing.ways import Input, Ways

__all__ = ["OpenLevel", "Receipt", "Receipts", "Routes", "Summand", "number_of"]

_SHOWN = 8
_MOST_STEPS = 100


class Summand(msgspec.Struct, omit_defaults=True):
    """One part of a number: the rows of `step` with one key, the rows below a key, or rows that share a word.

    Args:
        title: the name that a table's row gives to the key; the key if there is no such row.
        word: `direct` for the rows from the seed of a recursion, `own` for a node's own number; otherwise empty.
        opens: the text by which a user opens the part, if it is a sum itself.
    """

    key: Any
    title: str
    number: Any
    step: str
    word: str = ""
    opens: str = ""


class Receipt(msgspec.Struct, omit_defaults=True):
    """A number and the parts that add up to it.

    The largest parts are in `parts`; `more` is the number of the other parts, and `rest` is their sum.

    `name`: the name of the number, if the row has several.
    `opened`: the receipt of one of the parts.
    """

    key: Any
    title: str
    number: Any
    step: str
    parts: list[Summand]
    more: int = 0
    rest: Any = 0
    name: str = ""
    opened: "Receipt | None" = None


class _End(NamedTuple):
    """A row of a step at which the walk upstream ends, with its number."""

    node: Node
    share: RowShare


class _Origin(NamedTuple):
    """An input row of a step, with the number of times that it counts in the row made from it.

    If the row was joined, its key in the join is there, too.
    """

    node: Node
    row: Row
    times: int = 1
    joined_by: Any = None
    others: tuple[Input, ...] = ()


class Route(NamedTuple):
    """A row that gets the number of an upstream row unchanged, and the rows that were joined with the latter."""

    node: Node
    row: Row
    others: tuple[Input, ...]


Routes = dict[Any, list[Route]]
"""The routes to each row, by its step and identity."""


class OpenLevel(NamedTuple):
    """A level that is open: the sum, all its parts, the type of their numbers, and the routes of the parts' rows.

    `name`: the name of the sum, if the row has several.
    """

    name: str
    sum: RowGroup
    parts: list[RowGroup]
    kind: type
    routes: Routes


class Receipts:
    """Makes the receipts of an evaluation's counts and sums.

    `path`: the keys of the parts to open, each one level below the key before. `opened` says whether a receipt had the
    first part of the path. QueryError is raised if a part of the path exists but cannot be opened.
    """

    def __init__(self, plan: Plan, evaluation: Evaluation, ways: Ways, path: Sequence[str] = ()) -> None:
        self._evaluation, self._bags, self._ways, self._path = evaluation, evaluation.bags, ways, path
        self._order = {node: number for number, node in enumerate(plan.nodes)}
        self._titles: dict[Loop, dict[Any, str]] = {}
        self._sums: dict[Node, tuple[SubtreeSums, bool] | None] = {}
        self._routes: Routes = {}
        self.opened = not path

    def of(self, node: Node, row: Row) -> list[Receipt]:
        """Return the receipts of the finite sums in a row's value."""
        found = []
        for name, level, kind in self._sums_in(node, row):
            found.append(self._receipt(level, kind, self._path))
            found[-1].name = name
        return found

    def open_levels(self, node: Node, row: Row) -> Iterator[OpenLevel]:
        """Follow the trace's path of keys down from each sum in a row, and yield each level with all its parts.

        The first level is the sum itself. A sum ends at the key of the path that none of its parts has.
        """
        for name, top, kind in self._sums_in(node, row):
            level: RowGroup | None = top
            path = list(self._path)
            while level is not None:
                parts, _ = self._parts(level)
                yield OpenLevel(name, level, parts, kind, self._routes)
                chosen = _chosen(parts, path.pop(0)) if path else None
                level = None if chosen is None else self._below(chosen)

    def _sums_in(self, node: Node, row: Row) -> Iterator[tuple[str, RowGroup, type]]:
        """Yield (name, sum, type of the number) for each finite sum in a row's value."""
        named = [addend for addend in node.addends if addend.name]
        level = None if named else self._level(node, row)
        if level is not None:
            yield "", level, type(row[1])
            return
        for addend in named:
            if _is_number(value := addend.of_value(row[1])):
                yield addend.name, self._sum_of_rows(node, row, addend), type(value)

    def _level(self, node: Node, row: Row) -> RowGroup | None:
        """Return the sum that a row's value is. An upstream step that passes the value on unchanged may have made it.

        Returns None if the value is no sum.
        """
        value, seen = row[1], 0
        if not _is_number(value):
            return None
        while seen < _MOST_STEPS and node.as_loop is None:
            if node.same_rows_as is not None:
                node = node.same_rows_as
                continue
            sums = [self._sum_of_rows(node, row, addend) for addend in node.addends if not addend.name]
            level = sums[0] if sums else self._sum_of_subtree(node, row)
            if level is not None:
                return level if not seen or _is_near(level.number, value) else None
            ways = self._ways.of(node, row)
            if len(ways) != 1 or len(ways[0]) != 1:
                return None
            ((node, row),) = ways[0]
            seen += 1
        return None

    def _sum_of_rows(self, node: Node, row: Row, addend: Addend) -> RowGroup:
        """Return the rows of the step's input that a row adds up."""
        (source,), key = node.inputs, identity(row[0])
        level = RowGroup(source, row[0], label(row[0]))
        for one, weight in self._bags[source]:
            if is_grouped(one) and identity(one[0]) == key and (number := addend.of_row(one)):
                level.add(one, Fraction(number), weight)
        return level

    def _sum_of_subtree(self, node: Node, row: Row) -> RowGroup | None:
        if node not in self._sums:
            found = node.subtree_sums(*(self._bags[source] for source in node.inputs))
            self._sums[node] = None
            if found is not None and all(map(_is_number, found[0].numbers.values())):
                numbers = {item: Fraction(number) for item, number in found[0].numbers.items()}
                self._sums[node] = SubtreeSums(node, found[0], numbers), found[1]
        sums, item = self._sums[node], row[0]
        if sums is None or item not in sums[0].sums:
            return None
        level = sums[0].part(item)
        if not sums[1]:  # the node's own number is not in its total
            level.number -= sums[0].own[item]
            level.direct = [part for part in sums[0].parts(item) if not part.word]
            level.tree = None
        return level

    def _receipt(self, level: RowGroup, kind: type, path: Sequence[str]) -> Receipt:
        parts, loop = self._parts(level)
        if loop is not None:
            level.title = self._named(loop).get(identity(level.key), level.title)
        parts.sort(key=lambda part: (not part.word, -abs(part.number), part.title))
        shown, rest = parts[:_SHOWN], parts[_SHOWN:]
        return Receipt(
            level.key,
            level.title,
            number_of(level.number, kind),
            level.node.name,
            [self._part(each, kind) for each in shown],
            len(rest),
            number_of(sum((each.number for each in rest), Fraction(0)), kind),
            opened=self._open(level, parts, kind, path) if path else None,
        )

    def _part(self, part: RowGroup, kind: type) -> Summand:
        opens = _text(part) if self._below(part) is not None else ""
        return Summand(part.key, part.title, number_of(part.number, kind), part.node.name, part.word, opens)

    def _open(self, level: RowGroup, parts: list[RowGroup], kind: type, path: Sequence[str]) -> Receipt | None:
        """Return the receipt of the part with the key `path[0]`; None if there is no such part."""
        found = _chosen(parts, path[0])
        if found is None:
            if path is self._path:  # another receipt of the trace may have this part
                return None
            raise QueryError(
                f"trace: {level.title} has no part with the key {path[0][:200]!r}; it has "
                f"{', '.join(label(part.key) for part in parts[:_SHOWN])}{', …' if len(parts) > _SHOWN else ''}"
            )
        below = self._below(found)
        if below is None:
            raise QueryError(
                f"trace: the part {found.title} is a row of step '{found.node.name}' ({found.node.does}) and no sum; "
                f"`eddy trace` of that step shows how it was made"
            )
        self.opened = True
        return self._receipt(below, kind, path[1:])

    def _below(self, part: RowGroup) -> RowGroup | None:
        """Return the level that a part opens: rows of a recursion, a subtree, or the sum that its number is.

        Returns None if the part opens no level.
        """
        if part.direct or (part.tree is not None and part.tree.below.get(part.at)):
            return part
        if part.node in self._evaluation.waves:
            return part
        if len(part.shares) == 1:
            ((row, *_),) = part.shares.values()
            inner = self._level(part.node, row)
            if inner is not None and inner.number == part.number:
                inner.title = part.title
                return inner
        return None

    # The parts of one level

    def _parts(self, level: RowGroup) -> tuple[list[RowGroup], Loop | None]:
        """Return the parts of a number. The second value is the recursion whose rows the parts are, or None."""
        self._routes = {}
        if level.direct or level.tree is not None:
            return level.direct or (level.tree.parts(level.at) if level.tree is not None else []), None
        loop, found = self._walk(level)
        trees, found = self._in_trees(found)
        if trees and not found and loop is None and len(trees) == 1:
            (tree,) = trees
            return (tree.parts(tree.tops[0]) if len(tree.tops) == 1 else list(map(tree.part, tree.tops))), None
        keys = {identity(share.row[0]) for _, share in found}
        tells_apart = len(keys) > 1 or (len(found) == 1 and identity(level.key) not in keys)
        by_value = not tells_apart and not any(node.begins for node, _ in found)
        around: dict[Any, RowGroup] = {}
        direct: dict[Any, RowGroup] = {}
        for node, (row, number, joined_by) in found:
            if loop is not None and node in loop.variables:
                key = row[0] if joined_by is None else joined_by
                part = around.setdefault(
                    identity(key), self._group(loop, row, key, self._last_iteration_of(loop, level))
                )
            else:
                key = row.record.place if isinstance(row, Fact) else row[1] if by_value else row[0]
                part = direct.setdefault((node, identity(key)), self._group(node, row, key))
            part.add(row, number, self._weight(part, row))
        for tree in trees:
            direct |= {(tree.node, top): tree.part(top) for top in tree.tops}
        if loop is None or not direct:
            return not_zero([*direct.values(), *around.values()]), loop
        together = RowGroup(loop, DIRECT, DIRECT)
        together.word, together.direct = DIRECT, not_zero(direct.values())
        together.number = sum((each.number for each in direct.values()), Fraction(0))
        return [together, *not_zero(around.values())], loop

    def _in_trees(self, found: list[_End]) -> tuple[list[SubtreeSums], list[_End]]:
        """Split rows into two lists: the trees of rows that are below one another, and the rows that are in no tree."""
        trees, others = [], []
        for node in dict.fromkeys(end.node for end in found):
            ends = [end for end in found if end.node is node]
            forest = node.forest(self._bags[node])
            if forest is None or any(identity(end.share.row) not in forest.keys for end in ends):
                others += ends
            else:
                numbers = {identity(row): number * self._bags[node].weight(row) for _, (row, number, _) in ends}
                trees.append(SubtreeSums(node, forest, numbers))
        return trees, others

    def _group(self, node: Node, row: Row, key: Any, last_iteration: int | None = None) -> RowGroup:
        """Return a part without rows yet, titled after its row, or after the row that a recursion joins to its key."""
        if isinstance(row, Fact):
            return RowGroup(
                node, key, f"{title_of(row[1]) or label(row[0])} {moment_text(row.record.timestamp_ms)}", last_iteration
            )
        named = title_of(row[1]) if node.as_loop is None else self._named(node.as_loop).get(identity(key))
        return RowGroup(node, key, named or label(key), last_iteration)

    def _walk(self, level: RowGroup) -> tuple[Loop | None, list[_End]]:
        """Follow rows upstream. Returns the loop that was opened, or None, and the rows at which the walk ends.

        At most one loop is opened.
        """
        loop: Loop | None = None
        found: dict[Node, RowShares] = {}
        todo: dict[Node, RowShares] = {level.node: level.shares}
        while todo:
            node = max(todo, key=self._order.__getitem__)
            rows = todo.pop(node)
            keys = {identity(share.row[0]) for share in rows.values()}
            opens = node in self._evaluation.waves and loop is None and len(keys) == 1
            if opens:
                loop = node.as_loop
            for share in rows.values():
                origins = (
                    self._origins_in_loop(node, share.row, level.last_iteration)
                    if opens
                    else self._origins(node, share.row, loop)
                )
                if origins is None:
                    is_around = loop is not None and node in loop.variables
                    add_share(found.setdefault(node, {}), share if is_around else share._replace(joined_by=None))
                for source, origin, times, joined_by, others in origins or ():
                    route = Route(node, share.row, others)
                    self._routes.setdefault((source, identity(origin)), []).append(route)
                    by = share.joined_by if joined_by is None else joined_by
                    add_share(todo.setdefault(source, {}), RowShare(origin, share.number * times, by))
        return loop, [_End(node, share) for node, shares in found.items() for share in shares.values()]

    def _origins_in_loop(self, loop: Node, row: Row, last_iteration: int | None) -> list[_Origin]:
        """Return a loop's row as a row of the seed and a row of op(X), as far as these have it.

        In iteration 0 there is no op(X).
        """
        sources = loop.inputs if last_iteration == 0 else (*loop.inputs, *loop.results)
        return [_Origin(source, row) for source in sources if row in self._bags[source]]

    def _origins(self, node: Node, row: Row, loop: Loop | None) -> list[_Origin] | None:
        """Return the input rows to which a row's number is passed on; None if the walk ends at this row."""
        if node.passes:
            return [_Origin(source, row) for source in self._ways.holding(node, row)]
        if node.factor is None:
            return None
        inside = set() if loop is None else self._evaluation.inside(loop)
        found = []
        for way in self._ways.by_step(node, row):
            owner = next((number for number, (source, _) in enumerate(way) if source in inside), 0)
            times = node.factor
            for number, (source, other) in enumerate(way):
                times *= self._bags[source].weight(other) if number != owner else 1
            joined_by = way[owner][1][0] if len(way) > 1 and loop is not None else None
            found.append(_Origin(*way[owner], times, joined_by, tuple(way[:owner] + way[owner + 1 :])))
        return found

    # Weights and names

    def _weight(self, group: RowGroup, row: Row) -> int:
        """Return the weight of a row, within the iterations that count."""
        if group.last_iteration is None:
            loop = group.node.as_loop
            return self._bags[group.node if loop is None else loop.variables[0]].weight(row)
        return sum(bag.weight(row) for bag in self._evaluation.waves[group.node][: group.last_iteration + 1])

    def _last_iteration_of(self, loop: Loop, level: RowGroup) -> int | None:
        """Return the last iteration to whose rows op was applied to make a level's rows; None if depth has no bound."""
        if not loop.bound.by_depth:
            return None
        return (loop.iterations if level.last_iteration is None else level.last_iteration) - 1

    def _named(self, loop: Loop) -> dict[Any, str]:
        """Return the names of a recursion's keys, from the rows that are joined with them inside the recursion."""
        if loop not in self._titles:
            self._titles[loop] = {
                identity(key): title
                for source in self._evaluation.joined(loop)
                for (key, value), _ in self._bags[source]
                if (title := title_of(value))
            }
        return self._titles[loop]


def _chosen(parts: list[RowGroup], text: str) -> RowGroup | None:
    """Return the part that a text opens; None if there is none.

    The text may be the key as JSON, too, so that the key "direct" can be told from the word.
    """
    return next((part for part in parts if text in {_text(part), _json(part)}), None)


def _text(part: RowGroup) -> str:
    if part.word:
        return part.word
    text = key_text(part.key)
    return _json(part) if text in {DIRECT, OWN} else text


def _json(part: RowGroup) -> str:
    return part.word or json.dumps(part.key, ensure_ascii=False, default=repr)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and _is_finite(value)


def _is_near(exact: Fraction, value: Any) -> bool:
    """Return whether a value equals an exact number, or is the float nearest to it."""
    return exact == value or (isinstance(value, float) and isclose(float(exact), value, rel_tol=1e-9))


def _is_finite(value: int | float | Decimal) -> bool:
    return isinstance(value, int) or isfinite(value)


def number_of(exact: Fraction, kind: type) -> Any:
    """Return a number as a Decimal if `kind` is Decimal, as an int if it is whole, else as a float.

    If `kind` is float, a whole number is a float, too.
    """
    if kind is Decimal:
        return Decimal(exact.numerator) / Decimal(exact.denominator)
    return int(exact) if kind is not float and exact.denominator == 1 else float(exact)
