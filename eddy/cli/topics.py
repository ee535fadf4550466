"""`eddy topics`: lists the topics of a log or an application, and creates topics."""

from collections.abc import Iterable, Mapping

import click
import msgspec

from eddy.cli.application import purposes
from eddy.cli.load import load
from eddy.cli.logs import Target, log_options, opened
from eddy.cli.printed_tables import new_table, print_table
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.errors import ConnectorError

__all__ = ["command"]

_OF_KAFKA = "__"


class _Topic(msgspec.Struct, frozen=True):
    """A topic; fields are None if it does not exist. `use` is its purpose, in a list of an application's topics."""

    topic: str
    use: str | msgspec.UnsetType = msgspec.UNSET
    partitions: int | None = None
    offsets: int | None = None
    cleanup_policy: str | None = None


class _Topics(click.Group):
    """A group whose default command is `list`, as in `eddy topics`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `list` unless the arguments name another command or request help."""
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["list", *args])


@click.group("topics", cls=_Topics, short_help="List topics, or create some.")
def command() -> None:
    """List the topics of the log, or create some.

    Without a command it lists them.

    \b
    Examples:
      eddy topics
      eddy topics family.py --bootstrap localhost:9092
      eddy topics create nodes descendants --partitions 6 --bootstrap localhost:9092
    """


@command.command("list", short_help="List the topics of the log, or of an application.")
@click.argument("program", metavar="[FILE[:NAME]]", required=False)
@log_options
@click.option(
    "--all", "every", is_flag=True, help="List Kafka's own topics, too, whose names begin with two underscores."
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def _list(program: str | None, target: Target, every: bool, form: str) -> None:
    """List the topics of the log, or with FILE the topics of an application with their purposes.

    "offsets" is the number of offsets from a topic's first to its last: the end of each transaction takes one too, and
    so does a record removed by compaction. There are at most that many records. An application's internal topics are
    listed once the topics that it reads and writes exist.

    \b
    Examples:
      eddy topics list
      eddy topics list family.py
    """
    topology = load(program).topology if program else None
    with opened(target) as log:
        if topology is not None:
            topics = _topics(log, purposes(topology, log))
        else:
            topics = [topic for topic in _topics(log) if every or not topic.topic.startswith(_OF_KAFKA)]
    if form == "json":
        click.echo(msgspec.json.encode(topics).decode())
        return
    table = new_table("topic", *(["use"] if topology else []), "cleanup policy", "partitions", "offsets", numbers=2)
    for topic in topics:
        count = ["missing", "-", "-"]
        if topic.partitions is not None:
            count = [str(topic.cleanup_policy), str(topic.partitions), f"{topic.offsets:,}"]
        table.add_row(topic.topic, *([topic.use] if topic.use else []), *count)
    print_table(table)


def _topics(log: Log, uses: Mapping[str, str] | None = None) -> list[_Topic]:
    """Return the topics: all by name or, if `uses` is given, the topics in it, in its order."""
    specs, offsets = _with_offsets(log, log.topics(uses))
    found = []
    for name in sorted(specs) if uses is None else uses:
        use = uses[name] if uses else msgspec.UNSET
        if (spec := specs.get(name)) is None:
            found.append(_Topic(name, use))
        else:
            policy = spec.configs.get("cleanup.policy", "delete")
            found.append(_Topic(name, use, spec.partitions, offsets[name], policy))
    return found


def _with_offsets(log: Log, specs: Mapping[str, TopicSpec]) -> tuple[Mapping[str, TopicSpec], dict[str, int]]:
    """Return the topics that still exist, and the number of offsets of each."""
    partitions = [TopicPartition(name, p) for name, spec in specs.items() for p in range(spec.partitions)]
    try:
        begins, ends = log.begin_offsets(partitions), log.end_offsets(partitions)
    except ConnectorError:
        left = log.topics(specs)
        if left.keys() == specs.keys():
            raise
        return _with_offsets(log, left)  # some topics were deleted in the meantime
    offsets = dict.fromkeys(specs, 0)
    for tp in partitions:
        offsets[tp.topic] += ends[tp] - begins[tp]
    return specs, offsets


def _configs(context: click.Context, parameter: click.Parameter, pairs: Iterable[str]) -> dict[str, str]:
    """Return pairs `KEY=VALUE` as a dict."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{pair!r}: KEY=VALUE is needed, such as cleanup.policy=compact.")
        found[key] = value
    return found


@command.command("create")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@log_options
@click.option(
    "--partitions", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="How many each."
)
@click.option(
    "--replication",
    type=click.IntRange(min=1),
    metavar="N",
    help="On Kafka: the number of brokers that keep each partition. Default: the broker's own default.",
)
@click.option(
    "--topic-config",
    "configs",
    multiple=True,
    callback=_configs,
    metavar="KEY=VALUE",
    help="A setting of the topics, by Kafka's name; may be repeated.",
)
@click.option("--if-not-exists", is_flag=True, help="Ignore topics that exist already, whatever their settings are.")
def _create(
    names: tuple[str, ...],
    target: Target,
    partitions: int,
    replication: int | None,
    configs: dict[str, str],
    if_not_exists: bool,
) -> None:
    """Create topics, such as those that an application reads and writes.

    Topics that are joined by key need equal numbers of partitions. With n partitions, up to n workers can share an
    application.

    \b
    Examples:
      eddy topics create nodes descendants --partitions 6 --bootstrap localhost:9092
      eddy topics create users --topic-config cleanup.policy=compact --topic-config max.message.bytes=4194304
    """
    if replication and not target.kafka:
        raise click.UsageError("--replication needs Kafka (--bootstrap); the embedded log keeps one copy.")
    if replication:
        target = target.with_setting(f"replication.factor={replication}")
    with opened(target, create=True) as log:
        existing = log.topics(names) if if_not_exists else {}
        missing = [name for name in dict.fromkeys(names) if name not in existing]
        log.create_topics(TopicSpec(name, partitions, configs) for name in missing)
    for name in missing:
        click.echo(f"topic '{name}' made with {partitions} partition{'s'[: partitions > 1]}", err=True)
