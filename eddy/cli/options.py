"""Options common to several commands, except those that name a log."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

import click

from eddy.cli.fields import BY_REGISTRY, FIELD_TYPES
from eddy.cli.number_range import NumberRange
from eddy.config import Config
from eddy.connectors.csv_rows import Empty
from eddy.operators.errors.row_sizes import OVERHEAD

__all__ = [
    "empty_of",
    "empty_option",
    "http_token_option",
    "key_type_option",
    "limit_options",
    "registry_option",
    "state_option",
    "timeout_option",
    "topology_argument",
    "value_type_option",
]

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
    help="The folder of states; it has a folder for each application, with a folder for each worker.",
)


def timeout_option(told: str) -> Callable[[F], F]:
    """Make an option for the seconds that a command waits."""
    return click.option("--timeout", type=NumberRange(min=0), default=60.0, show_default=True, metavar="S", help=told)


def http_token_option(told: str) -> Callable[[F], F]:
    """Make an option for the file with a server's token."""
    return click.option(
        "--http-token-file",
        type=click.Path(path_type=pathlib.Path),
        envvar="EDDY_HTTP_TOKEN_FILE",
        metavar="FILE",
        show_envvar=True,
        help=told,
    )


_DEFAULTS = Config()
_LIMITS = ("max_epoch_records", "max_epoch_bytes", "max_epoch_s", "max_row_bytes", "max_nested_rows")
_LIMIT_OPTIONS = (
    click.option(
        "--epoch-records",
        "max_epoch_records",
        type=click.IntRange(min=1),
        metavar="N",
        default=_DEFAULTS.max_epoch_records,
        show_default=True,
        help="The most records of one epoch, which is one transaction.",
    ),
    click.option(
        "--epoch-bytes",
        "max_epoch_bytes",
        type=click.IntRange(min=1),
        metavar="N",
        default=_DEFAULTS.max_epoch_bytes,
        show_default=True,
        help="The most bytes of its records; a longer record is an epoch by itself. Give less if memory is short.",
    ),
    click.option(
        "--epoch-seconds",
        "max_epoch_s",
        type=NumberRange(min=0, min_open=True),
        metavar="S",
        default=_DEFAULTS.max_epoch_s,
        show_default=True,
        help="Seconds after which an epoch commits, and its loops continue in the next one.",
    ),
    click.option(
        "--row-bytes",
        "max_row_bytes",
        type=click.IntRange(min=OVERHEAD + 1),
        metavar="N",
        default=_DEFAULTS.max_row_bytes,
        show_default=True,
        help="Bytes of a row of a recursion; one that makes larger rows is held.",
    ),
    click.option(
        "--nested-rows",
        "max_nested_rows",
        type=click.IntRange(min=1),
        metavar="N",
        default=_DEFAULTS.max_nested_rows,
        show_default=True,
        help="Rows after which a recursion by nested time is considered endless.",
    ),
)


def limit_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command options for limits of epochs and recursions; it gets them as `limits`, named as in `Config`."""

    @functools.wraps(command)
    def with_limits(**given: Any) -> None:
        command(limits={name: given.pop(name) for name in _LIMITS}, **given)

    for option in reversed(_LIMIT_OPTIONS):
        with_limits = option(with_limits)
    return with_limits


def message_options(command: F) -> F:
    """Give a command options for the form and the least level of its messages."""
    command = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="The least urgent messages to show.",
    )(command)
    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Messages on stderr as lines of text, or of JSON.",
    )(command)


def _type_option(what: str, default: str | None, told: str) -> Callable[[F], F]:
    return click.option(
        f"--{what}-type",
        type=click.Choice([*FIELD_TYPES, BY_REGISTRY]),
        default=default,
        show_default=default is not None,
        help=f"The type of the {what}s. The text form of bytes: hexadecimal digits; of {BY_REGISTRY}: JSON.{told}",
    )


key_type_option = _type_option("key", "string", "")
value_type_option = _type_option("value", None, f" Default: string; with --registry {BY_REGISTRY}.")
registry_option = click.option(
    "--registry",
    envvar="EDDY_SCHEMA_REGISTRY",
    show_envvar=True,
    metavar="URL",
    help=f"The schema registry that has the schemas of values, and of keys of the type {BY_REGISTRY}.",
)

empty_option = click.option(
    "--empty-is-null/--empty-is-text",
    default=None,
    help="The meaning of a cell of a csv without even quotes: no value, or an empty text. Without this option a file "
    "with such a cell is refused. (In tsv, an empty cell is no value unless --empty-is-text is given.)",
)


def empty_of(is_null: bool | None) -> Empty:
    """Return the meaning of an empty cell, "null" or "text", by the value of `empty_option`; None if not given."""
    return None if is_null is None else "null" if is_null else "text"
