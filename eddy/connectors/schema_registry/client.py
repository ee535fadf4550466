"""The client of a schema registry, one for each process and settings, and its errors in eddy's terms.

    no connection, a timeout, 5xx, 408, 429    ConnectorError, retriable: the worker tries again, and blames no record
    401, 403, 409, 422, another 404            ConfigurationError: somebody has to act
    a record's schema id is unknown            UnknownSchemaError: the error policy decides about the record

A process keeps the schemas that it has seen, by their ids. So an outage of the registry stops the process only at a
schema that is new to it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.error import OAuthTokenError

from eddy.errors import ConfigurationError, ConnectorError, EddyError, UnknownSchemaError
from eddy.serde import Part

__all__ = ["Settings", "client_of", "id_header", "registry_errors"]

Settings = tuple[tuple[str, Any], ...]
"""The settings of a client, sorted by name."""

_DEFAULTS: dict[str, Any] = {"timeout": 10, "max.retries": 3, "retries.wait.ms": 250, "retries.max.wait.ms": 2_000}
"""The time limits of a call, and the number of its attempts. By default the client would wait for ever.

If no registry listens, the attempts take about a second, so that a worker does not try again at once.
"""
_UNKNOWN = frozenset({40400, 40401, 40402, 40403})
"""Error codes for an unknown schema, subject or version; 40400 is the code of the client's `mock://` registry."""


def id_header(part: Part) -> str:
    """Return the header in which confluent-kafka's `header_schema_id_serializer` writes the schema id of a part."""
    return f"__{part}_schema_id"


@cache
def client_of(settings: Settings) -> SchemaRegistryClient:
    """Return the process's client with these settings. Raises: ConfigurationError for a setting that it refuses."""
    try:
        return SchemaRegistryClient.new_client({**_DEFAULTS, **dict(settings)})
    except (ValueError, TypeError, OSError) as error:
        raise ConfigurationError(
            f"schema registry: {error}; settings of confluent-kafka's SchemaRegistryClient are needed. "
            "Write: eddy.SchemaRegistry('http://127.0.0.1:8081')"
        ) from error


@contextmanager
def registry_errors(where: str, reads: bool = False) -> Iterator[None]:
    """Turn the registry's errors in the block into eddy's; errors of other origin pass unchanged.

    `where` is the subject of the errors. `reads`: the block reads a record, so an unknown id is the record's fault.

    Raises: ConnectorError, ConfigurationError or UnknownSchemaError.
    """
    try:
        yield
    except EddyError:
        raise
    except Exception as error:
        found = _translated(error, where, reads)
        if found is None:
            raise
        raise found from error


def _translated(error: Exception, where: str, reads: bool) -> EddyError | None:
    if isinstance(error, SchemaRegistryError):
        return _of_answer(error, where, reads)
    if isinstance(error, OAuthTokenError) or _is_transport(error):
        return ConnectorError(
            f"{where}: the schema registry does not answer: {error or type(error).__name__}; it is needed for a schema "
            "that this process has not seen yet",
            retriable=True,
        )
    return None


def _is_transport(error: Exception) -> bool:
    """Whether a request failed before its answer. The client's HTTP library is httpx or httpx2, whichever it finds."""
    return any(cls.__name__ == "TransportError" and cls.__module__.startswith("httpx") for cls in type(error).__mro__)


def _of_answer(error: SchemaRegistryError, where: str, reads: bool) -> EddyError:
    status, code, text = error.http_status_code, error.error_code, error.error_message
    said = f"{where}: the schema registry answered {status} ({code}): {text}"
    if status >= 500 or status in (408, 429):
        return ConnectorError(f"{said}; it has to serve schemas", retriable=True)
    if status in (401, 403):
        return ConfigurationError(
            f"{said}; a user with the right to it is needed. Name one: eddy.SchemaRegistry(url, user='NAME:PASSWORD')"
        )
    if status == 409:
        return ConfigurationError(
            f"{said}; a schema that is compatible with the subject's versions is needed. Give new fields defaults, or "
            "change the subject's compatibility"
        )
    if status == 404 and code in _UNKNOWN:
        if reads:
            return UnknownSchemaError(f"{said}; the registry in which its writer has registered the schema is needed")
        return ConfigurationError(f"{said}; it has to be registered. Register it, or allow it: register=True")
    return ConfigurationError(
        f"{said}; a schema registry that accepts this is needed. Check its address and the schema"
    )
