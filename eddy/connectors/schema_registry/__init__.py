"""Serdes of a schema registry; the only place that imports confluent-kafka's client of it."""

from eddy.connectors.schema_registry.registry import SchemaRegistry

__all__ = ["SchemaRegistry"]
