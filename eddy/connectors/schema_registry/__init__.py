"""Serdes of a schema registry; the only package that imports confluent-kafka's client for registries."""

from eddy.errors import ConfigurationError

try:
    from eddy.connectors.schema_registry.registry import SchemaRegistry
except ImportError as error:
    if (error.name or "").partition(".")[0] == "eddy":
        raise
    raise ConfigurationError(
        f"schema registry: {error.name} is not installed; the extra 'schema-registry' is needed. "
        "pip install 'eddy-streams[schema-registry]'"
    ) from error

__all__ = ["SchemaRegistry"]
