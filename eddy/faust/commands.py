"""The commands of `faust -A app eddy`: `eddy`'s commands for a topology that the app hosts, on the app's brokers."""

import contextlib

import click

from eddy.cli.options import timeout_option
from eddy.cli.reset import reset
from eddy.cli.status import print_status
from eddy.cli.wait import Patience, wait_until_quiescent
from eddy.errors import ConnectorError
from eddy.faust.hosted import HOSTED, HostedTopology
from eddy.topology.arguments import folder_of

__all__ = ["COMMANDS"]

_topology = click.option("--topology", "name", metavar="NAME", help="The topology, if the app hosts several.")


@click.command("describe", short_help="Print the steps of a topology.")
@_topology
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart instead.")
def describe(name: str | None, mermaid: bool) -> None:
    """Print the steps of a hosted topology, with their stores and internal topics."""
    topology = _chosen(name).topology
    click.echo(topology.mermaid() if mermaid else topology.describe())


@click.command("status", short_help="Show the progress of a topology.")
@_topology
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(name: str | None, form: str) -> None:
    """Show the positions, the lag and the last cut of a hosted topology, also while it runs."""
    hosted = _chosen(name)
    with contextlib.closing(hosted.open_log()) as log:
        print_status(log, hosted.topology, form)


@click.command("wait", short_help="Wait until a topology has nothing left to do.")
@_topology
@timeout_option("Seconds to wait; then exit with status 1 and the reason.")
def wait(name: str | None, timeout: float) -> None:
    """Wait until a hosted topology has processed all input and all its loops have ended.

    Exit status: 0, 1 after the timeout, 3 if some part has no finite answer.
    """
    hosted, patience = _chosen(name), Patience(timeout)
    with contextlib.closing(hosted.open_log()) as log:
        wait_until_quiescent(log, hosted.topology, patience)


@click.command("reset", short_help="Make a topology start anew.")
@_topology
@click.option("--dry-run", is_flag=True, help="Only print the parts that would be removed.")
@click.option("--yes", is_flag=True, help="Remove them without asking.")
@click.option("--dead-letter", is_flag=True, help="Remove the topic of rejected records, too.")
def reset_command(name: str | None, dry_run: bool, yes: bool, dead_letter: bool) -> None:
    """Make a hosted topology start anew, from the first record of its sources; Faust's own tables are kept."""
    hosted = _chosen(name)
    remedy = "Stop the Faust workers first; a worker that has stopped counts until its session has ended"
    with contextlib.closing(hosted.open_log()) as log:
        if log.groups().get(hosted.group):
            raise ConnectorError(
                f"topology '{hosted.topology.name}': a Faust worker runs; a reset needs it stopped. {remedy}"
            )
        state = folder_of("config", state_dir=hosted.worker_config().state_dir)
        reset(log, hosted.topology, state, remedy, dry_run=dry_run, yes=yes, dead_letter=dead_letter)


COMMANDS = {command.name: command for command in (describe, status, wait, reset_command)}


def _chosen(name: str | None) -> HostedTopology:
    """Return the hosted topology `name`; for None the only one there is. Raises: click.UsageError."""
    found = {hosted.topology.name: hosted for hosted in HOSTED}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is None or name not in found:
        raise click.UsageError(f"--topology is one of: {', '.join(sorted(found))}")
    return found[name]
