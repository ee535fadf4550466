"""A worker or a server of the family in its own process, to be killed: `python -m tests.live.server.child ORDER`."""

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
from tests.tables.arena import Part, carry_out

__all__ = ["Order"]


class Order(Part, kw_only=True):
    """Also where to serve, and how many rows of a table may be in memory."""

    port: int
    table_rows: int


def _work(order: Order, log: Log) -> None:
    config = eddy.Config(state_dir=Path(order.state_dir))
    eddy.Worker(family(order.name), log, config).run(lambda: False, 0.05)


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


if __name__ == "__main__":
    carry_out(msgspec.json.decode(sys.argv[1], type=Order), {"worker": _work, "server": _serve})
