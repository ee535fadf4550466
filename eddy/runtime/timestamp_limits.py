"""Limits on timestamps: a record is rejected if the topics downstream of its source would refuse its timestamp.

A broker refuses a whole batch for one timestamp beyond `message.timestamp.after.max.ms` of a topic, by default an hour.
A merged row has the latest timestamp of its rows. So one record with such a timestamp could cause the refusal of rows
of other records in its epoch. Therefore the record is rejected when it is read, and the error policy applies to it
alone:

    rejected    timestamp > now + min of the limits of the sinks downstream of its source and of the exchanges

A topic with `message.timestamp.type=LogAppendTime` has no limit. If the worker's clock lags the broker's clock, the
worker rejects records that the broker would accept. If the broker's clock lags, the broker refuses the batch, and
halving the epoch finds the record. Records of internal topics have the timestamps of the records from which they are
made, if these topics accept any timestamp.
Source: KIP-937.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from eddy.connectors.log import Records, TopicSpec
from eddy.errors import RecordRefusedError
from eddy.operators.valid_rows import LATEST_MS
from eddy.topology.plan.plan import Node, Plan

__all__ = ["TimestampLimit", "TimestampLimits", "take_any_timestamp", "timestamp_limits"]

_AHEAD = "message.timestamp.after.max.ms"
_UNLIMITED_MS = (1 << 63) - 1


class TimestampLimit(NamedTuple):
    """The most milliseconds by which a timestamp may be ahead of now, and the topic with this limit."""

    ahead_ms: int
    topic: str


class TimestampLimits:
    """The limits by source topic; a source without a limit is missing. `wall` returns the seconds since 1970."""

    def __init__(self, limits: Mapping[str, TimestampLimit], wall: Callable[[], float]) -> None:
        self._limits, self._wall = limits, wall

    def refused(self, records: Records) -> dict[int, RecordRefusedError]:
        """Return the errors of records beyond their source's limit, by index. Cost: one maximum if there are none."""
        limit = self._limits.get(records.topic)
        if limit is None:
            return {}
        latest = round(self._wall() * 1000) + limit.ahead_ms
        if max(records.timestamps) <= latest:
            return {}
        return {index: _refusal(time, limit) for index, time in enumerate(records.timestamps) if time > latest}


def _refusal(time: int, limit: TimestampLimit) -> RecordRefusedError:
    named = datetime.fromtimestamp(time / 1000, UTC).isoformat() if time <= LATEST_MS else "after the year 9999"
    return RecordRefusedError(
        f"the timestamp {time} ({named}) lies too far ahead; topic '{limit.topic}' accepts records up to "
        f"{limit.ahead_ms} ms ahead of now. Correct the clock of its producer, or let the topic accept it: "
        f"kafka-configs.sh --alter --topic {limit.topic} --add-config {_AHEAD}=…, and start the worker again"
    )


def timestamp_limits(
    plan: Plan, sinks: Mapping[str, TopicSpec], exchanges: Iterable[TopicSpec]
) -> dict[str, TimestampLimit]:
    """Return the limits of a plan's sources, by topic. `sinks` are the topics that the plan writes, by name."""
    shared = [limit for spec in exchanges if (limit := _limit_of(spec))]
    limits: dict[str, TimestampLimit] = {}
    for source in plan.sources():
        written = [limit for topic in _reached(plan, source) if (limit := _limit_of(sinks[topic]))]
        if least := min([*written, *shared], default=None):
            limits[source.topic] = min(least, limits.get(source.topic, least))
    return limits


def take_any_timestamp(specs: Iterable[TopicSpec]) -> bool:
    """Whether topics have no limit; False if a limit is unknown, since topics of an earlier version may have one."""
    return all(int(spec.configs.get(_AHEAD, 0)) == _UNLIMITED_MS for spec in specs)


def _limit_of(spec: TopicSpec) -> TimestampLimit | None:
    ahead_ms = int(spec.configs.get(_AHEAD, _UNLIMITED_MS))
    if ahead_ms == _UNLIMITED_MS or spec.configs.get("message.timestamp.type") == "LogAppendTime":
        return None
    return TimestampLimit(ahead_ms, spec.name)


def _reached(plan: Plan, source: Node) -> list[str]:
    """Return the topics of the sinks downstream of a source."""
    reached = {source}
    for node in plan.nodes:
        loop = node.as_loop
        if not reached.isdisjoint(node.inputs if loop is None else (*node.inputs, *loop.results)):
            reached.add(node)
    return [sink.topic for sink in plan.sinks() if sink in reached]
