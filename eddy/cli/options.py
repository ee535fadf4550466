"""The options that several commands share, and the log that `--data` names."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from eddy.cli.fields import FIELD_TYPES
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, TopicSpec
from eddy.errors import ConnectorError

__all__ = [
    "create_missing",
    "data_option",
    "key_type_option",
    "opened",
    "state_option",
    "topology_argument",
    "value_type_option",
]

F = TypeVar("F", bound=Callable[..., Any])

_WRITER_PATIENCE_S = 30.0
_DIRECTORY = click.Path(file_okay=False, path_type=pathlib.Path)

topology_argument = click.argument("program", metavar="FILE[:NAME]")

data_option = click.option(
    "--data",
    type=_DIRECTORY,
    default=".eddy/log",
    envvar="EDDY_DATA",
    metavar="DIR",
    show_default=True,
    show_envvar=True,
    help="Where the embedded log is.",
)

state_option = click.option(
    "--state",
    type=_DIRECTORY,
    default=".eddy/state",
    envvar="EDDY_STATE",
    metavar="DIR",
    show_default=True,
    show_envvar=True,
    help="Where states are kept, one folder an application.",
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


@contextlib.contextmanager
def opened(path: pathlib.Path, *, create: bool = False) -> Iterator[LocalLog]:
    """The embedded log in `path`, closed afterwards. Raises: ConnectorError where there is none to read."""
    if not create and not path.is_dir():
        raise ConnectorError(
            f"local log {path}: there is no such directory; a log that was written before is needed. "
            "eddy produce and eddy run make one; or name it: --data DIR"
        )
    with contextlib.closing(LocalLog(path, busy_timeout_s=_WRITER_PATIENCE_S)) as log:
        yield log


def create_missing(log: Log, names: list[str], partitions: int) -> list[str]:
    """Create those topics that do not exist. Returns their names."""
    existing = log.topics(names)
    missing = [name for name in names if name not in existing]
    try:
        log.create_topics(TopicSpec(name, partitions) for name in missing)
    except ConnectorError:
        if log.topics(names).keys() == existing.keys():
            raise
        # Another process, such as the producer of a source, made one of them in between.
        return create_missing(log, names, partitions)
    return missing
