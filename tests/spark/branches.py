"""A topology with a branch for each kind of step, and an error of a worker for each branch that `verify` has to find.

An error replaces a method, or a function, in the process that plants it; it has an effect in its branch alone.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import eddy
from eddy.operators import (
    aggregate,
    expiring_table,
    join,
    reduce,
    stateless,
    sums,
    top_k,
    upsert,
    valid_rows,
    weight_functions,
)
from eddy.operators.batch import Batch
from eddy.operators.graph import ranked, totals
from eddy.operators.graph.reached import Reached
from eddy.operators.nested import operators as nested
from eddy.operators.one_row import OneRow
from eddy.operators.waves import recursion, withheld
from eddy.operators.windows import window_values
from eddy.topology.sql import folds

__all__ = ["BRANCHES", "ERRORS", "INPUTS", "TIMES", "branches", "planted_errors"]

S, N, F = eddy.String, eddy.Int64, eddy.Float64
Records = list[tuple[bytes | None, bytes | None]]
INPUTS: list[dict[str, Records]] = [
    {
        "nodes": [
            (b"b", b"a"),
            (b"c", b"b"),
            (b"dd", b"c"),
            (b"e", b"b"),
            (b"f", b"z"),
            (b"h", b"c"),
            (b"x", b"y"),
            (b"y", b"x"),
        ],
        "others": [(b"b", b"1"), (b"c", b"2"), (b"q", b"9")],
        "notes": [(b"k", b"one"), (b"l", b"two"), (b"l", b"two"), (b"m", b"three"), (b"n", b"five"), (b"k", b"four")],
    },
    {
        "nodes": [(b"dd", b"b"), (b"f", None), (b"g", b"e")],
        "others": [(b"c", None), (b"e", b"3")],
        "notes": [(b"l", None), (b"k", b"zwei"), (b"m", b"four")],
    },
]
"""Two parts, by topic."""
TIMES = (1_000, 1_060)
"""The times of the records of each part, in milliseconds: a row of the first has expired in the end."""


def branches(only: Collection[str] = ()) -> eddy.Topology:
    """Each sink has the name of its branch; `only` these, if there are some."""
    topology = eddy.Topology("branches")
    nodes, others = topology.table("nodes", S, S), topology.table("others", S, S)
    notes = topology.stream("notes", S, S)
    for name, branch in BRANCHES.items():
        if name in (only or BRANCHES):
            branch(_Sources(topology, nodes, others, notes), name)
    return topology


class _Sources(NamedTuple):
    topology: eddy.Topology
    nodes: Any
    others: Any
    notes: Any

    @property
    def parents(self) -> Any:
        """Rows node → parent."""
        return self.nodes.to_relation()

    @property
    def children(self) -> Any:
        """Rows parent → node."""
        return self.parents.map(lambda node, up: (up, node), key=S, value=S)

    @property
    def seed(self) -> Any:
        """A row for each parent."""
        return self.parents.map(lambda node, up: (up, 1), key=S, value=N)

    def up(self, rows: Any, name: str) -> Any:
        """The rows one parent further."""
        return rows.join(self.nodes, lambda _, one, parent: (parent, one), f"{name}-up", S, N)

    def sql(self, text: str, name: str, key: str) -> None:
        """A view, in a sink."""
        tables = {"nodes": (self.nodes, {"node": "text", "up": "text"})}
        view = self.topology.sql(text, tables, name=f"{name}-view", key=key)
        view.to_table().map_values(str, value=S).to(name, key=S)


def _counted(rows: Any, name: str) -> None:
    rows.group_by_key(S).count(f"{name}-count").to(name)


def _joined(one: str | None, other: str | None) -> str:
    return f"{one} {other}"


def _reached(given: _Sources, name: str) -> None:
    rows = given.topology.recursive_fixpoint(roots=given.parents, edges=given.children, name=f"{name}-nodes")
    _counted(rows.map(lambda key, row: (f"{row.node}{row.depth}", 1), key=S, value=N), name)


def _nested(given: _Sources, name: str) -> None:
    rows = given.seed.recursively(lambda rows: given.up(rows.distinct("seen"), name).distinct("again"), f"{name}-loop")
    _counted(rows, name)


def _less(given: _Sources, name: str) -> None:
    few, many = (given.children.filter(keep) for keep in (lambda _, node: node < "d", lambda _, node: node > "b"))
    _counted(few.minus(many, name), name)


def _valid(given: _Sources, name: str) -> None:
    rows = given.parents.valid(
        clock="event time",
        from_=lambda node, up: None if up < "b" else 1_060,
        until=lambda node, up: 1_050 if up < "c" else None,
        name=f"{name}-live",
    )
    _counted(rows, name)


def _ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def _windowed(given: _Sources, windows: Any, emit: Any = "update") -> Any:
    """Windows of notes by their values, behind an exchange, or by their keys."""
    grouped = given.notes.group_by(lambda _, note: note, key=S) if emit == "close" else given.notes.group_by_key()
    return grouped.windowed_by(windows, emit)


BRANCHES: dict[str, Callable[[_Sources, str], None]] = {
    "left-join": lambda given, name: given.nodes.left_join(given.others, _joined, "left", value=S).to(name),
    "outer-join": lambda given, name: given.nodes.outer_join(given.others, _joined, "outer", value=S).to(name),
    "inner-join": lambda given, name: given.nodes.join(given.others, _joined, "inner", value=S).to(name),
    "tombstones": lambda given, name: given.notes.to_table(name).to(name),
    "expiry": lambda given, name: given.notes.to_table(name, timedelta(milliseconds=50), "event time").to(name),
    "valid": _valid,
    "minus": _less,
    "distinct": lambda given, name: _counted(given.seed.distinct(name), name),
    "pairs": lambda given, name: _counted(
        given.children.join(given.children, lambda up, a, b: (up, a + b), name, S, S), name
    ),
    "count": lambda given, name: given.children.group_by_key().count(name).to(name),
    "reduce": lambda given, name: _counted(
        given.children.reduce(lambda _, values: ["same" for _ in values], name, S, S), name
    ),
    "ties": lambda given, name: (
        given.children.group_by_key().top_k(1, name, by=lambda value: 0).map_values(str, value=S).to(name)
    ),
    "whole": lambda given, name: (
        given.children.group_by_key().collect(name, max=2).map_values(str, value=S).to(name, value=S)
    ),
    "only": lambda given, name: given.children.to_table(name).to(name),
    "aggregate": lambda given, name: (
        given.notes.group_by_key().aggregate(lambda: 10, lambda key, value, rest: rest - 5, name, N).to(name)
    ),
    "joined": lambda given, name: given.notes.group_by_key().reduce(lambda one, other: f"{one},{other}", name).to(name),
    "greatest": lambda given, name: given.notes.group_by_key().max(name).to(name),
    "sum": lambda given, name: given.children.group_by_key().sum(name, of=lambda node: len(node) / 10).to(name, S, F),
    "avg": lambda given, name: given.notes.group_by_key().avg(name, of=len).to(name),
    "map-values": lambda given, name: given.nodes.map_values(lambda up: None if up == "a" else up, value=S).to(name),
    "flat-map": lambda given, name: _counted(
        given.parents.flat_map(lambda node, up: [(up, 1), (up, 1)], key=S, value=N), name
    ),
    "totals": lambda given, name: given.nodes.tree_totals(name, value=N).to(name),
    "reached": _reached,
    "held": lambda given, name: _counted(given.seed.recursively(lambda rows: given.up(rows, name), name), name),
    "depth": lambda given, name: _counted(
        given.seed.recursively(lambda rows: given.up(rows, name), name, max_depth=1), name
    ),
    "nested": _nested,
    "tumbling": lambda given, name: (
        _windowed(given, eddy.TimeWindows(_ms(8), grace=_ms(4))).count(name).to(name, value=N)
    ),
    "closed": lambda given, name: (
        _windowed(given, eddy.TimeWindows(_ms(8), _ms(4), _ms(2)), "close").max(name).to(name, value=S)
    ),
    "sessions": lambda given, name: _windowed(given, eddy.SessionWindows(_ms(3), _ms(2))).count(name).to(name, value=N),
    "visits": lambda given, name: (
        _windowed(given, eddy.SessionWindows(_ms(2), _ms(4)), "close").count(name).to(name, value=N)
    ),
    "sliding": lambda given, name: _windowed(given, eddy.SlidingWindows(_ms(3), _ms(2))).count(name).to(name, value=N),
    "near": lambda given, name: (
        _windowed(given, eddy.SlidingWindows(_ms(2), _ms(4)), "close").max(name).to(name, value=S)
    ),
    "kinds": lambda given, name: (
        _windowed(given, eddy.SessionWindows(_ms(3), _ms(2))).distinct_count(name, of=len).to(name, value=N)
    ),
    "listed": lambda given, name: (
        _windowed(given, eddy.TimeWindows(_ms(8), grace=_ms(4)))
        .collect(name, max=2)
        .map_values(str, value=S)
        .to(name, value=S)
    ),
    "sql-avg": lambda given, name: given.sql("SELECT up, avg(length(node)) AS m FROM nodes GROUP BY up", name, "up"),
    "sql-text": lambda given, name: given.sql(
        "SELECT node, up || '!' AS loud FROM nodes WHERE up LIKE '_'", name, "node"
    ),
}
"""By sink."""


Wrapped = Callable[..., Any]
Planting = Callable[[Wrapped], Wrapped]


def _named(name: str, planted: Callable[..., Any]) -> Planting:
    """An error in the operators of one name: `planted` gets the method and its arguments."""

    def wrap(method: Wrapped) -> Wrapped:
        def called(self: Any, *args: Any, **options: Any) -> Any:
            if self.name == name:
                return planted(method, self, *args, **options)
            return method(self, *args, **options)

        return called

    return wrap


def _with(name: str, attribute: str, changed: Callable[[Any], Any]) -> Planting:
    """An error in an attribute of the operators of one name, changed before the first step."""

    def planted(method: Wrapped, self: Any, *args: Any) -> Any:
        if not hasattr(self, "_is_planted"):
            setattr(self, attribute, changed(getattr(self, attribute)))
            self._is_planted = True
        return method(self, *args)

    return _named(name, planted)


def _tampered(name: str, change: Callable[[Batch], Batch]) -> Planting:
    """An error in the batch that the operators of one name get."""
    return _named(name, lambda method, self, context, *inputs: method(self, context, change(inputs[0]), *inputs[1:]))


def _without_tombstones(batch: Batch) -> Batch:
    return batch.select([value is not None for _, value in batch.rows])


def _joining(kind: str) -> Planting:
    """A join of tables without the keys that one side has alone."""

    def wrap(method: Wrapped) -> Wrapped:
        def called(self: Any, left: Any, right: Any) -> Any:
            alone = left is None or right is None
            return None if alone and self._kind == kind else method(self, left, right)  # private: planted

        return called

    return wrap


def _begun_anew(adder: Any) -> Any:
    return lambda key, value, rest: adder(key, value, 10 if rest == 0 else rest)


def _reversed_ties(method: Wrapped) -> Wrapped:
    def position(self: Any, value: Any) -> Any:
        order, identity = method(self, value)
        return order, bytes(255 - byte for byte in identity) if self.name == "ties" else identity

    return position


def _values_of_none(method: Wrapped) -> Wrapped:  # private: planted
    def step(self: Any, context: Any, batch: Batch) -> Batch:
        made = [(key, str(self._function(value))) for key, value in batch.rows]
        return batch.with_rows(made) if self._table else method(self, context, batch)

    return step


def _without_twins(method: Wrapped) -> Wrapped:  # private: planted
    def step(self: Any, context: Any, batch: Batch) -> Batch:
        return batch.spread([list(dict.fromkeys(self._function(*row))) for row in batch.rows])

    return step


def _once(batch: Batch) -> Batch:
    rows = list(dict.fromkeys(batch.rows))
    return Batch(rows, [1] * len(rows), batch.time)


def _deeper(method: Wrapped) -> Wrapped:
    def run(self: Any, waiting: Any, total: Any) -> Any:
        if self.name == "depth" and self.bound.max_depth == 1:
            self.bound = replace(self.bound, max_depth=2)
        return method(self, waiting, total)

    return run


def _doubled_first(method: Wrapped) -> Wrapped:
    def step(self: Any, context: Any, *inputs: Any) -> Any:
        made = method(self, context, *inputs)
        return made if self.name != "pairs" else Batch(made.rows, [2 * weight for weight in made.weights], made.time)

    return step


def _farther(method: Wrapped) -> Wrapped:
    def step(self: Any, context: Any, *inputs: Any) -> Any:
        made = method(self, context, *inputs)
        rows = [(key, Reached(r.root, r.node, r.depth + 1, r.parent, r.order)) for key, r in made.rows]
        return Batch(rows, made.weights, made.time)

    return step


ERRORS: dict[str, tuple[Any, str, Planting]] = {
    "left-join": (join.TableJoin, "_join", _joining("left")),
    "outer-join": (join.TableJoin, "_join", _joining("outer")),
    "tombstones": (upsert.Upsert, "step", _tampered("tombstones", _without_tombstones)),
    "expiry": (expiring_table.Expiry, "deadline", lambda method: lambda *given: method(*given) + 25),
    "valid": (valid_rows.Span, "there", lambda method: lambda span, clock: method(span, clock - 25)),
    "minus": (weight_functions.WeightFunction, "step", _with("minus", "_f", lambda f: abs)),
    "distinct": (
        weight_functions.WeightFunction,
        "step",
        _with("distinct", "_f", lambda f: weight_functions.positive_part),
    ),
    "pairs": (join.Join, "step", _doubled_first),
    "count": (aggregate.Count, "step", _tampered("count", _once)),
    "reduce": (reduce.Reduce, "step", _with("reduce", "_function", lambda f: lambda *of: dict.fromkeys(f(*of), 1))),
    "ties": (top_k.Selection, "position", _reversed_ties),
    "whole": (
        top_k.Selection,
        "first",
        _named("whole", lambda method, self, values: method(replace(self, n=self.n + 1), values)),
    ),
    "sum": (sums.Sum, "step", _tampered("sum", _once)),
    "avg": (sums.Summation, "result", _named("avg", lambda method, self, total: method(self, total) + 1e-15)),
    "only": (OneRow, "step", _tampered("only", lambda batch: batch.select([value != "x" for _, value in batch.rows]))),
    "aggregate": (aggregate.Aggregate, "step", _with("aggregate", "_adder", _begun_anew)),
    "joined": (aggregate.Aggregate, "step", _tampered("joined", _once)),
    "greatest": (top_k.Selection, "adding", _named("greatest", lambda method, self, key, value, best: value)),
    "map-values": (
        stateless.MapValues,
        "step",
        _values_of_none,
    ),
    "flat-map": (
        stateless.FlatMap,
        "step",
        _without_twins,
    ),
    "totals": (
        totals.TreeTotals,
        "_total",
        lambda method: lambda *of: None if method(*of) is None else method(*of) + 1,
    ),
    "reached": (ranked.Ranked, "step", _farther),
    "held": (withheld.Withheld, "visible", lambda method: lambda self, delta, x: delta),
    "depth": (recursion.Waves, "_run", _deeper),
    "nested": (
        nested.NestedWeights,
        "step",
        _with("again", "_of_weight", lambda f: weight_functions.positive_part),
    ),
    "kinds": (
        window_values.DifferentValues,
        "result",
        _named("kinds", lambda method, self, summary: (method(self, summary) or 0) + 1),
    ),
    "listed": (
        window_values.CollectedValues,
        "result",
        lambda method: lambda self, summary: (method(self, summary) or ())[::-1] or None,
    ),
    "sql-avg": (folds, "average_of", lambda method: lambda type, count, total: method(type, count + 1, total)),
}
"""By sink: the class or module, the method or function, and what is made of it."""


@contextlib.contextmanager
def planted_errors() -> Iterator[None]:
    """While the context lasts, all errors are there in this process."""
    former = []
    try:
        for owner, name, planting in ERRORS.values():
            former.append((owner, name, getattr(owner, name)))
            setattr(owner, name, planting(getattr(owner, name)))
        yield
    finally:
        for owner, name, method in reversed(former):
            setattr(owner, name, method)
