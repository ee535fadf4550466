"""`eddy sql`: queries over files and topics, from a file, a pipe or a prompt."""

import csv
import math
import pathlib
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from eddy.cli.exits import message
from eddy.cli.logs import Target, log_options
from eddy.cli.options import registry_option
from eddy.cli.printed_tables import new_table, print_table
from eddy.cli.sql_sources import parse_source
from eddy.connectors.csv_rows import Cell, csv_line
from eddy.errors import EddyError
from eddy.topology.sql.answer import SEVERAL_COLUMNS, Answer, repeated_name
from eddy.topology.sql.display import shown

if TYPE_CHECKING:
    from eddy.cli.sql_session import Session

__all__ = ["command"]

_encoder = msgspec.json.Encoder(decimal_format="number")
_NUMBERS = {"smallint", "integer", "bigint", "numeric", "real", "double"}
_HELP = "\\d lists the tables, \\d NAME the columns of one, \\t NAME=FILE adds one, \\q ends; statements end with ;"


@click.command("sql", short_help="Answer SQL queries over files and topics.")
@click.argument("file", required=False, type=click.Path(dir_okay=False, allow_dash=True, path_type=pathlib.Path))
@click.option("-c", "--command", "text", metavar="SQL", help="Run these statements instead of a file's.")
@click.option(
    "-t", "--table", "tables", multiple=True, metavar="NAME=SOURCE", help="A table: a file or a topic; may be repeated."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "tsv", "jsonl"]),
    help="The format of answers. Default: table on a terminal, otherwise csv.",
)
@registry_option
@log_options
def command(
    file: pathlib.Path | None,
    text: str | None,
    tables: tuple[str, ...],
    form: str | None,
    registry: str | None,
    target: Target,
) -> None:
    """Answer SQL queries over files and topics.

    FILE holds statements that end with semicolons; without one they come from stdin, on a terminal from a prompt. A
    SOURCE is a file (.csv, .tsv, whose first line names the columns, .jsonl, .json, also .gz; .parquet), or a topic,
    up to its current end; a name in a query that is not a table is a topic's: for a compacted topic the last value of
    each key, else every record; latest:TOPIC and all:TOPIC select one. Types are inferred, unless CREATE TABLE name
    (column type, …) declares them. The columns of a topic are key and value, or those that CREATE TABLE declares:
    then values are JSON objects. With --registry values are read by their schemas, and the fields of records are
    columns; keys are with key=schema.

    \b
    Examples:
      eddy sql -t edges=edges.csv -c 'SELECT src, count(*) FROM edges GROUP BY src'
      eddy sql reach.sql -t edges=edges.csv --format jsonl
      eddy sql -t nodes=latest:nodes -c 'SELECT value AS parent, count(*) FROM nodes GROUP BY 1'
      eddy sql -t orders=orders,key=int64,value=json
      eddy sql -c 'SELECT value, count(*) FROM nodes GROUP BY value'
      eddy sql -t people=people --registry http://127.0.0.1:8081 -c 'SELECT name FROM people WHERE age > 30'
    """
    if file is not None and text is not None:
        raise click.UsageError("--command and FILE exclude each other; leave one out.")
    # The parser of SQL is imported only here, so that other commands start faster.
    from eddy.cli.sql_session import Session

    sources = [parse_source(table) for table in tables]
    session = Session(target, registry, {source.name: source for source in sources})
    form = form or ("table" if sys.stdout.isatty() else "csv")
    if file is None and text is None and sys.stdin.isatty():
        _prompt(session, form)
        return
    name = "command" if text is not None else "stdin" if file is None or str(file) == "-" else file.name
    if text is None:
        text = sys.stdin.read() if name == "stdin" else _content(file)
    _script(session, text, name, form)


def _content(file: pathlib.Path | None) -> str:
    assert file is not None
    if not file.is_file():
        advice = f"; for a statement write: eddy sql -c {shlex.quote(str(file))}" if " " in str(file) else ""
        raise click.BadParameter(f"there is no file '{file}'{advice}.", param_hint="'FILE'")
    return file.read_text(encoding="utf-8")


def _script(session: "Session", text: str, name: str, form: str) -> None:
    """Run statements in order, with an empty line between answers."""
    for number, answer in enumerate(session.answers(text, name)):
        if number:
            click.echo()
        _print(answer, form)


def _prompt(session: "Session", form: str) -> None:
    """Read statements from a terminal, each up to its semicolon.

    An error is printed, and the next statement is read.
    """
    import readline  # noqa: F401 - gives input() its history and its keys

    click.echo(_HELP, err=True)
    for text in _statements():
        try:
            if text.startswith("\\"):
                _meta(session, text)
            else:
                _script(session, text, "prompt", form)
        except EddyError as error:
            click.echo(f"error [{error.code}]: {message(error)}", err=True)
        except click.ClickException as error:
            click.echo(f"error: {error.format_message()}", err=True)


def _statements() -> Iterator[str]:
    r"""Yield the statements typed, up to `\q` or the end of input; Ctrl-C discards the current one."""
    lines: list[str] = []
    while True:
        try:
            line = input("   -> " if lines else "eddy> ")
        except EOFError:
            click.echo(err=True)
            return
        except KeyboardInterrupt:
            click.echo(err=True)
            lines = []
            continue
        if not lines and line.strip() in {"\\q", "exit", "quit"}:
            return
        if not lines and line.lstrip().startswith("\\"):
            yield line.strip()
        elif lines or line.strip():
            lines.append(line)
            if line.rstrip().endswith(";"):
                yield "\n".join(lines)
                lines = []


def _meta(session: "Session", text: str) -> None:
    """Do a command of the prompt, such as the list of tables."""
    word, _, rest = text.partition(" ")
    if word == "\\t" and rest:
        source = parse_source(rest.strip())
        session.sources[source.name] = source
        session.tables.pop(source.name, None)
    elif word == "\\d" and rest:
        table = new_table("COLUMN", "TYPE")
        if rest.strip() not in session.names():
            raise click.UsageError(
                f"there is no table '{rest.strip()}'; there are {', '.join(session.names()) or 'none'}"
            )
        for column in session.table(rest.strip()).columns:
            table.add_row(column.name, str(column.type))
        print_table(table)
    elif word == "\\d":
        table = new_table("TABLE", "FROM")
        for name in session.names():
            table.add_row(name, str(session.sources.get(name, "")))
        print_table(table)
    else:
        raise click.UsageError(f"{word}: {_HELP}")


def _print(answer: Answer, form: str) -> None:
    if form == "jsonl":
        if name := repeated_name(answer.columns):
            raise click.UsageError(SEVERAL_COLUMNS.format(name))
        for row in answer.rows:
            line = dict(zip(answer.columns, map(_json_value, row), strict=True))
            sys.stdout.write(_encoder.encode(line).decode() + "\n")
        return
    cells = [[shown(value, type) for value, type in zip(row, answer.types, strict=True)] for row in answer.rows]
    if form == "table":
        _print_table(answer, cells)
        return
    if form == "csv":
        sys.stdout.write(csv_line(answer.columns))
        sys.stdout.writelines(map(_csv_line, cells))
        return
    writer = csv.writer(sys.stdout, lineterminator="\n", delimiter="\t")
    writer.writerow(answer.columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in cells)


def _json_value(value: Any) -> Any:
    """Return a value for JSON, which has no infinite numbers and no NaN. -0 is 0, as in the other formats."""
    if not isinstance(value, float):
        return value
    return value + 0.0 if math.isfinite(value) else shown(value, "double")


def _csv_line(cells: list[Cell]) -> str:
    """Return a row as a line of CSV. A row of one null column is written as `""`, since a blank line is not a row."""
    return csv_line([""] if cells == [None] else cells)


def _print_table(answer: Answer, cells: list[list[str | None]]) -> None:
    table = new_table()
    for name, type in zip(answer.columns, answer.types, strict=True):
        right = type.partition("(")[0] in _NUMBERS
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*("NULL" if cell is None else cell for cell in row))
    print_table(table)
    click.echo(f"({len(cells)} row{'' if len(cells) == 1 else 's'})")
