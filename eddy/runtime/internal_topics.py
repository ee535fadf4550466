"""An application's internal topics: created by eddy, checked at every start, and purged.

<app>-<name>-loop, <app>-<name>-repartition   rows between owners: purged once consumed
<app>-<name>-changelog                        the rows of a state: compacted
<app>-cuts, <app>-plan                        cuts and positions, and the identity of the plan: compacted
<app>-dead-letter                             rejected records
"""

from collections.abc import Iterable, Mapping

import msgspec

from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.errors import ConfigurationError, ConnectorError
from eddy.operators.circuit import Circuit
from eddy.runtime.changelog_replay import TOMBSTONES_LAST_S
from eddy.runtime.own_positions import committed, cuts_topic

__all__ = ["DEAD_LETTER", "InternalTopics", "internal_topics", "metadata_topic", "partition_counts"]

_ANY_TIME = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
_EXCHANGE = _ANY_TIME | {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "segment.bytes": str(50 << 20),
    "message.timestamp.type": "CreateTime",
}
_COMPACT = _ANY_TIME | {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(TOMBSTONES_LAST_S * 1000),
    "message.timestamp.type": "CreateTime",
}
_OFTEN = {"segment.bytes": str(50 << 20)}
_DEAD_LETTER = _ANY_TIME | {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": str(16 << 20)}
DEAD_LETTER = "dead-letter"
_CHECKED = ("cleanup.policy", "delete.retention.ms", "retention.ms", "message.timestamp.type")


def metadata_topic(application: str) -> str:
    """Return the topic of an application's metadata."""
    return f"{application}-plan"


class InternalTopics(msgspec.Struct, frozen=True):
    """The internal topics of one application, by purpose."""

    application: str
    exchanges: dict[str, int]
    changelogs: dict[str, int]
    constants: frozenset[str] = frozenset()
    """The exchanges of constants, each of one partition."""

    @property
    def anchors(self) -> list[TopicPartition]:
        """The partitions whose committed positions tell that constants were sent."""
        return [TopicPartition(name, 0) for name in sorted(self.constants)]

    @property
    def cuts(self) -> str:
        """The topic of cuts and recorded positions."""
        return cuts_topic(self.application)

    @property
    def plan(self) -> str:
        """The topic of the application's metadata."""
        return metadata_topic(self.application)

    @property
    def dead_letter(self) -> str:
        """The topic of rejected records."""
        return f"{self.application}-{DEAD_LETTER}"

    def specs(self) -> list[TopicSpec]:
        """Return the required specs of all internal topics."""
        return [
            *(TopicSpec(name, count, _EXCHANGE) for name, count in self.exchanges.items()),
            *(TopicSpec(name, count, _COMPACT) for name, count in self.changelogs.items()),
            TopicSpec(self.cuts, 1, _COMPACT | _OFTEN),
            TopicSpec(self.plan, 1, _COMPACT),
            TopicSpec(self.dead_letter, 1, _DEAD_LETTER),
        ]

    def make(self, log: Log, create: bool = True, known: Iterable[str] = ()) -> list[TopicSpec]:
        """Create the missing topics, or return them if `create` is False. `known` were created by an earlier run.

        Raises: ConfigurationError naming a topic that has other settings, or that was deleted.
        """
        specs = {spec.name: spec for spec in self.specs()}
        existing = log.topics(specs)
        for name in known:
            if name in specs and name not in existing:
                raise ConfigurationError(
                    f"internal topic '{name}' is missing, or this user may not see it; its records belong to "
                    f"the states. Look for it: eddy topics --all. Restore it with its records, or give this "
                    f"user the right to Describe it; if it was deleted, rows are lost: then start anew: eddy reset …"
                )
        for name, found in existing.items():
            _check(specs[name], found)
        missing = [spec for name, spec in specs.items() if name not in existing]
        if not create:
            return missing
        try:
            log.create_topics(missing)
        except ConnectorError:
            if not log.topics(spec.name for spec in missing):
                raise
            return self.make(log)  # another worker of the application created some of them meanwhile
        return []

    def purge(self, log: Log, group: str) -> dict[TopicPartition, int]:
        """Delete consumed loop and repartition records, up to the committed positions in the log.

        Returns the number of deleted offsets, by partition.
        """
        partitions = [TopicPartition(name, p) for name, count in self.exchanges.items() for p in range(count)]
        positions = committed(log, group, partitions)
        begins = log.begin_offsets(positions)
        before = {tp: at.offset for tp, at in positions.items() if at.offset > begins[tp]}
        if before:
            log.delete_records(before)
        return {tp: offset - begins[tp] for tp, offset in before.items()}


def _check(wanted: TopicSpec, found: TopicSpec) -> None:
    """Refuse a topic whose settings differ. Configs that this user may not read are not checked."""
    if found.partitions != wanted.partitions:
        raise ConfigurationError(
            f"internal topic '{wanted.name}' has {found.partitions} partitions, {wanted.partitions} are needed; the "
            "sources' partitions have changed or another program has made the topic. A topic without records "
            "can be deleted, and eddy makes it again; if sources have grown, keys are no longer where their "
            "states are: then start anew from the input: eddy reset …"
        )
    for key, value in wanted.configs.items():
        if key in _CHECKED and found.configs.get(key, value) != value:
            raise ConfigurationError(
                f"internal topic '{wanted.name}' has {key}={found.configs[key]}, {value} is needed: records would be "
                f"lost or misread. Set it back: kafka-configs.sh --alter --topic {wanted.name} "
                f"--add-config {key}={value}"
            )


def internal_topics(application: str, circuit: Circuit) -> InternalTopics:
    """Return the internal topics that a circuit needs."""
    return InternalTopics(
        application,
        {gate.topic: gate.partitions for gate in circuit.gates},
        {
            state.spec.changelog: state.spec.partitions
            for state in circuit.states.values()
            if state.spec.changelog is not None
        },
        frozenset(constant.gate.topic for constant in circuit.constants),
    )


def partition_counts(log: Log, names: Iterable[str], where: str) -> Mapping[str, TopicSpec]:
    """Look up the specs of the user's topics. Raises: ConfigurationError naming missing topics."""
    wanted = list(names)
    specs = log.topics(wanted)
    missing = sorted(set(wanted) - set(specs))
    if missing:
        raise ConfigurationError(
            f"{where}: topics {', '.join(missing)} do not exist; sources and sinks are the user's and eddy does not "
            f"make them. Create them: eddy topics create {' '.join(missing)} --partitions N"
        )
    return specs
