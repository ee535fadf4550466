"""Steps that compute a function of all rows of a key: counts, sums, folds, distinct, the first rows in an order."""

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
    """Computes a function of all rows of a key."""

    linear = False
    drops = True
    explained_by_key: ClassVar[bool] = True

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Yield the results of the function for all values of each key."""
        assert self.grouping is not None
        for found in groups(inputs[0]).values():
            key = found[0][0][0]
            values = {value: weight for (_, value), weight in found}
            for value, weight in self.grouping.function(key, values).items():
                yield (key, value), weight

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterable[Missing]:
        """Yield keys without an input row, with the value of their missing rows, and keys for which no row is made."""
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
        """Return the values that missing rows would make, by the identity of their keys."""
        bag = Bag(((row.key, row.value), row.weight) for row in rows)
        try:
            return {identity(key): value for (key, value), _ in self.rows_from(bag)}
        except Exception:  # the function may not accept rows that never reach it
            return {}

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Yield each key once for each of its rows, with this row."""
        return ((found[0][0][0], [(0, row)]) for found in groups(inputs[0]).values() for row, _ in found)


@dataclass(frozen=True, eq=False, kw_only=True)
class Count(Reduction):
    """Counts the rows of each key."""

    keeps = (TABLE,)

    @property
    def grouping(self) -> Grouping:
        """The step as a function that adds the weights of a key's rows."""
        return Grouping(reduce.counting)

    def operator(self, states: States) -> Operator:
        """Return the operator with a table of counts."""
        return aggregate.Count(self.name, states.table(self, self.name), self.inputs[0].kind == "stream")

    def on_spark(self, spark: Spark) -> None:
        """Count the rows by Spark's own sum."""
        spark.counted(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Yield the number of rows of each key. Values need not be hashable."""
        for found in groups(inputs[0]).values():
            yield (found[0][0][0], sum(weight for _, weight in found)), 1

    @property
    def addends(self) -> tuple[Addend, ...]:
        """The number that each row adds: 1."""
        return (Addend("", lambda row: 1, lambda count: count),)


TOTALS = StateKept("totals", "table", "others")
"""The state with the exact totals of sums and means."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Sum(Reduction):
    """Computes the sum or the mean of the numbers of each key, exactly, whatever the order of rows."""

    keeps = (TABLE, TOTALS)

    summation: Summation

    @property
    def does(self) -> str:
        """Its method."""
        return self.summation.verb

    @property
    def grouping(self) -> Grouping:
        """The step as a function that adds up all values of a key."""
        return Grouping(self.summation)

    def operator(self, states: States) -> Operator:
        """Return the operator with a table of results and a table of the exact totals."""
        return self.summing(states, states.table(self, self.name), self.inputs[0].kind == "stream")

    def summing(self, states: States, table: Table[Any, Any], facts: bool) -> Operator:
        """Return the operator over the given table of results."""
        totals = Table[Any, str](states.spec(self, TOTALS.name_of(self.name), "table", String), states.store)
        return sums.Sum(self.name, table, totals, self.summation, facts)

    def on_spark(self, spark: Spark) -> None:
        """Compute the sums by sums of fractions."""
        spark.summed(self)
        spark.totals(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Yield the sum or the mean of the values of each key. Values need not be hashable."""
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
        """The number that each value adds; for a mean its sum and its count, as long as the mean is finite."""
        number = self.summation.number
        if self.summation.mean:
            return mean_addends(lambda row: number(*row) or 0, lambda row: number(*row) is not None, lambda mean: mean)
        return (Addend("", lambda row: number(*row) or 0, lambda total: total),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduce(Reduction):
    """Makes the rows that `function(key, {value: weight})` returns for each key.

    If the function has an attribute `row_of`, each returned value is an input row's value with further columns, and
    `row_of` returns that row's value. If it has an attribute `chains`, it is a function of each chain of values
    (`operators/chained_reduce.py`).
    """

    folds = True
    keeps = (StateKept("", "arrangement", "inputs"),)

    function: Callable[[Any, Any], Any]

    @property
    def grouping(self) -> Grouping:
        """The step as the author's function."""
        return Grouping(reduce.making(self.function))

    def operator(self, states: States) -> Operator:
        """Return an operator that at each change reads all rows of the key, or the rows of the changed chains."""
        (source,), function = self.inputs, self.grouping.function
        chains: Chains | None = getattr(self.function, "chains", None)
        if chains is None:
            return reduce.Reduce(self.name, states.arrangement(source, self.name), function)
        spec = states.spec(source, self.name, "arrangement", source.value)
        rows = OrderedArrangement[Any, Any](spec, states.store, order_by_place(chains, spec.value))
        return ChainedReduce(self.name, rows, function, chains)

    def on_spark(self, spark: Spark) -> None:
        """Call the author's function once a key."""
        spark.reduced(self)

    @property
    def addends(self) -> tuple[Addend, ...]:
        """The addends that SQL has attached to the author's function."""
        return getattr(self.function, "addends", ())

    @property
    def explained_by_key(self) -> bool:  # type: ignore[override]
        """Whether each row is made from all rows of its key; otherwise each row is made from one input row."""
        return not hasattr(self.function, "row_of")

    @property
    def factor(self) -> int | None:
        """1 if each row is made from one input row; otherwise None."""
        return None if self.explained_by_key else 1

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Yield each key with each of its rows, or each row with the input row from which it is made."""
        if self.explained_by_key:
            return super().ways(*inputs)
        row_of = self.function.row_of  # type: ignore[attr-defined]
        return ((row, [(0, (row[0], row_of(row[1])))]) for row, _ in Bag(self.rows_from(*inputs)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Reduction):
    """Folds the rows of each key; with a subtractor it can retract rows. `commutes`: any order gives the same result.

    `selection` or `reducers`: the author's declaration from which `adder` and `subtractor` are made, if there is one.
    """

    initial: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any] | None = None
    commutes: bool = False
    selection: Selection | None = None
    reducers: tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any] | None] | None = None
    plain_keys: ClassVar[bool] = False
    """Whether the functions get keys without windows."""

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The states: the table of aggregates and, if rows are retracted, the number of rows of each key."""
        rows = StateKept("rows", "table", "others")
        return (TABLE, *(() if self.subtractor is None else (rows,)))

    @property
    def folds(self) -> bool:  # type: ignore[override]
        """Whether the step folds in the order of arrival; not if any order gives exactly the same result."""
        return not self.commutes

    @property
    def arrival(self) -> Arrival | None:
        """The part that depends on arrival: the aggregate of a stream's records; None if the order does not matter."""
        if self.commutes or self.inputs[0].kind != "stream":
            return None
        return Arrival(f"a fold of a stream: {MIXED}", mixed=True, folds=True)

    @property
    def refused_in_nested_time(self) -> str:
        """The reason why nested time refuses the step, with the remedy; empty if the step can retract rows."""
        if self.kind == "stream" or self.subtractor is not None:
            return super().refused_in_nested_time
        return f"step '{self.name}' folds records of a stream; rows of a relation are needed"

    @property
    def grouping(self) -> Grouping:
        """The step as a function that folds all rows of a key."""
        return Grouping(reduce.folding(self.name, self.initial, self.adder))

    def operator(self, states: States) -> Operator:
        """Return the operator over a table of aggregates.

        If rows are retracted, there is also a table of the number of rows of each key.
        """
        counts: Table[Any, int] | None = None
        if self.subtractor is not None:
            counts = Table(states.spec(self, f"{self.name}-rows", "table", Int64), states.store)
        table = states.table(self, self.name)
        checked = self.selection is None
        return aggregate.Aggregate(self.name, table, self.initial, self.adder, self.subtractor, counts, checked)

    def on_spark(self, spark: Spark) -> None:
        """Fold in the order of the records."""
        spark.folded(self)

    @property
    def addends(self) -> tuple[Addend, ...]:
        """The addends that SQL has attached to the author's function."""
        return getattr(self.adder, "addends", ())

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Yield the fold of all rows of each key. Values need not be hashable."""
        for found in groups(inputs[0]).values():
            key, total = found[0][0][0], self.initial()
            for (_, value), weight in found:
                for _ in repeated((key, value), weight, f"aggregate '{self.name}'"):
                    total = self.adder(key, value, self.initial() if total is None else total)
            if total is not None:
                yield (key, total), 1


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightFunction(Reduction):
    """Changes weights: a row counts once (distinct), or with its weight but not below 0 (minus)."""

    keeps = (StateKept("", "arrangement", "inputs"),)

    form: Literal["distinct", "minus"]
    explained_by_key = False

    @property
    def does(self) -> str:
        """Its form."""
        return self.form

    @property
    def grouping(self) -> Grouping:
        """The step as a function from each value's weight to its new weight."""
        return Grouping(reduce.adding_up(self._of_weight), self._of_weight)

    def operator(self, states: States) -> Operator:
        """Return the operator, which reads the old weight of each changed row and writes its new weight."""
        return weight_functions.WeightFunction(self.name, states.arrangement(self, self.name), self._of_weight)

    def on_spark(self, spark: Spark) -> None:
        """Compute the weights from Spark's sums."""
        spark.weighed(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Yield the rows whose weight is positive. Values need not be hashable."""
        return ((row, self._of_weight(weight)) for row, weight in inputs[0] if weight > 0 and row[0] is not None)

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterable[Missing]:
        """Return the missing rows of the input, each of which would also be a row of this step."""
        return missing[0]

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Yield each row with the same row of the input."""
        return ((row, [(0, row)]) for row, _ in inputs[0])

    @property
    def _of_weight(self) -> Callable[[int], int]:
        return weight_functions.one_if_positive if self.form == "distinct" else weight_functions.positive_part


@dataclass(frozen=True, eq=False, kw_only=True)
class TopK(Reduction):
    """Keeps the first values of each key in an order, in a table."""

    keeps = (
        TABLE,
        StateKept("rows", "arrangement", "inputs"),
    )

    does = "selection"

    selection: Selection

    @property
    def grouping(self) -> Grouping:
        """The step as a function that sorts all values of a key."""
        return Grouping(self.selection)

    def operator(self, states: States) -> Operator:
        """Return the operator with an arrangement of sorted values, and the table."""
        spec = states.spec(self.inputs[0], f"{self.name}-rows", "arrangement", self.inputs[0].value)
        rows = OrderedArrangement[Any, Any](spec, states.store, self.selection.position)
        return TopKOperator(self.name, states.table(self, self.name), rows, self.selection)

    def on_spark(self, spark: Spark) -> None:
        """Sort all values of each key, and keep the first ones."""
        spark.first_values(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Yield the first values of each key. Values need not be hashable."""
        for found in groups(inputs[0]).values():
            made = self.selection.first((row[1], weight) for row, weight in self._chosen(found))
            if made is not None:
                yield (found[0][0][0], made), 1

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Yield each key with each row whose value is in its result, in the order of the result."""
        return ((found[0][0][0], [(0, row)]) for found in groups(inputs[0]).values() for row, _ in self._chosen(found))

    def _chosen(self, found: Iterable[tuple[Row, int]]) -> Iterable[tuple[Row, int]]:
        """Yield the rows of a key whose values are in the result, with their weights in the result."""
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
    """Keeps the row of each key that has exactly one row, as a table. With `refusal`, several rows are an error."""

    keeps = (
        TABLE,
        StateKept("several", "arrangement", "others"),
    )
    does = "only row"

    refusal: Refusal | None = None

    @property
    def retired(self) -> tuple[str, ...]:
        """The states of earlier releases, in which views also kept all rows and their numbers."""
        return () if self.refusal is None else (f"{self.name}-only", f"{self.name}-rows")

    @property
    def grouping(self) -> Grouping:
        """The step as a function that returns the value of a key, if the key has only one."""
        return Grouping(one_row if self.refusal is None else refusing(self.refusal))

    def operator(self, states: States) -> Operator:
        """Return the operator with the table, and with the rows of all keys that have several."""
        source = self.inputs[0]
        spec = states.spec(source, f"{self.name}-several", "arrangement", source.value or Native)
        several = Arrangement[Any, Any](replace(spec, optional=bool(self.retired)), states.store)
        return OneRowOperator(self.name, states.table(self, self.name), several, self.refusal)

    def on_spark(self, spark: Spark) -> None:
        """Keep the keys with one row."""
        spark.only_values(self)
