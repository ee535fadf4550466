"""`eddy topics`: what is in the embedded log."""

import pathlib
from collections.abc import Iterable

import click
import msgspec

from eddy.cli.options import data_option, opened
from eddy.cli.tables import new_table, print_table
from eddy.connectors.log import Log, TopicPartition

__all__ = ["command"]


class _Topic(msgspec.Struct, frozen=True):
    topic: str
    partitions: int
    offsets: int
    cleanup_policy: str


def _topics(log: Log) -> Iterable[_Topic]:
    for name, spec in sorted(log.topics().items()):
        partitions = [TopicPartition(name, p) for p in range(spec.partitions)]
        begins, ends = log.begin_offsets(partitions), log.end_offsets(partitions)
        offsets = sum(ends.values()) - sum(begins.values())
        yield _Topic(name, spec.partitions, offsets, spec.configs.get("cleanup.policy", "delete"))


@click.command("topics")
@data_option
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(data: pathlib.Path, form: str) -> None:
    """List the topics of the log.

    "offsets" is how many offsets a topic's records lie in: the end of each transaction takes one too, and so does a
    record that was compacted away. There are at most that many records.

    \b
    Example:
      eddy topics
    """
    with opened(data) as log:
        topics = list(_topics(log))
    if form == "json":
        click.echo(msgspec.json.encode(topics).decode())
        return
    table = new_table("topic", "cleanup policy", "partitions", "offsets", numbers=2)
    for topic in topics:
        table.add_row(topic.topic, topic.cleanup_policy, str(topic.partitions), f"{topic.offsets:,}")
    print_table(table)
