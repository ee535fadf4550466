"""Finds the types of a topic's records, as an application reads or writes them, for `eddy consume --of`."""

from typing import Any, NoReturn

from eddy.cli.fields import FIELD_TYPES, FieldType, json_type
from eddy.connectors.log import Log
from eddy.errors import ConfigurationError
from eddy.runtime.matching_topics import find_topics
from eddy.serde import Part, Plain, Serde
from eddy.tables.catalog import readable_serdes
from eddy.topology.compiler.circuit_compiler import sink_serdes
from eddy.topology.topology import Topology

__all__ = ["types_in"]


def types_in(topology: Topology, topic: str, log: Log) -> tuple[FieldType, FieldType]:
    """Return the types of the keys and the values of one of an application's topics.

    Raises: ConfigurationError if the application neither reads nor writes the topic.
    """
    plan = topology.plan
    find_topics(topology, log)
    pairs = {node.topic: (node.topic_key, node.topic_value) for node in (*plan.sources(), *plan.global_tables())}
    for sink, serdes in sink_serdes(plan, {source.topic: 1 for source in plan.sources()}).items():
        pairs.setdefault(sink.topic, readable_serdes(sink, *serdes))
    if topic not in pairs:
        raise ConfigurationError(
            f"topic '{topic}': application '{topology.name}' does not read or write it; one of its topics is needed: "
            f"{', '.join(sorted(pairs))}. Or name types: --key-type …, --value-type …"
        )
    key, value = pairs[topic]
    return _type_of(topic, "key", key), _type_of(topic, "value", value)


def _type_of(topic: str, part: Part, serde: Serde[Any]) -> FieldType:
    """Return the command line's type for a serde; if there is none, a type whose values are written as JSON."""
    if serde is Plain:
        refusing = Serde(serde.name, serde.encode, lambda data: _refuse(topic, part))
        return json_type(refusing)
    return next((found for found in FIELD_TYPES.values() if found.serde is serde), None) or json_type(serde)


def _refuse(topic: str, part: Part) -> NoReturn:
    raise ConfigurationError(
        f"topic '{topic}': the topology names no serde for its {part}s, and their bytes do not tell their type; one is "
        f"needed. Write .to('{topic}', {part}=…), or name it: --{part}-type int64"
    )
