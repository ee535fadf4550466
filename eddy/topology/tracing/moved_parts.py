"""Finds the parts of a sum that have changed between two versions, and the source rows that have changed them.

    moved(part) = number(part, now) - number(part, then)

Both versions are evaluated from scratch. A part is made from its rows, from the rows that were joined with them on the
way to the sum, and from all rows upstream of these. The source rows among them that only one of the two versions has
are the reason why the part has changed.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from eddy.topology.plan.bags import Row, identity
from eddy.topology.plan.facts import Fact
from eddy.topology.plan.plan import Node
from eddy.topology.tracing.evaluation import Evaluation
from eddy.topology.tracing.receipts import OpenLevel, Receipts, number_of
from eddy.topology.tracing.summands import OWN, RowGroup
from eddy.topology.tracing.ways import Input, Ways

__all__ = ["MovedPart", "MovedRow", "TracedVersion", "moved_parts", "moved_rows"]

_MOST_PARTS, _MOST_ROWS = 8, 5
_MOST_VISITED = 50_000


class MovedRow(msgspec.Struct, omit_defaults=True):
    """A row of a source that has changed. `then` or `now` is None if the source lacked its key at that version.

    `record`: the place and the timestamp of the record that changed the row, if the record is known.
    """

    step: str
    key: Any
    then: Any
    now: Any
    record: str = ""


class MovedPart(msgspec.Struct, omit_defaults=True):
    """A part of a sum whose number has changed from `then` to `now`; 0 for a version without the part.

    `of`: the title of the sum. `rows`: the changed source rows from which the part is made; `more` counts further rows.
    `is_cut`: whether the part is made from so many rows that not all were compared.
    """

    key: Any
    title: str
    then: Any
    now: Any
    step: str
    of: str
    word: str = ""
    rows: list[MovedRow] = []
    more: int = 0
    is_cut: bool = False


class TracedVersion(NamedTuple):
    """The evaluation of one version, with the traced rows of the step."""

    evaluation: Evaluation
    ways: Ways
    receipts: Receipts
    rows: list[Row]

    def levels(self, node: Node) -> dict[Any, OpenLevel]:
        """Return the open levels of the rows' sums, by the row's key, the sum's name, and the keys of opened parts."""
        found: dict[Any, OpenLevel] = {}
        for row in self.rows:
            for depth, level in enumerate(self.receipts.open_levels(node, row)):
                found.setdefault((identity(row[0]), level.name, identity(level.sum.key), depth), level)
        return found


def moved_parts(then: TracedVersion, now: TracedVersion, node: Node) -> tuple[list[MovedPart], int]:
    """Return the changed parts of the open levels, the largest changes first, and the number of further parts."""
    before, after = then.levels(node), now.levels(node)
    found = []
    for place in dict.fromkeys([*after, *before]):
        old, new = before.get(place), after.get(place)
        olds, news = _by_name(old), _by_name(new)
        for name in dict.fromkeys([*news, *olds]):
            one, other = olds.get(name), news.get(name)
            by = (other.number if other else Fraction(0)) - (one.number if one else Fraction(0))
            if by:
                found.append((abs(by), (old, one), (new, other)))
    found.sort(key=lambda each: -each[0])
    return [_moved(then, now, *sides) for _, *sides in found[:_MOST_PARTS]], max(0, len(found) - _MOST_PARTS)


def moved_rows(then: TracedVersion, now: TracedVersion, node: Node) -> tuple[list[MovedRow], int, bool]:
    """Return three values: changed source rows from which the traced rows are made, a number, and a flag.

    The number counts further changed rows. The flag says whether the search ended early.
    """
    return _changed(then, now, [(node, row) for row in then.rows], [(node, row) for row in now.rows], None)


def _by_name(level: OpenLevel | None) -> dict[Any, RowGroup]:
    parts = [] if level is None else level.parts
    return {(part.word, part.node, identity(part.key)): part for part in parts}


_Part = tuple[OpenLevel | None, RowGroup | None]


def _moved(then: TracedVersion, now: TracedVersion, old: _Part, new: _Part) -> MovedPart:
    part, level = new[1] or old[1], new[0] or old[0]
    assert part is not None
    assert level is not None
    numbers = [Fraction(0) if each is None else each.number for _, each in (old, new)]
    apart = part.node if part.word == OWN else None
    rows, more, is_cut = _changed(then, now, list(_rows_of(then, *old)), list(_rows_of(now, *new)), apart)
    before, after = (number_of(number, level.kind) for number in numbers)
    return MovedPart(
        part.key, part.title, before, after, part.node.name, level.sum.title, part.word, rows, more, is_cut
    )


def _rows_of(side: TracedVersion, level: OpenLevel | None, part: RowGroup | None) -> Iterator[Input]:
    """Yield the rows of a part, and the rows that were joined with them on the way to the sum."""
    if level is None or part is None:
        return
    rows: list[Input] = []
    for each in part.direct or [part]:
        rows += [(each.node, row) for row, *_ in each.shares.values()]
        if each.tree is not None or part.word == OWN:
            names = (identity(each.key), each.at)
            bag = side.evaluation.bags[each.node]
            rows += [(each.node, row) for row, _ in bag if identity(row) in names or identity(row[0]) in names]
    yield from rows
    todo, seen = list(rows), set[Any]()
    for node, row in rows:  # op was applied to these rows of the variable
        todo += [(variable, row) for variable in (node.as_loop.variables if node.as_loop is not None else ())]
    while todo:
        node, row = todo.pop()
        if (place := (node, identity(row))) not in seen:
            seen.add(place)
            for route in level.routes.get(place, ()):
                yield from route.others
                todo.append((route.node, route.row))


def _changed(
    then: TracedVersion, now: TracedVersion, olds: list[Input], news: list[Input], apart: Node | None
) -> tuple[list[MovedRow], int, bool]:
    """Return the source rows that only one version has, among those from which `olds` and `news` are made.

    A row whose value differs between the versions counts as changed. Rows of the step `apart` are left out. The other
    two values are as in `moved_rows`.
    """
    found: dict[Any, MovedRow] = {}
    is_cut = False
    for side, other, rows in ((then, now, olds), (now, then, news)):
        sources, cut = _sources(side, rows, apart)
        is_cut |= cut
        for node, row in sources:
            if row in other.evaluation.bags[node]:
                continue
            place = row.record if isinstance(row, Fact) else identity(row[0])
            moved = found.setdefault((node, place), MovedRow(node.name, row[0], None, None))
            if side is then:
                moved.then = row[1]
            else:
                moved.now = row[1]
                moved.record = str(row.record) if isinstance(row, Fact) else ""
    _fill(found, then, now)
    moved_rows = list(found.values())
    return moved_rows[:_MOST_ROWS], max(0, len(moved_rows) - _MOST_ROWS), is_cut


def _fill(found: dict[Any, MovedRow], then: TracedVersion, now: TracedVersion) -> None:
    """Set the values `then` and `now` of changed rows of tables, as the table has them at the two versions.

    So a row has two values even if only one version has it in the part.
    """
    nodes = {node for node, _ in found}
    for node in nodes:
        for side, name in ((then, "then"), (now, "now")):
            for row, _ in side.evaluation.bags[node]:
                moved = None if isinstance(row, Fact) else found.get((node, identity(row[0])))
                if moved is not None:
                    setattr(moved, name, row[1])


def _sources(side: TracedVersion, rows: Iterable[Input], apart: Node | None) -> tuple[list[Input], bool]:
    """Return the source rows from which `rows` are made, and whether the search ended at too many rows."""
    todo, seen, found = list(rows), set[Any](), list[Input]()
    while todo:
        node, row = todo.pop()
        if (place := (node, identity(row))) in seen:
            continue
        seen.add(place)
        if len(seen) > _MOST_VISITED:
            return found, True
        if node.begins:
            found.append((node, row))
            continue
        for way in side.ways.of(node, row):
            todo += [each for each in way if each[0] is not apart]
    return found, False
