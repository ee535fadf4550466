"""Steps that are a function of all rows of a key: counts, sums, folds, distinct, the first rows in an order."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from eddy.operators import aggregate, reduce, sums, weight_functions
from eddy.operators.batch import repeated
from eddy.operators.chained_reduce import ChainedReduce, order_by_place
from eddy.operators.chains import Chains
from eddy.operators.one_row import OneRow as OneRowOperator
from eddy.operators.one_row import Refusal, one_row, refusing
from eddy.operators.operator import Operator
from eddy.operators.sums import Summation
from eddy.operators.top_k import Selection
from eddy.operators.top_k import TopK as TopKOperator
from eddy.serde import Int64, Native, String
from eddy.state.arrangement import Arrangement
from eddy.state.ordered_arrangement import OrderedArrangement
from eddy.state.table_state import Table
from eddy.topology.plan.addends import Addend, mean_addends
from eddy.topology.plan.bags import Bag, Row, Way, Weighted, groups, identity
from eddy.topology.plan.compilers import Spark, States
from eddy.topology.plan.missing import UNKNOWN, by_key
from eddy.topology.plan.node import MIXED, Arrival, DropReason, Grouping, Missing, Node
from eddy.topology.plan.states_kept import TABLE, StateKept

__all__ = ["TOTALS", "Aggregate", "Count", "OneRow", "Reduce", "Reduction", "Sum", "TopK", "WeightFunction"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduction(Node):
    """A function of all rows of a key."""

    linear = False
    drops = True
    explained_by_key: ClassVar[bool] = True

    def rows_from(self, *inputs: Bag) -> Weighted:
        """The function of all values of each key."""
        assert self.grouping is not None
        for found in groups(inputs[0]).values():
            key = found[0][0][0]
            values = {value: weight for (_, value), weight in found}
            for value, weight in self.grouping.function(key, values).items():
                yield (key, value), weight

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterable[Missing]:
        """Keys without an input row, with what is made of missing ones, and keys of whose rows nothing is made."""
        grouped = groups(inputs[0])
        absent = list(by_key(missing[0], (found[0][0][0] for found in grouped.values())))
        made_of = self._made_of([row for row in absent if row.value is not UNKNOWN])
        yield from (row._replace(value=made_of.get(identity(row.key), UNKNOWN)) for row in absent)
        made = {identity(row[0]) for row, _ in self.rows_from(*inputs)}
        for key, found in grouped.items():
            if key not in made:
                row = found[0][0]
                drop = DropReason(self, f"makes nothing of the {len(found):,} rows of the key", row)
                yield Missing(row[0], UNKNOWN, drop)

    def _made_of(self, rows: Iterable[Missing]) -> dict[Any, Any]:
        """By key the value that would be made of missing rows."""
        bag = Bag(((row.key, row.value), row.weight) for row in rows)
        try:
            return {identity(key): value for (key, value), _ in self.rows_from(bag)}
        except Exception:  # the function need not take rows that never reach it
            return {}

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Each row of the key, by itself."""
        return ((found[0][0][0], [(0, row)]) for found in groups(inputs[0]).values() for row, _ in found)


@dataclass(frozen=True, eq=False, kw_only=True)
class Count(Reduction):
    """The number of rows by key."""

    keeps = (TABLE,)

    @property
    def grouping(self) -> Grouping:
        """The sum of the weights."""
        return Grouping(reduce.counting)

    def operator(self, states: States) -> Operator:
        """A table of counts."""
        return aggregate.Count(self.name, states.table(self, self.name), self.inputs[0].kind == "stream")

    def on_spark(self, spark: Spark) -> None:
        """Spark's own sum."""
        spark.counted(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """The number of rows of each key, whose values need not be hashable."""
        for found in groups(inputs[0]).values():
            yield (found[0][0][0], sum(weight for _, weight in found)), 1

    @property
    def addends(self) -> tuple[Addend, ...]:
        """The number 1 for each row."""
        return (Addend("", lambda row: 1, lambda count: count),)


TOTALS = StateKept("totals", "table", "others")
"""The exact totals of sums and means."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Sum(Reduction):
    """The sum or the mean of numbers by key, exact in any order."""

    keeps = (TABLE, TOTALS)

    summation: Summation

    @property
    def does(self) -> str:
        """Its method."""
        return self.summation.verb

    @property
    def grouping(self) -> Grouping:
        """The sum of all values."""
        return Grouping(self.summation)

    def operator(self, states: States) -> Operator:
        """The table of results, and a table of the exact totals."""
        return self.summing(states, states.table(self, self.name), self.inputs[0].kind == "stream")

    def summing(self, states: States, table: Table[Any, Any], facts: bool) -> Operator:
        """The operator over a table."""
        totals = Table[Any, str](states.spec(self, TOTALS.name_of(self.name), "table", String), states.store)
        return sums.Sum(self.name, table, totals, self.summation, facts)

    def on_spark(self, spark: Spark) -> None:
        """Sums of fractions."""
        spark.summed(self)
        spark.totals(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """The sum of the values of each key, which need not be hashable."""
        for found in groups(inputs[0]).values():
            key, total = found[0][0][0], sums.ExactTotal()
            for (_, value), weight in found:
                number = self.summation.number(key, value)
                if number is not None:
                    total.add(number, weight)
            if (result := self.summation.result(total)) is not None:
                yield (key, result), 1

    @property
    def addends(self) -> tuple[Addend, ...]:
        """The number of each value; of a mean its sum and its count, as long as it is finite."""
        number = self.summation.number
        if self.summation.mean:
            return mean_addends(lambda row: number(*row) or 0, lambda row: number(*row) is not None, lambda mean: mean)
        return (Addend("", lambda row: number(*row) or 0, lambda total: total),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduce(Reduction):
    """The rows that `function(key, {value: weight})` returns for each key.

    If it has an attribute `row_of`, each of these is one input row with more in it, whose value `row_of` returns. With
    an attribute `chains`, it is a function of each chain of values (`operators/chained_reduce.py`).
    """

    folds = True
    keeps = (StateKept("", "arrangement", "inputs"),)

    function: Callable[[Any, Any], Any]

    @property
    def grouping(self) -> Grouping:
        """The author's function."""
        return Grouping(reduce.making(self.function))

    def operator(self, states: States) -> Operator:
        """All rows of a changed key at each change, or the rows of the changed chains."""
        (source,), function = self.inputs, self.grouping.function
        chains: Chains | None = getattr(self.function, "chains", None)
        if chains is None:
            return reduce.Reduce(self.name, states.arrangement(source, self.name), function)
        spec = states.spec(source, self.name, "arrangement", source.value)
        rows = OrderedArrangement[Any, Any](spec, states.store, order_by_place(chains, spec.value))
        return ChainedReduce(self.name, rows, function, chains)

    def on_spark(self, spark: Spark) -> None:
        """The author's function, once a key."""
        spark.reduced(self)

    @property
    def addends(self) -> tuple[Addend, ...]:
        """The addends that SQL has noted on the author's function."""
        return getattr(self.function, "addends", ())

    @property
    def explained_by_key(self) -> bool:  # type: ignore[override]
        """Whether all rows of the key explain a row: not if each row is made from one input row."""
        return not hasattr(self.function, "row_of")

    @property
    def factor(self) -> int | None:
        """1, if each row is made from one input row."""
        return None if self.explained_by_key else 1

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """All rows of the key, or its only row."""
        if self.explained_by_key:
            return super().ways(*inputs)
        row_of = self.function.row_of  # type: ignore[attr-defined]
        return ((row, [(0, (row[0], row_of(row[1])))]) for row, _ in Bag(self.rows_from(*inputs)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Reduction):
    """A fold by key; with a subtractor it can retract rows. `commutes`: any order gives the same result.

    `selection` or `reducers`: what the author has declared, where `adder` and `subtractor` are made of it.
    """

    initial: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any] | None = None
    commutes: bool = False
    selection: Selection | None = None
    reducers: tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any] | None] | None = None
    plain_keys: ClassVar[bool] = False
    """Whether the functions get keys without their windows."""

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The states: the table and, if rows are retracted, the number of rows of each key."""
        rows = StateKept("rows", "table", "others")
        return (TABLE, *(() if self.subtractor is None else (rows,)))

    @property
    def folds(self) -> bool:  # type: ignore[override]
        """Whether the step folds in arrival order: not if any order gives exactly the same."""
        return not self.commutes

    @property
    def arrival(self) -> Arrival | None:
        """The aggregate of a stream's records."""
        if self.commutes or self.inputs[0].kind != "stream":
            return None
        return Arrival(f"a fold of a stream: {MIXED}", mixed=True, folds=True)

    @property
    def refused_in_nested_time(self) -> str:
        """Rows are retracted there."""
        if self.kind == "stream" or self.subtractor is not None:
            return super().refused_in_nested_time
        return f"step '{self.name}' folds records of a stream; rows of a relation are needed"

    @property
    def grouping(self) -> Grouping:
        """The fold of all rows."""
        return Grouping(reduce.folding(self.name, self.initial, self.adder))

    def operator(self, states: States) -> Operator:
        """The operator over a table of aggregates and, if rows are retracted, a table of the number of rows of each
        key.
        """
        counts: Table[Any, int] | None = None
        if self.subtractor is not None:
            counts = Table(states.spec(self, f"{self.name}-rows", "table", Int64), states.store)
        table = states.table(self, self.name)
        checked = self.selection is None
        return aggregate.Aggregate(self.name, table, self.initial, self.adder, self.subtractor, counts, checked)

    def on_spark(self, spark: Spark) -> None:
        """A fold in the order of the records."""
        spark.folded(self)

    @property
    def addends(self) -> tuple[Addend, ...]:
        """The addends that SQL has noted on the author's function."""
        return getattr(self.adder, "addends", ())

    def rows_from(self, *inputs: Bag) -> Weighted:
        """The fold of all rows of each key, whose values need not be hashable."""
        for found in groups(inputs[0]).values():
            key, total = found[0][0][0], self.initial()
            for (_, value), weight in found:
                for _ in repeated((key, value), weight, f"aggregate '{self.name}'"):
                    total = self.adder(key, value, self.initial() if total is None else total)
            if total is not None:
                yield (key, total), 1


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightFunction(Reduction):
    """A function of weights: each row once (distinct), or as often as its weight is positive (minus)."""

    keeps = (StateKept("", "arrangement", "inputs"),)

    form: Literal["distinct", "minus"]
    explained_by_key = False

    @property
    def does(self) -> str:
        """Its form."""
        return self.form

    @property
    def grouping(self) -> Grouping:
        """Each value with its new weight."""
        return Grouping(reduce.adding_up(self._of_weight), self._of_weight)

    def operator(self, states: States) -> Operator:
        """The operator: reads the old weight of each changed row, and writes the new one."""
        return weight_functions.WeightFunction(self.name, states.arrangement(self, self.name), self._of_weight)

    def on_spark(self, spark: Spark) -> None:
        """The weights of Spark's sums."""
        spark.weighed(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """The rows of positive weight, whose values need not be hashable."""
        return ((row, self._of_weight(weight)) for row, weight in inputs[0] if weight > 0 and row[0] is not None)

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterable[Missing]:
        """The missing rows of the input, row by row."""
        return missing[0]

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """The row itself."""
        return ((row, [(0, row)]) for row, _ in inputs[0])

    @property
    def _of_weight(self) -> Callable[[int], int]:
        return weight_functions.one_if_positive if self.form == "distinct" else weight_functions.positive_part


@dataclass(frozen=True, eq=False, kw_only=True)
class TopK(Reduction):
    """The first values of each key in an order, in a table."""

    keeps = (
        TABLE,
        StateKept("rows", "arrangement", "inputs"),
    )

    does = "selection"

    selection: Selection

    @property
    def grouping(self) -> Grouping:
        """All values, sorted."""
        return Grouping(self.selection)

    def operator(self, states: States) -> Operator:
        """An arrangement whose values are sorted, and the table."""
        spec = states.spec(self.inputs[0], f"{self.name}-rows", "arrangement", self.inputs[0].value)
        rows = OrderedArrangement[Any, Any](spec, states.store, self.selection.position)
        return TopKOperator(self.name, states.table(self, self.name), rows, self.selection)

    def on_spark(self, spark: Spark) -> None:
        """All values, sorted."""
        spark.first_values(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """The first values of each key, which need not be hashable."""
        for found in groups(inputs[0]).values():
            made = self.selection.first((row[1], weight) for row, weight in self._chosen(found))
            if made is not None:
                yield (found[0][0][0], made), 1

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Each row whose value is in the result, by itself and in the order of the result."""
        return ((found[0][0][0], [(0, row)]) for found in groups(inputs[0]).values() for row, _ in self._chosen(found))

    def _chosen(self, found: Iterable[tuple[Row, int]]) -> Iterable[tuple[Row, int]]:
        """The rows of a key whose values are first, with their weights."""
        there = [(row, weight) for row, weight in found if row[1] is not None]
        there.sort(key=lambda each: self.selection.position(each[0][1]), reverse=self.selection.descending)
        left = self.selection.most
        for row, weight in there:
            if left <= 0:
                return
            left -= weight
            yield row, weight


@dataclass(frozen=True, eq=False, kw_only=True)
class OneRow(Reduction):
    """The row of each key that has exactly one, as a table. With `refusal`, a key with several is an error."""

    keeps = (
        TABLE,
        StateKept("several", "arrangement", "others"),
    )
    does = "only row"

    refusal: Refusal | None = None

    @property
    def retired(self) -> tuple[str, ...]:
        """The states of earlier releases: views kept all rows, and their number, besides the table."""
        return () if self.refusal is None else (f"{self.name}-only", f"{self.name}-rows")

    @property
    def grouping(self) -> Grouping:
        """A function that returns the value of a key, if it is the only one."""
        return Grouping(one_row if self.refusal is None else refusing(self.refusal))

    def operator(self, states: States) -> Operator:
        """The operator over the table and the rows of all other keys."""
        source = self.inputs[0]
        spec = states.spec(source, f"{self.name}-several", "arrangement", source.value or Native)
        several = Arrangement[Any, Any](replace(spec, optional=bool(self.retired)), states.store)
        return OneRowOperator(self.name, states.table(self, self.name), several, self.refusal)

    def on_spark(self, spark: Spark) -> None:
        """Compute the keys with one row."""
        spark.only_values(self)
