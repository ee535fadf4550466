"""The oracle: what the answers are, computed from scratch, as plainly as it can be said.

It shares no code with eddy. A relation is a Counter of rows (key, value) without zeros, a table a
dict, a stream a list of records; nothing here is incremental. Recursion is the definition itself,
X = seed + op(X), iterated from nothing until it stands still.
"""

import graphlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import product
from typing import Any

Row = tuple[Any, Any]
Bag = Counter[Row]


def bag(rows: Iterable[tuple[Row, int]]) -> Bag:
    """Weights of equal rows added, zeros left out."""
    total: Bag = Counter()
    for row, weight in rows:
        total[row] += weight
    return Counter({row: weight for row, weight in total.items() if weight})


def plus(*bags: Mapping[Row, int]) -> Bag:
    return bag(item for one in bags for item in one.items())


def negative(one: Mapping[Row, int]) -> Bag:
    return bag((row, -weight) for row, weight in one.items())


def rows_of(table: Mapping[Any, Any]) -> Bag:
    """A table as a relation."""
    return bag(((key, value), 1) for key, value in table.items())


def selected(one: Mapping[Row, int], predicate: Callable[[Any, Any], Any]) -> Bag:
    return bag((row, weight) for row, weight in one.items() if predicate(*row))


def mapped(one: Mapping[Row, int], function: Callable[[Any, Any], Row]) -> Bag:
    return bag((function(*row), weight) for row, weight in one.items())


def flat_mapped(one: Mapping[Row, int], function: Callable[[Any, Any], Iterable[Row]]) -> Bag:
    return bag((made, weight) for row, weight in one.items() for made in function(*row))


def joined(left: Mapping[Row, int], right: Mapping[Row, int], merge: Callable[[Any, Any, Any], Row]) -> Bag:
    return bag(
        (merge(key, one, other), weight * factor)
        for ((key, one), weight), ((match, other), factor) in product(left.items(), right.items())
        if key == match
    )


def distinct(one: Mapping[Row, int]) -> Bag:
    return bag((row, 1) for row, weight in one.items() if weight > 0)


def minus(one: Mapping[Row, int], other: Mapping[Row, int]) -> Bag:
    return bag((row, weight) for row, weight in plus(one, negative(other)).items() if weight > 0)


def counts(one: Mapping[Row, int]) -> dict[Any, int]:
    """Rows by key; a key with none is not in it."""
    found: Counter[Any] = Counter()
    for (key, _), weight in one.items():
        found[key] += weight
    return {key: count for key, count in found.items() if count}


def sums(one: Mapping[Row, int]) -> dict[Any, Any]:
    """The sum of the values of each key that has rows."""
    return {key: sum(v * weight for (k, v), weight in one.items() if k == key) for key in counts(one)}


def latest(records: Iterable[Row], table: Mapping[Any, Any] | None = None) -> dict[Any, Any]:
    """The table after these records: the last one of a key wins, None deletes."""
    found = dict(table or {})
    for key, value in records:
        found[key] = value
    return {key: value for key, value in found.items() if value is not None}


def table_joined(left: Mapping[Any, Any], right: Mapping[Any, Any], joiner: Any, kind: str) -> dict[Any, Any]:
    keys = {"inner": left.keys() & right.keys(), "left": left.keys(), "outer": left.keys() | right.keys()}[kind]
    return {key: joiner(left.get(key), right.get(key)) for key in keys}


def recursion(seed: Bag, op: Callable[[Bag], Bag], max_depth: int | None = None, patience: int = 100) -> Bag:
    """X = seed + op(X), from nothing until nothing changes, or op applied `max_depth` times at most."""
    x: Bag = Counter()
    for _ in range(patience if max_depth is None else max_depth + 1):
        after = plus(seed, op(x))
        if after == x:
            return x
        x = after
    if max_depth is None:
        raise RecursionError("the data has no finite answer")
    return x


def facts_recursion(
    records: Iterable[Row], op: Callable[[Row], Iterable[Row]], include_seeds: bool = True, max_depth: int = 100
) -> Bag:
    """KIP-857: what a stream's records lead to, each record on its own, followed to its end."""
    emitted: list[Row] = []

    def follow(record: Row, depth: int) -> None:
        if depth < max_depth:
            for made in op(record):
                emitted.append(made)
                follow(made, depth + 1)

    for record in records:
        if include_seeds:
            emitted.append(record)
        follow(record, 0)
    return bag((row, 1) for row in emitted)


def ancestors(parents: Mapping[Hashable, Hashable], node: Hashable) -> list[Hashable]:
    """The way from a node up, itself left out. Raises: RecursionError where it goes in a circle."""
    way: list[Hashable] = []
    while node in parents:
        node = parents[node]
        if len(way) > len(parents):
            raise RecursionError("a circle")
        way.append(node)
    return way


def is_forest(parents: Mapping[Hashable, Hashable]) -> bool:
    try:
        for node in parents:
            ancestors(parents, node)
    except RecursionError:
        return False
    return True


def descendants(parents: Mapping[Hashable, Hashable]) -> dict[Hashable, int]:
    """How many nodes lie below each node, by walking up from every one of them."""
    return dict(Counter(above for node in parents for above in ancestors(parents, node)))


def held_recursion(seed: Bag, op: Callable[[Bag], Bag]) -> tuple[Bag, set[Row]]:
    """X = seed + op(X) where it has an end, without the keys that cycles reach; and the rows that they reach."""
    made: dict[Row, Bag] = {}
    left = list(seed)
    while left:
        row = left.pop()
        if row not in made:
            made[row] = op(bag([(row, 1)]))
            left += made[row]
    reached = _reached(made, [row for row in made if row in _reached(made, made[row])])
    x = {row: seed.get(row, 0) for row in made if row not in reached}
    for row in _in_order(made, reached):
        for child, weight in made[row].items():
            if child in x:
                x[child] += weight * x[row]
    held = {key for key, _ in reached}
    return bag([(row, weight) for row, weight in x.items() if row[0] not in held]), reached


def _reached(made: Mapping[Row, Bag], rows: Iterable[Row]) -> set[Row]:
    reached, left = set(), list(rows)
    while left:
        row = left.pop()
        if row not in reached:
            reached.add(row)
            left += made[row]
    return reached


def _in_order(made: Mapping[Row, Bag], without: set[Row]) -> list[Row]:
    """Each row before those that are made of it."""
    graph = {row: [child for child in made[row] if child not in without] for row in made if row not in without}
    return list(graphlib.TopologicalSorter(graph).static_order())[::-1]
