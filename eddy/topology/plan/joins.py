"""Joins: of facts with a table, of two tables, of two relations.

A join reads its sides from states: the table of its input if there is one, X if the input is a recursion's variable, or
else a new arrangement, `<join>-left` or `<join>-right`.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eddy.operators import join
from eddy.operators.nested.operators import NestedJoin, NestedLookupJoin
from eddy.operators.operator import Operator
from eddy.topology.plan.bags import Bag, Row, Way, Weighted, groups, identity
from eddy.topology.plan.compilers import CircuitBuilder, LoopBody, Spark, States
from eddy.topology.plan.missing import UNKNOWN, by_key
from eddy.topology.plan.node import NO_PLACE, Arrival, DropReason, Missing, Node
from eddy.topology.plan.slots import swapped

__all__ = ["Join", "StreamTableJoin", "TableJoin"]


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamTableJoin(Node):
    """Joins each fact with the table's value for its key."""

    keeps_records = True
    derived = ("right",)
    untraced = "joins each record with the table as it was when the record arrived"

    joiner: Callable[[Any, Any], Any]
    left: bool = False

    @property
    def record_inputs(self) -> tuple[Node, ...]:
        """The facts, which the step passes on."""
        return self.inputs[:1]

    @property
    def takes_keyless(self) -> bool:  # type: ignore[override]
        """Whether records without a key are joined; a left join accepts them (KIP-962)."""
        return self.left

    @property
    def arrival(self) -> Arrival:
        """The part of the result that depends on the order of arrival: the table's value at each fact."""
        return Arrival("a stream-table join: each record is joined with the table as it was when the record arrived")

    @property
    def drops(self) -> bool:  # type: ignore[override]
        """Whether the step drops rows: an inner join drops rows without a match."""
        return not self.left

    @property
    def looks_up(self) -> tuple[tuple[Node, str], ...]:
        """The table, whose state the step reads."""
        return ((self.inputs[1], f"{self.name}-right"),)

    def operator(self, states: States) -> Operator:
        """Return the operator that looks up the table's values."""
        ((table, name),) = self.looks_up
        return join.StreamTableJoin(self.name, states.table_of(table, name), self.joiner, self.left)

    def on_spark(self, spark: Spark) -> None:
        """Join the facts with the final table."""
        spark.looked_up(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class TableJoin(Node):
    """Joins two tables, key by key."""

    derived = ("left", "right")

    joiner: Callable[[Any, Any], Any]
    join: Literal["inner", "left", "outer"]
    linear = False
    does = "join"
    explained_by_key = True

    @property
    def refused_in_nested_time(self) -> str:
        """The reason why nested time refuses the step, with the remedy: join relations instead."""
        return f"step '{self.name}' joins or makes tables, {NO_PLACE}"

    @property
    def looks_up(self) -> tuple[tuple[Node, str], ...]:
        """Both tables, whose states the step reads."""
        return _sides(self)

    def operator(self, states: States) -> Operator:
        """Return the operator that joins each change of one side with the other side's value."""
        left, right = (states.table_of(*side) for side in self.looks_up)
        return join.TableJoin(self.name, left, right, self.joiner, self.join)

    def on_spark(self, spark: Spark) -> None:
        """Join the tables."""
        spark.tables_joined(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Yield the joined value of each key that has a match."""
        ours, theirs = ({identity(row[0]): row for row, _ in side} for side in inputs)
        for key in {**ours, **theirs}:
            one, other = ours.get(key), theirs.get(key)
            if (one is None and self.join != "outer") or (other is None and self.join == "inner"):
                continue
            value = self.joiner(None if one is None else one[1], None if other is None else other[1])
            if value is not None:
                yield ((one or other or (None, None))[0], value), 1

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterator[Missing]:
        """Yield keys that are missing on one side or both, and pairs for which the function returns None."""
        sides = [{identity(row[0]): row for row, _ in side} for side in inputs]
        made = {identity(row[0]) for row, _ in self.rows_from(*inputs)}
        for number, (ours, theirs) in enumerate((sides, sides[::-1])):
            for place, row in ours.items():
                if place in made:
                    continue
                if place not in theirs:
                    yield Missing(row[0], UNKNOWN, _unmatched(self, row, 1 - number))
                elif not number:
                    yield Missing(row[0], UNKNOWN, DropReason(self, "makes None of the values of both sides", row))
        for rows in missing:
            there = (row[0] for side in sides for row in side.values())
            yield from (absent._replace(value=UNKNOWN) for absent in by_key(rows, there))

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Yield each key with its row on each side."""
        found: dict[Any, Way] = {}
        for number, side in enumerate(inputs):
            for row, _ in side:
                found.setdefault(identity(row[0]), []).append((number, row))
        return ((way[0][1][0], way) for way in found.values())


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Node):
    """Joins two relations (or tables, as relations) on equal keys."""

    derived = ("left", "right")

    bilinear = True
    drops = True

    merge: Callable[[Any, Any, Any], tuple[Any, Any]]

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """The pair of the two inputs; if the result keeps their keys, also the pair of the result and an input."""
        left, right = self.inputs
        return [(left, right)] if self.rekeyed else [(left, right), (self, left)]

    @property
    def looks_up(self) -> tuple[tuple[Node, str], ...]:
        """Both relations, whose states the step reads."""
        return _sides(self)

    def traces(self, inside: Container[Node]) -> list[tuple[Node, str]]:
        """Return the sides that are inside loops."""
        return [side for side in self.looks_up if side[0] in inside]

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the join. Inside a recursion by waves, the recursion's rows are on the left."""
        bound = circuit.waves_around(self)
        left, right, merge = self._swapped(self.inputs[1] in circuit.inside)
        one, other = circuit.lookup(*left), circuit.lookup(*right)
        inside = bound is not None
        by_depth = bound is not None and bound.by_depth
        operator = join.Join(self.name, one, other, merge, 1 if inside else 2, by_depth, headed=not inside)
        return circuit.emit(operator, circuit.slot_of(left[0]), circuit.slot_of(right[0]))

    def build_nested(self, loop: LoopBody) -> int:
        """Add the join in a loop by nested time.

        Rows from inside loops are stored by iteration, rows from outside all loops are read from their states.
        """
        left, right, merge = self._swapped(self.inputs[0] not in loop.inside)
        kept = loop.trace(*left)
        operator: Operator
        if right[0] in loop.inside:
            operator = NestedJoin(self.name, kept, loop.trace(*right), merge, loop.guard)
        else:
            operator = NestedLookupJoin(self.name, kept, loop.outside.lookup(*right), merge, loop.guard)
        return loop.emit(operator, loop.slot_of(left[0]), loop.slot_of(right[0]))

    def _swapped(self, swap: bool) -> tuple[tuple[Node, str], tuple[Node, str], Callable[[Any, Any, Any], Any]]:
        """Return both sides and the function that merges them; with the sides swapped if `swap`."""
        left, right = self.looks_up
        return (right, left, swapped(self.merge)) if swap else (left, right, self.merge)

    def on_spark(self, spark: Spark) -> None:
        """Join the relations on the bytes of their keys."""
        spark.joined(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Return the merged row of each pair with equal keys."""
        return ((made, weight) for made, _, _, weight in self._pairs(*inputs))

    @property
    def factor(self) -> int:
        """1: a row's weight is the product of both sides' weights."""
        return 1

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterator[Missing]:
        """Yield missing rows for unmatched rows and missing input rows; keys that the function makes are unknown."""
        grouped = [groups(side) for side in inputs]
        for number, rows in enumerate(inputs[:1] if self.rekeyed else inputs):
            for row, _ in rows:
                if row[0] is not None and identity(row[0]) not in grouped[1 - number]:
                    key = UNKNOWN if self.rekeyed else row[0]
                    yield Missing(key, UNKNOWN, _unmatched(self, row, 1 - number))
        for number, gone in enumerate(missing):
            for absent in gone:
                for other, weight in grouped[1 - number].get(identity(absent.key), ()):
                    yield from self._met(absent._replace(weight=absent.weight * weight), other[1], number)

    def _met(self, absent: Missing, other: Any, number: int) -> Iterator[Missing]:
        """Yield the rows that a missing row of side `number` would make with a value of the other side."""
        if absent.value is UNKNOWN:
            yield absent._replace(key=UNKNOWN) if self.rekeyed else absent
            return
        left, right = (absent.value, other) if number == 0 else (other, absent.value)
        try:
            key, value = self.merge(absent.key, left, right)
        except Exception:  # the function may not accept rows that never reach it
            return
        yield absent._replace(key=key, value=value)

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Yield each row with a row of each side."""
        return ((made, [(0, left), (1, right)]) for made, left, right, _ in self._pairs(*inputs))

    def _pairs(self, left: Bag, right: Bag) -> Iterator[tuple[Row, Row, Row, int]]:
        """Yield (row made, left row, right row, weight) for each pair with equal keys."""
        matches = groups(right)
        for row, weight in left:
            for other, factor in matches.get(identity(row[0]), ()) if row[0] is not None else ():
                yield tuple(self.merge(row[0], row[1], other[1])), row, other, weight * factor


def _unmatched(join: Node, row: Row, side: int) -> DropReason:
    """Return the drop of a row whose key is missing in input number `side`."""
    lacks = join.inputs[side]
    reason = f"has no row with this key on its {('left', 'right')[side]} side, {lacks.in_words}"
    return DropReason(join, reason, row, lacks)


def _sides(join: Node) -> tuple[tuple[Node, str], ...]:
    left, right = join.inputs
    return (left, f"{join.name}-left"), (right, f"{join.name}-right")
