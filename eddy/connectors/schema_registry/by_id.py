"""Records of a schema registry as JSON data, if the program has no schema: each record is read by the schema of its id.

Values are written by the latest schema of their subject. Avro's bytes are base64 text, and its dates, times, decimals
and UUIDs are text. If a union has several records, a record in it is a list [name, fields].
"""

import base64
import datetime
import decimal
import json
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from eddy.connectors.schema_registry.avro_values import has_several_records
from eddy.connectors.schema_registry.client import Settings, client_of, registry_errors
from eddy.connectors.schema_registry.schema_ids import (
    HEAD_BYTES,
    MAGIC,
    checked,
    end_of_guid,
    end_of_place,
    guid_first,
    varints,
)
from eddy.connectors.schema_registry.stored_form import to_json
from eddy.serde import Part

__all__ = ["TopicById"]

_READING = {"validate": False}  # the writer has validated the value


class TopicById:
    """Decodes and encodes the keys or the values of one topic.

    With `by_guid` encoded data begins with its schema's GUID.
    """

    def __init__(self, settings: Settings, topic: str, part: Part, by_guid: bool = False) -> None:
        self._client, self._subject = client_of(settings), f"{topic}-{part}"
        self._where = f"topic '{topic}': subject '{self._subject}'"
        self._context = SerializationContext(topic, MessageField.KEY if part == "key" else MessageField.VALUE)
        self._options = {"subject.name.strategy": lambda context, record: self._subject}
        self._by_guid, self._end = by_guid, end_of_guid
        self._readers: dict[bytes, Callable[[bytes], Any]] = {}
        self._writer: Callable[[Any], bytes] | None = None

    def decode(self, data: bytes) -> Any:
        """Decode a value to JSON data.

        Raises: ConnectorError; UnknownSchemaError; any exception for bytes that do not fit the schema of their id.
        """
        head = data[: HEAD_BYTES.get(data[0], 0) if data else 0]
        if not head or len(data) < HEAD_BYTES[head[0]]:
            raise ValueError("it does not begin with a zero byte and the id of a schema")
        with registry_errors(self._where, reads=True):
            reader = self._readers.get(head)
            if reader is None:
                reader = self._readers[head] = self._reader(head)
            return reader(data)

    def encode(self, value: Any) -> bytes:
        """Encode JSON data by the latest schema of the subject.

        Raises: ConnectorError; any exception for data that does not fit the schema.
        """
        with registry_errors(self._where):
            if self._writer is None:
                self._writer = self._latest_writer(self._client.get_latest_version(self._subject))
            return self._writer(value)

    def id_end(self, data: bytes) -> int:
        """Return the offset after the GUID at the beginning of encoded data."""
        return self._end(data)

    def _schema(self, head: bytes, fmt: str | None = None) -> Schema:
        if head[0] == MAGIC:
            return self._client.get_schema(int.from_bytes(head[1:], "big"), self._subject if fmt else None, fmt)
        return self._client.get_schema_by_guid(str(uuid.UUID(bytes=head[1:])), fmt)

    def _reader(self, head: bytes) -> Callable[[bytes], Any]:
        context, schema = self._context, self._schema(head)
        if schema.schema_type == "PROTOBUF":
            return _ProtobufSchema(self._client, self._schema(head, "serialized")).decode
        if schema.schema_type == "JSON":
            as_json = JSONDeserializer(
                None, None, self._client, {**self._options, **_READING}, json_decode=msgspec.json.decode
            )
            return lambda data: as_json(data, context)
        pairs = has_several_records(json.loads(schema.schema_str or "null"))
        as_avro = AvroDeserializer(self._client, None, None, pairs, self._options)
        return lambda data: msgspec.to_builtins(as_avro(data, context))

    def _latest_writer(self, latest: RegisteredSchema) -> Callable[[Any], bytes]:
        context, schema = self._context, latest.schema
        assert schema is not None
        assert latest.schema_id is not None
        if schema.schema_type == "PROTOBUF":
            serialized = self._client.get_schema(latest.schema_id, self._subject, fmt="serialized")
            head = bytes([MAGIC]) + latest.schema_id.to_bytes(4, "big")
            if self._by_guid:
                head, self._end = b"\1" + uuid.UUID(checked(latest.guid)).bytes, end_of_place
            return partial(_ProtobufSchema(self._client, serialized).encode, head)
        options = {**self._options, "auto.register.schemas": False, "use.latest.version": True}
        if self._by_guid:
            options["schema.id.serializer"] = guid_first
        if schema.schema_type == "JSON":
            as_json = JSONSerializer(schema, self._client, None, options, json_encode=to_json)
            return lambda value: as_json(value, context)
        of_json = _FromJson()
        parsed = json.loads(schema.schema_str or "null")
        as_avro = AvroSerializer(self._client, None, None, {**options, "validate.strict.allow.default": True})
        return lambda value: as_avro(of_json.value(parsed, value), context)


class _FromJson:
    """Converts JSON data to the values that fastavro writes."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def value(self, schema: Any, given: Any) -> Any:
        """Convert JSON data to a value of a schema. Raises: ValueError for a wrong text of a logical type."""
        if isinstance(schema, list):
            return self._of_union(schema, given)
        if not isinstance(schema, Mapping):
            if schema in self._named:
                return self.value(self._named[schema], given)
            return base64.b64decode(given) if schema == "bytes" and isinstance(given, str) else given
        if "logicalType" in schema and isinstance(given, str):
            return _logical(str(schema["logicalType"]), given)
        match schema["type"]:
            case "record" if isinstance(given, Mapping):
                self._named[schema["name"]] = schema
                kinds = {field["name"]: field["type"] for field in schema["fields"]}
                return {name: self.value(kinds[name], x) if name in kinds else x for name, x in given.items()}
            case "array" if isinstance(given, list):
                return [self.value(schema["items"], item) for item in given]
            case "map" if isinstance(given, Mapping):
                return {name: self.value(schema["values"], item) for name, item in given.items()}
            case "fixed" if isinstance(given, str):
                return base64.b64decode(given)
            case "record" | "array" | "map" | "enum" | "fixed":
                return given
            case kind:
                return self.value(kind, given)

    def _of_union(self, schema: list[Any], given: Any) -> Any:
        parts = [part for part in schema if part != "null"]
        if given is None or len(parts) != 1:
            match given:
                case [str(name), dict(fields)]:
                    return name, fields
            return given
        return self.value(parts[0], given)


def _logical(kind: str, text: str) -> Any:
    if "timestamp" in kind:
        return datetime.datetime.fromisoformat(text)
    if kind.startswith("time-"):
        return datetime.time.fromisoformat(text)
    reads: dict[str, Callable[[str], Any]] = {
        "date": datetime.date.fromisoformat,
        "decimal": decimal.Decimal,
        "uuid": uuid.UUID,
    }
    return reads.get(kind, str)(text)


class _ProtobufSchema:
    """Messages of one Protobuf schema, as registries serialize it: a file's descriptor in base64.

    After the schema id a record has the place of its message type: 0 for the first, or the number of indexes and the
    indexes of nested types, as zigzag varints.
    """

    def __init__(self, client: SchemaRegistryClient, schema: Schema) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        self._file = self._added(client, schema, "")

    def _added(self, client: SchemaRegistryClient, schema: Schema, name: str) -> Any:
        """Add the files of a schema to the pool, after the files that it imports."""
        for reference in schema.references or ():
            assert reference.subject is not None
            assert reference.version is not None
            found = client.get_version(reference.subject, reference.version, True, fmt="serialized").schema
            assert found is not None
            self._added(client, found, reference.name or "")
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.schema_str or "", validate=True))
        file.name = name or file.name or "default"
        for imported in file.dependency:
            self._add_known(imported)
        self._pool.Add(file)
        return file

    def _add_known(self, name: str) -> None:
        """Add one of Google's standard files to the pool, unless the schema's references have the file."""
        try:
            self._pool.FindFileByName(name)
        except KeyError:
            file = descriptor_pb2.FileDescriptorProto()
            descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
            for imported in file.dependency:
                self._add_known(imported)
            self._pool.Add(file)

    def _type(self, indexes: list[int]) -> Any:
        kinds, path = self._file.message_type, []
        for index in indexes:
            path.append(kinds[index].name)
            kinds = kinds[index].nested_type
        full = ".".join([*filter(None, [self._file.package]), *path])
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(full))

    def decode(self, data: bytes) -> Any:
        numbers = varints(data, HEAD_BYTES[data[0]])
        count, end = next(numbers)
        indexes = []
        for _ in range(count):
            index, end = next(numbers)
            indexes.append(index)
        message = self._type(indexes or [0]).FromString(data[end:])
        return json_format.MessageToDict(message, preserving_proto_field_name=True)

    def encode(self, head: bytes, value: Any) -> bytes:
        """Encode a message of the schema's first type. `head` has the id of the schema, which precedes the message."""
        message = json_format.ParseDict(value, self._type([0])())
        return head + b"\0" + bytes(message.SerializeToString())
