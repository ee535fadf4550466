"""The options that several commands share, but for those that name a log."""

import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

import click

from eddy.cli.fields import FIELD_TYPES

__all__ = ["key_type_option", "state_option", "topology_argument", "value_type_option"]

F = TypeVar("F", bound=Callable[..., Any])

topology_argument = click.argument("program", metavar="FILE[:NAME]")

state_option = click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    default=".eddy/state",
    envvar="EDDY_STATE",
    metavar="DIR",
    show_default=True,
    show_envvar=True,
    help="Where states are kept, one folder an application, and in it one a worker.",
)


def _type_option(what: str) -> Callable[[F], F]:
    return click.option(
        f"--{what}-type",
        type=click.Choice(list(FIELD_TYPES)),
        default="string",
        show_default=True,
        help=f"What the {what}s are. Text form of bytes: hexadecimal digits.",
    )


key_type_option = _type_option("key")
value_type_option = _type_option("value")
