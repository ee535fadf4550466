"""A window over a large table in its own table server: `python -m benchmarks.systems.live_memory FOLDER ROWS MODE`.

MODE is `store`, as it is by default, or `memory`: then the table is loaded as for other queries. Prints one line of
JSON: resident memory before and after, in bytes, and seconds until the first rows are there.
"""

import json
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import eddy
from benchmarks.systems.process import resident_bytes
from eddy.live.server import loading
from eddy.live.server.live_server import LiveServer
from eddy.live.server.live_view import LiveView
from eddy.program.open_tables import Tables
from eddy.state.rocksdb import RocksDBStore
from eddy.tables.intake import table_prefix
from eddy.tables.ordering import encode_key
from eddy.tables.served_rows import ServedRows
from eddy.tables.version import Version

_BATCH = 50_000
items = eddy.live_table("items", key="id")


def main(folder: Path, count: int, mode: str) -> dict[str, Any]:
    """Open the window, and look at memory."""
    if mode == "memory":
        loading.LARGE_ROWS = count + 1
    with ExitStack() as stack:
        tables, rows = filled(stack, folder, count)
        server = LiveServer(tables.catalog, rows, tables.wanted)
        stack.callback(server.stop)
        before, begun = resident_bytes(), time.monotonic()
        with LiveView(server, items.order_by(-items.rank).limit(100), 1_000) as view:
            seconds = time.monotonic() - begun
            right = [row["rank"] for row in view.rows] == list(range(count - 1, count - 101, -1))
            return {"before": before, "after": resident_bytes(), "seconds": seconds, "right": right}


def filled(stack: ExitStack, folder: Path, count: int) -> tuple[Tables, ServedRows]:
    """The tables of an application, and rows of `items` in the store in `folder`, which is filled if it is empty."""
    topology, log = eddy.Topology("items"), stack.enter_context(closing(eddy.open_log()))
    topology.table("items", key=eddy.String, value=eddy.Json())
    eddy.create_topics(topology, log)
    tables = stack.enter_context(eddy.open_tables(topology, log))
    rows = stack.enter_context(closing(ServedRows(RocksDBStore(folder, "items", 64 << 20), ["items"])))
    if not rows.counts["items"]:
        _fill(rows, tables.catalog.table("items").key, count)
    rows.say("")
    return tables, rows


def _fill(rows: ServedRows, serde: Any, count: int) -> None:
    prefix = table_prefix("items")
    for begin in range(0, count, _BATCH):
        numbers = range(begin, min(count, begin + _BATCH))
        page = {
            prefix + encode_key(serde, f"i{n:07}"): json.dumps(
                {"rank": n * 7919 % count, "head": f"h{n % 1000}", "title": f"item number {n}"}
            ).encode()
            for n in numbers
        }
        rows.apply({"items": page}, {}, {}, Version({}, {}, exact=True, number=begin + 1), [])


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
