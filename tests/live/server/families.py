"""Families: nodes with parents, their trees with numbers of descendants, and the naive answers to queries of them."""

from typing import Any

import eddy
from eddy.connectors.local import LocalLog
from tests.live.query.oracle import answer
from tests.tables.conftest import produce

nodes = eddy.live_table("nodes", key="id", value="parent")
totals = eddy.live_table("descendants", key="id", value="count")
Written = dict[str, str | None]


def children(node: Any) -> eddy.Query:
    return nodes.where(nodes.parent == node.id).nest(
        children=children, total=lambda row: totals.where(totals.id == row.id).one()
    )


TREE = nodes.where(nodes.parent == "root").nest(children=children)


def family(name: str) -> eddy.Topology:
    topology = eddy.Topology(name)
    parents = topology.table("nodes", key=eddy.String, value=eddy.String)
    (
        parents.to_relation()
        .map(lambda node, parent: (parent, 1))
        .recursively(lambda rows: rows.join(parents, lambda _, one, parent: (parent, 1)), name="ancestors")
        .group_by_key()
        .count("descendants")
    )
    return topology


class Family:
    """A family on a log, and the parents that were written."""

    log: LocalLog
    written: dict[str, str]

    def produce(self, rows: Written) -> dict[str, dict[int, int]]:
        """Write rows; return where their topic then ends."""
        written = getattr(self, "written", {})
        self.written = {k: v for k, v in (written | rows).items() if v is not None}
        return produce(self.log, "nodes", {key: None if row is None else row.encode() for key, row in rows.items()})

    def answer(self, query: eddy.Query) -> Any:
        """The naive answer over the rows that were written."""
        counts: dict[str, int] = {}
        for node in self.written:
            above = self.written.get(node)
            while above is not None:
                counts[above] = counts.get(above, 0) + 1
                above = self.written.get(above)
        tables = {
            "nodes": [{"id": key, "parent": value} for key, value in self.written.items()],
            "descendants": [{"id": key, "count": value} for key, value in counts.items()],
        }
        return answer(query, tables)
