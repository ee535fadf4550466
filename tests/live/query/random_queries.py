"""Random queries over three tables, random changes of their rows: for any draw of `random.Random`."""

import random
from typing import Any

import eddy

items = eddy.live_table("items", key="id")
parts = eddy.live_table("parts", key=("item", "n"))
nodes = eddy.live_table("nodes", key="id")

KEYS = {"items": ["id"], "parts": ["item", "n"], "nodes": ["id"]}
Row = dict[str, Any]
COLORS = ["red", "Green", "blue%", None, "red_", 3]


def random_row(draw: random.Random, table: str) -> Row:
    if table == "items":
        row: Row = {"id": draw.randrange(12), "size": draw.choice([1, 1.0, 2, 2.5, 3, None, "x", True, 0, 0.0, -0.0])}
        return row | {"color": draw.choice(COLORS), "owner": draw.choice([*range(12), None])}
    if table == "parts":
        return {
            "item": draw.randrange(12),
            "n": draw.randrange(4),
            "weight": draw.choice([0.1, 0.2, 5, None, 7, 5.0, 0.0, -0.0]),
        }
    parent = draw.choice([None, *range(10)])
    return {
        "id": draw.randrange(10),
        "parent": parent,
        "other": draw.choice([None, *range(10)]),
        "pos": draw.randrange(3),
    }


def random_changes(draw: random.Random, rows: dict[str, list[Row]], count: int) -> list[tuple[str, Row | None, Row]]:
    """Rows to be put in the place of others with their key, and rows to be removed, as (table, gone, new)."""
    found: list[Any] = []
    for _ in range(count):
        table = draw.choice(list(KEYS))
        if rows[table] and draw.random() < 0.3:
            found.append((table, draw.choice(rows[table]), None))
        else:
            found.append((table, None, random_row(draw, table)))
    return found


def random_query(draw: random.Random) -> eddy.Query:
    """A query of any kind."""
    kind = draw.randrange(10)
    if kind < 3:
        return _tree(draw)
    if kind == 3:
        return _groups(draw, _filtered(draw, items))
    if kind == 4:
        return _filtered(draw, items).aggregate(n=items.id.count(), low=items.size.min(), total=items.size.sum())
    query = _windowed(draw, _filtered(draw, items), ["size", "color", "owner", "id"])
    if draw.random() < 0.1:
        return _plucked(draw, query)
    if draw.random() < 0.6:
        query = query.nest(**{f"n{i}": _nest(draw) for i in range(draw.randrange(1, 3))})
    if draw.random() < 0.2:
        query = query.select("id", draw.choice(["color", "size"]))
    return query


def _filtered(draw: random.Random, query: Any) -> Any:
    for _ in range(draw.randrange(3)):
        query = query.where(lambda row: _condition(draw, row, 2))
    return query


def _condition(draw: random.Random, row: Any, deep: int) -> Any:
    kind = draw.randrange(10 if deep else 6)
    column = row[draw.choice(["size", "color", "owner"])]
    if kind == 0:
        return column == draw.choice([1, 2, "red", True])
    if kind == 1:
        return draw.choice([column < 3, column >= 2, column > "a", column != 2, column != "red"])
    if kind == 2:
        return column.is_in([1, "red", 2.5, 7])
    if kind == 3:
        return draw.choice([column.like("red%"), column.ilike("g%"), column.like("_ed\\_")])
    if kind == 4:
        return column.is_null()
    if kind == 5:
        return ~_condition(draw, row, 0)
    if kind == 6:
        return _condition(draw, row, deep - 1) & _condition(draw, row, deep - 1)
    if kind == 7:
        return _condition(draw, row, deep - 1) | _condition(draw, row, deep - 1)
    if kind == 8:
        some = parts.where(parts.item == row.id)
        return draw.choice([some, some.where(parts.weight > 1)]).exists()
    return ~items.where(items.owner == row.id, lambda below: _condition(draw, below, deep - 1)).exists()


def _windowed(draw: random.Random, query: Any, columns: list[str]) -> Any:
    order = draw.sample(columns, draw.randrange(3))
    query = query.order_by(*(draw.choice(["", "-"]) + column for column in order))
    if draw.random() < 0.4:
        query = query.limit(draw.randrange(5))
    if draw.random() < 0.3:
        query = query.skip(draw.randrange(4))
    if draw.random() < 0.2 and "id" in columns:
        query = query.start(random_row(draw, "items"), inclusive=draw.random() < 0.5)
    return query.one() if draw.random() < 0.1 else query


def _groups(draw: random.Random, query: Any) -> Any:
    made = query.group_by(*draw.sample(["color", "owner", "size"], draw.randrange(1, 3)))
    made = made.aggregate(
        n=items.id.count(), low=items.size.min(), top=items.size.max(), mean=items.size.avg(), total=items.size.sum()
    )
    return made.order_by(*draw.choice([[], ["-n"], ["total", "-top"]])).limit(draw.choice([None, 2]))


def _nest(draw: random.Random) -> Any:
    kind, seed = draw.randrange(6), draw.random()

    def nest(row: Any) -> Any:
        own = random.Random(seed)
        if kind == 0:
            return _windowed(own, parts.where(parts.item == row.id), ["weight", "n"])
        if kind == 1:
            return _filtered(own, items.where(items.owner == row.owner)).nest(
                owner=lambda item: items.where(items.id == item.owner).one()
            )
        if kind == 2:
            return parts.where(parts.item == row.id).count()
        if kind == 3:
            return parts.where(parts.item == row.owner).aggregate(w=parts.weight.sum(), m=parts.weight.max())
        if kind == 4:
            return _plucked(own, items.where(items.owner == row.id))
        return parts.where(parts.item == row.id).group_by(parts.weight).count().order_by("-count", "weight").limit(2)

    return nest


def _plucked(draw: random.Random, query: Any) -> Any:
    """The rows of a nest: also of one that plucks itself, of one that is cut down, of groups."""
    kind, seed = draw.randrange(5), draw.random()

    def of(item: Any) -> Any:
        own = random.Random(seed)
        if kind == 0:
            found = parts.where(parts.item == item.owner).group_by(parts.weight)
            return found.aggregate(number=parts.n.count()).order_by(*own.choice([[], ["-number"]]))
        if kind == 1:
            return _plucked(own, items.where(items.owner == item.id))
        if kind == 2:
            found = _windowed(own, parts.where(parts.item == item.owner), ["weight", "n"])
            return found.select(*own.sample(["weight", "n", "item"], own.randrange(3)))
        if kind == 3:
            return nodes.where(nodes.id == item.owner).nest(count=lambda node: parts.where(parts.n == node.pos).count())
        return _windowed(own, nodes.where(nodes.parent == item.owner), ["pos", "id"]).select("other")

    made = _windowed(draw, query, ["size", "owner"]) if draw.random() < 0.3 else query
    return made.nest(of=of).pluck("of")


def _tree(draw: random.Random) -> Any:
    columns, kind, seed = ["pos", "parent"], draw.randrange(4), draw.random()

    def level(row: Any) -> Any:
        own = random.Random(seed)
        query = _windowed(own, nodes.where(nodes.parent == row.id), columns)
        if own.random() < 0.3:
            query = query.where(nodes.pos < 2)
        if own.random() < 0.3:
            query = query.nest(n=lambda node: nodes.where(nodes.parent == node.id).count())
        return query.nest(below=other if kind == 1 else level)

    def other(row: Any) -> Any:
        return nodes.where(nodes.other == row.id).nest(below=level)

    def both(row: Any) -> Any:
        return nodes.where(nodes.parent == row.id).nest(one=both, two=lambda node: nodes.where(nodes.id == node.other))

    root = draw.choice([nodes.where(nodes.id == draw.randrange(10)), nodes.where(nodes.parent.is_null())])
    depth = draw.choice([None, None, 1, 2, 4])
    return root.nest(depth=depth, tree=both if kind == 2 else level)
