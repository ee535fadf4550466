"""The log of a command: the options that name it, and the opened log.

    --data DIR                                              the embedded log in a folder
    --bootstrap HOST:PORT, --config FILE, --set KEY=VALUE   a Kafka cluster

The command line overrides the environment. Kafka's client is imported only if the options name a cluster, so that all
other commands work without it.
"""

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, TopicSpec
from eddy.errors import ConnectorError

if TYPE_CHECKING:
    from eddy.connectors.kafka.settings import KafkaSettings

__all__ = ["Target", "create_missing", "log_options", "opened", "opener"]

_WRITER_PATIENCE_S = 30.0
_KAFKA_OPTIONS = ("bootstrap", "config", "settings")

_data = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    default=".eddy/log",
    envvar="EDDY_DATA",
    metavar="DIR",
    show_default=True,
    show_envvar=True,
    help="The folder of the embedded log.",
)
_bootstrap = click.option(
    "--bootstrap",
    envvar="EDDY_BOOTSTRAP",
    metavar="HOST:PORT",
    show_envvar=True,
    help="Brokers of a Kafka cluster, separated by commas, in place of the embedded log.",
)
_config = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path),
    envvar="EDDY_CONFIG",
    metavar="FILE",
    show_envvar=True,
    help="Kafka's settings, as a .properties file; values may be ${env:NAME} and ${file:PATH}.",
)
_set = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="One of Kafka's settings; may be repeated."
)


@dataclass(frozen=True, slots=True)
class Target:
    """The log that the options name: the embedded one in `data`, or a Kafka cluster."""

    data: pathlib.Path
    kafka: bool = False
    bootstrap: str | None = None
    config: pathlib.Path | None = None
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.kafka:
            return str(self.data)
        return f"kafka {self.bootstrap}" if self.bootstrap else f"the cluster that {self.config or '--set'} names"

    def exists(self) -> bool:
        """Whether the embedded log exists; True for a cluster, which only a request could find out."""
        return self.kafka or self.data.is_dir()

    def kafka_settings(self) -> "KafkaSettings":
        """Return the settings of the connection to the cluster. Raises: ConfigurationError."""
        from eddy.connectors.kafka import KafkaSettings

        return KafkaSettings.of(self.bootstrap, [self.config] if self.config else [], self.settings)

    def with_setting(self, pair: str) -> "Target":
        """Return the same target with one more setting, `KEY=VALUE`."""
        return replace(self, settings=(*self.settings, pair))


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the options that select the log; it gets them as one argument, `target`."""

    @_data
    @_bootstrap
    @_config
    @_set
    @functools.wraps(command)
    def collected(
        data: pathlib.Path,
        bootstrap: str | None,
        config: pathlib.Path | None,
        settings: tuple[str, ...],
        **others: Any,
    ) -> Any:
        return command(target=_target(data, bootstrap, config, settings), **others)

    return collected


def _target(
    data: pathlib.Path, bootstrap: str | None, config: pathlib.Path | None, settings: tuple[str, ...]
) -> Target:
    context = click.get_current_context()
    said = {
        name for name in ("data", *_KAFKA_OPTIONS) if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if "data" in said and len(said) > 1:
        raise click.UsageError(
            "--data names the embedded log, and --bootstrap, --config and --set a Kafka cluster; give only one "
            "of the two."
        )
    if "data" in said or not (bootstrap or config or settings):
        return Target(data)
    return Target(data, True, bootstrap, config, settings)


@contextlib.contextmanager
def opened(target: Target, *, create: bool = False, patience_s: float = _WRITER_PATIENCE_S) -> Iterator[Log]:
    """Yield the opened log, which is closed at the end of the block.

    For the embedded log, `create` allows a new log, and `patience_s` is the time to wait for other writers.

    Raises: ConnectorError if there is no embedded log to read; ConfigurationError.
    """
    with contextlib.closing(_log(target, create, patience_s)) as log:
        yield log


def _log(target: Target, create: bool, patience_s: float) -> Log:
    if target.kafka:
        from eddy.connectors.kafka import KafkaLog

        return KafkaLog(target.kafka_settings())
    if not create and not target.exists():
        raise ConnectorError(
            f"local log {target.data}: there is no such directory; an existing log is needed. eddy produce and "
            f"eddy run make one; or name it: --data DIR"
        )
    return LocalLog(target.data, busy_timeout_s=patience_s)


def opener(target: Target) -> Callable[[], Log]:
    """Return a picklable function that opens the log. Raises: ConfigurationError."""
    if not target.kafka:
        return functools.partial(LocalLog, target.data.resolve(), busy_timeout_s=_WRITER_PATIENCE_S)
    from eddy.connectors.kafka import KafkaLog

    return functools.partial(KafkaLog, target.kafka_settings())


def create_missing(log: Log, names: list[str], partitions: int) -> list[str]:
    """Create the topics that are missing. Returns their names."""
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
