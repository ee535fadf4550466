"""`eddy broker`: a Kafka broker on this machine, for development."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from eddy.connectors.broker import Broker, kafka_version
from eddy.connectors.broker.jars import kept_folder
from eddy.connectors.broker.java_runtime import find_java
from eddy.errors import ConnectorError

__all__ = ["command"]

F = TypeVar("F", bound=Callable[..., Any])

_DIRECTORY = click.Path(file_okay=False, path_type=pathlib.Path)

_data_option = click.option(
    "--data",
    type=_DIRECTORY,
    default=".eddy/broker",
    metavar="DIR",
    show_default=True,
    help="Where the broker keeps its data, its log and its settings.",
)


@click.group("broker", short_help="Start, stop and look at a Kafka broker on this machine.")
def command() -> None:
    """Start, stop and look at a Kafka broker on this machine, for development.

    It is Kafka itself, one node, without a password, reached from this machine only. It needs Java 17 or later. Kafka
    is downloaded at the first start, once for all folders, by PySpark's Ivy: pip install 'eddy-streams[spark]'.

    \b
    Example:
      eddy broker start
      eddy run family.py --bootstrap 127.0.0.1:9092
      eddy broker stop
    """


def _setting(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Return KEY=VALUE pairs as a dict; the last value of a key counts."""
    pairs = [value.partition("=") for value in values]
    for key, equals, value in pairs:
        if not (key.strip() and equals):
            raise click.BadParameter(f"{key}{equals}{value} is not KEY=VALUE")
    return {key.strip(): value for key, _, value in pairs}


@contextlib.contextmanager
def _in_folder(data: pathlib.Path) -> Iterator[None]:
    """Turn errors of the file system into a message."""
    try:
        yield
    except OSError as error:
        raise ConnectorError(
            f"broker {data}: {error}; a folder that its owner may write is needed. Name one: --data DIR"
        ) from error


@command.command("start")
@click.option("--port", type=click.IntRange(1, 65535), default=9092, show_default=True, help="The port for clients.")
@_data_option
@click.option(
    "--heap",
    type=click.IntRange(min=128),
    default=512,
    show_default=True,
    metavar="MIB",
    help="Memory of its Java heap.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    callback=_setting,
    metavar="KEY=VALUE",
    help="A setting of Kafka's brokers, for this run; may be repeated.",
)
@click.option(
    "--jars",
    type=click.Path(file_okay=False, exists=True, path_type=pathlib.Path),
    envvar="EDDY_KAFKA_JARS",
    show_envvar=True,
    metavar="DIR",
    help="A folder of Kafka's jars, such as libs of a Kafka distribution. Then no jars are fetched.",
)
def start(port: int, data: pathlib.Path, heap: int, settings: dict[str, str], jars: pathlib.Path | None) -> None:
    """Start the broker, unless it runs, and wait until it answers.

    It keeps running without this terminal, until eddy broker stop or the end of the login session. Topics and records
    are kept for the next start.

    \b
    Example:
      eddy broker start --port 9093 --data /tmp/broker --set log.retention.hours=1
    """
    if jars is None and not kept_folder().is_dir():
        find_java()
        click.echo(f"fetching Kafka {kafka_version()} into {kept_folder()}: 43 MB, once", err=True)
    broker = Broker(data, port=port, heap_mib=heap, settings=settings, jars=jars)
    with _in_folder(data):
        if not broker.start():
            click.echo("runs already", err=True)
        click.echo(f"bootstrap {broker.bootstrap}")


@command.command("stop")
@_data_option
@click.option("--remove", is_flag=True, help="Remove its topics and all its other files, too.")
def stop(data: pathlib.Path, remove: bool) -> None:
    """Stop the broker, if it runs.

    \b
    Example:
      eddy broker stop
    """
    broker = Broker(data)
    with _in_folder(data):
        click.echo("stopped" if broker.stop() else "did not run", err=True)
        if remove:
            broker.remove()


@command.command("status")
@_data_option
def status(data: pathlib.Path) -> None:
    """Show whether the broker runs, and where; exit with status 1 if it does not.

    \b
    Example:
      eddy broker status
    """
    broker = Broker(data)
    with _in_folder(data):
        running = broker.running
        click.echo("running" if running else "not running")
        if running:
            click.echo(f"bootstrap {broker.bootstrap}\npid       {broker.pid}\nkafka     {broker.version}")
        click.echo(f"data      {data}")
    raise SystemExit(not running)
