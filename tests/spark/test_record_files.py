"""Files as the history of a topic: each format, in front of what the topic holds; and what is wrong with them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from eddy.errors import ConfigurationError, DataError
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64


def totals() -> eddy.Topology:
    topology = eddy.Topology("totals")
    topology.table("amounts", S, N).map_values(lambda amount: amount * 2, value=N).to("doubled")
    return topology


@pytest.fixture
def rig(tmp_path: Path, spark: Any) -> Iterator[Rig]:
    rig = Rig(tmp_path, totals, [TopicSpec("amounts", 1), TopicSpec("doubled", 1)], spark)
    rig.write("amounts", [(b"b", N.encode(20))])
    yield rig
    rig.close()


def doubled(rig: Rig) -> dict[bytes | None, int]:
    return {key: N.decode(value) for key, (_, value) in rig.latest("doubled").items()}


def test_what_files_hold_comes_before_what_the_topic_holds(rig: Rig, tmp_path: Path) -> None:
    lines = ['{"key": "a", "value": 1, "timestamp": 5}', '{"key": "b", "value": 2}', '{"key": "a", "value": 3}']
    (tmp_path / "old.jsonl").write_text("\n".join([*lines, '{"key": "c", "value": 4}', '{"key": "c"}']))
    rig.backfill(files={"amounts": str(tmp_path / "old.jsonl")})
    assert doubled(rig) == {b"a": 6, b"b": 40}
    rig.write("amounts", [(b"a", None)])
    rig.work()
    assert doubled(rig) == {b"b": 40}


def test_csv_and_parquet_give_the_same(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("key,value\na,1\nb,2\n")
    rows = [(b"a", N.encode(1)), (b"b", N.encode(2))]
    rig.spark.createDataFrame(rows, "key binary, value binary").write.parquet(str(tmp_path / "old.parquet"))
    found = []
    for name in ("old.csv", "old.parquet"):
        rig.backfill(files={"amounts": str(tmp_path / name)}, replace=True)
        found.append(doubled(rig))
    assert found == [{b"a": 2, b"b": 40}] * 2


def test_byte_order_mark_is_no_part_of_the_first_row(rig: Rig, tmp_path: Path) -> None:
    for name, text in (("old.csv", "key,value\na,1\n"), ("old.jsonl", '{"key": "a", "value": 1}\n')):
        (tmp_path / name).write_text(f"\ufeff{text}")
        rig.backfill(files={"amounts": str(tmp_path / name)}, replace=True)
        assert doubled(rig) == {b"a": 2, b"b": 40}


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        (
            "old.csv",
            b"key,value\ncaf\xe9,1\n",
            r"old.csv for topic 'amounts': b'caf\\xe9' is not UTF-8: byte 0xe9 at 3",
        ),
        ("old.jsonl", b'{"key": "caf\xe9", "value": 1}\n', r"old.jsonl: a line is not a JSON object: Invalid UTF-8"),
        ("old.jsonl", b'{"key": "a", "value": 1\n', "old.jsonl: a line is not a JSON object: Unexpected end-of-input"),
        ("old.jsonl", b'{"key": "a", "value": 1, "timestamp": "now"}\n', "a field is of another type"),
    ],
)
def test_line_that_cannot_be_read_is_refused(rig: Rig, tmp_path: Path, name: str, data: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=said):
        rig.backfill(files={"amounts": str(tmp_path / name)})


def test_what_is_wrong_with_files_is_named(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("name,value\na,1\n")
    with pytest.raises(ConfigurationError, match="there is no column 'key' among name, value"):
        rig.backfill(files={"amounts": str(tmp_path / "old.csv")})
    with pytest.raises(ConfigurationError, match="the format is not clear from the ending"):
        rig.backfill(files={"amounts": str(tmp_path / "old.txt")})
    with pytest.raises(ConfigurationError, match="files are given for 'other', which is not a source"):
        rig.backfill(files={"other": "x.csv"})
    (tmp_path / "bad.csv").write_text("key,value\na,many\n")
    with pytest.raises(DataError, match=r'files .*bad.csv for topic .amounts.: "many": invalid literal'):
        rig.backfill(files={"amounts": str(tmp_path / "bad.csv")})
    assert "totals-plan" not in rig.log.topics()
