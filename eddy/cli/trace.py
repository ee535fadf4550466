"""`eddy trace`: why a row of a table or of a recursion is what it is."""

import pathlib
from urllib.parse import quote

import click
from click.core import ParameterSource

from eddy.cli.asked_server import asked
from eddy.cli.load import load
from eddy.cli.logs import Target, log_options, opened
from eddy.cli.options import http_token_option, timeout_option, topology_argument
from eddy.errors import ConnectorError, QueryError
from eddy.json_text import encode
from eddy.program.open_tables import Tables
from eddy.program.row_trace import MAX_ROWS, Traces

__all__ = ["command"]


@click.command("trace", short_help="Show how a row was made.")
@topology_argument
@click.argument("step")
@click.argument("key")
@log_options
@click.option(
    "--open",
    "path",
    multiple=True,
    metavar="KEY",
    help="Open the part of a sum with this key; given again, a part of that part. 'direct' opens the direct rows.",
)
@click.option("--at-least", metavar="VERSION", help="Wait for this version, a token of a server or a view.")
@click.option(
    "--since",
    metavar="VERSION",
    help="Tell what has moved since this version, a token of the server, which has to keep its rows. Needs --server.",
)
@click.option("--server", metavar="URL", help="Ask a running server, by its address: eddy serve, or eddy run --http.")
@http_token_option("A file with the token of the server.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    metavar="N",
    help="The approximate number of rows to show; the rows nearest to the result are first.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    default=MAX_ROWS,
    show_default=True,
    metavar="N",
    help="The most rows to compute, in all steps and iterations together.",
)
@timeout_option("Seconds to wait for an exact version.")
def command(
    program: str,
    step: str,
    key: str,
    target: Target,
    path: tuple[str, ...],
    at_least: str | None,
    since: str | None,
    server: str | None,
    http_token_file: pathlib.Path | None,
    as_json: bool,
    limit: int,
    max_rows: int,
    timeout: float,
) -> None:
    """Show the rows, joins and iterations from which the rows of STEP with KEY are made.

    STEP is a table, a recursion or any other step of tables and relations, by its name. The source tables are read at
    one version, and the steps are computed again from scratch: nothing of the worker's states is used. A row of a
    served table is compared with the computed one. Exit status 1: they differ. A count or a sum is shown as the sum of
    its parts, largest first, and --open shows one of the parts in the same way. For a key without a row, the steps
    that have dropped it are named. --since lists the parts that have changed since a version, with their records.

    \b
    Example:
      eddy trace family.py descendants tree
      eddy trace family.py descendants tree --open branch
      eddy trace family.py ancestors tree --json
      eddy trace family.py descendants tree --server http://localhost:8080 --since earliest
    """
    if server is not None:
        if at_least is not None:
            raise click.UsageError("--at-least waits for a version in the log; a server answers with its own")
        _refuse_options_of_logs()
        _print_server_trace(
            server, load(program).topology.name, step, key, path, since, http_token_file, as_json, timeout
        )
        return
    if since is not None:
        raise click.UsageError(
            "--since: the topics of tables are compacted, so the log does not have their rows of earlier versions; a "
            "server that runs keeps those of the last ones. Name it: --server http://localhost:8080"
        )
    if click.get_current_context().get_parameter_source("http_token_file") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--http-token-file is for a server; name it: --server http://localhost:8080")
    topology = load(program).topology
    with opened(target) as log, Tables(topology, log) as tables:
        tables.wait(at_least, exact=True, timeout_s=timeout)
        found = Traces(topology.plan, limit, max_rows).trace(tables, step, key, path)
    if as_json:
        click.echo(encode(found))
    else:
        click.echo(found.text, nl=False)
    if found.agrees is False:
        raise SystemExit(1)


def _refuse_options_of_logs() -> None:
    """Refuse options that have no effect on a server. Raises: click.UsageError."""
    told = click.get_current_context().get_parameter_source
    for name in ("data", "bootstrap", "config", "settings", "limit", "max_rows"):
        if told(name) is ParameterSource.COMMANDLINE:
            option = "--set" if name == "settings" else f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} is for a trace of the log; leave it out beside --server")


def _print_server_trace(
    server: str,
    application: str,
    step: str,
    key: str,
    path: tuple[str, ...],
    since: str | None,
    token_file: pathlib.Path | None,
    as_json: bool,
    timeout_s: float,
) -> None:
    """Show the trace that a table server computes."""
    parameters = [("key", key), *(("open", part) for part in path), *([] if since is None else [("since", since)])]
    found = asked(server, f"/v1/trace/{quote(step, safe='')}", parameters, token_file, timeout_s)
    if not isinstance(found, dict) or not found.keys() >= {"application", "text", "agrees"}:
        raise ConnectorError(f"server {server}: its answer is not a trace; a server of eddy is needed")
    if found["application"] != application:
        raise QueryError(
            f"server {server}: it serves the application '{found['application']}', and FILE has '{application}'; the "
            "server of that one is needed"
        )
    click.echo(encode(found) if as_json else found["text"], nl=as_json)
    if found["agrees"] is False:
        raise SystemExit(1)
