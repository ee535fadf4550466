"""History as lakes have it: ORC, columns by name, an order by a column, Debezium's events; and what is refused."""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import eddy
from eddy.cli import main
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark import backfill, verify
from tests.seeds import in_turn, of_today
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

FORMS = ("parquet", "orc", "jsonl", "csv")


class Place(msgspec.Struct, frozen=True):
    city: str
    size: int | None


def places() -> eddy.Topology:
    topology = eddy.Topology("places")
    topology.table("places", eddy.String, eddy.Struct(Place)).to("latest")
    return topology


def cities() -> eddy.Topology:
    topology = eddy.Topology("places")
    topology.table("places", eddy.String, eddy.String).to("latest")
    return topology


@pytest.fixture
def rig(tmp_path: Path, spark: Any) -> Iterator[Rig]:
    rig = Rig(tmp_path, cities, [TopicSpec("places", 2), TopicSpec("latest", 2)], spark)
    yield rig
    rig.close()


def write(path: Path, rows: list[dict[str, Any]], names: list[str]) -> None:
    """Rows as a file in the format of its ending."""
    path.parent.mkdir(exist_ok=True)
    table = pa.table({name: [row[name] for row in rows] for name in names})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=7)
    elif path.suffix == ".orc":
        pyarrow.orc.write_table(table, path)
    elif path.suffix == ".csv":
        lines = [",".join("" if row[name] is None else str(row[name]) for name in names) for row in rows]
        path.write_text("\n".join([",".join(names), *lines, ""]))
    else:
        path.write_text("".join(json.dumps({name: row[name] for name in names}) + "\n" for row in rows))


def latest(rig: Rig) -> dict[str, str]:
    return {(key or b"").decode(): value.decode() for key, (_, value) in rig.latest("latest").items()}


def done(rig: Rig, **options: Any) -> None:
    given = rig.topology(), rig.spark, rig.log, rig.open_log
    backfill(*given, **options)


@pytest.mark.parametrize("seed", [*in_turn(of_today(4), 4)])
def test_named_columns_are_in_the_order_of_a_column_however_files_are_split(
    rig: Rig, tmp_path: Path, finely_split: None, seed: int
) -> None:
    """Files of all formats at once, with rows of equal numbers within a file: there the place decides."""
    rng = random.Random(seed)
    expected: list[tuple[int, int, int, str, str | None]] = []
    files, numbers = [], list(range(80))
    rng.shuffle(numbers)
    for at, form in enumerate(rng.sample(FORMS, 4)):
        rows = []
        for place in range(60):
            number = rng.choice(numbers[at * 20 : at * 20 + 20])  # no number is in two files
            city = None if rng.random() < 0.1 else f"c{rng.randrange(1000)}"
            rows.append({"id": f"k{rng.randrange(12)}", "city": city, "lsn": number, "timestamp": rng.randrange(9)})
            expected.append((number, at, place, rows[-1]["id"], city))
        path = tmp_path / "lake" / f"{at} é.{form}"
        write(path, rows, rng.sample(["id", "city", "lsn", "timestamp"], 4))
        files.append(str(path))
    columns = {"places": {"key": "id", "value": "city", "order": "lsn"}}
    done(rig, files={"places": files}, columns=columns, one_task=rng.choice([0, 10_000]), empty="null")
    want: dict[str, str] = {}
    for _, _, _, key, city in sorted(expected):
        want.pop(key, None)
        want |= {} if city is None else {key: city}
    assert latest(rig) == want
    rig.work()
    given = rig.topology(), rig.spark, rig.log, rig.open_log
    assert verify(*given, wait_s=0.0, files={"places": files}, columns=columns, empty="null").status == 0


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_an_object_of_columns_is_a_struct(rig: Rig, tmp_path: Path, form: str) -> None:
    rig.topology = places
    rows = [
        {"name": "a", "city": 'say "é"', "size": 5, "on": 2},
        {"name": "b", "city": "Bergen", "size": None, "on": 1},
        {"name": "a", "city": "older", "size": 1, "on": 1},
    ]
    write(tmp_path / "lake" / f"1.{form}", rows, ["name", "city", "size", "on"])
    files = {"places": f"{tmp_path}/lake/*.{form}"}
    for value in ("city,size", "*"):
        columns = {"places": {"key": "name", "value": value, "timestamp": "on"}}
        done(rig, files=files, columns=columns, replace=True)
        found = {key: msgspec.json.decode(text, type=Place) for key, text in latest(rig).items()}
        assert found == {"a": Place('say "é"', 5), "b": Place("Bergen", None)}


def change(op: str, before: Any, after: Any, time: int, lsn: int) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": time, "source": {"lsn": lsn, "db": "geo"}}


def test_events_of_debezium_make_rows_and_deletions(rig: Rig, tmp_path: Path) -> None:
    """Some bare, some with their schema, in JSON lines; the others in Parquet, as structs and as text."""
    one, two, three = ({"id": n, "city": f"c{n}", "size": n} for n in (1, 2, 3))
    moved = one | {"city": "moved"}
    events = [
        change("r", None, one, 5, 10),
        change("c", None, two, 5, 11),
        change("u", one, moved, 5, 12),
        change("d", two, None, 5, 13),
        change("c", None, three, 5, 14),
        change("d", three | {"city": None}, None, 5, 15),
        change("c", None, three, 5, 16),
    ]
    rig.topology = places
    folder = tmp_path / "lake"
    folder.mkdir()
    lines = [
        json.dumps(event if at % 2 else {"schema": {"type": "struct"}, "payload": event})
        for at, event in enumerate(events)
    ]
    (folder / "1.jsonl").write_text("\n".join(reversed(lines)) + "\n")
    pq.write_table(pa.Table.from_pylist(events), folder / "structs.parquet")
    texts = [{name: json.dumps(item) if isinstance(item, dict) else item for name, item in e.items()} for e in events]
    pq.write_table(pa.Table.from_pylist(texts), folder / "texts.parquet")
    columns = {"places": {"envelope": "debezium", "key": "id", "order": "source.lsn"}}
    for name in ("1.jsonl", "structs.parquet", "texts.parquet"):
        done(rig, files={"places": f"{folder}/{name}"}, columns=columns, replace=True)
        found = {key: msgspec.json.decode(text, type=Place) for key, text in latest(rig).items()}
        assert found == {"1": Place("moved", 1), "3": Place("c3", 3)}, name
    rig.topology = cities
    done(
        rig,
        files={"places": f"{folder}/1.jsonl"},
        columns={"places": columns["places"] | {"value": "city"}},
        replace=True,
    )
    assert latest(rig) == {"1": "moved", "3": "c3"}


PROGRAM = """\
import eddy

topology = eddy.Topology("places")
topology.table("places", eddy.String, eddy.String).to("latest")
"""


def ended(rig: Rig, *words: str) -> Result:
    (rig.path.parent / "places.py").write_text(PROGRAM)
    return CliRunner().invoke(main, ["backfill", str(rig.path.parent / "places.py"), "--data", str(rig.path), *words])


def refused(rig: Rig, path: str, *maps: str) -> str:
    """The message of a backfill of these files, which ends with 2 and writes nothing."""
    before = everything(rig)
    given = [word for text in maps for word in ("--map", f"places:{text}")]
    found = ended(rig, "--input", f"places={path}", *given)
    assert found.exit_code == 2, found.output
    assert everything(rig) == before
    assert "Traceback" not in found.output
    return found.output


def everything(rig: Rig) -> dict[str, list[int]]:
    topics = {
        name: [TopicPartition(name, p) for p in range(spec.partitions)] for name, spec in rig.log.topics().items()
    }
    return {name: list(rig.log.end_offsets(parts).values()) for name, parts in topics.items()}


ROWS = [{"key": f"k{n}", "value": "v" * n, "seq": n} for n in range(50)]


def test_bad_files_are_named_and_nothing_is_written(rig: Rig, tmp_path: Path) -> None:
    lake, names = tmp_path / "lake", ["key", "value", "seq"]
    write(lake / "a.parquet", ROWS, names)
    write(lake / "a.orc", ROWS, names)
    for form in ("parquet", "orc"):  # half a file
        whole = (lake / f"a.{form}").read_bytes()
        (lake / f"b.{form}").write_bytes(whole[: len(whole) // 2])
        assert f"b.{form}" in refused(rig, f"{lake}/b.{form}")
        (lake / f"b.{form}").unlink()
    for form in ("jsonl", "csv"):  # half a compressed file beside a whole one
        write(lake / f"a.{form}", ROWS, names)
        whole = gzip.compress((lake / f"a.{form}").read_bytes())
        (lake / f"a.{form}.gz").write_bytes(whole)
        (lake / f"b.{form}.gz").write_bytes(whole[: len(whole) // 2])
        assert f"/b.{form}.gz: Unexpected end of input stream;" in refused(rig, f"{lake}/*.{form}.gz")
    said = refused(rig, f"{lake}/day=2026-01-02/*.parquet")
    assert "day=2026-01-02" in said
    for form in ("parquet", "orc"):  # another schema
        write(lake / f"c.{form}", [{"key": "x", "seq": 1}], ["key", "seq"])
        said = refused(rig, f"{lake}/*.{form}")
        assert "column 'value' is not in all files: 1 of 2 have none, such as file:" in said, said
        assert f"{lake}/c.{form}; files with the same columns are needed" in said
        (lake / f"c.{form}").unlink()
    write(lake / "d.parquet", ROWS[40:45], names)  # the same offsets twice
    said = refused(rig, f"{lake}/*.parquet", "order=seq")
    assert "has a row with seq 4" in said
    assert f"{lake}/a.parquet and in file:" in said
    assert f"{lake}/d.parquet; files that have no rows in common" in said
    write(lake / "e.parquet", [*ROWS[:2], {"key": "z", "value": "v", "seq": None}], names)
    said = refused(rig, f"{lake}/e.parquet", "order=seq")
    assert "1 of 3 rows are not records, such as one whose reason is: column 'seq' has no value" in said
    assert "rows are not ordered by it" in refused(rig, f"{lake}/e.parquet", "order=value")
    assert "no package for the format avro" in refused(rig, f"{lake}/a.avro")
    assert "names no column of a role" in refused(rig, f"{lake}/a.parquet", "colour=red")
    assert "no column 'id' among" in refused(rig, f"{lake}/a.parquet", "key=id")
    write(lake / "f.csv", ROWS, names)
    assert "text has none; one column is needed" in refused(rig, f"{lake}/f.csv", "value=*")


def test_events_that_change_no_row_are_refused(rig: Rig, tmp_path: Path) -> None:
    row = {"id": 1, "city": "c"}
    for at, (event, what) in enumerate(
        [
            (change("t", None, None, 1, 1), "op is 't'"),
            (change("c", row, None, 1, 1), "it has no row"),
            (change("d", {"city": "c"}, None, 1, 1), "its row has no field 'id'"),
            ({"id": 1}, "op is null"),
        ]
    ):
        path = tmp_path / f"{at}.jsonl"
        path.write_text(json.dumps(change("c", None, row, 1, 0)) + "\n" + json.dumps(event) + "\n")
        said = refused(rig, str(path), "envelope=debezium", "key=id", "value=city")
        assert f"1 of 2 rows are not records, such as one whose reason is: {what}" in said
