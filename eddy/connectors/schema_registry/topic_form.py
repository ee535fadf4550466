"""The form of values in users' topics: Confluent's wire format, by confluent-kafka's own serializers.

    0 (1 byte)  schema id (4 bytes, big-endian)  payload        as they are written
    1 (1 byte)  schema GUID (16 bytes)           payload        also read, and written where ids are in headers

A record that has its schema's GUID in the header `__key_schema_id` or `__value_schema_id` is read as if its data began
with the GUID. `Serde.ids_apart` moves the GUID into the header when the record is written.
The schema is registered, or looked up, when the first value is written. A value is read by the schema of its id, and
converted to the schema of the program.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from confluent_kafka.schema_registry import Schema, SchemaReference
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from eddy.connectors.schema_registry.avro_values import (
    bytes_defaults,
    check_of,
    has_arrays_in_unions,
    has_several_records,
    listed,
)
from eddy.connectors.schema_registry.client import Settings, client_of, id_header, registry_errors
from eddy.connectors.schema_registry.schema_ids import end_of_guid, end_of_place, guid_first
from eddy.connectors.schema_registry.stored_form import LOGICAL, StoredForm, to_json
from eddy.serde import Part, Serde

__all__ = ["References", "Registration", "avro_form", "json_form", "protobuf_form"]

References = tuple[tuple[str, str, int], ...]
"""Names in a schema, each with the subject and version that define it."""
_Function = Callable[[Any, SerializationContext], Any]
_FIELDS = {"key": MessageField.KEY, "value": MessageField.VALUE}


@dataclass(frozen=True, slots=True)
class Registration:
    """How a serde names and registers its schema. A `subject` of None means `<topic>-key` or `<topic>-value`.

    With `by_guid` data is written after the GUID of its schema, and the GUID is then moved into a header.
    """

    settings: Settings
    subject: str | None
    register: bool
    by_guid: bool = False

    def subject_of(self, topic: str, part: Part) -> str:
        """Return the subject of a topic's keys or values."""
        return self.subject or f"{topic}-{part}"

    def options(self, subject: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings of a serializer, and the settings of a deserializer."""
        reading = {"subject.name.strategy": lambda context, record: subject}
        writing = {**reading, "auto.register.schemas": self.register}
        return writing | ({"schema.id.serializer": guid_first} if self.by_guid else {}), reading

    def id_end(self, found: Callable[[bytes], int]) -> Callable[[bytes], int] | None:
        """As `Serde.id_end`."""
        return found if self.by_guid else None


class _Confluent:
    """A serializer and a deserializer of confluent-kafka for one topic; each is made at its first use."""

    def __init__(
        self,
        where: str,
        context: SerializationContext,
        writer: Callable[[], _Function],
        reader: Callable[[], _Function],
    ) -> None:
        self._where, self._context = where, context
        self._new_writer, self._new_reader = writer, reader
        self._writer: _Function | None = None
        self._reader: _Function | None = None

    def encode(self, value: Any) -> bytes:
        """Encode a value. Raises: ConnectorError; ConfigurationError; any exception for a value that does not fit."""
        writer = self._writer
        try:
            if writer is None:
                writer = self._writer = self._new_writer()
            return writer(value, self._context)  # type: ignore[no-any-return]
        except Exception as error:
            with registry_errors(self._where):
                raise error

    def decode(self, data: bytes) -> Any:
        """Decode a value. Raises: ConnectorError; UnknownSchemaError; any exception for bytes that do not fit."""
        reader = self._reader
        try:
            if reader is None:
                with registry_errors(self._where):  # the reader looks up references of the program's schema
                    reader = self._reader = self._new_reader()
            return reader(data, self._context)
        except Exception as error:
            with registry_errors(self._where, reads=True):
                raise error


def _serde(
    name: str,
    type: Any,
    hashable: bool,
    stored: StoredForm,
    confluent: _Confluent,
    part: Part,
    normal: Callable[[Any], Any] | None,
    id_end: Callable[[bytes], int] | None,
) -> Serde[Any]:
    """Make the serde of a topic. `normal` turns equal keys into one value, so that they have equal bytes."""
    encode = confluent.encode
    if part == "key" and normal is not None:
        made_normal, write = normal, confluent.encode

        def encode(value: Any) -> bytes:
            return write(made_normal(value))

    return Serde(
        *(name, encode, confluent.decode, hashable, stored.identify, type),
        canonical=True,
        id_header=id_header(part),
        id_end=id_end,
    )


def _schema(text: str, kind: str, references: References) -> Schema:
    return Schema(text, kind, [SchemaReference(name, subject, version) for name, subject, version in references])


def avro_form(
    serde: Serde[Any],
    stored: StoredForm,
    text: str,
    references: References,
    registration: Registration,
    topic: str,
    part: Part,
) -> Serde[Any]:
    """Return the serde of a topic for Avro. Values of a type are converted to dicts and back.

    Fields that the schema does not have are an error.
    """
    subject, schema, parsed = registration.subject_of(topic, part), _schema(text, "AVRO", references), json.loads(text)
    write_options, read_options = registration.options(subject)
    record = serde.type if serde.type is not None and serde.type not in SCALARS else None
    write_options["validate.strict.allow.default"] = record is None
    to_dict, from_dict = _avro_writer(record, parsed), _avro_reader(record, parsed)
    confluent = _Confluent(
        f"topic '{topic}': subject '{subject}'",
        SerializationContext(topic, _FIELDS[part]),
        lambda: AvroSerializer(client_of(registration.settings), schema, to_dict, write_options),
        lambda: AvroDeserializer(
            client_of(registration.settings), schema, from_dict, has_several_records(parsed), read_options
        ),
    )
    normal = None if record is None else (lambda value: stored.decode(stored.encode(value)))
    id_end = registration.id_end(end_of_guid)
    return _serde(serde.name, serde.type, serde.hashable, stored, confluent, part, normal, id_end)


def _avro_writer(record: Any, parsed: Any) -> _Function | None:
    """Return a function that checks values by the schema, and converts values of the type `record` to dicts.

    Returns None if no check and no conversion is needed.
    """
    check, has_lists = check_of(parsed), has_arrays_in_unions(parsed)

    def of_record(value: Any, context: SerializationContext) -> Any:
        if not isinstance(value, record):
            raise TypeError(f"{value!r} is not a valid {record.__name__}")
        made = msgspec.to_builtins(value, builtin_types=LOGICAL)
        if has_lists:
            made = listed(made)
        if check is not None:
            check(made)
        return made

    def checked(value: Any, context: SerializationContext) -> Any:
        if check is not None:
            check(value)
        return value

    if record is not None:
        return of_record
    return None if check is None else checked


def _avro_reader(record: Any, parsed: Any) -> _Function | None:
    """Return a function that turns text defaults of bytes into bytes, and converts dicts to the type `record`.

    Returns None if no conversion is needed.
    """
    mend = bytes_defaults(parsed)
    if record is None and mend is None:
        return None

    def read(value: Any, context: SerializationContext) -> Any:
        value = value if mend is None else mend(value)
        return value if record is None else msgspec.convert(value, record, builtin_types=LOGICAL)

    return read


SCALARS = frozenset({str, bytes, int, float, bool})
"""The types of values whose schema is not a record."""


def json_form(
    serde: Serde[Any],
    stored: StoredForm,
    text: str,
    references: References,
    registration: Registration,
    topic: str,
    part: Part,
) -> Serde[Any]:
    """Return the serde of a topic for JSON Schema. Values are checked when they are written and when they are read."""
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    subject, schema, type = registration.subject_of(topic, part), _schema(text, "JSON", references), serde.type
    write_options, read_options = registration.options(subject)

    def to_dict(value: Any, context: SerializationContext) -> Any:
        if not isinstance(value, type):
            raise TypeError(f"{value!r} is not a valid {type.__name__}")
        return msgspec.json.decode(to_json(value))  # the validator accepts only lists as arrays, no tuples

    def from_dict(value: Any, context: SerializationContext) -> Any:
        return msgspec.convert(value, type)

    confluent = _Confluent(
        f"topic '{topic}': subject '{subject}'",
        SerializationContext(topic, _FIELDS[part]),
        lambda: JSONSerializer(
            schema,
            client_of(registration.settings),
            None if type is None else to_dict,
            write_options,
            json_encode=to_json,
        ),
        lambda: JSONDeserializer(
            schema,
            None if type is None else from_dict,
            client_of(registration.settings),
            read_options,
            json_decode=msgspec.json.decode,
        ),
    )
    normal, id_end = lambda value: stored.decode(stored.encode(value)), registration.id_end(end_of_guid)
    return _serde(serde.name, type, serde.hashable, stored, confluent, part, normal, id_end)


def protobuf_form(
    serde: Serde[Any], stored: StoredForm, registration: Registration, topic: str, part: Part
) -> Serde[Any]:
    """Return the serde of a topic for Protobuf messages. Files that the message's file imports become references."""
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    subject = registration.subject_of(topic, part)
    write_options, read_options = registration.options(subject)
    confluent = _Confluent(
        f"topic '{topic}': subject '{subject}'",
        SerializationContext(topic, _FIELDS[part]),
        lambda: ProtobufSerializer(serde.type, client_of(registration.settings), write_options),
        lambda: ProtobufDeserializer(serde.type, read_options, client_of(registration.settings)),
    )
    id_end = registration.id_end(end_of_place)
    return _serde(serde.name, serde.type, serde.hashable, stored, confluent, part, None, id_end)
