"""The commands for an administrator if a worker may not create its own topics.

The rights are the least that a worker needs: to read its sources, write its sinks, and use topics, transactional ids
and the group with its own name. It needs no rights on the cluster.
"""

from collections.abc import Iterable, Sequence

from eddy.connectors.log import TopicSpec

__all__ = ["commands"]

_TOPICS = "kafka-topics.sh --bootstrap-server $BOOTSTRAP --create"
_ACLS = "kafka-acls.sh --bootstrap-server $BOOTSTRAP --add --allow-principal User:$USER"


def commands(application: str, sources: Iterable[str], sinks: Iterable[str], missing: Iterable[TopicSpec]) -> list[str]:
    """Return shell commands that create the missing topics and grant the rights.

    The administrator sets $BOOTSTRAP and $USER before the commands are run.
    """
    return [
        *(_creation(spec) for spec in missing),
        *(_grant(["Read", "Describe"], f"--topic {topic}") for topic in sources),
        *(_grant(["Write", "Describe", "DescribeConfigs"], f"--topic {topic}") for topic in sinks),
        _grant(
            ["Read", "Write", "Describe", "DescribeConfigs", "Delete"],
            f"--topic {application}- --resource-pattern-type prefixed",
        ),
        _grant(["Read", "Describe"], f"--group {application}"),
        _grant(["Write", "Describe"], f"--transactional-id {application}- --resource-pattern-type prefixed"),
    ]


def _creation(spec: TopicSpec) -> str:
    configs = "".join(f" --config {key}={value}" for key, value in spec.configs.items())
    return f"{_TOPICS} --topic {spec.name} --partitions {spec.partitions}{configs}"


def _grant(operations: Sequence[str], resource: str) -> str:
    return f"{_ACLS} {' '.join(f'--operation {operation}' for operation in operations)} {resource}"
