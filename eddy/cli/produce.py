"""`eddy produce`: records of files, or of stdin, into a topic."""

import contextlib
import gzip
import io
import pathlib
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, TextIO, cast

import click

from eddy.cli.fields import types_of
from eddy.cli.logs import Target, create_missing, log_options, opened
from eddy.cli.options import empty_of, empty_option, key_type_option, registry_option, value_type_option
from eddy.cli.records import FORMATS, Fields, FileRecord
from eddy.connectors.log import Log
from eddy.connectors.writing import RowWriter, Transactions
from eddy.errors import ConfigurationError, DataError
from eddy.serde import Bytes

__all__ = ["command"]

_TRANSACTION_RECORDS = 10_000
_SUFFIXES = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".txt": "lines",
    ".log": "lines",
}


class _Writer(RowWriter):
    """Writes records of bytes, and counts the tombstones."""

    tombstones = 0

    def put(self, record: FileRecord) -> None:
        """Add a record."""
        self.add(*record)
        self.tombstones += record.value is None


@click.command("produce", short_help="Write records from files into a topic.")
@click.argument("topic")
@click.argument("files", nargs=-1, metavar="[FILES]...")
@log_options
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    help="The format of the files. Default: by their suffix (.tsv .csv .jsonl .txt, also with .gz); stdin is tsv.",
)
@click.option("--key", metavar="NAME", help="Column (name, or number from 1 on) or JSON field. Default: 1, or key.")
@click.option(
    "--value", metavar="NAME", help="The same for the value; in jsonl '.' is the whole object. Default: 2, or value."
)
@click.option("--timestamp", metavar="NAME", help="The same for the time, in milliseconds since 1970. Default: now.")
@key_type_option
@value_type_option
@registry_option
@click.option("--ids-in-headers", is_flag=True, help="Write the ids of schemas into headers, not before the data.")
@click.option(
    "--header/--no-header",
    default=None,
    help="Whether the first line of tsv and csv names the columns. Default: yes if an option names one.",
)
@empty_option
@click.option("--skip-bad", is_flag=True, help="Skip and count lines that are not records, rather than stop.")
@click.option("--create", is_flag=True, help="Create a missing topic on Kafka, too.")
@click.option("--partitions", type=click.IntRange(min=1), metavar="N", help="Partitions of a new topic. Default: 1.")
def command(
    topic: str,
    files: tuple[str, ...],
    target: Target,
    form: str | None,
    key: str | None,
    value: str | None,
    timestamp: str | None,
    key_type: str,
    value_type: str | None,
    registry: str | None,
    ids_in_headers: bool,
    header: bool | None,
    empty_is_null: bool | None,
    skip_bad: bool,
    create: bool,
    partitions: int | None,
) -> None:
    """Write records from FILES, or from stdin, into TOPIC.

    A missing topic is created, on Kafka only with --create. Records of equal key go to the same partition, the one that
    Kafka's Java producers choose. A tsv has no quotes: its columns are separated by tabs alone, and an empty value is a
    tombstone, which deletes its key. In csv, "" is an empty text, and a column with nothing in it is what
    --empty-is-null or --empty-is-text says: none is assumed. Records are written in transactions of 10,000; at an
    invalid line the command stops and names the line; earlier transactions stay written.

    \b
    Examples:
      eddy produce nodes nodes.tsv.gz
      eddy produce orders orders.csv --key id --value total --value-type float64
      eddy produce people people.jsonl --registry http://127.0.0.1:8081
      printf 'leaf\\ttwig\\ntwig\\tbranch\\n' | eddy produce nodes
    """
    if ids_in_headers and registry is None:
        raise click.UsageError("--ids-in-headers is about the ids of a schema registry. Name one: --registry URL.")
    types = types_of(topic, key_type, value_type, registry, ids_in_headers)
    fields = Fields(key, value, timestamp, *types, header, empty_of(empty_is_null))
    forms = [(file, form or _format_of(file)) for file in files or ("-",)]
    if missing := [file for file, _ in forms if file != "-" and not pathlib.Path(file).is_file()]:
        raise click.UsageError(f"{missing[0]}: no such file.")
    with opened(target, create=True) as log:
        _check_partitions(log, topic, partitions, create or not target.kafka)
        typed = any(file == "-" for file, _ in forms) and sys.stdin.isatty()
        if typed:
            click.echo("reading from the terminal, each line at once; end with Ctrl-D", err=True)
        keys, values = (replace(Bytes, id_header=t.serde.id_header, id_end=t.serde.id_end) for t in types)
        writer = _Writer(Transactions(log), topic, keys, values, 1 if typed else _TRANSACTION_RECORDS)
        bad = sum(_produce(file, form, fields, writer, skip_bad) for file, form in forms)
        writer.commit()
    left_out = f", {bad:,} bad lines skipped" if bad else ""
    click.echo(
        f"{writer.written:,} records into '{topic}', {writer.tombstones:,} of them tombstones{left_out}", err=True
    )


def _check_partitions(log: Log, topic: str, wanted: int | None, create: bool) -> None:
    """Create the topic if it is missing and `create` is set; compare its partition count with `wanted`."""
    if create and create_missing(log, [topic], wanted or 1):
        plural = "" if (wanted or 1) == 1 else "s"
        click.echo(f"topic '{topic}' did not exist: made with {wanted or 1} partition{plural}", err=True)
        return
    spec = log.topics([topic]).get(topic)
    if spec is None:
        raise ConfigurationError(
            f"topic '{topic}' does not exist; on Kafka it is made only with --create. Create it: "
            f"eddy topics create {topic} --partitions N, or add --create --partitions N"
        )
    if wanted not in (None, spec.partitions):
        raise click.UsageError(f"--partitions {wanted}: topic '{topic}' exists, with {spec.partitions} partitions.")


def _format_of(file: str) -> str:
    if file == "-":
        return "tsv"
    suffixes = [suffix for suffix in pathlib.Path(file).suffixes if suffix != ".gz"]
    if suffixes and suffixes[-1] in _SUFFIXES:
        return _SUFFIXES[suffixes[-1]]
    raise click.UsageError(f"'{file}': its suffix is not a known format. Add --format tsv|csv|jsonl|lines.")


def _produce(file: str, form: str, fields: Fields, writer: _Writer, skip_bad: bool) -> int:
    """Pass each record of a file to the writer. Returns the number of bad lines."""
    bad = 0
    with _lines(file) as lines, _located_errors(file, writer):
        reader = FORMATS[form](lines, fields)
        for number, row in reader:
            try:
                record = reader.record(row)
            except DataError as error:
                if not skip_bad:
                    raise DataError(f"line {number}: {error}") from error
                bad += 1
                continue
            writer.put(record)
    return bad


@contextlib.contextmanager
def _lines(file: str) -> Iterator[TextIO]:
    """Yield the lines of a file, without a byte order mark at its start.

    Bytes that are not UTF-8 are kept, and are refused when a field is made from them.
    """
    try:
        with _binary(file) as binary:
            yield io.TextIOWrapper(binary, encoding="utf-8-sig", errors="surrogateescape", newline="")
    except (OSError, EOFError, zlib.error) as error:
        raise click.FileError(file, getattr(error, "strerror", None) or str(error)) from error


def _binary(file: str) -> IO[bytes]:
    if file == "-":
        return sys.stdin.buffer
    return cast("IO[bytes]", gzip.open(file)) if file.endswith(".gz") else open(file, "rb")


@contextlib.contextmanager
def _located_errors(file: str, writer: _Writer) -> Iterator[None]:
    """Add the file, and the number of records written, to an error."""
    try:
        yield
    except DataError as error:
        name = "stdin" if file == "-" else file
        raise DataError(
            f"{name}: {error}. {writer.written:,} records before it were written. Mend the line and produce the "
            f"rest, or skip bad lines: --skip-bad"
        ) from error
