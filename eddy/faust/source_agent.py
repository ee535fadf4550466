"""mode="agents": the agent that subscribes to a topology's sources. `faust agents` lists it.

Faust's consumer gives the sources' records to the feed in whole batches (`transport.py`). Faust's positions follow
eddy's transactions and not the agent, because an agent acknowledges a record even if it raises an error.
"""

from collections.abc import Set
from typing import Any

import faust
from faust.types import TP
from faust.types.enums import ProcessingGuarantee

from eddy.connectors.log import TopicPartition
from eddy.errors import ConfigurationError
from eddy.faust.app_tables import changelogs
from eddy.faust.feed import Assignment, Feed
from eddy.faust.transport import CommittedConsumer, SourceTopic
from eddy.topology.topology import Topology

__all__ = ["add_agent", "check_app", "source_topics"]


def source_topics(app: faust.App, topology: Topology) -> list[str]:
    """Return the topics that Faust reads for a topology: its sources, without changelogs of the app's own tables."""
    own = changelogs(app)
    return [source.topic for source in topology.plan.sources() if source.topic not in own]


def check_app(app: faust.App, topology: Topology) -> None:
    """Check that the app's settings and tables fit mode="agents". Raises: ConfigurationError."""
    guarantee: Any = app.conf.processing_guarantee
    where = f"faust.host '{topology.name}': mode='agents'"
    if guarantee is ProcessingGuarantee.EXACTLY_ONCE:
        raise ConfigurationError(
            f"{where} and processing_guarantee='exactly_once' exclude each other: Faust's transactions do not cover "
            "sinks and re-keyed records, and eddy's do. Leave the setting out; it is exactly once"
        )
    if pattern := next(topology.plan.patterns(), None):
        raise ConfigurationError(
            f"{where} reads topics that are named, and pattern {pattern.pattern.pattern!r} may match others later; "
            "named topics are needed. Or host in mode='worker'"
        )
    names = source_topics(app, topology)
    if not names:
        raise ConfigurationError(
            f"{where} needs a source that an agent can read; the topology has changelogs of the app's tables only. "
            "Host in mode='worker'"
        )
    if len(names) > 1 and not app.conf.table_standby_replicas:
        raise ConfigurationError(
            f"{where} with several sources needs partition i of each in one process; with table_standby_replicas=0 "
            "Faust may spread them. Set it to 1, or host in mode='worker'"
        )


def add_agent(app: faust.App, topology: Topology, feed: Feed) -> None:
    """Add an agent to the app. It subscribes to the sources of a topology, and reports assignments to the feed."""
    topic: Any = SourceTopic(
        app,
        topics=sorted(feed.topics),
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
        allow_empty=True,
    )

    async def read(stream: Any) -> None:
        async for _ in stream:
            pass  # if other agents read the topic, too, Faust delivers its records here; the feed already has them

    async def assigned(sender: Any, /, *given: Set[TP], **_: Any) -> None:
        consumer = app.consumer
        assert isinstance(consumer, CommittedConsumer)
        ours = frozenset(TopicPartition(*tp) for tp in set().union(*given) if tp.topic in feed.topics)
        feed.assign(Assignment(app.consumer_generation_id, *consumer.member(), ours))

    async def revoked(sender: Any, /, *given: Set[TP], **_: Any) -> None:
        await feed.revoke()

    app.agent(topic, name=f"eddy.{topology.name}")(read)
    app.on_partitions_assigned.connect(assigned)
    app.on_partitions_revoked.connect(revoked)
