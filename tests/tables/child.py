"""A worker or a table server in a process of its own, to be killed: at a moment that its order names, or from outside.

`python -m tests.tables.child ORDER`, an order being JSON. A server says on stdout, a line of JSON each, its port
and then every version that it shows, with all rows of all tables. It ends with the process that holds its stdin open.
"""

import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

import eddy
from eddy.connectors.log import Log
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_server import served
from eddy.state.rocksdb import RocksDBStore
from tests.children import Doom, signal_self
from tests.tables.arena import Part, carry_out
from tests.tables.topologies import ledger

__all__ = ["BEFORE_WRITE", "WRITTEN", "Order", "Shown"]

BEFORE_WRITE, WRITTEN = "before a write to the store", "after a write to the store"
"""Moments of a server; those of a worker are the steps of an epoch."""
_PAUSE_S = 0.01


class Order(Part, kw_only=True):
    """Also the moment to be killed at: the `time`th of that name."""

    moment: str = ""
    time: int = 1


class Shown(msgspec.Struct):
    """A version that a server has shown: all rows by table, and the numbers of rows as the server counts them."""

    exact: bool
    inputs: dict[str, list[int]]
    tables: dict[str, dict[str, int | str]]
    counts: dict[str, int]


def _doom(order: Order) -> Doom:
    return Doom(order.moment, order.time, signal_self(signal.SIGKILL))


def _work(order: Order, log: Log) -> None:
    config = eddy.Config(state_dir=Path(order.state_dir), max_epoch_records=20)
    worker = eddy.Worker(ledger(order.name), log, config, observe=_doom(order))
    worker.run(lambda: False, 0.05)


def _serve(order: Order, log: Log) -> None:
    doom, write = _doom(order), RocksDBStore.write

    def written(store: RocksDBStore, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        doom(BEFORE_WRITE)
        write(store, changes)
        doom(WRITTEN)

    RocksDBStore.write = written  # type: ignore[method-assign]
    topology, shown = ledger(order.name), -1
    with served(endpoint_of("0"), topology, log, Path(order.state_dir), max_wait_s=0.2) as server:
        _say({"port": server.port})
        while server.tables.rows.failure is None:
            try:
                with server.tables.snapshot(timeout_s=1.0) as snapshot:
                    if snapshot.version.number != shown:
                        shown = snapshot.version.number
                        tables = {name: snapshot[name] for name in server.tables.names}
                        rows = {name: dict(table.all()) for name, table in tables.items()}
                        counts = {name: table.count() for name, table in tables.items()}
                        _say(Shown(snapshot.version.exact, snapshot.version.inputs, rows, counts))
            except eddy.NotReadyError:
                pass
            threading.Event().wait(_PAUSE_S)
        raise server.tables.rows.failure


def _say(what: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    carry_out(msgspec.json.decode(sys.argv[1], type=Order), {"worker": _work, "server": _serve})
