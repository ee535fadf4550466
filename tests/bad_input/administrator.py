"""What an administrator runs: the lines that eddy prints, read as what they make and grant."""

import re
from typing import NamedTuple

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from eddy.connectors.log import TopicSpec

USER = "eddy"
"""To whom it is granted: $USER in the lines."""


def created_by(text: str) -> list[TopicSpec]:
    """What the lines `kafka-topics.sh --create` in a text make."""
    found = []
    for line in text.splitlines():
        if "kafka-topics.sh" in line:
            (name,) = re.findall(r"--topic (\S+)", line)
            (partitions,) = re.findall(r"--partitions (\d+)", line)
            configs = dict(pair.split("=", 1) for pair in re.findall(r"--config (\S+)", line))
            found.append(TopicSpec(name, int(partitions), configs))
    return found


RESOURCES = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
}


class Grant(NamedTuple):
    """One operation on one resource, as `kafka-acls.sh` is told."""

    resource: str
    name: str
    prefixed: bool
    operation: str

    def binding(self) -> AclBinding:
        """The same for the admin client."""
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        operation = AclOperation[re.sub(r"(?<!^)(?=[A-Z])", "_", self.operation).upper()]
        where = (RESOURCES[self.resource], self.name, pattern, f"User:{USER}", "*")
        return AclBinding(*where, operation, AclPermissionType.ALLOW)


def granted_by(text: str) -> list[Grant]:
    """What the lines `kafka-acls.sh --add` in a text grant."""
    found = []
    for line in text.splitlines():
        if "kafka-acls.sh" in line:
            ((resource, name),) = re.findall(r"(--topic|--group|--transactional-id) (\S+)", line)
            prefixed = "--resource-pattern-type prefixed" in line
            found += [
                Grant(resource, name, prefixed, operation) for operation in re.findall(r"--operation (\S+)", line)
            ]
    return found
