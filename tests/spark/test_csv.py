"""History in CSV: every cell as it was written by a program that follows RFC 4180, and as `eddy produce` reads it."""

import csv
import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import eddy
from eddy.cli import main
from eddy.connectors.csv_rows import Empty
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition
from eddy.connectors.spark.files import csv_files
from eddy.connectors.spark.files.history import read_histories
from eddy.connectors.spark.frames import Frames, spark_errors
from eddy.connectors.spark.inputs import RAW
from eddy.errors import ConfigurationError, DataError
from tests.seeds import of_today

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S = eddy.String
Text = str | None
TEXTS: list[Text] = [
    None,
    "",
    "a",
    'say "hi"',
    '{"a": "b"}',
    "one\ntwo",
    '""',
    "a,b",
    "\r\n",
    "é\r",
    " x ",
    '"',
    "null",
]
"""Texts that need quotes, or look as if they did; None is a missing value."""


def written(path: Path, table: list[tuple[Text, Text]], rng: random.Random) -> None:
    """A table as CSV: quotes where they are needed, and here and there where they are not; perhaps compressed."""

    def cell(text: Text) -> str:
        if text is None:
            return ""
        needed = not text or set(text) & set('",\r\n')
        return '"' + text.replace('"', '""') + '"' if needed or rng.random() < 0.2 else text

    end = rng.choice(["\n", "\r\n"])
    lines = ["value,other,key", *(f"{cell(value)},,{cell(key)}" for key, value in table)]
    data = (rng.choice(["", "\ufeff"]) + end.join(lines) + rng.choice([end, ""])).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def history(spark: Any, files: str | list[str], empty: Empty) -> list[tuple[Text, Text]]:
    """The rows of files in their order."""
    topology = eddy.Topology("texts")
    topology.stream("texts", S, S).to("copies", value=S)
    frames = Frames(spark)
    read = read_histories(frames, "texts", topology.plan.sources(), {"texts": files}, empty)["texts"]
    with spark_errors():
        rows = frames.union([frames.through(*raw, RAW) for raw in read.raw], RAW).orderBy("o").collect()
    return [(_text(row["k"]), _text(row["v"])) for row in rows]


def produced(folder: Path, files: list[Path], empty: str) -> list[tuple[Text, Text]]:
    """The same rows by `eddy produce`."""
    log = folder / "log"
    options = ("--key", "key", "--value", "value", empty, "--data", str(log))
    done = CliRunner().invoke(main, ["produce", "texts", *map(str, files), *options])
    assert done.exit_code == 0, done.output
    opened = LocalLog(log)
    records = opened.read(TopicPartition("texts", 0), 0, 1 << 40, 1 << 40)
    opened.close()
    return [(_text(key), _text(value)) for key, value in zip(records.keys, records.values, strict=True)]


def _text(data: bytes | None) -> Text:
    return None if data is None else bytes(data).decode()


def check(spark: Any, folder: Path, seed: int) -> None:
    rng = random.Random(f"csv {seed}")
    tables = [[(rng.choice(TEXTS), rng.choice(TEXTS)) for _ in range(rng.choice([0, 1, 30, 700]))] for _ in range(4)]
    files = [folder / f"{at} é.csv{rng.choice(['', '.gz'])}" for at in range(4)]
    for path, table in zip(files, tables, strict=True):
        written(path, table, rng)
    given = [str(path) for path in files]
    whole = [row for table in tables for row in table]
    assert history(spark, given, "null") == whole
    texts = [(key or "", value or "") for key, value in whole]
    assert history(spark, given, "text") == texts
    if any(cell is None for row in whole for cell in row):
        with pytest.raises(DataError, match=r"line \d+: the \w+ is empty, without quotes: .*--empty-is-text"):
            history(spark, given, None)
    assert produced(folder, files, "--empty-is-null") == whole


@pytest.mark.parametrize("seed", of_today(1))
def test_history_and_produce_read_what_was_written(spark: Any, tmp_path: Path, finely_split: None, seed: int) -> None:
    check(spark, tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_history_and_produce_read_what_was_written_for_many_seeds(
    spark: Any, tmp_path: Path, finely_split: None, seed: int
) -> None:
    check(spark, tmp_path, seed)


def test_what_pythons_writer_and_pandas_write_is_read(spark: Any, tmp_path: Path) -> None:
    import pandas

    table = [(f"k{at}", text) for at, text in enumerate(filter(None, TEXTS))]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("key", "value"), *table])
    pandas.DataFrame(table, columns=["key", "value"]).to_csv(tmp_path / "b.csv.gz", index=False, quoting=csv.QUOTE_ALL)
    for name in ("a.csv", "b.csv.gz"):
        assert history(spark, str(tmp_path / name), None) == table


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('key,value\na,x "y" z\n', r"bad\.csv: line 2: a quote in the middle of a value"),
        ('key,value\na,1\nb,"2\n', r"bad\.csv: line 3: a quote is opened and not closed in the file"),
        ("key,value\na,1\nb,2,3\n", r"bad\.csv: line 3: 3 columns, where the first line has 2"),
        (
            "key,value,timestamp\na,1,2024-01-01\n",
            r"line 2: the timestamp '2024-01-01' is not a number of milliseconds",
        ),
        ("key,value,timestamp\na,1,9223372036854775808\n", r"line 2: the timestamp .* is not a number of milliseconds"),
    ],
)
def test_what_is_no_csv_is_named(spark: Any, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(DataError, match=said):
        history(spark, str(tmp_path / "bad.csv"), "null")


def test_columns_that_are_there_twice_and_broken_gzip_are_named(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("key,value,value\na,1,2\n")
    with pytest.raises(ConfigurationError, match="there are two columns 'value' among key, value, value"):
        history(spark, str(tmp_path / "bad.csv"), "null")
    (tmp_path / "bad.csv.gz").write_bytes(gzip.compress(b"key,value\na,1\n" * 99)[:-20])
    with pytest.raises(eddy.EddyError, match=r"files for topic 'texts': .*Mend the files"):
        history(spark, str(tmp_path / "bad.csv.gz"), "null")


def test_a_reader_that_takes_an_empty_text_for_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right: Callable[..., Any] = csv_files.csv_rows
    files, lines = csv_files.CsvFiles("files", "null"), ["key,value\n", 'a,""\n']
    assert list(files.rows_of(iter(lines), "here")) == [(b"a", b"", None, None, None)]
    monkeypatch.setattr(
        csv_files, "csv_rows", lambda of: ((at, [cell or None for cell in row]) for at, row in right(of))
    )
    assert list(files.rows_of(iter(lines), "here")) == [(b"a", None, None, None, None)]
