"""The command line: one module a command, each with its `command`; `main` is the way in.

Data goes to stdout, everything else to stderr. Exit statuses are those of `exits.py`.
"""

import contextlib
import importlib.metadata
import logging
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from eddy.cli.importing import signals_end_imports

with signals_end_imports():
    import click

    from eddy.cli import (
        backfill,
        broker,
        consume,
        describe,
        get,
        produce,
        reset,
        run,
        serve,
        sql,
        status,
        topics,
        trace,
        verify,
        wait,
    )
    from eddy.cli.exits import INTERRUPTED, PIPE_CLOSED, exit_status, message
    from eddy.connectors.closing import any_abandoned
    from eddy.errors import EddyError

__all__ = ["main"]


@contextlib.contextmanager
def _ends_with_its_reader() -> Iterator[None]:
    """Flush the output; if its reader has gone, as in `| head -1`, end without a message."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError):  # the buffered rest has no reader either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CLOSED)


def _end_at_once(status: object) -> NoReturn:
    """End this process without cleaning up, since threads of clients that could not be closed still run."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status if isinstance(status, int) else status is not None)


class _Commands(click.Group):
    """A group whose commands print a message for an error that eddy raises on purpose."""

    def main(self, args: Sequence[str] | None = None, *others: Any, **named: Any) -> Any:
        """Run the command line; that of the process if `args` is None."""
        try:
            return super().main(args, *others, **named)
        except SystemExit as end:
            if args is None and any_abandoned():
                _end_at_once(end.code)
            raise

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the command line; print its help if requested."""
        with _ends_with_its_reader():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; print an `EddyError` as one message and exit with its status."""
        try:
            with _ends_with_its_reader():
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


for _module in (
    run,
    produce,
    consume,
    get,
    trace,
    serve,
    status,
    wait,
    verify,
    backfill,
    reset,
    topics,
    describe,
    sql,
    broker,
):
    main.add_command(_module.command)
main.add_command(main.commands.pop("version"))
