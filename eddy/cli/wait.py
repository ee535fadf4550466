"""`eddy wait`: blocks until an application has nothing left to do."""

import time

import click

from eddy.cli.application import Application, find
from eddy.cli.load import load
from eddy.cli.logs import Target, log_options, opened
from eddy.cli.options import topology_argument
from eddy.connectors.log import Log
from eddy.connectors.quiescence import lags, quiescent
from eddy.errors import ConnectorError
from eddy.topology.topology import Topology

__all__ = ["command"]

_POLL_S = 0.1


@click.command("wait", short_help="Wait until an application has nothing left to do.")
@topology_argument
@log_options
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds to wait; then exit with status 1 and say what was waited for.",
)
def command(program: str, target: Target, timeout: float) -> None:
    """Wait until an application has taken everything in and no loop turns.

    Exit status 0 says that, at a moment during the call, the outputs held all that follows from the inputs. It does
    not start a worker: eddy run does, in this terminal or another.

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
        while (missing := _missing(log, topology)) is not None:
            _wait_on(deadline, timeout, missing)


def _wait_on(deadline: float, timeout: float, missing: str) -> None:
    """Pause, or give up: exit status 1, saying what is missing."""
    if time.monotonic() >= deadline:
        click.echo(f"not quiescent after {timeout:g} s: {missing}", err=True)
        raise SystemExit(1)
    time.sleep(_POLL_S)


def _missing(log: Log, topology: Topology) -> str | None:
    """What still has to happen, None where nothing has. A log that does not answer may answer later."""
    try:
        application = find(topology, log)
    except ConnectorError as error:
        return str(error)
    try:
        if quiescent(log, application.name, application.inputs, application.exchanges, application.internal.anchors):
            return None
        return _waiting_for(log, application)
    except ConnectorError as error:
        if not error.retriable:
            raise
        return str(error)


def _waiting_for(log: Log, application: Application) -> str:
    behind = lags(log, application.name, [*application.inputs, *application.exchanges])
    parts = [f"{tp.topic}-{tp.partition} is {lag:,} offsets behind" for tp, lag in behind.items() if lag]
    if not parts:
        parts = ["rows are under way in a loop"]
    if not log.groups().get(application.name):
        parts.append("no worker runs: eddy run …")
    return "; ".join(parts)
