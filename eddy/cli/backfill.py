"""`eddy backfill`: makes an application's states and outputs from the whole history at once, with Spark."""

from typing import Any

import click

from eddy.cli.load import MODULE_NAME, load
from eddy.cli.logs import Target, log_options, opened, opener
from eddy.cli.options import empty_of, topology_argument
from eddy.cli.spark_commands import batch_options, columns_of, ending, inputs_of, session, stages
from eddy.connectors.spark import backfill, backfill_files
from eddy.connectors.spark.session import ONE_TASK

__all__ = ["command"]


@click.command("backfill", short_help="Make states and outputs from a long history at once.")
@topology_argument
@log_options
@click.option("--replace", is_flag=True, help="Delete existing states first, and begin anew.")
@click.option("--out", "folder", metavar="DIR", help="Write the outputs as files below DIR, and nothing to the log.")
@click.option(
    "--out-format",
    "form",
    type=click.Choice(["parquet", "orc", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="The format of these files; delta and iceberg need their packages.",
)
@click.option(
    "--retained-only", is_flag=True, help="Begin with the records that topics still have, if earlier ones were deleted."
)
@click.option(
    "--one-task",
    type=click.IntRange(min=0),
    default=ONE_TASK,
    show_default=True,
    metavar="ROWS",
    help="What has at most so many rows is computed in one task, as by a worker; 0: never.",
)
@batch_options
def command(
    program: str,
    target: Target,
    replace: bool,
    folder: str | None,
    form: str,
    inputs: tuple[str, ...],
    maps: tuple[str, ...],
    retained_only: bool,
    on_error: str,
    one_task: int,
    empty_is_null: bool | None,
    master: str,
    memory: str,
    confs: tuple[str, ...],
) -> None:
    """Make an application's states and outputs from the whole history at once, with Spark.

    It reads the inputs up to their current ends, writes the states and outputs that a worker would have by then, and
    sets the positions: eddy run then continues from there. No worker may run meanwhile, and there may be no states yet,
    unless --replace deletes them. If it is killed, run it again: it continues. Exit status 0, or 2 with the reason.

    Topics have to exist. Files are .parquet, .orc, .csv or .jsonl, the last two also .gz, with columns key and value,
    and optionally timestamp; --map names others.

    \b
    Examples:
      eddy backfill family.py
      eddy backfill family.py --bootstrap localhost:9092 --input nodes=history.parquet
      eddy backfill family.py --out lake/
    """
    files = inputs_of(inputs)
    topology = load(program).topology
    options: dict[str, Any] = {
        "on_error": on_error,
        "files": files,
        "empty": empty_of(empty_is_null),
        "columns": columns_of(maps),
        "one_task": one_task,
        "retained_only": retained_only,
        "replace": replace,
        "program": MODULE_NAME,
    }
    with ending(), stages() as stage, opened(target) as log:
        given = topology, session(master, memory, confs), log, opener(target)
        if folder is None:
            done = backfill(*given, stage=stage, **options)
        else:
            done = backfill_files(*given, folder, form=form, stage=stage, **options)
    for topic, records in sorted(done.written.items()):
        click.echo(f"{topic}: {records:,} records")
    for remark in done.remarks:
        click.echo(remark, err=True)
    if done.left_out:
        click.echo(f"{done.left_out:,} records were rejected", err=True)
    if folder is not None:
        click.echo(f"{topology.name}: written to {folder}, as of {done.cut.described()}", err=True)
        return
    what = "done already, by an earlier run" if done.already else "backfilled"
    click.echo(f"{topology.name}: {what}; eddy run continues from there", err=True)
