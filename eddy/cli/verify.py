"""`eddy verify`: recomputes an application's states and outputs with Spark, and compares."""

import contextlib
import pathlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO

import click
from click.core import ParameterSource

from eddy.cli.exits import message
from eddy.cli.load import MODULE_NAME, load
from eddy.cli.logs import Target, log_options, opened, opener
from eddy.cli.number_range import NumberRange
from eddy.cli.options import empty_of, timeout_option, topology_argument
from eddy.cli.spark_commands import COULD_NOT, batch_options, columns_of, ending, inputs_of, session, stages
from eddy.connectors.spark import verify, verify_disk
from eddy.connectors.spark.session import TOLERANCE
from eddy.errors import EddyError

if TYPE_CHECKING:
    from eddy.connectors.spark.verification.disk_verdict import DiskVerdict
    from eddy.connectors.spark.verification.verdict import Verdict

__all__ = ["command"]

_OF_DISKS = {"program", "data", "bootstrap", "config", "settings", "disk", "form", "timeout"}
"""The parameters that a comparison of states on disk reads; all others are of a verification with Spark."""
_Form = Literal["text", "json"]


@dataclass
class _Report:
    """Prints a verdict: as lines on stdout or, with `json`, as one document on stdout and lines on stderr.

    `out` is the process's stdout; with `json`, the output of the program's own file is written to stderr.
    """

    form: _Form
    out: TextIO
    application: str | None = None

    def print(self, verdict: "Verdict") -> None:
        """Print a verdict."""
        from eddy.connectors.spark.verification.verdict_document import document_of

        self._print(verdict.lines(), document_of(verdict).encode())

    def print_disk(self, verdict: "DiskVerdict") -> None:
        """Print the verdict on stores on disk."""
        from eddy.connectors.spark.verification.verdict_document import disk_document

        self._print(verdict.lines(), disk_document(verdict).encode())

    def print_failure(self, error: EddyError) -> None:
        """Print the document of an error."""
        from eddy.connectors.spark.verification.verdict_document import failure_document

        failure = failure_document(self.application, COULD_NOT, error.code, message(error))
        click.echo(failure.encode(), file=self.out)

    def _print(self, lines: Iterator[str], document: str) -> None:
        for line in lines:
            click.echo(line, err=self.form == "json")
        if self.form == "json":
            click.echo(document, file=self.out)


@contextlib.contextmanager
def _reporting(form: _Form) -> Iterator[_Report]:
    """Yield a report that prints a verdict. With `json`, an error in the block is printed as a document, and raised."""
    report = _Report(form, sys.stdout)
    if form == "text":
        yield report
        return
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield report
    except EddyError as error:
        report.print_failure(error)
        raise


@click.command("verify", short_help="Check an application's outputs and states against its inputs.")
@topology_argument
@log_options
@click.option(
    "--mismatches",
    metavar="DIR",
    help="A folder for all differences, as Parquet. It replaces the folder of an earlier run, and is removed if "
    "there are none.",
)
@click.option("--no-stores", is_flag=True, help="Compare the outputs only, which takes less time.")
@click.option(
    "--repair", is_flag=True, help="Write corrections to the topics of tables that differ, or refuse with the reason."
)
@click.option(
    "--commutes",
    multiple=True,
    metavar="STEP",
    help="A fold of a stream whose function gives the same result in any order; may be repeated.",
)
@click.option(
    "--accept",
    multiple=True,
    metavar="STEP",
    help="An undetermined step, such as a processor: it is left out by name, with everything downstream, and the rest "
    "decides; may be repeated.",
)
@click.option(
    "--tolerance",
    type=NumberRange(min=0),
    default=TOLERANCE,
    show_default="1e-09",
    metavar="X",
    help="The tolerance for floats downstream of folds of tables, whose last digits depend on order; 0: none.",
)
@click.option(
    "--max-age",
    type=NumberRange(min=0),
    metavar="S",
    help="Exit with status 2 if records wait and the last cut is older than this number of seconds: no worker "
    "processes them.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Compute small inputs with the worker's own operators: faster, but errors in these operators are not found.",
)
@click.option(
    "--disk",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    metavar="DIR",
    help="Compare the states in this folder with their changelogs, without Spark; their worker has to be stopped.",
)
@click.option("--one-task", type=click.IntRange(min=0), metavar="ROWS", hidden=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one JSON document on stdout, for programs; the lines for people are on stderr.",
)
@timeout_option("Seconds to wait for a first cut.")
@batch_options
def command(
    program: str,
    target: Target,
    mismatches: str | None,
    no_stores: bool,
    repair: bool,
    commutes: tuple[str, ...],
    accept: tuple[str, ...],
    inputs: tuple[str, ...],
    maps: tuple[str, ...],
    tolerance: float,
    max_age: float | None,
    timeout: float,
    on_error: str,
    quick: bool,
    disk: pathlib.Path | None,
    one_task: int | None,
    form: _Form,
    empty_is_null: bool | None,
    master: str,
    memory: str,
    confs: tuple[str, ...],
) -> None:
    """Check an application's states and outputs against its inputs, with Spark.

    A worker records cuts: offsets of its inputs, with the offsets of outputs and changelogs at which these are exact.
    At the last cut everything is recomputed and compared; the worker may continue meanwhile. Exit status 0: everything
    compared is equal. 1: something differs, and is named. 2: undetermined, with the reason.

    With --disk the states on this machine's disk are compared with their changelogs instead.

    With --repair a source table that differs is corrected by records in its topic, which the worker processes like any
    other: status 1, then verify again. If that would not correct everything, nothing is written, and the status is 2.

    \b
    Examples:
      eddy verify family.py
      eddy verify family.py --bootstrap localhost:9092 --mismatches differences
      eddy verify family.py --repair
      eddy verify family.py --format json
      eddy verify family.py --disk .eddy/state
    """
    if one_task is not None:
        instead = "write --quick" if one_task else "leave it out"
        click.echo(f"--one-task is deprecated here: {instead}", err=True)
    if disk is not None:
        _check_alone()
    with ending(), _reporting(form) as report:
        topology = load(program).topology
        report.application = topology.name
        if disk is not None:
            with opened(target) as log:
                stored = verify_disk(topology, log, disk, timeout)
            report.print_disk(stored)
            raise SystemExit(stored.status)
        with stages() as stage, opened(target) as log:
            verdict = verify(
                topology,
                session(master, memory, confs),
                log,
                opener(target),
                on_error=on_error,
                commutes=commutes,
                accept=accept,
                mismatches=mismatches,
                wait_s=timeout,
                stores=not no_stores,
                repair=repair,
                tolerance=tolerance,
                max_age_s=max_age,
                files=inputs_of(inputs),
                empty=empty_of(empty_is_null),
                columns=columns_of(maps),
                quick=quick or bool(one_task),
                program=MODULE_NAME,
                stage=stage,
            )
        report.print(verdict)
    raise SystemExit(verdict.status)


def _check_alone() -> None:
    """Refuse options of a verification with Spark. Raises: click.UsageError."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in _OF_DISKS and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--disk compares states with changelogs, without Spark; leave out {parameter.opts[0]}."
            )
