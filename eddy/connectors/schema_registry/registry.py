"""Serdes of a schema registry: Avro, JSON Schema and Protobuf.

    registry = eddy.SchemaRegistry("http://127.0.0.1:8081")
    people = topology.table("people", key=eddy.String, value=registry.avro(Person))

In users' topics values have Confluent's wire format (`topic_form`). In states and internal topics they have a form of
their own that needs no registry (`stored_form`), so that no schemas of internal topics are registered (docs/adr/0057).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import fastavro
import msgspec
from fastavro.schema import SchemaParseException, UnknownType

from eddy.connectors.schema_registry import stored_form, topic_form
from eddy.connectors.schema_registry.avro_types import check_type, record_name, schema_of
from eddy.connectors.schema_registry.avro_values import has_several_records
from eddy.connectors.schema_registry.client import Settings
from eddy.connectors.schema_registry.stored_form import StoredForm
from eddy.connectors.schema_registry.topic_form import References, Registration
from eddy.errors import ConfigurationError, TopologyError
from eddy.serde import Part, Serde

__all__ = ["SchemaRegistry"]

_SCALARS: dict[str, type] = {
    "string": str, "bytes": bytes, "int": int, "long": int, "float": float, "double": float, "boolean": bool,
}  # fmt: skip


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry with Confluent's API at `url`; several URLs are separated by commas.

    No request is sent before the first record. A serde registers its schema when it writes the first value to a topic.
    It requests a schema when it reads the first record with the schema's id.

    Args:
        url: its address; `mock://name` is a registry in this process, for tests.
        user: `NAME:PASSWORD` for HTTP Basic authentication.
        settings: further settings of confluent-kafka's `SchemaRegistryClient`, such as `{"ssl.ca.location": "ca.pem"}`.
            By default a request ends after 10 seconds and is repeated three times.
        ids_in_headers: whether the id of a schema is written into a header of the record, rather than before the data:
            the GUID, in `__key_schema_id` or `__value_schema_id`. Records of either form are read.
    """

    url: str
    user: str | None = None
    settings: Mapping[str, Any] | None = None
    ids_in_headers: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not self.url.startswith(("http://", "https://", "mock://")):
            raise TopologyError(
                f"SchemaRegistry: url={self.url!r}; an address is needed. Write: "
                "eddy.SchemaRegistry('http://127.0.0.1:8081')"
            )
        if self.user is not None and (not isinstance(self.user, str) or ":" not in self.user):
            raise TopologyError("SchemaRegistry: user= has no colon; 'NAME:PASSWORD' is needed")
        if not isinstance(self.ids_in_headers, bool):
            raise TopologyError(f"SchemaRegistry: ids_in_headers={self.ids_in_headers!r}; True or False is needed")
        settings = {} if self.settings is None else self.settings
        plain = isinstance(settings, Mapping) and all(isinstance(x, str | int | float) for x in settings.values())
        if not plain:
            raise TopologyError(
                f"SchemaRegistry: settings={self.settings!r}; a dict of texts and numbers is needed. "
                "Write: settings={'ssl.ca.location': 'ca.pem'}"
            )

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.url.rpartition('@')[2]!r})"

    @property
    def client_settings(self) -> Settings:
        """The settings of the registry's client."""
        user = {} if self.user is None else {"basic.auth.user.info": self.user}
        return tuple(sorted({**(self.settings or {}), **user, "url": self.url}.items()))

    def registration(self, subject: str | None, register: bool) -> Registration:
        """Return how a serde of this registry names and registers its schema, and writes the schema's id."""
        return Registration(self.client_settings, subject, register, self.ids_in_headers)

    def avro(
        self,
        schema: Any,
        type: Any = None,
        *,
        name: str | None = None,
        subject: str | None = None,
        register: bool = True,
        references: Mapping[str, tuple[str, int]] | None = None,
    ) -> Serde[Any]:
        """Return a serde of Avro records: dicts, or values of a `msgspec.Struct` or a dataclass, hashable if frozen.

        Args:
            schema: the program's schema: a Struct or dataclass, whose schema is made from its fields; a file,
                `pathlib.Path` or text that ends in `.avsc`; or the schema as text or JSON data.
            type: the type of values, if `schema` is not one; its fields are checked against the schema.
            name: the full name of the schema that is made of a type, such as `com.example.Person`; by default the
                type's. Avro reads a record only by a schema with the same last part of the name.
            subject: the subject of the schema in the registry; by default `<topic>-key` or `<topic>-value`.
            register: whether the schema is registered; False looks it up, so it has to be registered already.
            references: names that the schema uses, each with the subject and version that define it.

        Raises: TopologyError for a schema that is none, or that does not fit the type.
        """
        if _is_type(schema):
            if type is not None:
                raise TopologyError(f"registry.avro: type={type!r} besides the type {schema!r}; one is needed")
            schema, type, where = json.dumps(schema_of(schema, name)), schema, schema.__name__
        elif name is not None:
            raise TopologyError(f"registry.avro: name={name!r} besides a schema, which has a name; one is needed")
        else:
            schema, where = _text("avro", schema, ".avsc")
        given = _given("avro", self, subject, register, references)
        return _avro(schema, _checked_type("avro", type), where, *given)

    def json(
        self,
        schema: Any,
        type: Any = None,
        *,
        subject: str | None = None,
        register: bool = True,
        references: Mapping[str, tuple[str, int]] | None = None,
    ) -> Serde[Any]:
        """Return a serde of JSON that is checked against a JSON Schema: JSON data, or values of a Struct or dataclass.

        The arguments are those of `avro` with the same names; files end in `.json`. Raises: TopologyError.
        """
        if _is_type(schema):
            if type is not None:
                raise TopologyError(f"registry.json: type={type!r} besides the type {schema!r}; one is needed")
            schema, type = _json_schema(schema), schema
        else:
            schema, _ = _text("json", schema, ".json")
        given = _given("json", self, subject, register, references)
        return _json(schema, _checked_type("json", type), *given)

    def protobuf(self, message: Any, *, subject: str | None = None, register: bool = True) -> Serde[Any]:
        """Return a serde of Protobuf messages of a class that protoc has generated.

        Messages are mutable, so they can be neither rows of relations nor keys. Files that the message's file imports
        are registered, too, under their names. Raises: TopologyError.
        """
        if not (isinstance(message, type) and hasattr(message, "DESCRIPTOR") and hasattr(message, "FromString")):
            raise TopologyError(
                f"registry.protobuf: {message!r} is not a message; a class that protoc has generated is needed. "
                "Write: registry.protobuf(person_pb2.Person)"
            )
        registry, subject, register, _ = _given("protobuf", self, subject, register, None)
        return _protobuf(message, registry, subject, register)


def _avro(
    text: str,
    type: Any,
    where: str,
    registry: SchemaRegistry,
    subject: str | None,
    register: bool,
    references: References,
) -> Serde[Any]:
    schema = _parsed("avro", text)
    if isinstance(schema, str):  # the client reads the name of a scalar's schema from its type
        schema, text = {"type": schema}, json.dumps({"type": schema})
    _check_avro(schema, where, references)
    name = record_name(schema)
    if type is None:
        type = _SCALARS.get(name) if not isinstance(schema, list) else None
    else:
        if has_several_records(schema):
            raise TopologyError(
                f"registry.avro: the schema {name} has a union of several records, whose values are pairs (name, "
                "dict); a schema without it is needed for a type. Omit the type"
            )
        check_type(schema, type)
    marks = bool(references) or "logicalType" in text or has_several_records(schema)
    stored = stored_form.of_type(type) if type is not None else stored_form.of_dicts(marks)
    named = f"avro({name})"
    made = (text, type if _is_type(type) else None, where, registry, subject, register, references)
    form = partial(topic_form.avro_form, stored=stored, text=text, references=references)
    return _serde(named, type, stored, (_avro, made), form, registry.registration(subject, register))


def _json(
    text: str, type: Any, registry: SchemaRegistry, subject: str | None, register: bool, references: References
) -> Serde[Any]:
    try:
        from jsonschema import SchemaError
        from jsonschema.validators import validator_for
    except ImportError as error:
        raise ConfigurationError(
            f"registry.json: {error.name} is not installed; the extra 'schema-registry' is needed. "
            "pip install 'eddy-streams[schema-registry]'"
        ) from error

    schema = _parsed("json", text)
    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        raise TopologyError(
            f"registry.json: the schema is not a JSON Schema: {error.message}; a schema of JSON Schema is needed"
        ) from error
    title = schema.get("title") if isinstance(schema, Mapping) else None
    named = f"json-schema({type.__name__ if type is not None else title or 'any'})"
    stored = stored_form.of_json(type)
    made = (text, type, registry, subject, register, references)
    form = partial(topic_form.json_form, stored=stored, text=text, references=references)
    return _serde(named, type, stored, (_json, made), form, registry.registration(subject, register))


def _protobuf(message: Any, registry: SchemaRegistry, subject: str | None, register: bool) -> Serde[Any]:
    named, stored = f"protobuf({message.DESCRIPTOR.full_name})", stored_form.of_messages(message)
    made = (message, registry, subject, register)
    form = partial(topic_form.protobuf_form, stored=stored)
    return _serde(named, message, stored, (_protobuf, made), form, registry.registration(subject, register))


def _serde(
    name: str,
    type: Any,
    stored: StoredForm,
    recipe: tuple[Callable[..., Any], tuple[Any, ...]],
    form: Callable[..., Serde[Any]],
    registration: Registration,
) -> Serde[Any]:
    """Make the serde of states and internal topics, which has the serdes of users' topics in it."""
    hashable = _is_hashable(type)
    plain = Serde(name, stored.encode, stored.decode, hashable, stored.identify, type)

    @cache
    def topic_form(topic: str, part: Part) -> Serde[Any]:
        found = form(plain, registration=registration, topic=topic, part=part)
        # In another process this serde is made anew from the serde of states.
        object.__setattr__(found, "recipe", (_in_topic, (serde, topic, part)))
        return found

    serde = Serde(name, stored.encode, stored.decode, hashable, stored.identify, type, recipe, topic_form=topic_form)
    return serde


def _in_topic(serde: Serde[Any], topic: str, part: Part) -> Serde[Any]:
    return serde.in_topic(topic, part)


def _is_type(given: Any) -> bool:
    return isinstance(given, type) and (issubclass(given, msgspec.Struct) or is_dataclass(given))


def _is_hashable(type: Any) -> bool:
    """Whether values of a type can be rows of relations and keys."""
    if isinstance(type, msgspec.StructMeta):
        return type.__struct_config__.frozen
    if is_dataclass(type):
        return bool(cast("Any", type).__dataclass_params__.frozen)
    return type in _SCALARS.values()


def _checked_type(what: str, type: Any) -> Any:
    if type is not None and not _is_type(type):
        raise TopologyError(f"registry.{what}: type={type!r}; a msgspec.Struct, a dataclass or None is needed")
    return type


def _given(
    what: str,
    registry: SchemaRegistry,
    subject: str | None,
    register: bool,
    references: Mapping[str, tuple[str, int]] | None,
) -> tuple[SchemaRegistry, str | None, bool, References]:
    """Check the arguments that all serdes have, and return them. Raises: TopologyError."""
    if subject is not None and not (isinstance(subject, str) and subject):
        raise TopologyError(f"registry.{what}: subject={subject!r}; the name of a subject is needed")
    if not isinstance(register, bool):
        raise TopologyError(f"registry.{what}: register={register!r}; True or False is needed")
    found = []
    for name, place in (references or {}).items():
        match place:
            case (str(of), int(version)):
                found.append((name, of, version))
            case _:
                raise TopologyError(
                    f"registry.{what}: references[{name!r}]={place!r}; a subject and a version are needed. "
                    "Write: references={'com.example.Address': ('address-value', 1)}"
                )
    return registry, subject, register, tuple(found)


def _text(what: str, schema: Any, ending: str) -> tuple[str, str]:
    """Return a schema as text, and its origin, which errors name. Raises: TopologyError."""
    if isinstance(schema, str) and schema.strip().endswith(ending) and "{" not in schema:
        schema = Path(schema.strip())
    if isinstance(schema, Path):
        try:
            return schema.read_text(encoding="utf-8"), str(schema)
        except (OSError, UnicodeDecodeError) as error:
            raise TopologyError(
                f"registry.{what}: the schema {schema} cannot be read: {error}; a file is needed"
            ) from error
    if isinstance(schema, str):
        return (schema if schema.lstrip()[:1] in '{["tf' and schema.strip() else json.dumps(schema)), "the schema"
    if isinstance(schema, dict | list):
        return json.dumps(schema), "the schema"
    raise TopologyError(
        f"registry.{what}: {schema!r} is not a schema; a msgspec.Struct, a dataclass, a file, or text is needed. "
        f"Write: registry.{what}(Person), or registry.{what}('person{ending}')"
    )


def _parsed(what: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise TopologyError(f"registry.{what}: the schema is not JSON: {error}; a schema as JSON is needed") from error


def _check_avro(schema: Any, where: str, references: References) -> None:
    try:
        fastavro.parse_schema(json.loads(json.dumps(schema)))
    except UnknownType as error:
        if not references:
            raise TopologyError(
                f"registry.avro: {where} uses the type {error}, which it does not define; the schema that does is "
                "needed. Name it: references={'NAME': ('SUBJECT', VERSION)}"
            ) from error
    except (SchemaParseException, ValueError, TypeError, KeyError) as error:
        raise TopologyError(f"registry.avro: {where} is not an Avro schema: {error!r}; one is needed") from error


def _json_schema(type: Any) -> str:
    """Return the JSON Schema of a Struct or a dataclass, with the type's own fields at the top."""
    try:
        (root,), parts = msgspec.json.schema_components([type])
    except (TypeError, ValueError) as error:
        raise TopologyError(
            f"registry.json: {type.__name__} has no JSON Schema: {error}; fields of JSON's types are needed"
        ) from error
    name = root.get("$ref", "").rpartition("/")[2]
    schema: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema", **parts.get(name, root)}
    rest = {other: part for other, part in parts.items() if other != name or _refers(parts, name)}
    if rest:
        schema["$defs"] = rest
    return json.dumps(msgspec.to_builtins(schema))


def _refers(parts: Mapping[str, Any], name: str) -> bool:
    return json.dumps(f"#/$defs/{name}") in json.dumps(msgspec.to_builtins(parts))
