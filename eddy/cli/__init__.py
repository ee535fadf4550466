"""The command line: one module a command, each with its `command`; `main` is the way in.

Data goes to stdout, everything else to stderr. Exit statuses are those of `exits.py`.
"""

import importlib.metadata
import platform
from typing import Any

import click

from eddy.cli import backfill, broker, consume, describe, produce, reset, run, sql, status, topics, verify, wait
from eddy.cli.exits import INTERRUPTED, exit_status, message
from eddy.errors import EddyError

__all__ = ["main"]


class _Commands(click.Group):
    """A group whose commands end with a message where eddy raised an error on purpose."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; print an `EddyError` as one message and exit with its status."""
        try:
            return super().invoke(ctx)
        except EddyError as error:
            click.echo(f"error [{error.code}]: {message(error)}", err=True)
            ctx.exit(exit_status(error))
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order in which a newcomer needs them."""
        return list(self.commands)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Process streams with topologies that may be recursive.

    A topology is a Python file. It reads and writes topics of a log; the log is a directory on this machine,
    .eddy/log unless --data names another, or a Kafka cluster: --bootstrap HOST:PORT.

    \b
    Try it:
      eddy produce nodes nodes.tsv          records into the topic "nodes"
      eddy run family.py --until-idle       take all of them in
      eddy consume descendants --latest --value-type int64
    """


@main.command("version")
def version() -> None:
    """Print the version of eddy and of Python.

    \b
    Example:
      eddy version
    """
    click.echo(f"eddy {importlib.metadata.version('eddy-streams')} (Python {platform.python_version()})")


for _module in (run, produce, consume, status, wait, verify, backfill, reset, topics, describe, sql, broker):
    main.add_command(_module.command)
main.add_command(main.commands.pop("version"))
