"""History in files: its order, however Spark splits it; and that it is noted, asked for and told from other files."""

import random
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import eddy
from eddy.cli import main
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark.arrow_functions import RecordsEntry
from eddy.connectors.spark.files.history import read_histories
from eddy.connectors.spark.files.record_files import file_rows
from eddy.connectors.spark.frames import Frames
from eddy.connectors.spark.inputs import RAW, facts_of, records_of
from eddy.errors import ConfigurationError
from eddy.runtime.metadata import read_metadata
from tests.seeds import in_turn
from tests.spark.rig import Rig
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
Row = tuple[str, int, int | None]
"""Key, value and time."""
DOCS = Path(__file__).parents[2] / "docs" / "spark.md"


def totals() -> eddy.Topology:
    topology = eddy.Topology("totals")
    topology.table("amounts", S, N).to("latest", value=N)
    return topology


def write(path: Path, rows: list[Row], stamped: bool) -> None:
    """Rows as a file, in the format of its ending; Parquet in many row groups."""
    if path.suffix == ".parquet":
        columns: dict[str, Any] = {"key": [k.encode() for k, _, _ in rows], "value": [N.encode(v) for _, v, _ in rows]}
        columns |= {"timestamp": pa.array([t for _, _, t in rows], pa.int64())} if stamped else {}
        pq.write_table(pa.table(columns), path, row_group_size=37)
    elif path.suffix == ".csv":
        lines = [f"{k},{v}" + (f",{'' if t is None else t}" if stamped else "") for k, v, t in rows]
        path.write_text("\n".join([f"key,value{',timestamp' if stamped else ''}", *lines, ""]))
    else:
        time = '"timestamp": {}'.format
        lines = [
            "{" + ", ".join([f'"key": "{k}"', f'"value": {v}', *([] if t is None else [time(t)])]) + "}"
            for k, v, t in rows
        ]
        path.write_text("\n".join([*lines, ""]))


def days(folder: Path, ending: str, times: str, rng: random.Random) -> list[Row]:
    """Files of a size that differs from day to day, and what they hold in the order that the docs promise."""
    folder.mkdir()
    written: list[list[Row]] = []
    values = iter(range(10_000))
    for day, count in enumerate(rng.sample([3, 40, 900, 260], 4)):
        stamps: Callable[[], int | None] = {
            "none": lambda: None,
            "all": lambda: rng.randrange(200) - 100,
            "some": lambda: rng.choice([None, 7]),
        }[times]
        rows = [(f"k{rng.randrange(60)}", next(values), stamps()) for _ in range(count)]
        write(folder / f"2024-01-0{day} é.{ending}", rows, stamped=times != "none")
        written.append(rows)
    everything = [row for rows in written for row in rows]
    return sorted(everything, key=lambda row: row[2] or 0) if times == "all" else everything


def orders(spark: Any, files: str | list[str]) -> tuple[list[tuple[str, int]], list[tuple[str, int]], int]:
    """Rows in the order of one task, and in that of places; and into how many partitions Spark had split them."""
    topology = totals()
    frames = Frames(spark)
    source = next(iter(topology.plan.sources()))
    history = read_histories(frames, "totals", [source], {"amounts": files})["amounts"]
    whole = frames.union([frames.through(*raw, RAW) for raw in history.raw], RAW)
    split = whole.rdd.getNumPartitions()
    in_turn = frames.in_order(whole, ["amounts"] if history.by_time else []).collect()
    entry = RecordsEntry("amounts", S, N, fail=True, by_time=history.by_time)
    facts = facts_of(records_of(frames, entry, history.raw, frames.maximum()))
    by_place = sorted(facts.collect(), key=lambda row: bytes(row["s"]))
    read = lambda row: (bytes(row["k"]).decode(), N.decode(bytes(row["v"])))  # noqa: E731
    return [read(row) for row in in_turn], [read(row) for row in by_place], split


def check_order(spark: Any, folder: Path, ending: str, times: str, seed: int) -> None:
    wanted = days(folder, ending, times, random.Random(f"{ending} {times} {seed}"))
    in_turn, by_place, split = orders(spark, f"{folder}/*.{ending}")
    assert ending == "csv" or split > 4  # one task reads a file of CSV
    assert in_turn == [(key, value) for key, value, _ in wanted]
    assert by_place == in_turn


@pytest.mark.parametrize(("ending", "times"), [*in_turn([("csv", "none"), ("jsonl", "some"), ("parquet", "all")], 3)])
def test_records_are_in_the_order_of_times_files_and_places_however_files_are_split(
    spark: Any, tmp_path: Path, finely_split: None, ending: str, times: str
) -> None:
    check_order(spark, tmp_path / "days", ending, times, 0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("times", ["none", "all", "some"])
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_records_are_in_order_for_many_seeds(
    spark: Any, tmp_path: Path, finely_split: None, ending: str, times: str, seed: int
) -> None:
    check_order(spark, tmp_path / "days", ending, times, seed)


def test_files_of_several_options_are_one_history_by_path(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "b.csv", [("x", 2, None)], stamped=False)
    write(tmp_path / "a.jsonl", [("x", 1, None)], stamped=False)
    write(tmp_path / "c.parquet", [("x", 3, None)], stamped=False)
    given = [str(tmp_path / name) for name in ("c.parquet", "b.csv", "a.jsonl")]
    in_turn, by_place, _ = orders(spark, given)
    assert in_turn == by_place == [("x", 1), ("x", 2), ("x", 3)]
    with pytest.raises(
        ConfigurationError, match=r"b\.csv is given twice, by .*b\.csv and by .*\*\.csv; .*Name each file once"
    ):
        orders(spark, [given[1], f"{tmp_path}/*.csv"])


def test_timestamps_of_parquets_own_type_are_times_and_columns_of_csv_go_by_their_names(
    spark: Any, tmp_path: Path
) -> None:
    times = pa.array([2_001, 2_000], pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table({"key": ["x", "x"], "value": [1, 2], "timestamp": times}), tmp_path / "a.parquet")
    assert orders(spark, str(tmp_path / "a.parquet"))[0] == [("x", 2), ("x", 1)]
    (tmp_path / "1.csv").write_text("key,value\nx,1\n")
    (tmp_path / "2.csv").write_text("value,key\n2,y\n")
    assert orders(spark, f"{tmp_path}/*.csv")[0] == [("x", 1), ("y", 2)]


@pytest.mark.parametrize("zone", ["UTC", None])
def test_timestamps_in_nanoseconds_are_times(spark: Any, tmp_path: Path, zone: str | None) -> None:
    times = [2_001_000_000, 2_000_999_999, -1]
    for name, unit, factor in (("a", "ns", 1), ("b", "us", 1000)):
        stamps = pa.array([time // factor for time in times], pa.timestamp(unit, zone))
        pq.write_table(
            pa.table({"key": ["x", "x", "x"], "value": [1, 2, 3], "timestamp": stamps}), tmp_path / f"{name}.parquet"
        )
    topology = totals()
    read = [times_of(spark, topology, tmp_path / name) for name in ("a.parquet", "b.parquet")]
    assert read == [[2001, 2000, -1]] * 2


def times_of(spark: Any, topology: eddy.Topology, path: Path) -> list[int]:
    rows = file_rows(Frames(spark), next(iter(topology.plan.sources())), str(path))
    return [row["t"] for row in rows.frame.orderBy("place").collect()]


def test_numbers_and_nanoseconds_in_files_of_one_history_are_told_apart(spark: Any, tmp_path: Path) -> None:
    for name, kind in (("a", pa.int64()), ("b", pa.timestamp("ns"))):
        columns = {"key": ["x"], "value": [1], "timestamp": pa.array([5], kind)}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    with pytest.raises(
        ConfigurationError, match=r"column 'timestamp' is .*a number in .*a\.parquet.*; one type is needed"
    ):
        orders(spark, f"{tmp_path}/*.parquet")
    pq.write_table(pa.table({"key": ["x"], "value": pa.array([5], pa.timestamp("ns"))}), tmp_path / "c.parquet")
    with pytest.raises(ConfigurationError, match="column 'value' has times in nanoseconds"):
        orders(spark, f"{tmp_path}/c.parquet")


@pytest.fixture
def rig(tmp_path: Path, spark: Any) -> Iterator[Rig]:
    rig = Rig(tmp_path, totals, [TopicSpec("amounts", 2), TopicSpec("latest", 2)], spark)
    rig.write("amounts", [(b"here", N.encode(1)), (b"k1", N.encode(2))])
    yield rig
    rig.close()


def held(rig: Rig) -> dict[str, int]:
    return {(key or b"").decode(): N.decode(value) for key, (_, value) in rig.latest("latest").items()}


@pytest.mark.parametrize(("ending", "times", "one_task"), [("csv", "none", 0), ("parquet", "all", 1_000_000)])
def test_the_last_record_of_a_key_wins(rig: Rig, tmp_path: Path, ending: str, times: str, one_task: int) -> None:
    wanted = days(tmp_path / "days", ending, times, random.Random(7))
    rig.one_task = one_task
    rig.backfill(files={"amounts": f"{tmp_path}/days/*.{ending}"})
    assert held(rig) == {key: value for key, value, _ in wanted} | {"here": 1, "k1": 2}


def test_what_was_read_is_asked_for_and_other_files_are_no_verdict(rig: Rig, tmp_path: Path) -> None:
    days(tmp_path / "days", "csv", "none", random.Random(7))
    files = {"amounts": [f"{tmp_path}/days/*.csv"]}
    rig.backfill(files=files)
    rig.work()
    before, sent = held(rig), rig.rows("amounts")
    for repair in (False, True):
        with pytest.raises(ConfigurationError) as raised:
            rig.verify(repair=repair)
        assert "its states were made from files as well: amounts: 1,203 rows of 4 files, " in str(raised.value)
        assert f"Give them: --input 'amounts={tmp_path}/days/*.csv'" in str(raised.value)
    assert rig.rows("amounts") == sent
    right = rig.verify(files=files)
    assert (right.status, right.word, right.other_files) == (0, "equal", []), list(right.lines())

    (tmp_path / "days").rename(tmp_path / "elsewhere")  # the same rows
    files = {"amounts": [f"{tmp_path}/elsewhere/*.csv"]}
    assert rig.verify(files=files, repair=True).status == 0
    first = sorted((tmp_path / "elsewhere").iterdir())[0]
    first.write_text(first.read_text() + "new,5\n")
    other = rig.verify(files=files, repair=True)
    assert (other.status, other.word) == (2, "could not tell"), list(other.lines())
    said = "\n".join(other.lines())
    assert "the files given for topic 'amounts' are not those that the states were made from: 1,204 rows" in said
    assert "'new': expected 5, found nothing" in said
    assert "not repaired, nothing was written: the files given" in said
    assert (held(rig), rig.rows("amounts")) == (before, sent)


def test_a_backfill_that_was_killed_goes_on_from_the_same_files_alone(rig: Rig, tmp_path: Path) -> None:
    write(tmp_path / "old.csv", [("old", 1, None)], stamped=False)
    write(tmp_path / "new.csv", [("old", 2, None)], stamped=False)

    def kill(stage: str) -> None:
        if stage == "write changelogs":
            raise InterruptedError

    with pytest.raises(InterruptedError):
        rig.backfill(files={"amounts": str(tmp_path / "old.csv")}, stage=kill)
    for files in ({}, {"amounts": str(tmp_path / "new.csv")}):
        with pytest.raises(ConfigurationError, match=r"one has begun from other files: amounts: 1 rows of .*old\.csv"):
            rig.backfill(files=files)
    rig.backfill(files={"amounts": str(tmp_path / "old.csv")})
    assert held(rig)["old"] == 1


def test_a_replacement_asks_for_the_files_or_is_told_to_do_without(rig: Rig, tmp_path: Path) -> None:
    write(tmp_path / "old.csv", [("old", 1, None)], stamped=False)
    rig.backfill(files={"amounts": str(tmp_path / "old.csv")})
    before = held(rig)
    with pytest.raises(ConfigurationError, match=r"made from files as well: amounts: 1 rows of .*--retained-only"):
        rig.backfill(replace=True)
    assert held(rig) == before
    rig.backfill(replace=True, retained_only=True)
    assert held(rig) == {"here": 1, "k1": 2}
    assert read_metadata(rig.log, "totals-plan").files == {}
    assert rig.verify().status == 0


def test_a_reset_forgets_the_files_and_the_docs_nightly_line_is_right(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of the crontab is taken apart by a shell, as cron does, and run here."""
    home = tmp_path / "srv" / "family"
    (home / "history").mkdir(parents=True)
    monkeypatch.chdir(home)
    (home / "family.py").write_text(
        "import eddy\ntopology = eddy.Topology('family')\n"
        "topology.table('nodes', eddy.String, eddy.String).to('copies')\n"
    )
    (home / "nodes.tsv").write_text("leaf\ttwig\n")
    write(home / "history" / "2023.csv", [("old", 1, None)], stamped=False)
    (home / "history" / "2024.csv").write_text("key,value\nold,older\n")
    assert run("produce", "nodes", "nodes.tsv").exit_code == 0
    assert run("topics", "create", "copies", "--partitions", "1").exit_code == 0
    backfill, nightly = (words(line, tmp_path) for line in documented())
    done = run(*backfill)
    assert done.exit_code == 0, done.output
    verified = run(*nightly)
    assert verified.exit_code == 0, verified.output
    assert "sink copies: 2 keys, all equal" in verified.output
    without = run(*[word for word in nightly if "nodes=" not in word and word != "--input"])
    assert (without.exit_code, "Give them: --input 'nodes=" in without.output) == (2, True), without.output
    assert run("reset", "family.py", "--yes").exit_code == 0
    assert run("run", "family.py", "--until-idle").exit_code == 0
    after = run("verify", "family.py", "--no-stores")
    assert "Give them" not in after.output
    assert after.exit_code == 1, after.output  # the output still has what was in the files alone


def documented() -> list[str]:
    """The commands with files that the docs show for a backfill, and for every night."""
    text = DOCS.read_text()
    backfill = re.search(r"^eddy backfill family\.py .*--input.*$", text, re.MULTILINE)
    nightly = re.search(r"^0 3 \* \* \*\s+(.*eddy verify .*--input.*)$", text, re.MULTILINE)
    assert backfill
    assert nightly
    return [backfill[0], nightly[1].replace("\\%", "%")]


def words(line: str, folder: Path) -> list[str]:
    """The arguments that a shell gives to `eddy`, with /srv below a folder and the embedded log for a broker."""
    line = line.replace("/srv", f"{folder}/srv").replace(" --bootstrap broker:9092", "")
    script = f"eddy() {{ printf '%s\\n' \"$@\"; }}\n{line}"
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    return said.stdout.splitlines()


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, arguments)
