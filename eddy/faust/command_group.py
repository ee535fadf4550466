"""`faust -A app eddy …`: the group of commands. The commands are imported when one is called."""

from typing import Any

import click
from faust.cli.base import cli

__all__ = ["add_commands"]

_NAMES = ("describe", "status", "wait", "reset")


class _FaustCommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, without importing the commands."""
        return list(_NAMES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the commands, and return one by name."""
        from eddy.faust.commands import COMMANDS

        return COMMANDS.get(name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error of eddy's is printed as one message, with the exit status of `eddy`."""
        from eddy.cli.exits import exit_status, message
        from eddy.errors import EddyError

        try:
            return super().invoke(ctx)
        except EddyError as error:
            click.echo(f"error [{error.code}]: {message(error)}", err=True)
            ctx.exit(exit_status(error))


def add_commands() -> None:
    """Add the group to Faust's command line; a second call does nothing."""
    if "eddy" not in cli.commands:
        cli.add_command(_FaustCommands("eddy", help="The eddy topologies that this app hosts.", no_args_is_help=True))
