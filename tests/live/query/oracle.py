"""The answer to a query in plain Python over dicts, by the words of docs/live-queries.md. It shares no code with eddy.

A query is its JSON, as a dict; a table is a list of dicts. Rows are compared pair by pair, never by a sort key; a LIKE
pattern is tried at each place; sums are fractions.

    values     null < false < true < NaN < numbers < strings (as UTF-8) < bytes < all else (as JSON)
    equal      of one kind and neither less; null equals nothing. Equal numbers order -0.0, the integer, the float
    pluck      the rows of all nests, by the nest's order and its key, each row of a table once; then they are cut down
"""

import json
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

Row = dict[str, Any]
Query = dict[str, Any]
On = list[tuple[str, Any]]


def answer(query: Any, tables: Mapping[str, Sequence[Row]]) -> Any:
    """The result of a query of the builder over these rows."""
    select = json.loads(query.to_json())
    return _Oracle(tables).result(select, [], {}, {}, [])


def compare(one: Any, other: Any) -> int:
    """Below 0, 0 or above 0, as values order."""
    kind, other_kind = _kind(one), _kind(other)
    if kind != other_kind:
        return -1 if kind < other_kind else 1
    if kind == 4:
        one, other = one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass")
    elif kind == 6:
        one, other = _json(one), _json(other)
    elif kind in (0, 2):
        return 0
    return (one > other) - (one < other)


def _kind(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, bool):
        return 1
    if isinstance(value, int | float):
        return 2 if value != value else 3
    return 4 if isinstance(value, str) else 5 if isinstance(value, bytes) else 6


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _spelled(value: Any) -> int:
    """The turn of equal numbers."""
    if isinstance(value, float):
        return 0 if value == 0 and math.copysign(1, value) < 0 else 2
    return 1


def _same(one: Any, other: Any) -> bool:
    return one is not None and other is not None and compare(one, other) == 0


def _by(columns: Sequence[tuple[str, bool]]) -> Any:
    """A sort key that compares rows column by column."""

    def compared(one: Row, other: Row) -> int:
        for column, descending in columns:
            found = compare(one.get(column), other.get(column))
            if found:
                return -found if descending else found
        return 0

    return cmp_to_key(compared)


def _first_of(values: Sequence[Any]) -> Any:
    """The least value; of equal ones that with the first spelling."""
    least = values[0]
    for value in values[1:]:
        if (compare(value, least), _spelled(value)) < (0, _spelled(least)):
            least = value
    return least


def _last_of(values: Sequence[Any]) -> Any:
    most = values[0]
    for value in values[1:]:
        if (compare(value, most), _spelled(value)) > (0, _spelled(most)):
            most = value
    return most


class _Oracle:
    def __init__(self, tables: Mapping[str, Sequence[Row]]) -> None:
        self.tables = tables

    def result(self, q: Query, on: On, labels: Any, levels: Any, path: Any) -> Any:
        """What is shown where the columns of `on` have these values."""
        found = [cut for _, cut in self.pairs(q, on, labels, levels, path)]
        if q.get("scalar"):
            return found[0][q["aggregates"][0]["name"]]
        if q.get("one"):
            return found[0] if found else None
        return found

    def pairs(self, q: Query, on: On, labels: Any, levels: Any, path: Any) -> list[tuple[Row, Row]]:
        """The rows in their order: whole, as they are placed by, and cut down, as they are shown."""
        if "label" in q:
            labels = {**labels, q["label"]: q}
        if q.get("aggregates"):
            return self.groups(q, on)
        rows = self.window(q, sorted(self.matching(q, on), key=_by(_order(q))))
        if "pluck" in q:
            return self.plucked(q, rows, labels, levels, path)
        return [(row, self.shown(q, row, labels, levels, path)) for row in rows]

    def matching(self, q: Query, on: On) -> list[Row]:
        return [
            row
            for row in self.tables[q["table"]["name"]]
            if all(_same(row.get(column), value) for column, value in on)
            and ("where" not in q or self.true(q["where"], row))
        ]

    def window(self, q: Query, rows: list[Row]) -> list[Row]:
        if "start" in q:
            at = _by(_order(q))(q["start"]["row"])
            is_in = q["start"].get("inclusive", False)
            rows = [row for row in rows if at < _by(_order(q))(row) or (is_in and not _by(_order(q))(row) < at)]
        limit = q.get("limit")
        if q.get("one"):
            limit = 1 if limit is None else min(limit, 1)
        rows = rows[q.get("skip", 0) :]
        return rows if limit is None else rows[:limit]

    def shown(self, q: Query, row: Row, labels: Any, levels: Any, path: Any) -> Row:
        made = {name: value for name, value in row.items() if "columns" not in q or name in q["columns"]}
        for nest in q.get("nests", ()):
            below, on, inner = self.below(nest, row, labels, levels)
            if inner is None:
                continue
            if any(before is below and _same_values(values, on) for before, values in path):
                made["$cycle"] = True
            else:
                made[nest["name"]] = self.result(below, on, labels, inner, [*path, (below, on)])
        return made

    def plucked(self, q: Query, rows: list[Row], labels: Any, levels: Any, path: Any) -> list[tuple[Row, Row]]:
        (first,) = (each for each in q["nests"] if each["name"] == q["pluck"])
        nest = first
        last = self.below(nest, {}, labels, levels)[0]
        inner_labels = {**labels, last["label"]: last} if "label" in last else labels
        while "pluck" in last:
            (deeper,) = (each for each in last["nests"] if each["name"] == last["pluck"])
            nest, last = deeper, self.below(deeper, {}, inner_labels, levels)[0]
            inner_labels = {**inner_labels, last["label"]: last} if "label" in last else inner_labels
        found: list[tuple[Row, Row]] = []
        for row in rows:
            below, on, inner = self.below(first, row, labels, levels)
            if inner is not None:
                found += self.pairs(below, on, labels, inner, path)
        order = _by(_order(last, nest))
        found.sort(key=lambda pair: order(pair[0]))
        once = [pair for i, pair in enumerate(found) if not i or order(found[i - 1][0]) < order(pair[0])]
        return once[:1] if q.get("one") else once

    def below(self, nest: Any, row: Row, labels: Any, levels: Any) -> tuple[Query, On, Any]:
        """The query of a nest, the values that its columns need, and the levels that recursions are at."""
        on = [(own, row.get(parent)) for parent, own in nest["on"]]
        if nest["query"]["type"] == "ref":
            label = nest["query"]["label"]
            level, bound = levels.get(label, (1, None))
            is_in = bound is None or level < bound
            return labels[label], on, {**levels, label: (level + 1, bound)} if is_in else None
        q = nest["query"]
        return q, on, {**levels, q["label"]: (1, nest.get("depth"))} if "label" in q else levels

    def groups(self, q: Query, on: On) -> list[tuple[Row, Row]]:
        columns = q.get("group", [])
        members: list[list[Row]] = [] if columns else [[]]
        for row in self.matching(q, on):
            for group in members:
                if all(compare(group[0].get(c), row.get(c)) == 0 for c in columns if group):
                    group.append(row)
                    break
            else:
                members.append([row])
        made = [
            {c: _first_of([row.get(c) for row in group]) for c in columns}
            | {each["name"]: _aggregate(each, group) for each in q["aggregates"]}
            for group in members
        ]
        made.sort(key=_by([*_columns(q), *((column, False) for column in columns)]))
        above = {f"above {name}": value for name, value in on}
        rows = self.window(q, made)
        return [({**row, **above}, {n: v for n, v in row.items() if n in q.get("columns", row)}) for row in rows]

    def true(self, condition: Any, row: Row) -> bool:
        kind = condition["type"]
        if kind == "and":
            return all(self.true(term, row) for term in condition["terms"])
        if kind == "or":
            return any(self.true(term, row) for term in condition["terms"])
        if kind == "exists":
            on = [(own, row.get(parent)) for parent, own in condition["on"]]
            return bool(self.matching(condition["query"], on)) != condition.get("negated", False)
        return _compared(condition["op"], row.get(condition["column"]), condition.get("value"))


def _same_values(one: On, other: On) -> bool:
    return all(_same(value, other_value) for (_, value), (_, other_value) in zip(one, other, strict=True))


def _columns(q: Query) -> list[tuple[str, bool]]:
    return [(each["column"], each.get("descending", False)) for each in q.get("order", ())]


def _order(q: Query, nest: Any = None) -> list[tuple[str, bool]]:
    """How the rows of a query are placed: groups of a nest by the values of the row above them, too."""
    if q.get("aggregates"):
        above = [f"above {own}" for _, own in nest["on"]]
        return [*_columns(q), *((name, False) for name in (*above, *q["group"]))]
    return [*_columns(q), *((name, False) for name in q["table"]["key"])]


def _compared(op: str, value: Any, other: Any) -> bool:
    if op in ("is", "is not"):
        return (value is None) == (op == "is")
    if value is None:
        return False
    if op in ("=", "!="):
        return _same(value, other) == (op == "=")
    if op in ("in", "not in"):
        return any(_same(value, each) for each in other) == (op == "in")
    if "like" in op:
        fits = isinstance(value, str) and _like(other, value, folded="ilike" in op)
        return fits != op.startswith("not")
    if _kind(value) != _kind(other):
        return False
    found = compare(value, other)
    return {"<": found < 0, "<=": found <= 0, ">": found > 0, ">=": found >= 0}[op]


def _like(pattern: str, text: str, *, folded: bool) -> bool:
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == "%":
        return any(_like(rest, text[at:], folded=folded) for at in range(len(text) + 1))
    is_any = head == "_"
    if head == "\\" and rest:
        head, rest = rest[0], rest[1:]
    if not text:
        return False
    fits = is_any or head == text[0] or (folded and head.lower() == text[0].lower())
    return fits and _like(rest, text[1:], folded=folded)


def _aggregate(each: Any, rows: list[Row]) -> Any:
    function, column = each["function"], each.get("column")
    if column is None:
        return len(rows)
    values = [row[column] for row in rows if row.get(column) is not None]
    if function == "count":
        return len(values)
    if function in ("min", "max"):
        return (_first_of if function == "min" else _last_of)(values) if values else None
    numbers = [n for n in values if isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n)]
    if not numbers:
        return None
    total = sum((Fraction(n) for n in numbers), Fraction(0))
    if function == "avg":
        return _float(total / len(numbers))
    return int(total) if all(isinstance(n, int) for n in numbers) else _float(total)


def _float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
