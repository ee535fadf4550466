"""`eddy serve`: the tables of an application over HTTP."""

import logging
import pathlib
import time

import click

from eddy.cli.collector import collect_seldom
from eddy.cli.load import load
from eddy.cli.logs import Target, log_options, opened
from eddy.cli.number_range import NumberRange
from eddy.cli.options import http_token_option, message_options, state_option, topology_argument
from eddy.cli.patience import insisted
from eddy.cli.signals import Stopped, StopRequest, stop_on_signals
from eddy.cli.stderr_messages import LogFormat, messages_console, show_messages
from eddy.config import Config
from eddy.connectors.log import Log
from eddy.live.streams.limits import MAX_LINGER_S, Limits
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_server import served
from eddy.tables.catalog import catalog_of
from eddy.tables.served_rows import NOT_RUN
from eddy.topology.topology import Topology

__all__ = ["command"]

_log = logging.getLogger("eddy.cli")
_STOP_S = 15.0


@click.command("serve", short_help="Serve an application's tables over HTTP.")
@topology_argument
@log_options
@state_option
@click.option(
    "--http",
    default="8080",
    show_default=True,
    metavar="[HOST:]PORT",
    help="The address to listen on; without HOST, on this machine only. Port 0 is any free port.",
)
@http_token_option("A file with a token that readers have to send; needed unless HOST is this machine.")
@click.option("--cors", multiple=True, metavar="ORIGIN", help="An origin whose web pages may read; may be repeated.")
@click.option(
    "--tls-cert",
    type=click.Path(path_type=pathlib.Path),
    metavar="FILE",
    help="Serve https, with this certificate in PEM.",
)
@click.option(
    "--tls-key", type=click.Path(path_type=pathlib.Path), metavar="FILE", help="The certificate's key, in PEM."
)
@click.option(
    "--max-wait",
    type=NumberRange(min=0),
    default=2.0,
    show_default=True,
    metavar="S",
    help="Seconds that committed records wait for a cut; then they are shown without a cut.",
)
@click.option(
    "--retain",
    "retain_s",
    type=NumberRange(0, MAX_LINGER_S),
    default=Limits().retain_s,
    show_default=True,
    metavar="S",
    help="Seconds that changes of live queries are kept for clients that reconnect.",
)
@click.option(
    "--linger",
    "linger_s",
    type=NumberRange(0, MAX_LINGER_S),
    default=Limits().linger_s,
    show_default=True,
    metavar="S",
    help="Seconds that a live query without a client is kept up to date; at least as long as --retain.",
)
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    default=Limits().requests,
    show_default=True,
    metavar="N",
    help="Requests that are answered at a time, beside streams; others get status 503.",
)
@click.option(
    "--request-timeout",
    "request_s",
    type=NumberRange(min=0, min_open=True),
    default=Limits().request_s,
    show_default=True,
    metavar="S",
    help="Seconds that a client has for a request: its line, headers and body.",
)
@click.option(
    "--streams",
    "connections",
    type=click.IntRange(min=1),
    default=Limits().connections,
    show_default=True,
    metavar="N",
    help="Streams of live queries at a time.",
)
@click.option(
    "--client-streams",
    "client_connections",
    type=click.IntRange(min=1),
    default=Limits().client_connections,
    show_default=True,
    metavar="N",
    help="Streams of one client at a time.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="A proxy, or a network of them, whose X-Forwarded-For names the client; may be repeated.",
)
@click.option(
    "--page",
    type=click.Path(file_okay=False, exists=True, path_type=pathlib.Path),
    metavar="DIR",
    help="A folder with an index.html, whose files are served at /page/, open to all.",
)
@click.option(
    "--idle-memory",
    "idle_mib",
    type=click.IntRange(min=0),
    default=Limits().idle_bytes >> 20,
    show_default=True,
    metavar="MIB",
    help="Memory that live queries without a client may hold, except the latest of them.",
)
@click.option(
    "--client-queries",
    type=click.IntRange(min=1),
    default=Limits().client_queries,
    show_default=True,
    metavar="N",
    help="Live queries of one client at a time.",
)
@click.option(
    "--query-rows",
    type=click.IntRange(min=1),
    default=Limits().rows,
    show_default=True,
    metavar="N",
    help="The most rows of one query, with its nests; a query with more ends with an error.",
)
@click.option(
    "--table-rows",
    type=click.IntRange(min=1),
    default=Limits().table_rows,
    show_default=True,
    metavar="N",
    help="The most rows of a table that live queries have in memory; the rows of a larger table are on disk.",
)
@click.option(
    "--recent-memory",
    "recent_mib",
    type=click.IntRange(min=0),
    default=Limits().recent_bytes >> 20,
    show_default=True,
    metavar="MIB",
    help="The memory in which former rows of the last versions are kept, for traces since one of them.",
)
@message_options
def command(
    program: str,
    target: Target,
    state: pathlib.Path,
    http: str,
    http_token_file: pathlib.Path | None,
    cors: tuple[str, ...],
    tls_cert: pathlib.Path | None,
    tls_key: pathlib.Path | None,
    max_wait: float,
    retain_s: float,
    linger_s: float,
    requests: int,
    request_s: float,
    connections: int,
    client_connections: int,
    proxies: tuple[str, ...],
    page: pathlib.Path | None,
    idle_mib: int,
    client_queries: int,
    query_rows: int,
    table_rows: int,
    recent_mib: int,
    log_format: LogFormat,
    log_level: str,
) -> None:
    """Read the tables of an application whole, and serve them and its named queries over HTTP until it is stopped.

    Any number of it may run beside the workers: it is not a member of their group, and writes nothing. A restart goes
    on from its rows in the folder of states.

    \b
    Example:
      eddy serve family.py --http 8080 &
      curl localhost:8080/v1/tables/descendants/ann
    """
    show_messages(messages_console(), log_format, log_level)
    collect_seldom()
    limits = Limits(
        retain_s=retain_s,
        linger_s=linger_s,
        requests=requests,
        request_s=request_s,
        connections=connections,
        client_connections=client_connections,
        idle_bytes=idle_mib << 20,
        client_queries=client_queries,
        rows=query_rows,
        table_rows=table_rows,
        recent_bytes=recent_mib << 20,
    )
    endpoint, tls, told = endpoint_of(http, http_token_file), _tls(tls_cert, tls_key), False
    with stop_on_signals(patience_s=_STOP_S) as stop:
        try:
            with stop.interrupts():
                topology, queries = (loaded := load(program)).topology, loaded.queries
            with stop.abandons(), opened(target) as log:
                _await_log(log, target, topology, stop)
                stop.check()
                with served(
                    endpoint, topology, log, state, max_wait, list(cors), tls, queries, limits, proxies, page
                ) as server:
                    while server.tables.rows.failure is None:
                        stop.check()
                        if not told and (told := NOT_RUN in server.tables.rows.hindrance):
                            _log.warning("tables are empty: %s; start a worker: eddy run %s", NOT_RUN, program)
                        time.sleep(0.2)
                    raise server.tables.rows.failure
        except Stopped:
            _log.info("stopped by %s", stop)


def _await_log(log: Log, target: Target, topology: Topology, stop: StopRequest) -> None:
    """Wait for brokers that are away, as a worker does. Raises: Stopped; the errors of `catalog_of`."""
    if target.kafka and insisted(lambda: catalog_of(topology, log), log, Config().retry_s, stop) is None:
        raise Stopped


def _tls(certificate: pathlib.Path | None, key: pathlib.Path | None) -> tuple[pathlib.Path, pathlib.Path] | None:
    if certificate is not None and key is not None:
        return certificate, key
    if certificate is None and key is None:
        return None
    raise click.UsageError("--tls-cert and --tls-key belong together: give both, or none.")
