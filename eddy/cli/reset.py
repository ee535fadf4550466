"""`eddy reset`: deletes an application's positions, states and internal topics; its next run begins anew.

It removes the parts made by eddy: the group's positions, internal topics and the state directory. Internal topics are
found from the present plan and from all plans in the metadata topic. They are never found by a prefix alone, since the
name of a user's topic may also begin with the application's name.

    kafka-streams-application-reset --application-id A   +   KafkaStreams.cleanUp()
"""

import os
import pathlib
import sys
from dataclasses import dataclass

import click

from eddy.cli.load import load
from eddy.cli.logs import Target, log_options, opened
from eddy.cli.options import state_option, topology_argument
from eddy.connectors.log import Log
from eddy.errors import ConnectorError, EddyError, StateInUseError
from eddy.runtime.compiled_topology import UserTopics, named_topics
from eddy.runtime.internal_topics import InternalTopics
from eddy.runtime.metadata import read_metadata
from eddy.state.store_directory import remove_store
from eddy.topology.plan.identity import identity, topics_of
from eddy.topology.topology import Topology

__all__ = ["command", "reset"]

_NOT_CONFIRMED = 2
_SESSION = "; a worker that has stopped counts until its session has ended, some seconds later"


@dataclass(frozen=True, slots=True)
class _Remains:
    """The parts of an application that a reset removes."""

    application: str
    topics: list[str]
    positions: bool
    state: pathlib.Path | None

    def __bool__(self) -> bool:
        return bool(self.topics or self.positions or self.state)

    def lines(self) -> list[str]:
        """Return one line for each part."""
        return [
            *([f"positions of group {self.application}"] if self.positions else []),
            *(f"topic {name}" for name in self.topics),
            *([f"directory {self.state}"] if self.state else []),
        ]

    def remove(self, log: Log) -> None:
        """Remove these parts. The group is first, since its removal fails if a worker has started meanwhile."""
        log.delete_group(self.application)
        log.delete_topics(self.topics)
        if self.state:
            _remove_states(self.state)


@click.command("reset", short_help="Make an application start anew.")
@topology_argument
@log_options
@state_option
@click.option("--dry-run", is_flag=True, help="Only print the parts that would be removed.")
@click.option("--yes", is_flag=True, help="Remove it without asking.")
@click.option("--dead-letter", is_flag=True, help="Remove the topic of rejected records, too.")
def command(program: str, target: Target, state: pathlib.Path, dry_run: bool, yes: bool, dead_letter: bool) -> None:
    """Make an application start anew, from the first record of its inputs.

    It removes the application's positions, its internal topics and its folder of states on this machine. Your own
    topics, the inputs and the outputs, are never touched: the next run appends its results to the old ones. No worker
    may run meanwhile. Without --yes it asks; without a terminal it prints the parts it would remove and exits with 2.

    \b
    Examples:
      eddy reset family.py --dry-run
      eddy reset family.py --yes
    """
    topology = load(program).topology
    with opened(target) as log:
        stopped = f"Stop eddy run first{_SESSION if target.kafka else ''}"
        reset(log, topology, state, stopped, dry_run=dry_run, yes=yes, dead_letter=dead_letter)


def reset(
    log: Log,
    topology: Topology,
    state: pathlib.Path | None,
    remedy: str,
    *,
    dry_run: bool = False,
    yes: bool = False,
    dead_letter: bool = False,
) -> None:
    """Remove all parts of an application, with its folder in `state`. `remedy` is the advice if a worker runs.

    Raises: ConnectorError if a worker runs; SystemExit if the user does not confirm.
    """
    if log.groups().get(topology.name):
        raise ConnectorError(
            f"application '{topology.name}': a worker runs on this log; a reset needs it stopped. {remedy}"
        )
    traces = _traces(log, topology, None if state is None else state / topology.name, dead_letter)
    if not traces:
        click.echo(f"nothing to remove of application {topology.name}", err=True)
        return
    click.echo("would remove:" if dry_run or not yes else "removing:", err=True)
    for line in traces.lines():
        click.echo(line)
    if not dry_run:
        if not yes:
            _confirm()
        traces.remove(log)
        click.echo(f"application {topology.name} will start anew", err=True)


def _remove_states(folder: pathlib.Path) -> None:
    """Remove the folder of an application, with the folders of all its workers.

    Raises: StateInUseError if another process uses it; StateError if it holds files of other programs.
    """
    try:
        with os.scandir(folder) as found:  # read the folder once: another reset may be removing the same files
            entries = [(entry.path, entry.is_dir()) for entry in found]
    except FileNotFoundError:
        return
    if not all(is_folder for _, is_folder in entries):
        remove_store(folder)  # it refuses files of other programs
        return
    for path, _ in sorted(entries):
        remove_store(pathlib.Path(path))
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StateInUseError(
            f"state {str(folder)!r}: cannot be removed ({error.strerror}); a folder that no worker and no server uses "
            "is needed. Stop them, and reset again."
        ) from error


def _confirm() -> None:
    if not (sys.stdin.isatty() and click.confirm("Remove all of this?", err=True)):
        click.echo("nothing was removed; confirm with --yes", err=True)
        raise SystemExit(_NOT_CONFIRMED)


def _traces(log: Log, topology: Topology, state: pathlib.Path | None, dead_letter: bool) -> _Remains:
    names = _internal_names(log, topology, dead_letter) - set(named_topics(topology))
    return _Remains(
        topology.name,
        sorted(log.topics(names)),
        topology.name in log.groups(),
        state if state is not None and state.exists() else None,
    )


def _internal_names(log: Log, topology: Topology, dead_letter: bool) -> set[str]:
    internal = InternalTopics(topology.name, {}, {})
    plans = read_metadata(log, internal.plan).plans
    try:
        plans.append(identity(topology.plan, UserTopics.of(topology, log).compiled().circuit))
    except EddyError as error:
        click.echo(
            f"the topology does not fit the log, so only the topics recorded by earlier runs are removed: {error}",
            err=True,
        )
    names = {name for lines in plans for name in topics_of(topology.name, lines)}
    return names | {internal.cuts, internal.plan} | ({internal.dead_letter} if dead_letter else set())
