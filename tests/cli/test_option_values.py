"""Each option of each command with values that no number or address is: refused at once, by the option and the value.

The command lines are parsed, and not run.
"""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from eddy.cli import main

PROGRAM = str(Path(__file__).parents[2] / "examples" / "family.py")
NUMBERS = (click.IntRange, click.FloatRange, click.types.IntParamType, click.types.FloatParamType)
WRONG = ["x y", "1e9x", "-1", "nan", "", "٣x"]


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands with their names."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


ALL = list(commands(main))


def refusal(command: click.Command, arguments: list[str]) -> str:
    """The message of a command line that is refused; empty if it is read."""
    try:
        command.make_context("eddy", arguments)
    except click.UsageError as error:
        return error.format_message()
    return ""


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_numbers_are_refused_by_option_and_value(path: tuple[str, ...], command: click.Command) -> None:
    needed = [each for each in command.params if isinstance(each, click.Argument) and each.required]
    given = [PROGRAM if "FILE" in str(each.metavar) else "nodes" for each in needed]
    wrong = []
    for option in command.params:
        if not isinstance(option, click.Option) or not isinstance(option.type, NUMBERS):
            continue
        name = max(option.opts, key=len)
        for value in WRONG:
            said = refusal(command, [*given, name, value])
            shown = value in said or (value == "-1" and "-1.0" in said)
            if name not in said or not shown:
                wrong.append(f"{name} {value!r}: {said}")
    assert wrong == []


def test_there_are_many_numbers_and_commands() -> None:
    numbers = [each for _, command in ALL for each in command.params if isinstance(each.type, NUMBERS)]
    assert len(ALL) > 12
    assert len(numbers) > 30


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", PROGRAM, "--member", "x y"], "'x y': 1 to 100 of the characters"),
        (["topics", "create", "nodes", "--topic-config", "cleanup"], "'cleanup': KEY=VALUE is needed"),
    ],
)
def test_texts_are_refused_by_option_and_value(arguments: list[str], said: str) -> None:
    (command,) = (each for path, each in ALL if path == tuple(arguments[: len(path)]))
    (path,) = (path for path, each in ALL if each is command)
    told = refusal(command, arguments[len(path) :])
    assert said in told
    assert arguments[-2] in told
