"""`eddy trace`: why a row of a table or of a recursion is what it is."""

import click

from eddy.cli.load import load
from eddy.cli.logs import Target, log_options, opened
from eddy.cli.options import timeout_option, topology_argument
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
    as_json: bool,
    limit: int,
    max_rows: int,
    timeout: float,
) -> None:
    """Show the rows, joins and ways round that make the rows of STEP with KEY.

    STEP is a table, a recursion or any other step of tables and relations, by its name. The source tables are read at
    one version, and the steps are computed again from scratch: nothing of the worker's states is used. A row of a
    served table is compared with the computed one. Exit status 1: they differ. A count or a sum is shown as the sum of
    its parts, largest first, and --open shows one of the parts in the same way. For a key without a row the steps are
    named that have dropped it.

    \b
    Example:
      eddy trace family.py descendants tree
      eddy trace family.py descendants tree --open branch
      eddy trace family.py ancestors tree --json
    """
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
