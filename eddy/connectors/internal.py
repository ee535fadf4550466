"""The topics that eddy makes for an application, checks at every start, and purges.

<app>-<name>-loop, <app>-<name>-repartition   rows between owners: purged once consumed
<app>-<name>-changelog                        the rows of a state: compacted
<app>-cuts, <app>-plan                        cuts, and the identity of the plan: compacted
<app>-dead-letter                             records that were left out
"""

from collections.abc import Iterable, Mapping

import msgspec

from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.errors import ConnectorError
from eddy.operators.circuit import Circuit

__all__ = ["DEAD_LETTER", "InternalTopics", "internal_topics", "partition_counts"]

_EXCHANGE = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "segment.bytes": str(50 << 20),
    "message.timestamp.type": "CreateTime",
}
_COMPACT = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
DEAD_LETTER = "dead-letter"


class InternalTopics(msgspec.Struct, frozen=True):
    """The internal topics of one application, by what they are for."""

    application: str
    exchanges: dict[str, int]
    changelogs: dict[str, int]

    @property
    def cuts(self) -> str:
        """Where cuts are written."""
        return f"{self.application}-cuts"

    @property
    def plan(self) -> str:
        """Where the plan's identity is written."""
        return f"{self.application}-plan"

    @property
    def dead_letter(self) -> str:
        """Where records go that were left out."""
        return f"{self.application}-{DEAD_LETTER}"

    def specs(self) -> list[TopicSpec]:
        """All of them, as they have to be."""
        return [
            *(TopicSpec(name, count, _EXCHANGE) for name, count in self.exchanges.items()),
            *(TopicSpec(name, count, _COMPACT) for name, count in self.changelogs.items()),
            TopicSpec(self.cuts, 1, _COMPACT),
            TopicSpec(self.plan, 1, _COMPACT),
            TopicSpec(self.dead_letter, 1, {"cleanup.policy": "delete", "retention.ms": "-1"}),
        ]

    def make(self, log: Log) -> None:
        """Create those that are missing. Raises: ConnectorError naming one that is not as it has to be."""
        specs = {spec.name: spec for spec in self.specs()}
        existing = log.topics(specs)
        for name, found in existing.items():
            wanted = specs[name]
            if found.partitions != wanted.partitions:
                raise ConnectorError(
                    f"internal topic '{name}' has {found.partitions} partitions, {wanted.partitions} are needed; "
                    "the sources' partitions have changed or the topic was made by hand. Start anew: eddy reset …"
                )
            if found.compacted != wanted.compacted:
                raise ConnectorError(
                    f"internal topic '{name}' has cleanup.policy={found.configs.get('cleanup.policy')}, "
                    f"{wanted.configs['cleanup.policy']} is needed. Set it back, or start anew: eddy reset …"
                )
        log.create_topics(spec for name, spec in specs.items() if name not in existing)

    def purge(self, log: Log, group: str) -> dict[TopicPartition, int]:
        """Delete consumed loop and repartition records, up to what the log says is committed."""
        partitions = [TopicPartition(name, p) for name, count in self.exchanges.items() for p in range(count)]
        committed = log.committed(group, partitions)
        begins = log.begin_offsets(committed)
        before = {tp: at.offset for tp, at in committed.items() if at.offset > begins[tp]}
        if before:
            log.delete_records(before)
        return before


def internal_topics(application: str, circuit: Circuit) -> InternalTopics:
    """The internal topics that a circuit needs."""
    return InternalTopics(
        application,
        {gate.topic: gate.partitions for gate in circuit.gates},
        {
            state.spec.changelog: state.spec.partitions
            for state in circuit.states.values()
            if state.spec.changelog is not None
        },
    )


def partition_counts(log: Log, names: Iterable[str], where: str) -> Mapping[str, TopicSpec]:
    """The specs of topics of the user's. Raises: ConnectorError naming those that do not exist."""
    wanted = list(names)
    specs = log.topics(wanted)
    missing = sorted(set(wanted) - set(specs))
    if missing:
        raise ConnectorError(
            f"{where}: topics {', '.join(missing)} do not exist; sources and sinks are the user's and eddy does not "
            "make them. Create them, e.g. by: eddy produce TOPIC …, or kafka-topics.sh --create"
        )
    return specs
