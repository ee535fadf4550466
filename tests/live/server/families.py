"""Families: nodes with parents, their trees with numbers of descendants, and the naive answers to queries of them."""

from collections.abc import Mapping
from typing import Any

import eddy
from eddy.connectors.local import LocalLog
from tests.descendants import counted, descendants
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
    descendants(parents)
    return topology


def tables_of(parents: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """The rows of both tables of a family, by the oracle."""
    return {
        "nodes": [{"id": node, "parent": parent} for node, parent in parents.items()],
        "descendants": [{"id": node, "count": count} for node, count in counted(parents).items()],
    }


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
        return answer(query, tables_of(self.written))
