"""The head of a queue, and a window that moves, over a large table in a table server's store.

    python -m benchmarks.systems.live_queue FOLDER ROWS queue SECONDS   the first 100, 1,000 taken a second
    python -m benchmarks.systems.live_queue FOLDER ROWS skip MOVES      the same window, moved to random places

Prints one line of JSON. In the queue's figures a row is `late` from the moment before it is taken, in the store, until
the patch without it is there, by the clock; `unknown` is the share of the time in which the view is not "complete".
Moves are timed in processor time, to the rows.
"""

import json
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.systems.live_memory import filled, items
from benchmarks.systems.process import resident_bytes
from eddy.live.server.live_server import LiveServer
from eddy.live.server.live_view import LiveView, Patch
from eddy.state.spaces import Spaces
from eddy.tables.intake import table_prefix
from eddy.tables.ordering import encode_key
from eddy.tables.served_rows import ServedRows
from eddy.tables.version import Version

_TICK_S, _TAKEN = 0.01, 1_000
_LIMIT = 100


class _Queue:
    """Takes rows in the order of their rank, and notes when each of them is gone from the view."""

    def __init__(self, rows: ServedRows, keys: Any, count: int, view: LiveView[Any]) -> None:
        self._rows, self._view, self._keys = rows, view, keys
        self._by_rank = {n * 7919 % count: f"i{n:07}" for n in range(count)}
        self._base = view.rows[0]["rank"]  # a former run has taken the rows before it
        self._begun: list[float] = []
        self.late_ms: list[float] = []
        view.listen(self._seen)

    def _seen(self, patch: Patch) -> None:
        shown, now = self._view.entries[""][0][0]["rank"] - self._base, time.monotonic()
        self.late_ms += [(now - begun) * 1e3 for begun in self._begun[len(self.late_ms) : shown]]

    def run(self, seconds: float) -> float:
        """Take rows at even times. Returns the share of the time in which the view is not complete."""
        prefix, begun, unknown = table_prefix("items"), time.monotonic(), 0
        moments = round(seconds / _TICK_S)
        for moment in range(1, moments + 1):
            time.sleep(max(0.0, begun + moment * _TICK_S - time.monotonic()))
            taken = range(len(self._begun), round(moment * _TICK_S * _TAKEN))
            page = {prefix + encode_key(self._keys, self._by_rank[self._base + rank]): None for rank in taken}
            self._begun += [time.monotonic()] * len(taken)
            self._rows.apply({"items": page}, {}, {}, Version({}, {}, exact=True, number=10_000_000 + moment), [])
            self._rows.say("")
            unknown += self._view.state != "complete"
        return unknown / moments

    def settle(self) -> bool:
        """Wait for the last rows. Returns whether the view shows the rows that are left."""
        end = time.monotonic() + 60
        while len(self.late_ms) < len(self._begun) and time.monotonic() < end:
            time.sleep(_TICK_S)
        gone = self._base + len(self._begun)
        return [row["rank"] for row in self._view.rows] == list(range(gone, gone + _LIMIT))


def _queue(queue: _Queue, view: LiveView[Any], seconds: float) -> dict[str, Any]:
    began, before = time.monotonic(), time.process_time()
    unknown = queue.run(seconds)
    used = (time.process_time() - before) / (time.monotonic() - began)
    is_right = queue.settle()
    late = sorted(queue.late_ms)
    p50, p99 = (late[round(share * (len(late) - 1))] for share in (0.5, 0.99))
    return {
        "right": is_right,
        "unknown": unknown,
        "p50_ms": p50,
        "p99_ms": p99,
        "max_ms": late[-1],
        "cores": used,
    }


def _skip(view: LiveView[Any], count: int, moves: int) -> dict[str, Any]:
    draw, taken, is_right = random.Random(count), [], True
    for _ in range(moves):
        skip = draw.randrange(count - _LIMIT)
        began = time.process_time()
        view.window(skip=skip, limit=_LIMIT)
        found = view.rows
        taken.append((time.process_time() - began) * 1e3)
        is_right &= [row["rank"] for row in found] == list(range(skip, skip + _LIMIT))
    later = taken[1:]
    return {
        "right": is_right,
        "first_ms": taken[0],
        "p50_ms": statistics.median(later),
        "max_ms": max(later),
    }


def main(folder: Path, count: int, mode: str, amount: int) -> dict[str, Any]:
    """Open the window, and change rows, or move it."""
    with ExitStack() as stack:
        tables, rows = filled(stack, folder, count)
        spaces = Spaces(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "queries", "bench")
        server = LiveServer(tables.catalog, rows, tables.wanted, spaces=spaces)
        stack.callback(server.stop)
        before = resident_bytes()
        with LiveView(server, items.order_by(items.rank).limit(_LIMIT), 1_000_000) as view:
            found = {"opening_s": view.opening_s}
            if mode == "queue":
                found |= _queue(_Queue(rows, tables.catalog.table("items").key, count, view), view, amount)
            else:
                found |= _skip(view, count, amount)
            return found | {"memory": resident_bytes() - before}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))))
