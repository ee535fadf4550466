"""`eddy wait`: blocks until an application has nothing left to do."""

import time

import click

from eddy.cli.application import ApplicationTopics, find
from eddy.cli.exits import HELD
from eddy.cli.load import load
from eddy.cli.logs import Target, log_options, opened
from eddy.cli.options import timeout_option, topology_argument
from eddy.connectors.log import Log, TopicPartition
from eddy.errors import ConnectorError
from eddy.runtime.holding import told
from eddy.runtime.metadata import read_metadata
from eddy.runtime.own_positions import committed
from eddy.runtime.quiescence import lags, last_cut
from eddy.runtime.shares import members
from eddy.topology.topology import Topology

__all__ = ["POLL_S", "Patience", "command", "wait_until_quiescent"]

POLL_S = 0.1
"""Seconds between two looks at the application."""
_REACH_S = 1.0
_TELL_S = 3.0


@click.command("wait", short_help="Wait until an application has nothing left to do.")
@topology_argument
@log_options
@timeout_option("Seconds to wait; then exit with status 1 and the reason.")
def command(program: str, target: Target, timeout: float) -> None:
    """Wait until an application has processed all input and all loops have ended.

    Exit status 0 means that, at a moment during the call, the outputs held all results of the inputs, and that readers
    of committed records may read them now; 3 the same, except for parts without a finite answer, which it names. It
    does not start a worker: eddy run does, in this terminal or another.

    \b
    Example:
      eddy run family.py &
      eddy produce nodes nodes.tsv && eddy wait family.py --timeout 30 && eddy consume descendants
    """
    topology = load(program).topology
    patience = Patience(timeout)
    while not target.exists():
        patience.pause(
            f"there is no log in {target.data} yet; eddy produce and eddy run make one; or name it: --data DIR"
        )
    with opened(target) as log:
        wait_until_quiescent(log, topology, patience)


def wait_until_quiescent(log: Log, topology: Topology, patience: "Patience") -> None:
    """Wait until an application has nothing left to do.

    Raises: SystemExit with 1 when the patience ends; with 3 if some part has no finite answer.
    """
    waiting = _Waiting(log, topology)
    while (missing := waiting.missing()) is not None:
        patience.pause(missing)
    held = told(read_metadata(log, find(topology, log).internal.plan).held)
    for why in held:
        click.echo(f"no finite answer: {why}", err=True)
    if held:
        raise SystemExit(HELD)


class Patience:
    """Limits a wait to `timeout` seconds from now on. After three seconds stderr shows the missing work."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._began = time.monotonic()
        self._told = False

    def pause(self, missing: str) -> None:
        """Wait a moment. Raises: SystemExit with 1 at the end, which names the missing work."""
        waited = time.monotonic() - self._began
        if waited >= self._timeout:
            click.echo(f"not quiescent after {self._timeout:g} s: {missing}", err=True)
            raise SystemExit(1)
        if waited >= _TELL_S and not self._told:
            self._told = True
            click.echo(f"waiting, up to {self._timeout:g} s: {missing}", err=True)
        time.sleep(POLL_S)


class _Waiting:
    """Finds the work that an application still has to do and, after it, the outputs that are not readable yet.

    Positions are visible once the group's coordinator knows of a transaction's end. The end then reaches the partitions
    of the outputs one after the other. All results lie before the ends E that are read after a quiescent moment;
    readers of committed records can read all results once each partition's last stable offset has reached its E.
    """

    def __init__(self, log: Log, topology: Topology) -> None:
        self._log, self._topology = log, topology
        self._ends: dict[TopicPartition, int] | None = None

    def missing(self) -> str | None:
        """Return the work still to be done, as text; None if all is done. A log that does not answer counts as work."""
        try:
            self._log.reach(_REACH_S)
            application = find(self._topology, self._log)
        except ConnectorError as error:
            return str(error)
        try:
            return self._unfinished(application) or self._unreadable()
        except ConnectorError as error:
            if not error.retriable:
                raise
            return str(error)

    def _unfinished(self, application: ApplicationTopics) -> str | None:
        if self._ends is not None:
            return None
        if not application.quiescent(self._log):
            return _waiting_for(self._log, application)
        if not _settled(self._log, application):
            return "the workers are still deciding which parts have no finite answer"
        self._ends = self._log.end_offsets(application.outputs)
        return None

    def _unreadable(self) -> str | None:
        ends = self._ends or {}
        stable = self._log.stable_offsets(ends)
        late = [f"{tp.topic}-{tp.partition} from offset {stable[tp]:,} on" for tp in ends if stable[tp] < ends[tp]]
        return f"transactions have not ended, so readers may not read {', '.join(late)}" if late else None


def _settled(log: Log, application: ApplicationTopics) -> bool:
    """Whether all workers agree on the held rows, because only then they write a cut."""
    if not read_metadata(log, application.internal.plan).held:
        return True
    cut = last_cut(log, application.internal.cuts)
    positions = committed(log, application.name, application.inputs)
    return cut is not None and all(
        at.partition < len(offsets := cut.inputs.get(at.topic, [])) and offsets[at.partition] == position.offset
        for at, position in positions.items()
    )


def _waiting_for(log: Log, application: ApplicationTopics) -> str:
    behind = lags(log, application.name, [*application.inputs, *application.exchanges])
    parts = [f"{tp.topic}-{tp.partition} is {lag:,} offsets behind" for tp, lag in behind.items() if lag]
    for topic, lag in application.table_lags(log).items():
        if lag:
            parts.append(f"the global table of {topic} is {lag:,} offsets behind at a worker")
    if unaware := application.behind_topics(log):
        parts.append(
            f"the worker of {unaware[0].topic}-{unaware[0].partition} has not found out yet that topics were created "
            "or deleted"
        )
    if not parts:
        parts = ["a loop still has rows to process"]
    if not log.groups().get(application.name):
        parts.append("no worker runs: eddy run …")
    elif strangers := log.strangers(application.name):
        parts.append(f"{members(strangers)} of its group without being a worker: stop it, or give it another group")
    return "; ".join(parts)
