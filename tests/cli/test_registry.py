"""`eddy produce`, `eddy consume` and `eddy sql` by the schemas of a registry."""

import json
import logging
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema
from google.rpc import error_details_pb2

import eddy
from eddy.cli.stderr_messages import messages_console, show_messages
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition
from eddy.connectors.schema_registry.client import client_of
from tests.cli.conftest import Command
from tests.schema_registry.conftest import unseen
from tests.schema_registry.people import ANN, Person, PersonId
from tests.schema_registry.server import Server, served
from tests.schema_registry.test_header_ids import Id, Writer
from tests.schema_registry.test_types import EVERY, SEVERAL, Every


@pytest.fixture
def server() -> Iterator[Server]:
    with served() as running:
        yield running


def register(server: Server, subject: str, schema: str, kind: str = "AVRO") -> None:
    client_of(unseen(server.url).client_settings).register_schema(subject, Schema(schema, kind))


def write(topic: str, rows: dict[Any, Any], key: eddy.Serde[Any], value: eddy.Serde[Any]) -> None:
    log = LocalLog(None if topic == "" else ".eddy/log")
    log.create_topics([eddy.connectors.log.TopicSpec(topic, 1)])
    log.write(topic, rows, key=key, value=value)
    log.close()


def values_of(topic: str, end: int) -> list[bytes | None]:
    log = LocalLog(".eddy/log")
    records = log.read(TopicPartition(topic, 0), 0, end, 100)
    log.close()
    return list(records.values)


def lines(output: str) -> list[Any]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_values_and_keys_are_printed_by_the_schemas_of_their_ids(run: Command, server: Server) -> None:
    registry = unseen(server.url)
    write("people", {PersonId(7): ANN, PersonId(8): None}, registry.avro(PersonId), registry.avro(Person))
    shown = run("consume", "people", "--registry", server.url, "--key-type", "schema", "--format", "jsonl")
    ann = {
        "name": "ann", "age": 31, "score": 1.5, "since": "2026-03-01T12:30:15.250000Z",
        "address": {"street": "Main St", "town": "Ulm"}, "tags": ["a", "b"],
    }  # fmt: skip
    assert lines(shown.output) == [{"key": {"number": 7}, "value": ann}, {"key": {"number": 8}, "value": None}]


@pytest.mark.parametrize("form", ["avro", "json", "protobuf"])
def test_ids_are_written_into_headers_where_that_is_said(run: Command, server: Server, form: str) -> None:
    registry = unseen(server.url)
    value: Any = Id(3) if form != "protobuf" else error_details_pb2.ErrorInfo(reason="FULL")
    write("p", {Id(1): value}, registry.avro(Id), getattr(registry, form)(type(value)))  # registers the schemas
    plain = {"number": 3} if form != "protobuf" else {"reason": "FULL"}
    given = json.dumps({"key": {"number": 2}, "value": plain})
    options = ("--registry", server.url, "--key-type", "schema", "--format", "jsonl")
    pathlib.Path("rows.jsonl").write_text(given)
    run("produce", "p", "rows.jsonl", *options[:-2], "--ids-in-headers")
    log = LocalLog(".eddy/log")
    read = log.read(TopicPartition("p", 0), 1, 9, 9)
    log.close()
    assert (read.keys, len(read.headers or ())) == ((b"\x04",), 1)
    assert [name for name, _ in (read.headers or [()])[0]] == ["__key_schema_id", "__value_schema_id"]
    shown = run("consume", "p", *options)
    assert lines(shown.output) == [{"key": {"number": n}, "value": plain} for n in (1, 2)]
    refused = run("produce", "p", "rows.jsonl", "--ids-in-headers", status=2)
    assert "--ids-in-headers is about the ids of a schema registry" in refused.output


@pytest.mark.parametrize("form", ["avro", "json", "protobuf"])
def test_records_with_ids_in_headers_are_read(run: Command, server: Server, form: str) -> None:
    value: Any = Id(3) if form != "protobuf" else error_details_pb2.ErrorInfo(reason="FULL")
    log = LocalLog(".eddy/log")
    log.create_topics([eddy.connectors.log.TopicSpec("p", 2)])
    Writer(log, unseen(server.url), "p").write([("a", value, False, True), ("b", value, False, False)], form)
    log.close()
    shown = run("consume", "p", "--registry", server.url, "--format", "jsonl")
    plain = {"number": 3} if form != "protobuf" else {"reason": "FULL"}
    assert sorted(lines(shown.output), key=str) == [{"key": key, "value": plain} for key in ("a", "b")]
    if form == "avro":
        shown = run(
            "sql",
            "-t",
            "p=p",
            "--registry",
            server.url,
            "--format",
            "jsonl",
            "-c",
            "SELECT sum(number) AS n FROM p",
        )
        assert lines(shown.output) == [{"n": 6}]


@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_topic_is_copied_through_files(run: Command, server: Server, form: str) -> None:
    """All types of values: the copy has the records of the original."""
    registry = unseen(server.url)
    serde = getattr(registry, form)(Every)
    write("every", {"x": EVERY}, eddy.String, serde)
    serde.in_topic("copy", "value").encode(EVERY)  # registers the schema
    shown = run("consume", "every", "--registry", server.url, "--format", "jsonl").output
    run("produce", "copy", "--registry", server.url, "--format", "jsonl", stdin=shown)
    assert serde.in_topic("copy", "value").decode(values_of("copy", 1)[0]) == EVERY


def test_records_of_a_union_are_copied_as_lists(run: Command, server: Server) -> None:
    register(server, "several-value", json.dumps(SEVERAL))
    rows = '{"key": "x", "value": ["B", {"n": 1}]}\n'
    run("produce", "several", "--registry", server.url, "--format", "jsonl", stdin=rows)
    shown = run("consume", "several", "--registry", server.url, "--format", "jsonl")
    assert lines(shown.output) == lines(rows)


def test_protobuf_messages_are_copied(run: Command, server: Server) -> None:
    registry = unseen(server.url)
    serde = registry.protobuf(error_details_pb2.ErrorInfo)
    sent = error_details_pb2.ErrorInfo(reason="FULL", metadata={"a": "1"})
    nested = error_details_pb2.QuotaFailure.Violation(subject="disk")
    write("infos", {"x": sent}, eddy.String, serde)
    write("nested", {"x": nested}, eddy.String, registry.protobuf(error_details_pb2.QuotaFailure.Violation))
    shown = run("consume", "infos", "--registry", server.url, "--format", "jsonl")
    assert lines(shown.output) == [{"key": "x", "value": {"reason": "FULL", "metadata": {"a": "1"}}}]
    shown = run("consume", "nested", "--registry", server.url, "--format", "jsonl")
    assert lines(shown.output) == [{"key": "x", "value": {"subject": "disk"}}]
    retries = registry.protobuf(error_details_pb2.RetryInfo)  # the first message of its file
    retries.in_topic("retries", "value").encode(error_details_pb2.RetryInfo())
    first = next(iter(error_details_pb2.DESCRIPTOR.message_types_by_name))
    row = {"ErrorInfo": {"reason": "FULL"}, "RetryInfo": {"retry_delay": "3s"}}[first]
    run(
        "produce",
        "retries",
        "--registry",
        server.url,
        "--format",
        "jsonl",
        stdin=f'{{"key": "x", "value": {json.dumps(row)}}}',
    )
    assert lines(run("consume", "retries", "--registry", server.url, "--format", "jsonl").output)[0]["value"] == row


def test_a_value_that_does_not_fit_is_named_by_its_line(run: Command, server: Server) -> None:
    schema = {"type": "record", "name": "P", "fields": [{"name": "n", "type": "int"}]}
    register(server, "p-value", json.dumps(schema))
    stdin = 'a\t{"n": 1}\nb\t{"n": "x"}\n'
    shown = run("produce", "p", "--registry", server.url, stdin=stdin, status=None)
    assert shown.exit_code != 0
    assert "line 2" in shown.output
    shown = run("produce", "p", "--registry", server.url, "--skip-bad", stdin=stdin)
    assert "1 bad lines skipped" in shown.output
    assert run("consume", "p", "--registry", server.url).output == 'a\t{"n":1}\n'


@pytest.mark.parametrize(("level", "told"), [("info", False), ("debug", True)])
def test_requests_are_told_at_the_level_debug_only(level: str, told: bool) -> None:
    show_messages(messages_console(), "text", level)
    assert {logging.getLogger(name).isEnabledFor(logging.INFO) for name in ("httpx", "httpx2")} == {told}
    show_messages(messages_console(), "text", "info")


def test_an_outage_is_no_bad_line(run: Command, server: Server) -> None:
    register(server, "p-value", '"string"')
    server.go_away()
    shown = run("produce", "p", "--registry", server.url, "--skip-bad", stdin='a\t"x"\n', status=None)
    server.come_back()
    assert shown.exit_code != 0
    assert "the schema registry does not answer" in shown.output


def test_a_subject_without_a_schema_is_named(run: Command, server: Server) -> None:
    shown = run("produce", "p", "--registry", server.url, stdin='a\t"x"\n', status=None)
    assert "subject 'p-value': the schema registry answered 404" in shown.output
    assert "Traceback" not in shown.output


def test_a_record_without_a_schema_id_is_named(run: Command, server: Server) -> None:
    run("produce", "p", stdin="a\tx\n")
    shown = run("consume", "p", "--registry", server.url, status=None)
    told = "topic 'p' partition 0 offset 0: the value b'x' is not a valid schema: it does not begin with"
    assert told in shown.output


def test_a_registry_is_needed_for_its_types(run: Command) -> None:
    shown = run("consume", "p", "--value-type", "schema", status=None)
    assert "name one: --registry URL" in shown.output
    run("produce", "p", stdin="a\tx\n")
    shown = run("sql", "-t", "p=p,value=schema", "-c", "SELECT * FROM p", status=None)
    assert "name one: --registry URL" in shown.output


@pytest.mark.parametrize("form", ["avro", "json"])
def test_fields_of_records_are_columns_of_sql(run: Command, server: Server, form: str) -> None:
    registry, older = unseen(server.url), Person("bob", 60, 2.5, ANN.since, ANN.address, [])
    serdes = registry.avro(PersonId), getattr(registry, form)(Person)
    write("people", {PersonId(7): ANN, PersonId(8): older, PersonId(9): None}, *serdes)
    run("produce", "towns", stdin="Ulm\tGermany\n")
    asked = "SELECT people.key, name, age FROM people WHERE age > 30 ORDER BY age DESC"
    tables = "-t", "people=people,key=schema", "-t", "towns=towns,value=string"
    shown = run("sql", *tables, "--registry", server.url, "--format", "jsonl", "-c", asked)
    assert lines(shown.output) == [
        {"key": '{"number":8}', "name": "bob", "age": 60},
        {"key": '{"number":7}', "name": "ann", "age": 31},
    ]
    asked = "SELECT name, towns.value AS country FROM people, towns WHERE age = 31"
    shown = run("sql", *tables, "--registry", server.url, "--format", "jsonl", "-c", asked)
    assert lines(shown.output) == [{"name": "ann", "country": "Germany"}]


def test_an_outage_is_no_record_that_sql_cannot_read(run: Command, server: Server) -> None:
    registry = unseen(server.url)
    write("people", {PersonId(7): ANN}, registry.avro(PersonId), registry.avro(Person))
    server.go_away()
    shown = run("sql", "-t", "p=people", "--registry", server.url, "-c", "SELECT * FROM p", status=None)
    server.come_back()
    assert shown.exit_code != 0
    assert "the schema registry does not answer" in shown.output
    assert "Name its type" not in shown.output
