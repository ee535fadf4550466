"""Naive evaluation: what a plan says of the tables as they are now, every collection from scratch.

A collection is a bag: a Counter of rows (key, value) to weights, without zeros. A recursion is its
definition, `X(0) = ∅, X(n+1) = definition(X(n))`, until nothing changes or its limit is reached; one
inside another is evaluated whole in every iteration. Several bindings go iteration by iteration; a definition
that names another's new collection sees it, since it *is* that collection.

It reads plans, and shares nothing with what runs them: no operator, no state, no delta. What happened
(streams) is not a function of what is now, and is refused.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from eddy.topology.plan.plan import Node, Plan

__all__ = ["Bag", "Naive", "NoAnswerError", "bag", "covers", "table_of"]

Row = tuple[Any, Any]
Bag = Counter[Row]
PATIENCE = 400
"""Iterations after which a recursion without a limit is taken to have no answer."""


class NoAnswerError(Exception):
    """A recursion without a limit that changes and changes."""


def bag(rows: Iterable[tuple[Row, int]]) -> Bag:
    """Weights of equal rows added, zeros left out."""
    total: Bag = Counter()
    for row, weight in rows:
        total[row] += weight
    return Counter({row: weight for row, weight in total.items() if weight})


def table_of(rows: Mapping[Row, int]) -> dict[Any, Any]:
    """A bag with one row a key as a dict."""
    found = dict(rows.keys())
    assert len(found) == len(rows), f"no table: {rows}"
    assert set(rows.values()) <= {1}, f"no table: {rows}"
    return found


class Naive:
    """One evaluation of `plan` over `tables`: by source topic the latest value of each key."""

    def __init__(self, plan: Plan, tables: Mapping[str, Mapping[Any, Any]], patience: int = PATIENCE) -> None:
        self._patience = patience
        self._plan, self._tables = plan, tables
        self._known: dict[Node, Bag] = {}
        self._users = _users(plan)
        self._over: set[tuple[str, Row]] = set()

    def __getitem__(self, name: str) -> Bag:
        """The rows of the step called `name`."""
        return self.rows(next(node for node in self._plan.nodes if node.name == name))

    def sinks(self) -> dict[str, Bag]:
        """By topic what each sink has been told in all."""
        return {sink.topic: self.rows(sink.inputs[0]) for sink in self._plan.sinks()}

    def rows(self, node: Node) -> Bag:
        """The rows of a node; inside a recursion, those of the iteration under way."""
        if node not in self._known:
            if node.kind == "stream":
                raise NotImplementedError(f"step '{node.name}' is of facts, which tables do not tell")
            self._known[node] = _RULES[type(node).__name__](self, node)
        return self._known[node]

    def bind(self, variable: Node, rows: Bag) -> None:
        """Let a variable hold `rows`; what was found out by way of it is forgotten."""
        for user in self._users[variable]:
            self._known.pop(user, None)
        self._known[variable] = rows

    def inside(self, node: Node) -> bool:
        """Whether a node lies inside a loop: it sees the loop's variable."""
        return any(node in users for users in self._users.values())


def covers(plan: Plan) -> bool:
    """Whether every step of a plan has a rule here: recursions of forms of their own have none."""
    return all(node.kind != "stream" and type(node).__name__ in {*_RULES, "Variable"} for node in plan.nodes)


def _users(plan: Plan) -> dict[Node, list[Node]]:
    """For each variable the nodes that see it: those on its way round, but none behind its recursion."""
    free: dict[Node, set[Node]] = {}
    for node in plan.nodes:
        seen = {variable for source in node.inputs for variable in free[source]}
        kind = type(node).__name__
        if kind == "Variable":
            seen = {node}
        if kind == "Recursion":
            seen = (seen | free[node.result]) - {node.variable}  # type: ignore[attr-defined]
        if kind == "Block":
            seen = seen.union(*(free[result] for result in node.results)) - {*node.variables}  # type: ignore[attr-defined]
        free[node] = seen
    return {variable: [n for n, seen in free.items() if variable in seen] for variable in set().union(*free.values())}


def _one(naive: Naive, node: Any) -> Bag:
    return naive.rows(node.inputs[0])


def _source(naive: Naive, node: Any) -> Bag:
    return _keyed(Counter(dict.fromkeys(naive._tables.get(node.topic, {}).items(), 1)))


def _keyed(rows: Bag) -> Bag:
    """Rows that have a key: those that a step takes that works by it."""
    return Counter({row: weight for row, weight in rows.items() if row[0] is not None})


def _transform(naive: Naive, node: Any) -> Bag:
    rows, function = _one(naive, node).items(), node.function
    made: dict[str, Callable[[Any, Any], Iterable[Row]]] = {
        "filter": lambda k, v: [(k, v)] if function(k, v) else [],
        "filter-not": lambda k, v: [] if function(k, v) else [(k, v)],
        "map": lambda k, v: [function(k, v)],
        "map-values": lambda k, v: [(k, function(v))],
        "flat-map": lambda k, v: function(k, v),
        "flat-map-values": lambda k, v: [(k, new) for new in function(v)],
        "select-key": lambda k, v: [(function(k, v), v)],
        "peek": lambda k, v: [(k, v)],
    }
    if node.verb == "negate":
        return Counter({row: -weight for row, weight in rows})
    make = made[node.verb]
    found = bag((new, weight) for row, weight in rows for new in make(*row))
    if node.kind == "table":  # None is no value of a table
        return Counter({row: weight for row, weight in found.items() if row[1] is not None})
    return found


def _merge(naive: Naive, node: Any) -> Bag:
    return bag(item for source in node.inputs for item in naive.rows(source).items())


def _join(naive: Naive, node: Any) -> Bag:
    left, right = (_keyed(naive.rows(side)) for side in node.inputs)
    matches: dict[Any, list[tuple[Any, int]]] = {}
    for (key, value), weight in right.items():
        matches.setdefault(key, []).append((value, weight))
    return bag(
        (node.merge(key, value, other), weight * factor)
        for (key, value), weight in left.items()
        for other, factor in matches.get(key, ())
    )


def _table_join(naive: Naive, node: Any) -> Bag:
    left, right = (table_of(naive.rows(side)) for side in node.inputs)
    keys = {"inner": left.keys() & right.keys(), "left": left.keys(), "outer": left.keys() | right.keys()}[node.join]
    made = {key: node.joiner(left.get(key), right.get(key)) for key in keys}
    return Counter({(key, value): 1 for key, value in made.items() if value is not None})


def _weight_function(naive: Naive, node: Any) -> Bag:
    once = node.form == "distinct"
    return Counter({row: 1 if once else weight for row, weight in _keyed(_one(naive, node)).items() if weight > 0})


def _groups(rows: Bag) -> dict[Any, dict[Any, int]]:
    groups: dict[Any, dict[Any, int]] = {}
    for (key, value), weight in _keyed(rows).items():
        assert weight > 0, f"a row that is there {weight} times cannot be grouped: {key!r}, {value!r}"
        groups.setdefault(key, {})[value] = weight
    return groups


def _count(naive: Naive, node: Any) -> Bag:
    return Counter({(key, sum(values.values())): 1 for key, values in _groups(_one(naive, node)).items()})


def _aggregate(naive: Naive, node: Any) -> Bag:
    found: Bag = Counter()
    for key, values in _groups(_one(naive, node)).items():
        total = node.initial()
        for value, weight in values.items():
            for _ in range(weight):
                total = node.adder(key, value, node.initial() if total is None else total)
        if total is not None:
            found[key, total] = 1
    return found


def _reduce(naive: Naive, node: Any) -> Bag:
    groups = _groups(_one(naive, node)).items()
    return bag(((key, value), 1) for key, values in groups for value in node.function(key, values))


def _recursion(naive: Naive, node: Any) -> Bag:
    """X = seed + op(X); with a bound op is applied to no row more often than that."""
    by_depth = node.bound.max_depth is not None or node.bound.on_limit in ("return", "dead-letter")
    depth = node.bound.limit if node.bound.max_depth is None else node.bound.max_depth
    x = bag(naive.rows(node.inputs[0]).items())
    for _ in range(depth if by_depth else naive._patience):
        naive.bind(node.variable, x)
        after = bag([*naive.rows(node.inputs[0]).items(), *naive.rows(node.result).items()])
        if after == x:
            return x
        x = after
    if not by_depth:
        raise NoAnswerError(node.name)
    return x


def _constant(naive: Naive, node: Any) -> Bag:
    return bag((row, 1) for row in node.rows)


def _block(naive: Naive, node: Any) -> Bag:
    """All bindings in one bag, each row under its binding's place; at the place behind the last, the errors.

    In an iteration every definition is evaluated with the variables as the last iteration left them. The errors are
    the rows that the last iteration that the limit allows has changed, each once. Of a block in no loop they are
    also those of the blocks inside, whichever iteration they were evaluated in.
    """
    held = node.bound.on_limit == "rows"
    limited = held or node.bound.max_depth is not None
    last: list[Bag] = [Counter() for _ in node.variables]
    changed: Bag = Counter()
    inside, around = naive.inside(node), naive._over
    naive._over = around if inside else set()
    for _ in range(node.iterations if limited else naive._patience):
        for variable, rows in zip(node.variables, last, strict=True):
            naive.bind(variable, rows)
        after = [naive.rows(result) for result in node.results]
        changed = bag(_numbered(after, 1) + _numbered(last, -1))
        last = after
        if not changed:
            break
    if changed and not limited:
        raise NoAnswerError(node.name)
    found = bag(_numbered(last, 1))
    if held:
        errors = {(node.variables[i].label, row) for i, row in changed}
        found.update({(len(last), error): 1 for error in errors})
        if inside:
            naive._over |= {(f"{node.name}.{label}", row) for label, row in errors}
    if not inside:
        found.update({(len(last), error): 1 for error in naive._over})
        naive._over = around
    return found


def _numbered(bags: list[Bag], factor: int) -> list[tuple[Row, int]]:
    return [((i, row), weight * factor) for i, rows in enumerate(bags) for row, weight in rows.items()]


def _binding(naive: Naive, node: Any) -> Bag:
    return Counter({row: weight for (index, row), weight in _one(naive, node).items() if index == node.index})


_RULES: dict[str, Callable[[Naive, Any], Bag]] = {
    "Source": _source,
    "Constant": _constant,
    "Transform": _transform,
    "Merge": _merge,
    "Exchange": _one,
    "Join": _join,
    "TableJoin": _table_join,
    "WeightFunction": _weight_function,
    "Count": _count,
    "Aggregate": _aggregate,
    "Reduce": _reduce,
    "Recursion": _recursion,
    "Block": _block,
    "Binding": _binding,
    "Sink": _one,
}
