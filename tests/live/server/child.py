"""A worker or a server of the family in a process of its own, to be killed: `python -m tests.live.server.child ORDER`.

It ends with the process that holds its stdin open.
"""

import os
import sys
import threading
from pathlib import Path

import msgspec

import eddy
from eddy.connectors.log import Log
from eddy.live.streams.limits import Limits
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_server import served
from tests.live.server.families import family
from tests.live.server.test_http import queries

__all__ = ["Order"]


class Order(msgspec.Struct, kw_only=True):
    """What to be, on which log, and where to serve."""

    role: str
    name: str
    state_dir: str
    path: str = ""
    bootstrap: str = ""
    port: int = 0
    table_rows: int = 1_000_000


def _serve(order: Order, log: Log) -> None:
    topology, folder = family(order.name), Path(order.state_dir)
    limits = Limits(table_rows=order.table_rows)
    with served(
        endpoint_of(str(order.port)), topology, log, folder, max_wait_s=0.2, queries=queries, limits=limits
    ) as server:
        failed = threading.Event()
        while server.tables.rows.failure is None:
            failed.wait(0.05)
        raise server.tables.rows.failure


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
            if given.role == "worker":
                config = eddy.Config(state_dir=Path(given.state_dir))
                eddy.Worker(family(given.name), own, config).run(lambda: False, 0.05)
            else:
                _serve(given, own)
        except eddy.ConnectorError as error:
            if not error.retriable:
                raise  # else the broker was away as it started
