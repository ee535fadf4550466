"""`eddy consume`: the records of a topic to stdout."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TextIO

import click
from click.core import ParameterSource

from eddy.cli.fields import FIELD_TYPES, FieldType, types_of
from eddy.cli.load import load
from eddy.cli.logs import Target, log_options, opened
from eddy.cli.options import key_type_option, registry_option, value_type_option
from eddy.connectors.csv_rows import Cell, csv_line
from eddy.connectors.log import Headers, Log, Records, TopicPartition
from eddy.errors import ConfigurationError, ConnectorError, DataError
from eddy.json_text import encode

__all__ = ["command", "latest_records", "read_records"]

_READ_RECORDS = 10_000
_POLL_S = 0.1
_OPEN_TRANSACTION_S = 10.0
_BREAKS = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})


class _Record(NamedTuple):
    """A decoded record; key and value may be None."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers


class _Decoder:
    """Decodes records. It warns once if values decode as text and are probably something else."""

    def __init__(self, key: FieldType, value: FieldType) -> None:
        self._key, self._value = key, value
        self._warned = False

    def records(self, found: Records) -> Iterator[_Record]:
        """Yield the decoded records. Raises: DataError naming a record that does not have the given types."""
        headers: Sequence[Headers] = found.headers or [()] * len(found)
        columns = zip(found.offsets, found.keys, found.values, found.timestamps, headers, strict=True)
        for offset, key, value, timestamp, header in columns:
            where = f"topic '{found.topic}' partition {found.partition} offset {offset}"
            yield _Record(
                self._decoded(self._key, key, header, where, "key"),
                self._decoded(self._value, value, header, where, "value"),
                timestamp,
                header,
            )

    def _decoded(self, type: FieldType, data: bytes | None, headers: Headers, where: str, what: str) -> Any:
        (data,) = type.serde.with_ids([data], [headers])
        if data is None:
            return None
        try:
            value = type.serde.decode(data)
        except (ConfigurationError, ConnectorError):
            raise
        except Exception as error:
            raise DataError(
                f"{where}: the {what} {data[:40]!r} is not a valid {type.serde.name}: {error}. Name its type: "
                f"--{what}-type …"
            ) from error
        if not self._warned and type is FIELD_TYPES["string"] and "\0" in value:
            self._warned = True
            click.echo(f"the {what}s do not look like text; perhaps: --{what}-type int64", err=True)
        return value


class _Printer:
    """Prints records in one format."""

    def __init__(self, form: str, out: TextIO, types: tuple[FieldType, FieldType], timestamps: bool, headers: bool):
        self._form, self._out, self._types = form, out, types
        self._timestamps, self._headers = timestamps, headers

    def print(self, record: _Record) -> None:
        """Print one record."""
        if self._form == "jsonl":
            self._out.write(encode(self._object(record)).decode() + "\n")
        elif self._form == "csv":
            self._out.write(csv_line(self._cells(record)))
        else:
            self._out.write("\t".join((cell or "").translate(_BREAKS) for cell in self._cells(record)) + "\n")

    def _cells(self, record: _Record) -> list[Cell]:
        pair = zip(self._types, record[:2], strict=True)
        cells = [None if value is None else type.show(value) for type, value in pair]
        if self._timestamps:
            cells.append(str(record.timestamp))
        if self._headers:
            cells.append(",".join(f"{name}={data.decode(errors='replace')}" for name, data in record.headers))
        return cells

    def _object(self, record: _Record) -> dict[str, Any]:
        pair = zip(("key", "value"), self._types, record[:2], strict=True)
        found: dict[str, Any] = {name: None if value is None else type.to_json(value) for name, type, value in pair}
        if self._timestamps:
            found["timestamp"] = record.timestamp
        if self._headers:
            found["headers"] = [[name, data.decode(errors="replace")] for name, data in record.headers]
        return found


@click.command("consume", short_help="Print the records of a topic.")
@click.argument("topic")
@log_options
@click.option("--format", "form", type=click.Choice(["tsv", "csv", "jsonl"]), default="tsv", show_default=True)
@key_type_option
@value_type_option
@registry_option
@click.option(
    "--of",
    "program",
    metavar="FILE[:NAME]",
    help="The topology that reads or writes the topic: its serdes are the types that are not named.",
)
@click.option("--from-beginning/--from-end", default=True, show_default=True, help="The records to print.")
@click.option("-f", "--follow", is_flag=True, help="Continue with new records as they arrive, until Ctrl-C.")
@click.option("--latest", is_flag=True, help="Print the topic as a table: the last value of each key, if it has one.")
@click.option("--max", "most", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option("--timestamps", is_flag=True, help="Print times too, in milliseconds since 1970.")
@click.option("--headers", is_flag=True, help="Print headers too, as name=text.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Read one partition only.")
@click.pass_context
def command(
    context: click.Context,
    topic: str,
    target: Target,
    form: str,
    key_type: str,
    value_type: str | None,
    registry: str | None,
    program: str | None,
    from_beginning: bool,
    follow: bool,
    latest: bool,
    most: int | None,
    timestamps: bool,
    headers: bool,
    partition: int | None,
) -> None:
    """Print the records of TOPIC: key and value.

    Records are printed in partition order, one partition after the other. A tombstone, a record without a value, is
    printed as an empty column, in jsonl as null; an empty text is "" in csv. In tsv, tabs and line breaks inside a text
    show as \\t, \\n and \\r: take csv, to be produced with --empty-is-null, or jsonl for an exact copy.

    \b
    Examples:
      eddy consume nodes --max 10
      eddy consume descendants --latest --value-type int64
      eddy consume people --registry http://127.0.0.1:8081
      eddy consume counts --of app.py
      eddy consume nodes -f --format jsonl --timestamps
    """
    if latest and (follow or not from_beginning):
        raise click.UsageError("--latest needs the whole topic; leave out --follow and --from-end.")
    if program is not None and context.get_parameter_source("registry") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--of and --registry exclude each other: the topology's serdes know their registry.")
    topology = None if program is None else load(program).topology
    types = types_of(topic, key_type, value_type or (None if program is None else "string"), registry)
    left = most if most is not None else sys.maxsize
    with opened(target) as log:
        if topology is not None:
            from eddy.cli.topic_serdes import types_in  # with the compiler, which other commands do without

            own = types_in(topology, topic, log)
            key_given = context.get_parameter_source("key_type") is ParameterSource.COMMANDLINE
            types = types[0] if key_given else own[0], types[1] if value_type else own[1]
        decoder, printer = _Decoder(*types), _Printer(form, sys.stdout, types, timestamps, headers)
        for found in (
            latest_records(log, topic, partition)
            if latest
            else read_records(log, topic, partition, from_beginning, follow)
        ):
            for record in decoder.records(found):
                printer.print(record)
                left -= 1
                if not left:
                    return
            if follow:
                sys.stdout.flush()


def read_records(log: Log, topic: str, partition: int | None, from_beginning: bool, follow: bool) -> Iterator[Records]:
    """Yield the records of a topic from its beginning, or from its end; with `follow`, new records without end.

    If an open transaction blocks the rest of a partition, the function waits for its end, with a time limit.
    """
    if (spec := log.topics([topic]).get(topic)) is None:
        raise ConnectorError(f"topic '{topic}' does not exist; a topic of the log is needed. List topics: eddy topics")
    if partition is not None and partition >= spec.partitions:
        raise ConnectorError(f"topic '{topic}': there is no partition {partition}; it has {spec.partitions}, from 0 on")
    chosen = range(spec.partitions) if partition is None else [partition]
    partitions = [TopicPartition(topic, p) for p in chosen]
    positions = log.begin_offsets(partitions) if from_beginning else log.end_offsets(partitions)
    ends = log.end_offsets(partitions)
    deadline = time.monotonic() + _OPEN_TRANSACTION_S
    while True:
        for tp in partitions:
            while positions[tp] < ends[tp]:
                found = log.read(tp, positions[tp], ends[tp], _READ_RECORDS)
                if found.next_offset == positions[tp]:
                    break
                positions[tp] = found.next_offset
                yield found
        behind = [tp for tp in partitions if positions[tp] < ends[tp]]
        if not follow and (not behind or time.monotonic() > deadline):
            for tp in behind:
                text = "an open transaction blocks partition %d from offset %d on"
                click.echo(text % (tp.partition, positions[tp]), err=True)
            return
        time.sleep(_POLL_S)
        if follow:
            ends = log.end_offsets(partitions)


def latest_records(log: Log, topic: str, partition: int | None) -> Iterator[Records]:
    """Yield the last record of each key, unless it is a tombstone, in the order of the keys' first records."""
    last: dict[bytes, tuple[Any, ...]] = {}
    for found in read_records(log, topic, partition, from_beginning=True, follow=False):
        headers: Sequence[Headers] = found.headers or [()] * len(found)
        columns = zip(found.offsets, found.timestamps, found.keys, found.values, headers, strict=True)
        last.update((row[2], (found.partition, *row)) for row in columns if row[2] is not None)
    for home, offset, timestamp, key, value, header in last.values():
        if value is not None:
            yield Records(topic, home, [offset], [timestamp], [key], [value], [header], offset + 1)
