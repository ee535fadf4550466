"""The option `columns` of `spark.read.format("eddy")`: chosen columns are those of the records that were written."""

import datetime
import importlib.util
import random
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.connectors.spark import register
from eddy.connectors.spark.source.frame_columns import chosen_paths
from eddy.errors import ConfigurationError
from tests.seeds import of_today
from tests.spark.rig import write
from tests.spark.source_frames import load, streamed, told, worked

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

PROGRAM = """
import datetime
import eddy
import msgspec


class Home(msgspec.Struct, frozen=True, rename="camel"):
    town_name: str
    since: datetime.datetime


class Person(msgspec.Struct, frozen=True):
    name: str
    home: Home | None
    scores: dict[str, int] = {}


topology = eddy.Topology("people")
people = topology.table("people", eddy.String, eddy.Struct(Person))
stream = topology.stream("visits", eddy.String, eddy.Struct(Person))
windows = eddy.TimeWindows(datetime.timedelta(seconds=10), grace=datetime.timedelta(minutes=1))
stream.group_by_key().windowed_by(windows).count("recent")
"""
HEADERS = (("h", b"\0x"), ("h", b""))


class Row(NamedTuple):
    """A record as it was written. `place` is its topic, partition and offset."""

    key: str
    person: Any
    time_ms: int
    place: tuple[str, int, int]


def moment(time_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)


def home_of(person: Any) -> tuple[Any, ...] | None:
    return (person.home.town_name, person.home.since) if person and person.home else None


READ: dict[str, Callable[[Row], Any]] = {
    "key": lambda row: row.key,
    "value": lambda row: row.person and (row.person.name, home_of(row.person), row.person.scores),
    "value.name": lambda row: row.person and row.person.name,
    "value.home": lambda row: home_of(row.person),
    "value.home.town_name": lambda row: home_of(row.person) and row.person.home.town_name,
    "value.home.since": lambda row: home_of(row.person) and row.person.home.since,
    "value.scores": lambda row: row.person and row.person.scores,
    "topic": lambda row: row.place[0],
    "partition": lambda row: row.place[1],
    "offset": lambda row: row.place[2],
    "timestamp": lambda row: moment(row.time_ms),
    "headers": lambda row: tuple(HEADERS),
}
"""The columns, read in plain Python."""


def plain(value: Any) -> Any:
    """A value of Spark's, as `READ` has it."""
    match value:
        case bytearray():
            return bytes(value)
        case datetime.datetime():
            return value.astimezone(datetime.UTC)
        case dict():
            return {key: plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return tuple(plain(inner) for inner in value)
        case _:
            return value


def chosen(rng: random.Random, among: Sequence[str] = tuple(READ)) -> list[str]:
    return rng.sample(among, rng.randint(1, len(among)))


def check(frame: Any, paths: Sequence[str], expected: Sequence[Row]) -> None:
    assert frame.columns == [path.rpartition(".")[2] for path in paths]
    found = [tuple(plain(value) for value in row) for row in frame.collect()]
    assert sorted(found, key=repr) == sorted([tuple(READ[path](row) for path in paths) for row in expected], key=repr)


def program_in(folder: Path) -> tuple[str, Any]:
    path = folder / "people.py"
    path.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location("people", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return f"{path}:topology", module


def some_people(rng: random.Random, log: Log, topic: str, partitions: int, module: Any) -> list[Row]:
    """Write records and tombstones, with an aborted transaction between them. Returns the committed ones."""
    found: list[Row] = []
    for _ in range(rng.randint(1, 25)):
        key, time_ms = rng.choice("abcdef"), rng.randrange(60_000)
        home = module.Home(rng.choice(["Ulm", "Köln"]), moment(rng.randrange(2**40)))
        person = module.Person(rng.choice("xyz"), rng.choice([None, home]), {"n": rng.randrange(9)})
        person = rng.choice([person, person, None])
        partition = log.partitioner(key.encode(), partitions)
        offset = log.end_offsets([TopicPartition(topic, partition)])[TopicPartition(topic, partition)]
        log.write(topic, [(key, person)], value=eddy.Struct(module.Person), timestamp_ms=time_ms, headers=HEADERS)
        found.append(Row(key, person, time_ms, (topic, partition, offset)))
        if rng.random() < 0.1:
            write(log, topic, [(b"a", b"aborted")], commit=False)
    return found


@pytest.mark.parametrize("seed", of_today(3))
def test_chosen_columns_are_those_of_the_records(seed: int, spark: Any, tmp_path: Path) -> None:
    rng = random.Random(seed)
    register(spark)
    app, module = program_in(tmp_path)
    named = {"data": str(tmp_path / "log"), "app": app}
    partitions = rng.randint(1, 3)
    with closing(LocalLog(tmp_path / "log")) as log:
        compacted = rng.random() < 0.5
        kept = {"cleanup.policy": "compact"} if compacted else {}
        log.create_topics([TopicSpec("people", partitions, kept), TopicSpec("visits", partitions)])
        people = some_people(rng, log, "people", partitions, module)
        visits = some_people(rng, log, "visits", partitions, module)
        for paths in (chosen(rng), chosen(rng)):
            check(load(spark, topic="visits", columns=", ".join(paths), **named), paths, visits)
        records = spark.readStream.format("eddy").options(topic="visits", columns=",".join(paths), **named).load()
        streamed(lambda: run(records, f"visits_{seed}"))
        check(spark.table(f"visits_{seed}"), paths, visits)
        with worked(module.topology, log, tmp_path / "state"):
            pass
        latest = {row.key: row for row in people}
        # A topic that is not compacted has a changelog, whose records have places of their own.
        paths = chosen(rng, [path for path in READ if compacted or path.startswith(("key", "value"))])
        rows = [row for row in latest.values() if row.person]
        check(load(spark, table="people", columns=",".join(paths), **named), paths, rows)
        counts: dict[tuple[str, int], int] = {}
        for row in visits:
            if row.person:
                window = row.key, row.time_ms // 10_000 * 10_000
                counts[window] = counts.get(window, 0) + 1
        recent = load(spark, table="recent", columns="value,key.start_ms,key.key", **named)
        assert recent.columns == ["value", "start_ms", "key"]
        assert sorted(map(tuple, recent.collect())) == sorted((n, at, key) for (key, at), n in counts.items())


def run(records: Any, name: str) -> None:
    """Read a stream to its end, into a table of Spark's."""
    records.writeStream.format("memory").queryName(name).trigger(availableNow=True).start().awaitTermination()


def test_a_part_that_is_not_chosen_is_not_decoded(log: LocalLog, data: dict[str, str], spark: Any) -> None:
    log.create_topics([TopicSpec("numbers", 1)])
    log.write("numbers", [("a", "no number"), (None, "none")])
    frame = load(spark, topic="numbers", value="int64", columns="key,offset", **data)
    assert sorted(map(tuple, frame.collect()), key=repr) == [("a", 0), (None, 1)]
    until = load(spark, topic="numbers", value="int64", columns="partition", until="1970-01-01T00:00:00Z", **data)
    assert until.count() == 0, "the timestamps decide, which are no column"
    with pytest.raises(Exception, match="the value b'no number' is not a valid int64"):
        load(spark, topic="numbers", value="int64", columns="offset,value", **data)


WRONG = [
    ("", "option 'columns' is '': a name is empty; names with commas between them are needed"),
    ("key,,value", "option 'columns' is 'key,,value': a name is empty"),
    ("key, nope", "'nope': a frame has no such column; one is needed: key, value, topic, partition, offset, "),
    ("Key", "'Key': a frame has no such column"),
    ("value.nope", "'value.nope': 'value' is struct<.*>, without such a field; one is needed: name, home, scores"),
    ("value.home.townName", "'value.home' is struct<.*>, without such a field; one is needed: town_name, since"),
    ("key.length", "'key' is string, without such a field; a column is needed"),
    ("value.scores.n", "'value.scores' is map<string,bigint>, without such a field; a column is needed"),
    ("value.", "'value.': 'value' is struct<.*>, without such a field"),
    ("key,offset,key", "'key' and 'key' are two columns of one name; different names are needed. Omit one"),
]


@pytest.mark.parametrize(("columns", "text"), WRONG)
def test_columns_that_are_none_or_twice_are_refused_by_load(
    columns: str, text: str, log: LocalLog, data: dict[str, str], spark: Any, tmp_path: Path
) -> None:
    app, _ = program_in(tmp_path)
    log.create_topics([TopicSpec("people", 1)])
    log.write("people", {"a": "no person: nothing is read before the refusal"})
    for reader in (spark.read, spark.readStream):
        with pytest.raises(Exception, match=text) as caught:
            reader.format("eddy").options(topic="people", columns=columns, app=app, **data).load()
        assert told(caught.value).startswith("spark read of format 'eddy': option 'columns'")


def test_fields_of_one_name_are_refused() -> None:
    windowed = eddy.TimeWindowed(eddy.String, datetime.timedelta(seconds=1))
    with pytest.raises(ConfigurationError, match=r"'key\.key' and 'key' are two columns of one name"):
        chosen_paths("key.key,offset,key", windowed, eddy.Int64)
    cased = eddy.Struct(msgspec.defstruct("Cased", [("name", str), ("Name", str)]))
    with pytest.raises(ConfigurationError, match=r"'value\.name' and 'value\.Name' are two columns of one name"):
        chosen_paths("value.name,value.Name", eddy.String, cased)
    assert chosen_paths(" key.key , offset", windowed, eddy.Int64) == ("key.key", "offset")
