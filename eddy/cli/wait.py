"""`eddy wait`: blocks until an application has nothing left to do."""

import time

import click

from eddy.cli.application import ApplicationTopics, find
from eddy.cli.exits import HELD
from eddy.cli.load import load
from eddy.cli.logs import Target, log_options, opened
from eddy.cli.options import timeout_option, topology_argument
from eddy.connectors.log import Log
from eddy.errors import ConnectorError
from eddy.runtime.holding import told
from eddy.runtime.metadata import read_metadata
from eddy.runtime.own_positions import committed
from eddy.runtime.quiescence import lags, last_cut, quiescent
from eddy.runtime.shares import members
from eddy.topology.topology import Topology

__all__ = ["command", "wait_until_quiescent"]

_POLL_S = 0.1
_REACH_S = 1.0


@click.command("wait", short_help="Wait until an application has nothing left to do.")
@topology_argument
@log_options
@timeout_option("Seconds to wait; then exit with status 1 and the reason.")
def command(program: str, target: Target, timeout: float) -> None:
    """Wait until an application has processed all input and all loops have ended.

    Exit status 0 means that, at a moment during the call, the outputs held all results of the inputs; 3 the same,
    except for parts without a finite answer, which it names. It does not start a worker: eddy run does, in this
    terminal or another.

    \b
    Example:
      eddy run family.py &
      eddy produce nodes nodes.tsv && eddy wait family.py --timeout 30 && eddy consume descendants
    """
    topology = load(program).topology
    deadline = time.monotonic() + timeout
    while not target.exists():
        _wait_on(deadline, timeout, f"there is no log in {target.data} yet")
    with opened(target) as log:
        wait_until_quiescent(log, topology, deadline, timeout)


def wait_until_quiescent(log: Log, topology: Topology, deadline: float, timeout: float) -> None:
    """Wait until `deadline`, a moment of the monotonic clock, which is `timeout` seconds after the start.

    Raises: SystemExit with 1 if it passes; with 3 if some part has no finite answer.
    """
    while (missing := _missing(log, topology)) is not None:
        _wait_on(deadline, timeout, missing)
    held = told(read_metadata(log, find(topology, log).internal.plan).held)
    for why in held:
        click.echo(f"no finite answer: {why}", err=True)
    if held:
        raise SystemExit(HELD)


def _wait_on(deadline: float, timeout: float, missing: str) -> None:
    """Pause, or give up: exit status 1, with the missing part."""
    if time.monotonic() >= deadline:
        click.echo(f"not quiescent after {timeout:g} s: {missing}", err=True)
        raise SystemExit(1)
    time.sleep(_POLL_S)


def _missing(log: Log, topology: Topology) -> str | None:
    """The work still to be done, or None. A log that does not answer may answer later."""
    try:
        log.reach(_REACH_S)
        application = find(topology, log)
    except ConnectorError as error:
        return str(error)
    try:
        if quiescent(log, application.name, application.inputs, application.exchanges, application.internal.anchors):
            return None if _settled(log, application) else "what has no finite answer is being found out"
        return _waiting_for(log, application)
    except ConnectorError as error:
        if not error.retriable:
            raise
        return str(error)


def _settled(log: Log, application: ApplicationTopics) -> bool:
    """Whether all workers agree on what is held: they write a cut only then."""
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
    if not parts:
        parts = ["rows are under way in a loop"]
    if not log.groups().get(application.name):
        parts.append("no worker runs: eddy run …")
    elif strangers := log.strangers(application.name):
        parts.append(f"{members(strangers)} of its group and no worker: stop it, or give it a group of its own")
    return "; ".join(parts)
