"""Files with records that a source's topic no longer holds: their order, and their fingerprint in the metadata.

Records of files precede the topic's records. They are sorted by the column that was named as `order`; without such a
column by timestamp, if all records of files have a timestamp. Records with equal numbers or times, and all records if
one record has no timestamp, are sorted by the paths of their files, and then by their places in the file. All files of
a topic are one history, however many options name them.

Rows that a backfill has read from files are in its states and not in the topics. So a fingerprint of these rows is
stored with the application, and a computation without the same rows cannot prove a difference.
"""

import contextlib
import hashlib
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from eddy.connectors.csv_rows import Empty
from eddy.connectors.spark.arrow_functions import Reader
from eddy.connectors.spark.files.file_columns import FileColumns
from eddy.connectors.spark.files.record_files import FileRows, file_rows
from eddy.connectors.spark.frames import Frames, names, spark_errors
from eddy.connectors.spark.inputs import RAW
from eddy.errors import ConfigurationError, ConnectorError, DataError
from eddy.runtime.metadata import FilesRead
from eddy.topology.plan.plan import Source

__all__ = ["Columns", "Files", "History", "described", "noted", "options", "read_histories", "unlike"]

Files = Mapping[str, str | Sequence[str]]
"""One path of files, or several, by topic."""
Columns = Mapping[str, Mapping[str, str]]
"""The names of columns by topic and role: see `file_columns.py`."""

_PLACE_BITS = 40
"""The number of low bits in the offset of a file's row that have its place; the high bits have the file's number."""
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.*?)(?=\n\tat )", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"FAILED_READ_FILE.*? reading file (\S+?)\.\s")


@dataclass(frozen=True)
class History:
    """The files with the earlier records of one source, as frames, each with the reader of its rows.

    A reader returns the columns `RAW`; the partition is -1, and offsets are in the order of the files. With `by_time`
    records are sorted by timestamps first.
    """

    raw: list[tuple[DataFrame, Reader]]
    by_time: bool
    timeless: int
    noted: FilesRead

    def remark(self, topic: str) -> str:
        """Return a remark about the order of the records; empty if none is needed."""
        if not 0 < self.timeless < self.noted.rows:
            return ""
        return (
            f"files for topic '{topic}': {self.timeless:,} of {self.noted.rows:,} rows have no timestamp, so that all "
            "of them were taken in the order of their files and places"
        )


def read_histories(
    frames: Frames,
    application: str,
    sources: Iterable[Source],
    files: Files,
    empty: Empty = None,
    columns: Columns | None = None,
) -> dict[str, History]:
    """Return the histories of sources in `files`, by topic. `empty` is the meaning of CSV's empty cells.

    Spark runs one job for each history, which counts the rows.

    Raises: ConfigurationError; ConnectorError; DataError for CSV that cannot be read.
    """
    by_topic = {source.topic: source for source in sources}
    if unknown := sorted(set(files) - set(by_topic)):
        raise ConfigurationError(
            f"application '{application}': files are given for '{unknown[0]}', which is not a source; the sources are "
            f"{', '.join(sorted(by_topic))}"
        )
    if without := sorted(set(columns or {}) - set(files)):
        raise ConfigurationError(
            f"application '{application}': columns are named for files of '{without[0]}', and no files are given. Give "
            f"them: --input {without[0]}=FILES"
        )
    return {
        topic: _history(
            frames,
            by_topic[topic],
            [paths] if isinstance(paths, str) else list(paths),
            empty,
            (columns or {}).get(topic, {}),
        )
        for topic, paths in files.items()
    }


def noted(histories: Mapping[str, History]) -> dict[str, FilesRead]:
    """Return the fingerprints of histories, by topic."""
    return {topic: history.noted for topic, history in histories.items()}


def described(files: Mapping[str, FilesRead]) -> str:
    """Describe files in a text for a message."""
    return "; ".join(
        f"{topic}: {read.rows:,} rows of {read.files:,} files, {read.first} to {read.last}"
        if read.files > 1
        else f"{topic}: {read.rows:,} rows of {read.first or 'no file'}"
        for topic, read in sorted(files.items())
    )


def options(files: Mapping[str, FilesRead]) -> str:
    """Return the command-line options that name these files."""
    meanings = {f"--empty-is-{read.empty}": None for read in files.values() if read.empty}
    named = [f"--input {shlex.quote(f'{topic}={path}')}" for topic in sorted(files) for path in files[topic].given]
    maps = [
        f"--map {shlex.quote(f'{topic}:{role}={column}')}"
        for topic in sorted(files)
        for role, column in files[topic].columns.items()
    ]
    return " ".join([*named, *maps, *meanings])


def unlike(before: Mapping[str, FilesRead], now: Mapping[str, FilesRead]) -> Mapping[str, str]:
    """Return the topics whose files `now` differ from the files `before`, each with the difference as text."""
    found = {}
    for topic in sorted(before.keys() & now.keys()):
        was, is_ = before[topic], now[topic]
        if not was.same_rows(is_):
            what = "other rows, or the same in other files" if was.rows == is_.rows else f"{is_.rows:,} rows"
            found[topic] = (
                f"the files given for topic '{topic}' are not those that the states were made from: {what} "
                f"({described({topic: is_})}), where the backfill read {described({topic: was})}, "
                f"given as {options({topic: was})}"
            )
    return found


def _history(frames: Frames, source: Source, paths: list[str], empty: Empty, roles: Mapping[str, str]) -> History:
    columns = FileColumns.of(source.topic, roles)
    read = [file_rows(frames, source, path, empty, columns) for path in paths]
    rows = sorted(_counted(frames, source.topic, read), key=lambda row: unquote(row["path"]))
    _check_rows(source.topic, paths, rows)
    index = frames.rows([(row["path"], number) for number, row in enumerate(rows)], "path string, number long")
    timeless, total = sum(row["timeless"] for row in rows), sum(row["rows"] for row in rows)
    digest = hashlib.sha256("".join(f"{row['rows']} {row['hash']}\n" for row in rows).encode()).hexdigest()[:16]
    first, last = (unquote(rows[at]["path"]) if rows else "" for at in (0, -1))
    raw: list[tuple[DataFrame, Reader]]
    raw = [(_raw(_placed(part.frame, index), source.topic), part.reader) for part in read]
    if columns.order:
        _check_order(frames, source.topic, read, columns.order)
        raw = _in_order(frames, source.topic, read, index)
    by_time = not timeless and not columns.order
    noted_files = FilesRead(paths, len(rows), first, last, total, digest, empty or "", dict(roles))
    return History(raw, by_time, 0 if columns.order else timeless, noted_files)


def _check_rows(topic: str, paths: list[str], rows: list[Row]) -> None:
    """Check rows. Raises: ConfigurationError for a file that is given twice; DataError for rows that are no records."""
    if twice := [row["path"] for row, other in pairwise(rows) if row["path"] == other["path"]]:
        raise ConfigurationError(
            f"files for topic '{topic}': {unquote(twice[0])} is given twice, by {' and by '.join(paths)}; its rows "
            "would be there twice. Name each file once"
        )
    for row in rows:
        if row["wrong"] is not None:
            raise DataError(
                f"files for topic '{topic}': {unquote(row['path'])}: {row['wrongs']:,} of {row['rows']:,} rows are not "
                f"records, such as one whose reason is: {row['wrong']}; records are needed. Mend the file, or "
                f"name other columns: --map {topic}:key=COLUMN"
            )


def _counted(frames: Frames, topic: str, read: Collection[FileRows]) -> list[Row]:
    """Count the rows of each file that has some: all rows, rows without a time, and rows that are no records.

    Returns these numbers with a hash of the rows, which does not depend on their order.
    """
    each = [
        part.frame.select(
            f.lit(number).alias("given"),
            "path",
            f.xxhash64("k", "v", "t", "seq").cast("decimal(20,0)").alias("hash"),
            f.col("t").isNull().alias("timeless"),
            "wrong",
        )
        for number, part in enumerate(read)
    ]
    totals = [f.count("*").alias("rows"), f.count_if("timeless").alias("timeless"), f.sum("hash").alias("hash")]
    totals += [f.count("wrong").alias("wrongs"), f.max("wrong").alias("wrong")]
    with _named_errors(topic), frames.jobs.step(f"files of topic '{topic}'"):
        return frames.union(each, "").groupBy("given", "path").agg(*totals).collect()


@contextlib.contextmanager
def _named_errors(topic: str) -> Iterator[None]:
    """Within the block, add to Spark's errors the topic, and the cause that Spark names last."""
    try:
        with spark_errors():
            yield
    except ConfigurationError:
        raise
    except ConnectorError as error:
        text = str(error.__cause__)
        causes, file = _CAUSE.findall(text), _FILE.search(text)
        reason = " ".join(causes[-1].split()) if causes else str(error)
        if file and file[1] not in reason:
            reason = f"{file[1]}: {reason}"
        raise ConnectorError(
            f"files for topic '{topic}': {reason}; files that Spark can read, with the same columns, are needed. Mend "
            "the files"
        ) from error


def _check_order(frames: Frames, topic: str, read: Collection[FileRows], order: str) -> None:
    """Refuse two files that have the same key with the same number: the same rows were written twice."""
    rows = frames.union([part.frame.select("k", "seq", "path") for part in read], "")
    found = rows.groupBy("k", "seq").agg(f.min("path").alias("one"), f.max("path").alias("other"))
    with spark_errors(), frames.jobs.step(f"order of topic '{topic}'"):
        twice = found.where("one <> other").first()
    if twice is not None:
        key = None if twice["k"] is None else bytes(twice["k"])
        raise DataError(
            f"files for topic '{topic}': key {key!r} has a row with {order} {twice['seq']} in {unquote(twice['one'])} "
            f"and in {unquote(twice['other'])}; files that have no rows in common are needed. Name each row's file once"
        )


def _in_order(
    frames: Frames, topic: str, read: Collection[FileRows], index: DataFrame
) -> list[tuple[DataFrame, Reader]]:
    """Sort rows once, by their numbers, then by files and places."""
    each = [
        _placed(part.frame, index).withColumns({"given": f.lit(at), "seen": f.monotonically_increasing_id()})
        for at, part in enumerate(read)
    ]
    rows = frames.union(each, "").orderBy("seq", "number", "place", "seen")
    rows = frames.kept(rows.withColumn("sorted", f.monotonically_increasing_id()))
    return [
        (_raw(rows.where(f.col("given") == at), topic, f.col("sorted")), part.reader.numbered())
        for at, part in enumerate(read)
    ]


def _placed(rows: DataFrame, index: DataFrame) -> DataFrame:
    """Add the number of its file to each row; a broadcast join keeps rows in their splits, and in their order."""
    return rows.join(f.broadcast(index), "path")


def _raw(rows: DataFrame, topic: str, offset: Column | None = None) -> DataFrame:
    """Select the columns of `RAW`."""
    place = f.shiftleft("number", _PLACE_BITS) + f.col("place") if offset is None else offset
    columns = {
        "o": place,
        "t": f.coalesce("t", f.lit(0)),
        "h": f.lit(None).cast("binary"),
        "p": f.lit(-1),
        "topic": f.lit(topic),
    }
    return rows.withColumns(columns).select(*names(RAW))
