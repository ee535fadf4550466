"""Steps without a state, and tables of the last value of each key."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Literal

from eddy.operators import stateless, upsert
from eddy.operators.operator import Operator, RowWise
from eddy.operators.with_records import WithRecords
from eddy.source_lines import line_of
from eddy.topology.plan.bags import Bag, Row, Way, Weighted, identity
from eddy.topology.plan.compilers import CircuitBuilder, LoopBody, Spark, States
from eddy.topology.plan.facts import like
from eddy.topology.plan.missing import UNKNOWN, by_key
from eddy.topology.plan.node import MIXED, NO_PLACE, Arrival, DropReason, Missing, Node, Role
from eddy.topology.plan.states_kept import TABLE
from eddy.topology.plan.step_names import NUMBERED

__all__ = ["REKEYING", "Latest", "Merge", "Transform", "Upsert", "Verb", "changed_table"]

Verb = Literal[
    "filter", "filter-not", "map", "map-values", "flat-map", "flat-map-values", "select-key", "peek", "negate"
]

REKEYING = frozenset({"map", "flat-map", "select-key"})
"""The verbs that may change keys."""
_KEEPING_VALUES = frozenset({"filter", "filter-not", "peek", "select-key"})
_RETURNING: dict[str, Callable[[str, Any, str], RowWise]] = {
    "map": stateless.Map,
    "flat-map": stateless.FlatMap,
    "flat-map-values": stateless.FlatMapValues,
}
"""The operators whose function has to return rows or values; their errors name the step as the author does."""
_OPERATORS: dict[str, Callable[[str, Any], RowWise]] = {
    "select-key": stateless.SelectKey,
    "peek": stateless.Peek,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Transform(Node):
    """A stateless step that applies the DSL's `verb` with the author's `function`."""

    keeps_records = True

    verb: Verb
    function: Callable[..., Any] | None = None
    keeps_key: bool = False
    """Whether the pairs that `function` returns have the keys of the input rows."""
    method: str = ""
    """The method of the DSL that the author has called, for messages."""
    with_record: bool = False
    """Whether `function` is called with pairs (value, record) in place of values."""

    @property
    def where(self) -> str:
        """The step in the author's words: `map after 'words'`, or `map 'swapped'` if it has a name."""
        method = self.method or self.verb.replace("-", "_")
        return f"{method} after '{self.label}'" if NUMBERED.fullmatch(self.name) else f"{method} '{self.name}'"

    @property
    def does(self) -> str:
        """Its verb."""
        return self.verb

    @property
    def kind_of_step(self) -> str:
        """Its verb."""
        return self.verb

    @property
    def only_by_worker(self) -> str:  # type: ignore[override]
        """The reason why only a worker computes the rows: the function reads places and headers. Empty for `peek`."""
        reads = self.with_record and self.verb != "peek"
        return "its function reads the places and headers of records" if reads else ""

    @property
    def arrival(self) -> Arrival | None:
        """The part that depends on the order of arrival: all rows, if the author's function reads the `record`."""
        return Arrival(self.only_by_worker) if self.only_by_worker else None

    @property
    def in_words(self) -> str:
        """The step as messages name it."""
        return self.where

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """The step and its input, unless the step changes keys."""
        return [] if self.rekeys else super().co_partitioned

    @property
    def drops(self) -> bool:  # type: ignore[override]
        """Whether the step can drop a row, as filters and flat maps can."""
        return self.verb in {"filter", "filter-not", "flat-map", "flat-map-values"}

    @property
    def rekeys(self) -> bool:  # type: ignore[override]
        """Whether rows may have other keys afterwards."""
        return self.verb in REKEYING and not self.keeps_key

    def operator(self, states: States) -> Operator:
        """Return the operator that applies the function to each row."""
        return self.applied()

    def applied(self) -> Operator:
        """Return the operator of the step, which has no state."""
        if self.verb == "negate":
            return stateless.Negate(self.name)
        operator = self._of_rows()
        return WithRecords(operator, self.verb in _KEEPING_VALUES) if self.with_record else operator

    def _of_rows(self) -> RowWise:
        assert self.function is not None
        if self.verb in {"filter", "filter-not"}:
            return stateless.Filter(self.name, self.function, keep=self.verb == "filter")
        if self.verb == "map-values":
            return stateless.MapValues(self.name, self.function, table=self.kind == "table")
        if self.verb in _RETURNING:
            return _RETURNING[self.verb](self.name, self.function, self.where)
        return _OPERATORS[self.verb](self.name, self.function)

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the operator, unless this is a `peek` whose function is not to be called."""
        return super().build(circuit) if circuit.peeks or self.verb != "peek" else circuit.slot_of(self.inputs[0])

    def build_nested(self, loop: LoopBody) -> int:
        """Place the step inside a loop."""
        return super().build_nested(loop) if loop.peeks or self.verb != "peek" else loop.slot_of(self.inputs[0])

    def on_spark(self, spark: Spark) -> None:
        """Apply the function to each row, without effects; if it reads records, only a worker can call it."""
        if self.only_by_worker:
            spark.by_a_worker(self)
        else:
            spark.transformed(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Yield the rows that the function makes of each input row."""
        return ((made, self.factor * weight) for row, weight in inputs[0] for made in self._made_of(row))

    @property
    def factor(self) -> int:
        """1, or -1 for `negate`: a row's weight is this number times the weight of its input row."""
        return -1 if self.verb == "negate" else 1

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Yield each row with the input row from which it is made."""
        return ((made, [(0, row)]) for row, _ in inputs[0] for made in self._made_of(row))

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterator[Missing]:
        """Yield input rows from which the function makes no row, and the rows that it makes of missing input rows."""
        filters, line = self.verb in {"filter", "filter-not"}, line_of(self.function)
        if self.drops or self.kind == "table":
            reason = "drops it" if filters else "makes nothing of it"
            for row, weight in inputs[0]:
                if not self._made_of(row):
                    drop = DropReason(self, f"{reason} ({line})" if line else reason, row)
                    yield Missing(UNKNOWN if self.rekeys else row[0], row[1] if filters else UNKNOWN, drop, weight)
        for absent in missing[0]:
            key, value, drop, weight = absent
            if value is UNKNOWN:
                yield absent._replace(key=UNKNOWN) if self.rekeys else absent
                continue
            try:
                made = self._made_of((key, value))
            except Exception:  # the function may not accept rows that never reach it
                continue
            yield from (Missing(*row, drop, self.factor * weight) for row in made)
            if filters and not made:
                also = DropReason(self, f"would drop what is made of it ({line})", (key, value))
                yield absent._replace(drop=drop._replace(then=(*drop.then, also)))

    def _made_of(self, row: Row) -> list[Row]:
        key, value = row
        function: Any = self.function
        match self.verb:
            case "filter":
                made = [row] if function(key, value) else []
            case "filter-not":
                made = [] if function(key, value) else [row]
            case "map":
                made = [tuple(function(key, value))]
            case "map-values":
                made = [(key, function(value))]
            case "flat-map":
                made = [(new, other) for new, other in function(key, value)]
            case "flat-map-values":
                made = [(key, new) for new in function(value)]
            case "select-key":
                made = [(function(key, value), value)]
            case _:
                made = [row]
        if self.kind == "stream":
            return [like(row, new) for new in made]
        return [new for new in made if new[1] is not None] if self.kind == "table" else made


@dataclass(frozen=True, eq=False, kw_only=True)
class Merge(Node):
    """Adds up the rows of all inputs."""

    keeps_records = True
    passes = True
    role: ClassVar[Role] = "sum"
    does = "union"

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """The pairs of the result and each input, except inputs whose keys have changed since the last exchange."""
        return [] if self.rekeyed else super().co_partitioned

    def operator(self, states: States) -> Operator:
        """Return the operator that adds up the inputs."""
        return stateless.Union(self.name)

    def on_spark(self, spark: Spark) -> None:
        """Add up the rows of the inputs."""
        spark.union(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Yield the rows of all inputs."""
        return (item for rows in inputs for item in rows)

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterator[Missing]:
        """Yield the missing rows of all inputs, and rows that negative weights in other inputs cancel."""
        yield from chain(*missing)
        for rows in inputs:
            for row, weight in rows:
                if weight > 0 and sum(each.weight(row) for each in inputs) <= 0:
                    drop = DropReason(self, "takes it away: another input has it with a weight below 0", row)
                    yield Missing(*row, drop, weight)


@dataclass(frozen=True, eq=False, kw_only=True)
class Latest(Node):
    """Turns a table's changes into facts: the new value of each key, or None for a deleted key."""

    role = "changes"

    @property
    def arrival(self) -> Arrival | None:
        """The part that depends on the order of arrival: the number of records, unless each row is emitted once."""
        if self.inputs[0].final:
            return None
        return Arrival(
            "a table's changes as a stream: how many of its values become records depends on how its input was cut "
            "into epochs"
        )

    untraced = "has each change of a table, and how many there are depends on the epochs"

    def rows_from(self, *inputs: Bag) -> Weighted | None:
        """Return the table's rows if the table emits each row once; else None."""
        return inputs[0] if self.inputs[0].final else None

    @property
    def passes(self) -> bool:  # type: ignore[override]
        """Whether the table emits each row once, so that each fact is a row of the table."""
        return self.inputs[0].final

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterable[Missing]:
        """Return the missing rows of the table."""
        return missing[0]

    def operator(self, states: States) -> Operator:
        """Return the operator that turns replaced rows into facts."""
        return stateless.Latest(self.name)

    def on_spark(self, spark: Spark) -> None:
        """Take the final values of the table."""
        spark.facts(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class Upsert(Node):
    """Makes a table of the latest value of each key among facts."""

    linear = False
    keeps_last = True
    keeps = (TABLE,)

    @property
    def arrival(self) -> Arrival:
        """The part of the result that depends on the order of arrival: the last value of a key."""
        return Arrival(f"a table of the last records of a stream: {MIXED}", mixed=True)

    @property
    def refused_in_nested_time(self) -> str:
        """The reason why nested time refuses the step, with the remedy: the last record depends on arrival."""
        return f"step '{self.name}' joins or makes tables, {NO_PLACE}"

    @property
    def same_rows_as(self) -> Node | None:
        """The table whose changes the facts are; None if they are other facts."""
        return changed_table(self.inputs[0])

    def operator(self, states: States) -> Operator:
        """Return the operator that writes the table."""
        return upsert.Upsert(self.name, states.table(self, self.name))

    def on_spark(self, spark: Spark) -> None:
        """Keep the last value of each key."""
        spark.last_values(self)

    explained_by_key = True

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Yield the last value of each key, unless it is None, which deletes the key."""
        return ((row, 1) for row in self._last(inputs[0]) if row[1] is not None)

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Yield each key with its last record."""
        return ((row[0], [(0, row)]) for row in self._last(inputs[0]) if row[1] is not None)

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterator[Missing]:
        """Yield keys whose last record deletes them, and missing records of keys that have no record."""
        rows = self._last(inputs[0])
        for row in rows:
            if row[1] is None:
                yield Missing(row[0], UNKNOWN, DropReason(self, "deletes it: the last record of the key is null", row))
        yield from by_key(missing[0], (row[0] for row in rows))

    @staticmethod
    def _last(rows: Bag) -> Collection[Row]:
        return {identity(row[0]): row for row, _ in rows if row[0] is not None}.values()


def changed_table(facts: Node) -> Node | None:
    """Return the table whose changes some facts are; None if they are other facts."""
    while facts.passes and len(facts.inputs) == 1:
        (facts,) = facts.inputs
    return facts.inputs[0] if facts.role == "changes" else None
