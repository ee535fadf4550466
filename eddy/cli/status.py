"""`eddy status`: the progress of an application, read from the log only."""

from collections.abc import Iterator
from datetime import UTC, datetime

import click
import msgspec

from eddy.cli.application import ApplicationTopics, find
from eddy.cli.load import load
from eddy.cli.logs import Target, log_options, opened
from eddy.cli.options import topology_argument
from eddy.cli.printed_tables import new_table, print_table
from eddy.connectors.log import Log
from eddy.runtime.metadata import read_metadata
from eddy.runtime.own_positions import committed
from eddy.runtime.quiescence import Counters, Cut, last_cut, tally
from eddy.topology.topology import Topology

__all__ = ["command", "print_status"]


class _Partition(msgspec.Struct, frozen=True):
    """One input partition of the application; `committed` is None without a position."""

    topic: str
    partition: int
    kind: str
    committed: int | None
    end: int
    lag: int
    event_time_ms: int | None = None
    """The greatest timestamp of its records up to the position, if a step reads it."""


class _Exchange(msgspec.Struct, frozen=True):
    """The numbers of rows sent to an internal topic and read from it."""

    topic: str
    emitted: int
    consumed: int


class _Table(msgspec.Struct, frozen=True):
    """A global table; `lag` is the number of offsets that some worker has not read."""

    topic: str
    lag: int


class _Held(msgspec.Struct, frozen=True):
    """A part of a recursion without a finite answer: the recursion, the partition of the keys, and the reason."""

    step: str
    partition: int
    message: str


class _OpenWindows(msgspec.Struct, frozen=True):
    """A step with windows, and the source partition whose lower event time keeps them open.

    `event_time_ms` is None while no record of the partition was read.
    """

    step: str
    topic: str
    partition: int
    event_time_ms: int | None
    behind_ms: int


class _Status(msgspec.Struct, frozen=True):
    application: str
    workers: int
    session_s: float | None
    quiescent: bool
    partitions: list[_Partition]
    global_tables: list[_Table]
    exchanges: list[_Exchange]
    last_cut: Cut | None
    held: list[_Held]
    waiting: list[_OpenWindows]
    not_read: dict[str, str]
    """Topics that match a pattern of the topology and are not read, each with the reason."""


@click.command("status", short_help="Show the progress of an application.")
@topology_argument
@log_options
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(program: str, target: Target, form: str) -> None:
    """Show the progress of an application, also while it runs.

    It prints the number of workers (on Kafka one that has ended counts until its session ends), whether everything was
    processed ("quiescent"), and for each partition the committed position, the end, and the lag between them, in
    offsets. The last cut names input offsets and the output offsets at which the outputs were exact for them. Parts
    without a finite answer, such as a cycle in the data of a recursion, are listed with the way to mend them. Windows
    have the partition of their source whose event time is least: they close up to it.

    \b
    Example:
      eddy status family.py
    """
    topology = load(program).topology
    with opened(target) as log:
        print_status(log, topology, form)


def print_status(log: Log, topology: Topology, form: str) -> None:
    """Print the progress of an application, as a table or as JSON. Raises: ConnectorError if it has not run."""
    status = _status(log, topology, find(topology, log))
    if form == "json":
        click.echo(msgspec.json.encode(status).decode())
    else:
        _print(status)


def _status(log: Log, topology: Topology, application: ApplicationTopics) -> _Status:
    wanted = [*application.inputs, *application.exchanges]
    # Positions are read before ends, so that no lag is negative.
    begins, positions, ends = (
        log.begin_offsets(wanted),
        committed(log, application.name, wanted),
        log.end_offsets(wanted),
    )
    partitions = []
    for tp in wanted:
        position = positions.get(tp)
        offset = None if position is None else position.offset
        lag = ends[tp] - (begins[tp] if offset is None else offset)
        time = Counters.of(position).event_time
        partitions.append(
            _Partition(*tp, application.kind(tp.topic), offset, ends[tp], lag, None if time < 0 else time)
        )
    rows, topics = tally(positions), dict.fromkeys(tp.topic for tp in application.exchanges)
    return _Status(
        application.name,
        log.groups().get(application.name, 0),
        log.session_s,
        application.quiescent(log),
        partitions,
        [_Table(topic, lag) for topic, lag in application.table_lags(log).items()],
        [_Exchange(t, rows[t].emitted, rows[t].consumed) if t in rows else _Exchange(t, 0, 0) for t in topics],
        last_cut(log, application.internal.cuts),
        [_Held(*place, why) for place, why in read_metadata(log, application.internal.plan).held.items()],
        list(_waiting(topology, partitions)),
        application.not_read,
    )


def _waiting(topology: Topology, partitions: list[_Partition]) -> Iterator[_OpenWindows]:
    """Yield, for each step with windows, the partition of least event time, if other partitions are ahead of it."""
    for node in topology.plan.nodes:
        topics = {topic for assigned in node.waits_for for topic in assigned.topics_of_windows}
        times = {p: -1 if p.event_time_ms is None else p.event_time_ms for p in partitions if p.topic in topics}
        if times and (latest := max(times.values())) > min(times.values()):
            slowest = min(times, key=times.__getitem__)
            behind_ms = latest - max(times[slowest], 0)
            yield _OpenWindows(node.name, slowest.topic, slowest.partition, slowest.event_time_ms, behind_ms)


def _print(status: _Status) -> None:
    click.echo(f"application  {status.application}")
    click.echo(f"workers      {_workers_text(status.workers, status.session_s)}")
    click.echo(f"quiescent    {'yes: all input is processed' if status.quiescent else 'no'}")
    click.echo(f"last cut     {_cut_text(status.last_cut)}\n")
    table = new_table("topic", "partition", "kind", "committed", "end", "lag", numbers=3)
    for p in status.partitions:
        committed = "-" if p.committed is None else f"{p.committed:,}"
        table.add_row(p.topic, str(p.partition), p.kind, committed, f"{p.end:,}", f"{p.lag:,}")
    print_table(table)
    if status.global_tables:
        click.echo()
        table = new_table("global table", "lag", numbers=1)
        for t in status.global_tables:
            table.add_row(t.topic, f"{t.lag:,}")
        print_table(table)
    if status.not_read:
        click.echo()
        table = new_table("not read", "why")
        for topic, why in status.not_read.items():
            table.add_row(topic, why)
        print_table(table)
    if status.held:
        click.echo()
        table = new_table("no finite answer in", "partition", "why")
        for h in status.held:
            table.add_row(h.step, str(h.partition), h.message)
        print_table(table)
    if status.waiting:
        click.echo()
        table = new_table("windows of", "wait for", "partition", "event time", "behind the latest", numbers=2)
        for w in status.waiting:
            table.add_row(w.step, w.topic, str(w.partition), _time_text(w.event_time_ms), f"{w.behind_ms / 1000:,g} s")
        print_table(table)
    if status.exchanges:
        click.echo()
        table = new_table("internal topic", "rows emitted", "rows consumed", numbers=2)
        for e in status.exchanges:
            table.add_row(e.topic, f"{e.emitted:,}", f"{e.consumed:,}")
        print_table(table)


def _time_text(time_ms: int | None) -> str:
    """Return a time as a date, or in milliseconds if no calendar has it."""
    if time_ms is None:
        return "none yet"
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms:,} ms"


def _workers_text(count: int, session_s: float | None) -> str:
    if not count or session_s == 0:
        return f"{count or 'none'} running"
    after = "" if session_s is None else f", after {session_s:g} s"
    return f"{count} in the group; a worker that has ended counts until its session ends{after}"


def _cut_text(cut: Cut | None) -> str:
    if cut is None:
        return "none yet"
    inputs, outputs = (
        ", ".join(f"{topic} {'/'.join(map(str, offsets))}" for topic, offsets in side.items())
        for side in (cut.inputs, cut.outputs)
    )
    return f"{inputs} → {outputs}"
