"""A query over two large tables in a table server: `python -m benchmarks.systems.live_nests FOLDER ROWS MODE QUERY`.

ROWS are those of `children`; there are a tenth as many `parents`, of which the first 100 are shown. MODE is `memory`,
or `disk`: then the tables are larger than the bound. QUERY is one of `QUERIES`. Prints one line of JSON: resident
memory before and after, in bytes, seconds until the first rows are there, and the CPU time of edits of random children,
one at a time, in microseconds: those of all of them, and those of children that are shown.
"""

import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import eddy
from benchmarks.systems.process import resident_bytes
from eddy.live.server.live_server import LiveServer
from eddy.live.server.live_view import LiveView
from eddy.live.server.loading import TABLE_ROWS
from eddy.state.rocksdb import RocksDBStore
from eddy.state.spaces import Spaces
from eddy.tables.intake import table_prefix
from eddy.tables.ordering import encode_key
from eddy.tables.served_rows import ServedRows
from eddy.tables.version import Version

_BATCH, _SHOWN, _EDITS = 50_000, 100, 2_000
parents, children = (eddy.live_table(name, key="id") for name in ("parents", "children"))

first = parents.order_by(parents.rank).limit(_SHOWN)
QUERIES = {
    "nest": first.nest(children=lambda row: children.where(children.parent == row.id).order_by(-children.at).limit(5)),
    "exists": first.where(lambda row: children.where(children.parent == row.id, children.at > 10).exists()),
    "aggregate": first.nest(
        total=lambda row: children.where(children.parent == row.id).aggregate(
            number=children.id.count(), sum=children.at.sum(), last=children.at.max()
        )
    ),
}


class _Tables:
    """The rows of a table server."""

    def __init__(self, folder: Path, catalog: Any, count: int) -> None:
        self._catalog, self.count = catalog, count
        self.rows = ServedRows(RocksDBStore(folder / "rows", "items", 64 << 20), ["parents", "children"])
        self._number = 0
        if not self.rows.counts["children"]:
            for begin in range(0, count // 10, _BATCH):
                numbers = range(begin, min(count // 10, begin + _BATCH))
                self.show("parents", {f"p{n:07}": {"rank": n * 7919 % (count // 10), "head": f"h{n}"} for n in numbers})
            for begin in range(0, count, _BATCH):
                numbers = range(begin, min(count, begin + _BATCH))
                self.show("children", {f"c{n:07}": self.child(n, n % 1_000) for n in numbers})
        self.rows.say("")

    def child(self, number: int, at: int) -> dict[str, Any]:
        """A row of `children`."""
        return {"parent": f"p{number % (self.count // 10):07}", "at": at, "title": f"item number {number}"}

    def show(self, table: str, rows: dict[str, Any]) -> None:
        """A version with these rows."""
        self._number += 1
        prefix, serde = table_prefix(table), self._catalog.table(table).key
        page = {prefix + encode_key(serde, key): json.dumps(row).encode() for key, row in rows.items()}
        self.rows.apply({table: page}, {}, {}, Version({}, {}, exact=True, number=time.monotonic_ns()), [])


def main(folder: Path, count: int, mode: str, name: str) -> dict[str, Any]:
    """Open the query, look at memory, and edit children."""
    topology, log = eddy.Topology("items"), eddy.open_log()
    for table in ("parents", "children"):
        topology.table(table, key=eddy.String, value=eddy.Json())
    eddy.create_topics(topology, log)
    with eddy.open_tables(topology, log) as tables:
        held = _Tables(folder, tables.catalog, count)
        bound = TABLE_ROWS if mode == "memory" else count // 20
        server = LiveServer(tables.catalog, held.rows, tables.wanted, bound, Spaces(folder / "queries", "items"))
        before, begun = resident_bytes(), time.monotonic()
        with LiveView(server, QUERIES[name], 100_000) as view:
            seconds, after = time.monotonic() - begun, resident_bytes()
            shown = [int(row["id"][1:]) for row in view.rows]
            draw = random.Random(1)
            anywhere = [draw.randrange(count) for _ in range(_EDITS)]
            among = [draw.choice(shown) + draw.randrange(10) * (count // 10) for _ in range(_EDITS)]
            found = {
                "before": before,
                "after": after,
                "seconds": seconds,
                "edit_us": _edit_us(server, held, anywhere),
                "shown_us": _edit_us(server, held, among),
                "edited": resident_bytes(),
                "rows": json.dumps(view.rows),
            }
        server.stop()
        held.rows.close()
    log.close()
    return found


def _edit_us(server: LiveServer, tables: _Tables, numbers: list[int]) -> float:
    """The median of chunks' mean CPU time to take an edit in."""
    chunks, size = [], len(numbers) // 20
    for begin in range(0, len(numbers), size):
        spent = 0.0
        for at, number in enumerate(numbers[begin : begin + size]):
            with server.lock:
                tables.show("children", {f"c{number:07}": tables.child(number, begin + at)})
                begun = time.thread_time()
                server.take_whole()
                spent += time.thread_time() - begun
        chunks.append(spent / size * 1e6)
    return statistics.median(chunks)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])))
