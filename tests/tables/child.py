"""A worker or a table server in a process of its own, to be killed: at a moment that its order names, or from outside.

`python -m tests.tables.child ORDER`, an order being JSON. A server says on stdout, a line of JSON each, its port
and then every version that it shows, with all rows of all tables. It ends with the process that holds its stdin open.
"""

import os
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
from tests.tables.topologies import ledger

__all__ = ["BEFORE_WRITE", "WRITTEN", "Order", "Shown"]

BEFORE_WRITE, WRITTEN = "before a write to the store", "after a write to the store"
"""Moments of a server; those of a worker are the steps of an epoch."""
_PAUSE_S = 0.01


class Order(msgspec.Struct, kw_only=True):
    """What to be, on which log, and the moment to be killed at: the `time`th of that name."""

    role: str
    name: str
    state_dir: str
    path: str = ""
    bootstrap: str = ""
    moment: str = ""
    time: int = 1


class Shown(msgspec.Struct):
    """A version that a server has shown: all rows by table, and the numbers of rows as the server counts them."""

    exact: bool
    inputs: dict[str, list[int]]
    tables: dict[str, dict[str, int | str]]
    counts: dict[str, int]


class _Fate:
    """Kills this process at the moment that the order names."""

    def __init__(self, order: Order) -> None:
        self._moment, self._left = order.moment, order.time

    def __call__(self, moment: str) -> None:
        if moment == self._moment:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _work(order: Order, log: Log) -> None:
    config = eddy.Config(state_dir=Path(order.state_dir), max_epoch_records=20)
    worker = eddy.Worker(ledger(order.name), log, config, observe=_Fate(order))
    worker.run(lambda: False, 0.05)


def _serve(order: Order, log: Log) -> None:
    fate, write = _Fate(order), RocksDBStore.write

    def written(store: RocksDBStore, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        fate(BEFORE_WRITE)
        write(store, changes)
        fate(WRITTEN)

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


def _end_with_parent() -> None:
    def watch() -> None:
        sys.stdin.read()
        os._exit(75)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    _end_with_parent()
    given = msgspec.json.decode(sys.argv[1], type=Order)
    own = eddy.kafka(given.bootstrap) if given.bootstrap else eddy.open_log(given.path)
    while True:
        try:
            (_work if given.role == "worker" else _serve)(given, own)
        except eddy.ConnectorError as error:
            if not error.retriable:
                raise  # else the broker was away as it started
