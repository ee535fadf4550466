"""Common parts of `eddy backfill` and `eddy verify`: options of Spark, stages on a terminal, exit statuses.

These commands exit with 2 if they cannot do their work, so that 1 always means that verify found a difference.
"""

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.status import Status

from eddy.cli.exits import message
from eddy.cli.options import empty_option
from eddy.cli.stderr_messages import messages_console, show_messages
from eddy.connectors.spark import local_session
from eddy.errors import EddyError

__all__ = ["COULD_NOT", "batch_options", "columns_of", "ending", "inputs_of", "session", "stages"]

COULD_NOT = 2
_OF_A_SESSION = {"master": "--master", "memory": "--memory", "confs": "--spark-conf"}
_log = logging.getLogger("eddy.cli")


def batch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of Spark, the files of its inputs, and the error policy."""

    @click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="TOPIC=FILES",
        help="Files with the records before a topic's first record; may be repeated, also for one topic.",
    )
    @click.option(
        "--map",
        "maps",
        multiple=True,
        metavar="TOPIC:ROLE=COLUMN",
        help="A column of the files of a topic that is its key, value, timestamp or order, or envelope=debezium; may "
        "be repeated.",
    )
    @click.option(
        "--on-error",
        type=click.Choice(["fail", "skip", "dead-letter"]),
        default="fail",
        show_default=True,
        help="The policy for a record that cannot be decoded: the same as for eddy run.",
    )
    @click.option(
        "--master",
        default="local[*]",
        envvar="EDDY_SPARK_MASTER",
        metavar="URL",
        show_default=True,
        show_envvar=True,
        help="Where Spark runs: in this process, with a number of cores, or on a cluster.",
    )
    @click.option("--memory", default="2g", show_default=True, metavar="SIZE", help="Memory of Spark's driver.")
    @click.option(
        "--spark-conf", "confs", multiple=True, metavar="KEY=VALUE", help="One of Spark's settings; may be repeated."
    )
    @empty_option
    @functools.wraps(command)
    def collected(**arguments: Any) -> Any:
        return command(**arguments)

    return collected


def pairs_of(pairs: tuple[str, ...], what: str) -> dict[str, str]:
    """Return KEY=VALUE pairs as a dict."""
    for pair in pairs:
        if "=" not in pair:
            raise click.BadParameter(f"'{pair}' has no '='; {what}=VALUE is needed.")
    return dict(pair.split("=", 1) for pair in pairs)


def inputs_of(pairs: tuple[str, ...]) -> dict[str, list[str]]:
    """Return TOPIC=FILES pairs as a dict: all files of each topic."""
    inputs: dict[str, list[str]] = {}
    for pair in pairs:
        for topic, files in pairs_of((pair,), "TOPIC").items():
            inputs.setdefault(topic, []).append(files)
    return inputs


def columns_of(maps: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return TOPIC:ROLE=COLUMN as a dict: the columns of each topic's files by role."""
    columns: dict[str, dict[str, str]] = {}
    for text in maps:
        topic, colon, pair = text.partition(":")  # the name of a topic has no colon
        role, equals, column = pair.partition("=")
        if not (topic and colon and equals) or role in columns.get(topic, {}):
            raise click.BadParameter(f"'{text}' is not TOPIC:ROLE=COLUMN, or its role is given twice.")
        columns.setdefault(topic, {})[role] = column
    return columns


def session(master: str, memory: str, confs: tuple[str, ...]) -> Any:
    """Return the Spark session passed to `main` as `obj`, or one in this process. Raises: ConfigurationError."""
    context = click.get_current_context()
    if context.obj is None:
        return local_session(master, memory, pairs_of(confs, "KEY"))
    if said := [name for name in _OF_A_SESSION if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]:
        raise click.UsageError(
            f"{_OF_A_SESSION[said[0]]}: the session exists already; pass the option to spark-submit."
        )
    return context.obj


@contextlib.contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """Yield a function, to be called with the name of each stage.

    On a terminal it shows the stage in a temporary line, otherwise as a message.
    """
    console = messages_console()
    show_messages(console, "text", "info")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    began = time.monotonic()
    with _line(console) as line:

        def stage(name: str) -> None:
            if line is not None:
                line.update(f"{name} · {time.monotonic() - began:.0f} s since the start")
            else:
                _log.info("%s", name)

        yield stage


@contextlib.contextmanager
def _line(console: Console) -> Iterator[Status | None]:
    if not console.is_terminal:
        yield None
        return
    with console.status("start of Spark") as line:
        yield line


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Within the block, end the command with status 2 and one message if eddy raises an error on purpose."""
    try:
        yield
    except EddyError as error:
        click.echo(f"error [{error.code}]: {message(error)}", err=True)
        raise SystemExit(COULD_NOT) from error
