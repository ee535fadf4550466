"""`eddy verify`: recomputes what an application holds and has written, with Spark, and compares."""

import click

from eddy.cli.batch import batch_options, ending, inputs_of, session, stages
from eddy.cli.load import MODULE_NAME, load
from eddy.cli.logs import Target, log_options, opened, opener
from eddy.cli.options import topology_argument
from eddy.connectors.spark import verify

__all__ = ["command"]


@click.command("verify", short_help="Check an application's outputs and states against its inputs.")
@topology_argument
@log_options
@click.option(
    "--mismatches",
    metavar="DIR",
    help="Write all that differs there, as Parquet; what was there is replaced.",
)
@click.option("--no-stores", is_flag=True, help="Compare the outputs alone, which takes less.")
@click.option(
    "--repair", is_flag=True, help="Write corrections to the topics of tables that differ, or refuse with the reason."
)
@click.option(
    "--commutes",
    multiple=True,
    metavar="STEP",
    help="A fold of a stream whose function gives the same in any order; may be given often.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds to wait for a first cut.",
)
@batch_options
def command(
    program: str,
    target: Target,
    mismatches: str | None,
    no_stores: bool,
    repair: bool,
    commutes: tuple[str, ...],
    inputs: tuple[str, ...],
    timeout: float,
    on_error: str,
    one_task: int,
    master: str,
    memory: str,
    confs: tuple[str, ...],
) -> None:
    """Check what an application holds and has written against its inputs, with Spark.

    A worker notes cuts: offsets of its inputs, and those of outputs and changelogs that are exactly what follows. At
    the last one everything is computed anew and compared; the worker may go on meanwhile. Exit status 0: all that was
    compared is equal. 1: something differs, and is named. 2: it could not be told, with the reason.

    With --repair a table of a source that differs is corrected by records in its topic, which the worker takes up like
    any other: 1, and verify again. Where that would not make all of it right nothing is written, and it ends with 2.

    \b
    Examples:
      eddy verify family.py
      eddy verify family.py --bootstrap localhost:9092 --mismatches differences
      eddy verify family.py --repair
    """
    files = inputs_of(inputs)
    topology = load(program).topology
    with ending(), stages() as stage, opened(target) as log:
        verdict = verify(
            topology,
            session(master, memory, confs),
            log,
            opener(target),
            on_error=on_error,
            commutes=commutes,
            mismatches=mismatches,
            wait_s=timeout,
            stores=not no_stores,
            repair=repair,
            files=files,
            one_task=one_task,
            program=MODULE_NAME,
            stage=stage,
        )
    for line in verdict.lines():
        click.echo(line)
    raise SystemExit(verdict.status)
