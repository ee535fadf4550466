"""The command line: one module for each command, with its function `command`; `main` is the entry point.

Data is written to stdout, everything else to stderr. `exits.py` lists the exit statuses.
"""

from eddy.cli.importing import signals_end_imports

with signals_end_imports():
    import contextlib
    import importlib
    import logging
    import os
    import platform
    import sys
    from collections.abc import Iterator, Sequence
    from typing import Any, NoReturn

    import click

    from eddy.cli.exits import INTERRUPTED, PIPE_CLOSED, exit_status, message
    from eddy.connectors.closing import any_abandoned
    from eddy.errors import EddyError

__all__ = ["main"]

_MODULES = (
    "run",
    "produce",
    "consume",
    "get",
    "trace",
    "serve",
    "status",
    "wait",
    "verify",
    "backfill",
    "reset",
    "topics",
    "describe",
    "sql",
    "broker",
)
"""The modules of commands, in the order in which a new user needs them. A command has the name of its module."""


@contextlib.contextmanager
def _ends_with_its_reader() -> Iterator[None]:
    """Flush the output. If the reader of the output has ended, as in `| head -1`, end without a message."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError):  # the output that is still buffered has no reader either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CLOSED)


def _open_closed_streams() -> None:
    """Open stdin, stdout or stderr on the null device where the caller has closed it, as `>&-` does.

    Otherwise the next opened files get these numbers, and a library's messages to stderr are written into such a file.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _end_at_once(status: object) -> NoReturn:
    """End this process without cleaning up, since threads of clients that could not be closed still run."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status if isinstance(status, int) else status is not None)


class _Commands(click.Group):
    """A group whose commands print an error of eddy as a message without a traceback.

    A command's module is imported when the command is looked up: `eddy topics` does not import the modules of `eddy
    run`.
    """

    def main(self, args: Sequence[str] | None = None, *others: Any, **named: Any) -> Any:
        """Run a command line, by default the command line of the process."""
        _open_closed_streams()
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
        """Return the commands, in the order in which a new user needs them."""
        return [*_MODULES, *(name for name in self.commands if name not in _MODULES)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name, or None. Its module is imported at the first call."""
        if cmd_name in _MODULES and cmd_name not in self.commands:
            with signals_end_imports():
                self.add_command(importlib.import_module(f"eddy.cli.{cmd_name}").command)
        return super().get_command(ctx, cmd_name)


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
    import importlib.metadata

    click.echo(f"eddy {importlib.metadata.version('eddy-streams')} (Python {platform.python_version()})")
