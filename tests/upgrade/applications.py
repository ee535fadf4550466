"""Applications that an earlier version has run, and that go on. What is here may not change: states are stored for it.

Sources begin with the name of their application, so that all of them can share a log; outputs fold to tables.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import eddy

__all__ = ["APPLICATIONS", "EVENTS", "PARTITIONS", "Application", "Event"]

PARTITIONS = 3
EVENTS = 240
"""How many records an earlier version has taken in; as many come again."""

Event = tuple[str, str, Any]
"""(topic, key, value or None)."""


@dataclass(frozen=True)
class Application:
    """`event` draws a record."""

    build: Callable[[], eddy.Topology]
    event: Callable[[random.Random], Event]

    @property
    def name(self) -> str:
        """What it is called here."""
        return self.build.__name__


def tree() -> eddy.Topology:
    """Waves, counts, totals and reachability over one table."""
    topology = eddy.Topology("kept-tree")
    parents = topology.table("tree-nodes", key=eddy.String, value=eddy.String)
    (
        parents.to_relation()
        .map(lambda node, parent: (parent, 1))
        .recursively(lambda rows: rows.join(parents, lambda _, one, parent: (parent, 1)), name="ancestors")
        .group_by_key()
        .count("descendants")
        .to("tree-descendants", key=eddy.String, value=eddy.Int64)
    )
    return topology


def tree_event(rng: random.Random) -> Event:
    """A node comes below one of a lower number, moves there, or goes."""
    node = rng.randrange(1, 25)
    return "tree-nodes", f"n{node}", None if rng.random() < 0.2 else f"n{rng.randrange(node)}"


def graph() -> eddy.Topology:
    """Nested time through cycles, and the same by ranked supports."""
    topology = eddy.Topology("kept-graph")
    links = topology.table("graph-links", key=eddy.String, value=eddy.String)  # any id -> "from>to"
    edges = links.to_relation().map(lambda _, link: tuple(link.split(">")), name="edges", key=eddy.String)
    reached = edges.recursively(
        lambda rows: (
            rows.map(lambda start, end: (end, start), name="ends", key=eddy.String)
            .join(edges, lambda _, start, end: (start, end), name="further", key=eddy.String)
            .union(edges)
            .distinct("once")
        ),
        name="reached",
    )
    reached.group_by_key(key=eddy.String).count("reaches").to("graph-reaches", key=eddy.String, value=eddy.Int64)
    return topology


def graph_event(rng: random.Random) -> Event:
    """A link comes, changes or goes."""
    link = None if rng.random() < 0.3 else f"g{rng.randrange(6)}>g{rng.randrange(6)}"
    return "graph-links", f"l{rng.randrange(9)}", link


def orders() -> eddy.Topology:
    """A stream, an aggregate of it, a join of tables, and a table grouped anew."""
    topology = eddy.Topology("kept-orders")
    users = topology.table("orders-users", key=eddy.String, value=eddy.String)  # user -> country
    orders = topology.stream("orders-orders", key=eddy.String, value=eddy.Int64)  # user -> amount
    (
        orders.group_by(lambda user, amount: f"under {amount // 10 * 10 + 10}", key=eddy.String)
        .aggregate(lambda: 0, lambda _, amount, total: total + amount, "by-size", value=eddy.Int64)
        .to("orders-by-size", key=eddy.String, value=eddy.Int64)
    )
    latest = orders.to_table("latest")
    latest.join(users, lambda amount, country: f"{country} {amount}").to("orders-latest", value=eddy.String)
    (
        users.group_by(lambda user, country: (country, user), key=eddy.String, value=eddy.String)
        .count("users-by-country")
        .to("orders-users-by-country", key=eddy.String, value=eddy.Int64)
    )
    return topology


def orders_event(rng: random.Random) -> Event:
    """A user moves or goes, or orders."""
    user = f"u{rng.randrange(8)}"
    if rng.random() < 0.3:
        return "orders-users", user, rng.choice(["at", "be", "cz", None])
    return "orders-orders", user, rng.randrange(100)


def trees() -> eddy.Topology:
    """The two recursions that know their question, and a view of SQL."""
    topology = eddy.Topology("kept-trees")
    parents = topology.table("trees-nodes", key=eddy.String, value=eddy.String)
    starts = topology.table("trees-starts", key=eddy.String, value=eddy.String)
    parents.tree_totals("totals", value=eddy.Int64).to("trees-totals", key=eddy.String)
    reached = topology.recursive_fixpoint(roots=starts.to_relation(), edges=parents, name="reach")
    (
        reached.group_by(lambda key, row: (key, row.depth), key=eddy.String)
        .aggregate(lambda: 0, lambda _, depth, total: total + depth, lambda _, depth, total: total - depth, "depths")
        .to("trees-depths", key=eddy.String)
    )
    children = topology.sql(
        "SELECT value AS parent, count(*) AS children FROM nodes GROUP BY value", {"nodes": parents}, key="parent"
    )
    (
        children.map(lambda key, row: row[:2], name="children", key=eddy.String, value=eddy.Int64)
        .group_by_key(key=eddy.String)
        .aggregate(lambda: 0, lambda _, n, total: total + n, lambda _, n, total: total - n, "by-parent")
        .to("trees-children", key=eddy.String)
    )
    return topology


def trees_event(rng: random.Random) -> Event:
    """A node comes, moves or goes, or a start does."""
    if rng.random() < 0.2:
        return "trees-starts", f"s{rng.randrange(4)}", rng.choice([None, f"n{rng.randrange(25)}"])
    _, node, parent = tree_event(rng)
    return "trees-nodes", node, parent


APPLICATIONS = [
    Application(tree, tree_event),
    Application(graph, graph_event),
    Application(orders, orders_event),
    Application(trees, trees_event),
]
