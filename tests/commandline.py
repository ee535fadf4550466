"""What eddy's own parser makes of a command line, and what the command line reads from the environment."""

from collections.abc import Iterator, Sequence
from functools import cache

import click

from eddy.cli import main

__all__ = ["commands_of", "parsed", "read_by_the_command_line"]


def commands_of(group: click.Group) -> dict[str, click.Command]:
    """The commands of a group by name, in the order of its help."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def parsed(words: Sequence[str]) -> click.Context:
    """The command that the words name, with what they say; nothing is run. Raises: click.UsageError."""
    program, *rest = words
    assert program == "eddy"
    command: click.Command = main
    while isinstance(command, click.Group) and rest and rest[0] in (known := commands_of(command)):
        command, rest = known[rest[0]], rest[1:]
    if isinstance(command, click.Group):  # one that has a command of its own for what names none
        assert command is not main, f"there is no command {rest[:1]}"
        command = command.commands["list"]
    return command.make_context(command.name, rest)


@cache
def read_by_the_command_line() -> set[str]:
    """The environment variables that options take their values from."""

    def commands(group: click.Group) -> Iterator[click.Command]:
        for command in commands_of(group).values():
            yield command
            if isinstance(command, click.Group):
                yield from commands(command)

    return {str(parameter.envvar) for command in commands(main) for parameter in command.params if parameter.envvar}
