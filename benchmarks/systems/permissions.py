"""A view of rights in SQL, by the compiled circuit: groups edit or view folders, in folders; users are in groups.

    permissions WHAT USERS FILES CHANGES BATCH

Half of the changes move a folder; the others give a user or a folder to another group, and add or remove a leaf. A
batch is timed whole: the step, the changed rows of all states as bytes, the commit. At the end each right is compared
with plain sets. WHAT names the run only.
"""

import random
import sys
from time import perf_counter
from typing import Any

import eddy
from benchmarks.systems.process import percentiles_ms, report, settle
from eddy.cli.collector import OwnCollector
from eddy.operators.batch import Batch
from eddy.topology.compiler.circuit_compiler import Environment, compile_plan

SQL = """
WITH MUTUALLY RECURSIVE
  edits (grp bigint, file bigint) AS (
    SELECT grp, file FROM editors
    UNION SELECT e.grp, f.id FROM edits e JOIN files f ON f.parent = e.file),
  views (grp bigint, file bigint) AS (
    SELECT grp, file FROM edits
    UNION SELECT grp, file FROM viewers
    UNION SELECT v.grp, f.id FROM views v JOIN files f ON f.parent = v.file)
SELECT DISTINCT m.usr, v.file, 'read' AS may
  FROM views v JOIN members m ON m.grp = v.grp JOIN users u ON u.id = m.usr WHERE NOT u.banned
UNION ALL
SELECT DISTINCT m.usr, e.file, 'write'
  FROM edits e JOIN members m ON m.grp = e.grp JOIN users u ON u.id = m.usr WHERE NOT u.banned
"""
COLUMNS = {
    "files": {"id": "bigint", "parent": "bigint"},
    "users": {"id": "bigint", "banned": "boolean"},
    "members": {"usr": "bigint", "grp": "bigint"},
    "editors": {"grp": "bigint", "file": "bigint"},
    "viewers": {"grp": "bigint", "file": "bigint"},
}
Right = tuple[int, int, str]


class Tables:
    """The tables as they are after all changes so far, and the changes since the last epoch."""

    def __init__(self, users: int, files: int) -> None:
        self.random, self.users, self.files, self.groups = random.Random(11), users, files, max(users // 10, 1)
        self.rows: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in COLUMNS}
        self.changed: dict[str, dict[str, dict[str, Any] | None]] = {name: {} for name in COLUMNS}
        below = self.random.randrange
        for user in range(users):
            self.put("users", user, {"id": user, "banned": self.random.random() < 0.05})
        for file in range(files):
            self.put("files", file, {"id": file, "parent": below(file) if file else None})
        for member in range(2 * users):
            self.put("members", member, {"usr": below(users), "grp": below(self.groups)})
        for grant in range(2 * self.groups):
            self.grant(grant)

    def put(self, table: str, number: int, row: dict[str, Any] | None) -> None:
        """A row under its key, or none."""
        key = f"{table[0]}{number}"
        self.changed[table][key] = row
        if row is None:
            del self.rows[table][key]
        else:
            self.rows[table][key] = row

    def grant(self, number: int) -> None:
        """A group edits, or views, another folder."""
        table = "editors" if number % 2 else "viewers"
        self.put(table, number, {"grp": number // 2, "file": self.random.randrange(self.files)})

    def change(self) -> None:
        """One change of the five."""
        below, leaf = self.random.randrange, self.files + self.random.randrange(self.files)
        match self.random.choice(["move", "move", "member", "grant", "leaf"]):
            case "move":
                file = below(1, self.files)
                self.put("files", file, {"id": file, "parent": below(file)})
            case "member":
                self.put("members", below(2 * self.users), {"usr": below(self.users), "grp": below(self.groups)})
            case "grant":
                self.grant(below(2 * self.groups))
            case _:
                there = f"f{leaf}" in self.rows["files"]
                self.put("files", leaf, None if there else {"id": leaf, "parent": below(self.files)})

    def epoch(self) -> dict[str, Batch]:
        """The changes since the last epoch."""
        found = {name: Batch(list(rows.items()), [1] * len(rows)) for name, rows in self.changed.items() if rows}
        self.changed = {name: {} for name in COLUMNS}
        return found

    def rights(self) -> set[Right]:
        """Each right, by plain sets."""
        children: dict[int, list[int]] = {}
        for row in self.rows["files"].values():
            children.setdefault(row["parent"], []).append(row["id"])

        def below(seeds: set[tuple[int, int]]) -> set[tuple[int, int]]:
            seen, waiting = set(seeds), list(seeds)
            while waiting:
                group, file = waiting.pop()
                fresh = [(group, child) for child in children.get(file, []) if (group, child) not in seen]
                seen.update(fresh)
                waiting += fresh
            return seen

        edited = below({(row["grp"], row["file"]) for row in self.rows["editors"].values()})
        viewed = below(edited | {(row["grp"], row["file"]) for row in self.rows["viewers"].values()})
        banned = {row["id"] for row in self.rows["users"].values() if row["banned"]}
        members: dict[int, set[int]] = {}
        for row in self.rows["members"].values():
            if row["usr"] not in banned:
                members.setdefault(row["grp"], set()).add(row["usr"])
        return {
            (user, file, may)
            for pairs, may in ((viewed, "read"), (edited, "write"))
            for group, file in pairs
            for user in members.get(group, ())
        }


def main(users: int, files: int, changes: int, batch: int) -> None:
    """Load the tables, then time the changes."""
    topology = eddy.Topology("permissions")
    sources = {
        name: (topology.table(name, key=eddy.String, value=eddy.Json()), columns) for name, columns in COLUMNS.items()
    }
    topology.sql(SQL, sources, name="may", key=["usr", "file", "may"]).to_table("rights")
    circuit = compile_plan(topology.plan, Environment(dict.fromkeys(COLUMNS, 1)))
    tables, collector = Tables(users, files), OwnCollector()
    circuit.compute(tables.epoch())
    circuit.commit()
    start = settle()
    seconds, rows = [], 0
    for _ in range(changes // batch):
        for _ in range(batch):
            tables.change()
        inputs, begun = tables.epoch(), perf_counter()
        rows += sum(map(len, circuit.compute(inputs).values()))
        circuit.commit()
        collector.after_epoch(at_rest=False)
        seconds.append(perf_counter() - begun)
    report(start, seconds=sum(seconds), state_rows=rows, **percentiles_ms(seconds))
    found: Any = circuit.states["rights"]
    if {key for key, _ in found.items()} != tables.rights():
        raise SystemExit("the rights differ")


if __name__ == "__main__":
    main(*map(int, sys.argv[2:]))
