"""`eddy run`: a worker in this process, or several in processes of their own."""

import logging
import pathlib
import re
import sys
from dataclasses import replace
from typing import Any, Literal

import click
from click.core import ParameterSource

from eddy.cli.exits import exit_status, message
from eddy.cli.lifeline import watch_lifeline
from eddy.cli.load import load
from eddy.cli.logs import Target, log_options
from eddy.cli.number_range import NumberRange
from eddy.cli.options import http_token_option, limit_options, message_options, state_option, topology_argument
from eddy.cli.signals import Stopped, stop_on_signals
from eddy.cli.stderr_messages import LogFormat, messages_console, show_messages
from eddy.cli.supervise import Supervisor
from eddy.cli.work import Work
from eddy.config import Config
from eddy.errors import EddyError
from eddy.serve.endpoint import Endpoint, endpoint_of, is_address

__all__ = ["command"]

_log = logging.getLogger("eddy.cli")
_MEMBER = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ORPHAN_S = 5.0
"""Seconds that a worker may run without its supervisor, in addition to the time for stopping."""
_OF_EACH_WORKER = frozenset({"processes", "member", "http"})


def _member(context: click.Context, parameter: click.Parameter, name: str) -> str:
    """Check a member's name, which is a part of a transactional id and of a path."""
    if _MEMBER.fullmatch(name) and name not in (".", ".."):
        return name
    raise click.BadParameter(
        f"{name!r}: 1 to 100 of the characters A-Z a-z 0-9 . _ - are needed, and not . or .. alone."
    )


def _address(context: click.Context, parameter: click.Parameter, address: str | None) -> str | None:
    """Check the option for the address at which HTTP is served, and return it."""
    if address is None or is_address(address):
        return address
    raise click.BadParameter(f"'{address}' is not an address; PORT or HOST:PORT is needed, PORT from 0 to 65535.")


@click.command("run")
@topology_argument
@log_options
@state_option
@click.option(
    "--member",
    default="0",
    show_default=True,
    callback=_member,
    metavar="NAME",
    help="This worker's name among the workers of the application. A restart with the same name continues where "
    "the last one stopped; two workers cannot have one name at the same time.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Start N workers, each in a separate process, and keep them running; with --bootstrap. They are called "
    "0 to N-1, or, with --member, NAME-0 to NAME-(N-1).",
)
@click.option(
    "--on-error",
    type=click.Choice(["fail", "skip", "dead-letter"]),
    default="fail",
    show_default=True,
    help="What to do about a record that cannot be processed: stop and name it, count and log it, or write it to "
    "<application>-dead-letter.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Partitions of sources and sinks that do not exist yet on the embedded log. Default: as many as the "
    "other topics have, or 1.",
)
@click.option(
    "--no-create-topics",
    is_flag=True,
    help="Do not create internal topics: if one is missing, print the commands for an administrator, and stop.",
)
@click.option(
    "--cache",
    "cache_mib",
    type=click.IntRange(min=1),
    metavar="MIB",
    default=512,
    show_default=True,
    help="Memory for a worker's states. Rows that do not fit are read from disk again: give more for large tables.",
)
@limit_options
@click.option(
    "--retry",
    "retry_s",
    type=NumberRange(min=0),
    metavar="S",
    default=Config().retry_s,
    show_default=True,
    help="Seconds for which temporary failures (brokers that are away, a rebalance) are retried, at the start and "
    "later. Then exit with status 75.",
)
@click.option(
    "--http",
    callback=_address,
    metavar="[HOST:]PORT",
    help="The address for health and metrics; without HOST, on this machine only. With --processes, each worker "
    "has its own port, from PORT up.",
)
@http_token_option("A file with a token that readers of --http have to send; needed unless HOST is this machine.")
@click.option(
    "--http-peer",
    "http_peers",
    multiple=True,
    metavar="HOST:PORT",
    help="The --http of another worker of the application, which this worker's page shows, too; may be repeated. With "
    "--processes, the workers of this machine show one another.",
)
@click.option(
    "--shutdown-timeout",
    "shutdown_s",
    type=NumberRange(min=0),
    metavar="S",
    default=30.0,
    show_default=True,
    help="Seconds in which a worker has to stop: to finish its epoch and to close. Then it is killed, and the "
    "exit status is 75.",
)
@click.option(
    "--until-idle",
    is_flag=True,
    help="Stop when all input is processed and all loops have ended; with status 0, or 3 if a part has no "
    "finite answer.",
)
@click.option(
    "--accept-plan",
    is_flag=True,
    help="Start although the topology's states have changed since the last run. New states start empty, without "
    "the input that was read before, and results may be wrong.",
)
@message_options
def command(
    program: str,
    target: Target,
    state: pathlib.Path,
    member: str,
    processes: int | None,
    on_error: Literal["fail", "skip", "dead-letter"],
    partitions: int | None,
    no_create_topics: bool,
    cache_mib: int,
    retry_s: float,
    limits: dict[str, Any],
    http: str | None,
    http_token_file: pathlib.Path | None,
    http_peers: tuple[str, ...],
    shutdown_s: float,
    until_idle: bool,
    accept_plan: bool,
    log_format: LogFormat,
    log_level: str,
) -> None:
    """Run a topology.

    FILE is a Python file, or a dotted module, that defines a Topology; NAME selects one of several. Ctrl-C or SIGTERM
    finishes the epoch and stops; the next run continues from there.

    On the embedded log, missing topics that the topology reads or writes are created, and one process at a time runs an
    application; others may produce and consume meanwhile. On Kafka, topics that it reads or writes have to exist, and
    up to one worker for each partition can share an application.

    \b
    Examples:
      eddy run family.py
      eddy run family.py --until-idle --on-error skip
      eddy run family.py --bootstrap localhost:9092 --processes 4
    """
    if target.kafka and partitions:
        raise click.UsageError("--partitions is for the embedded log; on Kafka: eddy topics create NAME --partitions N")
    if processes and not target.kafka:
        raise click.UsageError("--processes needs Kafka (--bootstrap); on the embedded log one process runs all.")
    console = messages_console()
    show_messages(console, log_format, log_level)
    config = Config(
        state_dir=state,
        on_error=on_error,
        cache_bytes=cache_mib << 20,
        retry_s=retry_s,
        **limits,
        create_topics=not no_create_topics,
        accept_plan=accept_plan,
    )
    try:
        endpoint = endpoint_of(http, http_token_file) if http else None
        if http_peers and endpoint is None:
            raise click.UsageError("--http-peer: the page of this worker shows the others. Give it an address: --http")
        if processes:
            raise SystemExit(_supervise(program, processes, endpoint, log_format == "text", until_idle, shutdown_s))
        with stop_on_signals(patience_s=shutdown_s) as stop:
            watch_lifeline(stop.ask, shutdown_s + _ORPHAN_S)
            try:
                with stop.interrupts():
                    loaded = load(program)
                work = Work(target, config, member, partitions, until_idle, endpoint, http_peers)
                status = work.do(loaded, stop, console if log_format == "text" else None)
            except Stopped:
                _log.info("stopped by %s before it had started", stop)
                status = 0
    except EddyError as error:
        if log_format == "text":
            raise
        _log.error("%s", message(error), extra={"fields": {"code": error.code}})
        raise SystemExit(exit_status(error)) from error
    if status:
        raise SystemExit(status)


def _supervise(
    program: str, processes: int, endpoint: Endpoint | None, prefixed: bool, until_idle: bool, shutdown_s: float
) -> int:
    """Run the workers of this machine. Returns the exit status."""
    if endpoint and endpoint.port and endpoint.port + processes > 1 << 16:
        raise click.UsageError(f"--http {endpoint}: {processes} workers need as many ports from there on up to 65535.")
    context = click.get_current_context()
    commands = [_command(context, number, processes, endpoint) for number in range(processes)]
    supervisor = Supervisor(commands, prefixed=prefixed, until_idle=until_idle, patience_s=shutdown_s)
    with stop_on_signals(supervisor.kill) as stop:
        try:
            with stop.interrupts():
                load(program)  # here, so that an error in the program is reported once and not by each worker
        except Stopped:
            _log.info("stopped by %s before workers were started", stop)
            return 0
        status = supervisor.run(stop)
        _log.info("%d workers have ended%s", processes, f": stopped by {stop}" if stop else "")
        return status


def _command(context: click.Context, number: int, processes: int, endpoint: Endpoint | None) -> list[str]:
    """Return the command line of one worker: this process's command line, with the worker's member name and port."""
    said = [
        part
        for parameter in context.command.params
        if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        and parameter.name not in _OF_EACH_WORKER
        for part in _option_parts(parameter, context.params[str(parameter.name)])
    ]
    named = context.get_parameter_source("member") is ParameterSource.COMMANDLINE
    member = f"{context.params['member']}-{number}" if named else str(number)
    port = endpoint.port + number if endpoint and endpoint.port else 0
    http = [f"--http={replace(endpoint, port=port)}"] if endpoint else []
    if endpoint and endpoint.port:
        others = [endpoint.port + other for other in range(processes) if other != number]
        http += [f"--http-peer={replace(endpoint, host=_reachable_host(endpoint), port=other)}" for other in others]
    # The worker looks for modules in the current directory exactly if this process does.
    safe_path = [] if pathlib.Path(sys.argv[0]).name == "__main__.py" else ["-P"]
    return [sys.executable, *safe_path, "-m", "eddy", "run", *said, *http, f"--member={member}"]


def _reachable_host(endpoint: Endpoint) -> str:
    """Return the host by which a worker on this machine reaches another worker on it."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(endpoint.host, endpoint.host)


def _option_parts(parameter: click.Parameter, value: object) -> list[str]:
    """Return a value as command-line text."""
    if isinstance(parameter, click.Argument):
        return [str(value)]
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return [parameter.opts[0]]
    values = value if isinstance(value, tuple) else (value,)
    return [f"{parameter.opts[0]}={each}" for each in values]
