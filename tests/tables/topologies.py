"""The applications whose tables are read."""

import eddy

__all__ = ["bank", "ledger", "people"]


def bank(name: str) -> eddy.Topology:
    """Transfers (source, target, amount): each moves an amount from a row of `payers` to a row of `payees`."""
    topology = eddy.Topology(name)
    transfers = topology.stream(f"{name}-transfers", key=eddy.String, value=eddy.Json())

    def side(index: int, sign: int, table: str) -> None:
        (
            transfers.map(lambda _, transfer: (transfer[index], sign * transfer[2]))
            .group_by_key()
            .aggregate(lambda: 0, lambda key, amount, total: total + amount, name=table, value=eddy.Int64)
        )

    side(0, -1, "payers")
    side(1, 1, "payees")
    return topology


def people(name: str) -> eddy.Topology:
    """A table of names, and how many of each there are, sent to a topic."""
    topology = eddy.Topology(name)
    table = topology.table(f"{name}-people", key=eddy.String, value=eddy.String, name="people")
    counts = table.to_relation().map(lambda key, value: (value, 1)).group_by_key().count("counts")
    counts.map_values(lambda n: n * 2).to(f"{name}-twice", key=eddy.String, value=eddy.Int64)
    return topology


def ledger(name: str) -> eddy.Topology:
    """Transfers between the rows of two tables; and people, a table of a topic, counted by their teams."""
    topology = bank(name)
    people = topology.table(f"{name}-people", key=eddy.String, value=eddy.String, name="people")
    people.to_relation().map(lambda key, team: (team, 1)).group_by_key().count("teams")
    return topology
