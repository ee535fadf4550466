"""`eddy status`: how far an application is, read from the log alone."""

import click
import msgspec

from eddy.cli.application import Application, find
from eddy.cli.load import load
from eddy.cli.logs import Target, log_options, opened
from eddy.cli.options import topology_argument
from eddy.cli.tables import new_table, print_table
from eddy.connectors.log import Log, TopicPartition
from eddy.connectors.quiescence import Cut, quiescent, tally

__all__ = ["command"]

_FIRST_SPAN = 64


class _Partition(msgspec.Struct, frozen=True):
    """One partition that the application takes in; `committed` is None where it has no position yet."""

    topic: str
    partition: int
    kind: str
    committed: int | None
    end: int
    lag: int


class _Exchange(msgspec.Struct, frozen=True):
    """Rows that an internal topic was sent and that were taken from it."""

    topic: str
    emitted: int
    consumed: int


class _Status(msgspec.Struct, frozen=True):
    application: str
    workers: int
    quiescent: bool
    partitions: list[_Partition]
    exchanges: list[_Exchange]
    last_cut: Cut | None


@click.command("status", short_help="Show how far an application is.")
@topology_argument
@log_options
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(program: str, target: Target, form: str) -> None:
    """Show how far an application is, also while it runs.

    It says how many workers run, whether everything was taken in ("quiescent"), and for each partition the position
    that is committed, the end, and the lag between them, in offsets. The last cut names input offsets and the output
    offsets at which the outputs were exact for them.

    \b
    Example:
      eddy status family.py
    """
    topology = load(program).topology
    with opened(target) as log:
        status = _status(log, find(topology, log))
    if form == "json":
        click.echo(msgspec.json.encode(status).decode())
    else:
        _print(status)


def _status(log: Log, application: Application) -> _Status:
    wanted = [*application.inputs, *application.exchanges]
    # Positions before ends, so that no lag shows that never was.
    begins, committed, ends = (
        log.begin_offsets(wanted),
        log.committed(application.name, wanted),
        log.end_offsets(wanted),
    )
    partitions = []
    for tp in wanted:
        position = committed.get(tp)
        offset = None if position is None else position.offset
        lag = ends[tp] - (begins[tp] if offset is None else offset)
        partitions.append(_Partition(*tp, application.kind(tp.topic), offset, ends[tp], lag))
    rows, topics = tally(committed), dict.fromkeys(tp.topic for tp in application.exchanges)
    return _Status(
        application.name,
        log.groups().get(application.name, 0),
        quiescent(log, application.name, application.inputs, application.exchanges, application.internal.anchors),
        partitions,
        [_Exchange(t, rows[t].emitted, rows[t].consumed) if t in rows else _Exchange(t, 0, 0) for t in topics],
        _last_cut(log, application.internal.cuts),
    )


def _last_cut(log: Log, topic: str) -> Cut | None:
    """The latest record of the topic of cuts, looked for from its end."""
    if not log.topics([topic]):
        return None
    partition = TopicPartition(topic, 0)
    begin, end = log.begin_offsets([partition])[partition], log.end_offsets([partition])[partition]
    span = _FIRST_SPAN
    while True:
        start = max(begin, end - span)
        values = [value for value in log.read(partition, start, end, span).values if value is not None]
        if values:
            return Cut.decode(values[-1])
        if start == begin:
            return None
        span *= 16


def _print(status: _Status) -> None:
    running = f"{status.workers} running" if status.workers else "none running"
    click.echo(f"application  {status.application}")
    click.echo(f"workers      {running}")
    click.echo(f"quiescent    {'yes: everything was taken in' if status.quiescent else 'no'}")
    click.echo(f"last cut     {_cut_text(status.last_cut)}\n")
    table = new_table("topic", "partition", "kind", "committed", "end", "lag", numbers=3)
    for p in status.partitions:
        committed = "-" if p.committed is None else f"{p.committed:,}"
        table.add_row(p.topic, str(p.partition), p.kind, committed, f"{p.end:,}", f"{p.lag:,}")
    print_table(table)
    if status.exchanges:
        click.echo()
        table = new_table("internal topic", "rows emitted", "rows consumed", numbers=2)
        for e in status.exchanges:
            table.add_row(e.topic, f"{e.emitted:,}", f"{e.consumed:,}")
        print_table(table)


def _cut_text(cut: Cut | None) -> str:
    if cut is None:
        return "none yet"
    inputs, outputs = (
        ", ".join(f"{topic} {'/'.join(map(str, offsets))}" for topic, offsets in side.items())
        for side in (cut.inputs, cut.outputs)
    )
    return f"{inputs} → {outputs}"
