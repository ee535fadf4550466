"""`eddy get`: rows of a table of an application, once or as they change."""

from typing import Any

import click

from eddy.cli.load import load
from eddy.cli.logs import Target, log_options, opened
from eddy.cli.options import timeout_option, topology_argument
from eddy.errors import NotReadyError, QueryError
from eddy.json_text import encode
from eddy.program.open_tables import Tables, TablesSnapshot
from eddy.tables.key_text import key_of_text
from eddy.tables.open_table import OpenTable

__all__ = ["command"]

_FOREVER_S = 1e9
_SILENT_S = 2.0
"""Seconds of waiting after which the command prints the reason."""


@click.command("get", short_help="Show rows of a table.")
@topology_argument
@click.argument("table")
@click.argument("key", required=False)
@log_options
@click.option("--prefix", metavar="TEXT", help="The rows whose keys begin with TEXT.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The most rows to show.")
@click.option("--watch", is_flag=True, help="Continue, and show each row that changes, until Ctrl-C.")
@timeout_option("Seconds to wait until the tables are read.")
def command(
    program: str,
    table: str,
    key: str | None,
    target: Target,
    prefix: str | None,
    limit: int | None,
    watch: bool,
    timeout: float,
) -> None:
    """Show the row of KEY, the rows of a prefix, or all rows of TABLE, as lines of JSON.

    The table is read from its topic, for this call alone; eddy serve keeps tables read. Exit status 1: no such row.

    \b
    Example:
      eddy get family.py descendants ann
      eddy get family.py descendants --prefix a --watch
    """
    if key is not None and prefix is not None:
        raise click.UsageError("KEY and --prefix: leave one of them out.")
    topology = load(program).topology
    with opened(target) as log, Tables(topology, log) as tables:
        _wait_with_message(tables, timeout)
        shown: dict[Any, Any] = {}
        with tables.snapshot() as snapshot:
            shown = _rows(snapshot, table, key, prefix, limit)
        for row in shown.items():
            _print(*row)
        if watch:
            _watch(tables, shown, table, key, prefix, limit)
        elif key is not None and not shown:
            click.echo(f"table '{table}': there is no row with the key {key!r}.", err=True)
            raise SystemExit(1)


def _wait_with_message(tables: Tables, timeout_s: float) -> None:
    """Wait until the tables are read; a wait that is long names its reason. Raises: NotReadyError after the timeout."""
    if timeout_s > _SILENT_S:
        try:
            tables.wait(timeout_s=_SILENT_S)
            return
        except NotReadyError as error:
            click.echo(f"waiting, up to {timeout_s:g} s: {error}", err=True)
        timeout_s -= _SILENT_S
    tables.wait(timeout_s=timeout_s)


def _rows(
    snapshot: TablesSnapshot, table: str, key: str | None, prefix: str | None, limit: int | None
) -> dict[Any, Any]:
    found: OpenTable = snapshot[table]
    if key is not None:
        wanted = key_of_text(found.table, key)
        value = found.get(wanted, ...)
        return {} if value is ... else {wanted: value}
    rows = found.range(limit=limit) if prefix is None else found.prefix(key_of_text(found.table, prefix), limit=limit)
    try:
        return dict(rows)
    except TypeError as error:
        raise QueryError(f"table '{table}': its keys cannot be compared: {error}") from error


def _watch(
    tables: Tables, shown: dict[Any, Any], table: str, key: str | None, prefix: str | None, limit: int | None
) -> None:
    for _ in tables.versions(timeout_s=_FOREVER_S):
        with tables.snapshot() as snapshot:
            rows = _rows(snapshot, table, key, prefix, limit)
        for gone in shown.keys() - rows.keys():
            _print(gone, None)
        for row in rows.items():
            if row[0] not in shown or shown[row[0]] != row[1]:
                _print(*row)
        shown = rows


def _print(key: Any, value: Any) -> None:
    click.echo(encode({"key": key, "value": value}))
