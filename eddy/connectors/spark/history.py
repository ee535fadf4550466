"""Files with records that a source's topic no longer holds: their order, and their fingerprint in the metadata.

Records of files precede the topic's records. If all records of files have a timestamp, they are in timestamp order.
Records of one time, and all records if one has no timestamp, are in the order of their files by path, and then of their
places in the file. All files of a topic are one history, however many options name them.

Rows that a backfill has read from files are in its states and not in the topics. So a fingerprint of them is stored
with the application, and a computation without the same rows cannot prove a difference.
"""

import hashlib
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import unquote

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from eddy.connectors.csv_rows import Empty
from eddy.connectors.spark.arrow_functions import Reader
from eddy.connectors.spark.frames import Frames, names, spark_errors
from eddy.connectors.spark.inputs import RAW
from eddy.connectors.spark.record_files import FileRows, file_rows
from eddy.errors import ConfigurationError, ConnectorError
from eddy.runtime.metadata import FilesRead
from eddy.topology.plan.plan import Source

__all__ = ["Files", "History", "described", "noted", "options", "read_histories", "unlike"]

Files = Mapping[str, str | Sequence[str]]
"""By topic, one path of files or several."""

_PLACE_BITS = 40
"""The low bits of the offset of a row of a file are its place, the high bits the number of the file."""
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.*?)(?=\n\tat )", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class History:
    """The files of one source: frames with readers that return `RAW` columns with partition -1.

    Offsets are in the order of the files. `by_time` says whether timestamps order them first.
    """

    raw: list[tuple[DataFrame, Reader]]
    by_time: bool
    timeless: int
    noted: FilesRead

    def remark(self, topic: str) -> str:
        """A remark about the order of the records; empty if none is needed."""
        if not 0 < self.timeless < self.noted.rows:
            return ""
        return (
            f"files for topic '{topic}': {self.timeless:,} of {self.noted.rows:,} rows have no timestamp, so that all "
            "of them were taken in the order of their files and places"
        )


def read_histories(
    frames: Frames, application: str, sources: Iterable[Source], files: Files, empty: Empty = None
) -> dict[str, History]:
    """The histories by topic. One job for each counts the rows. `empty` is the meaning of CSV's empty cells.

    Raises: ConfigurationError; ConnectorError; DataError for CSV that cannot be read.
    """
    by_topic = {source.topic: source for source in sources}
    if unknown := sorted(set(files) - set(by_topic)):
        raise ConfigurationError(
            f"application '{application}': files are given for '{unknown[0]}', which is no source; the sources are "
            f"{', '.join(sorted(by_topic))}"
        )
    return {
        topic: _history(frames, by_topic[topic], [paths] if isinstance(paths, str) else list(paths), empty)
        for topic, paths in files.items()
    }


def noted(histories: Mapping[str, History]) -> dict[str, FilesRead]:
    """The fingerprints of histories, by topic."""
    return {topic: history.noted for topic, history in histories.items()}


def described(files: Mapping[str, FilesRead]) -> str:
    """Files as text for a message."""
    return "; ".join(
        f"{topic}: {read.rows:,} rows of {read.files:,} files, {read.first} to {read.last}"
        if read.files > 1
        else f"{topic}: {read.rows:,} rows of {read.first or 'no file'}"
        for topic, read in sorted(files.items())
    )


def options(files: Mapping[str, FilesRead]) -> str:
    """The command-line options that name these files."""
    meanings = {f"--empty-is-{read.empty}": None for read in files.values() if read.empty}
    named = [f"--input {shlex.quote(f'{topic}={path}')}" for topic in sorted(files) for path in files[topic].given]
    return " ".join([*named, *meanings])


def unlike(before: Mapping[str, FilesRead], now: Mapping[str, FilesRead]) -> Mapping[str, str]:
    """The topics whose files differ from the earlier ones, each with the difference."""
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


def _history(frames: Frames, source: Source, paths: list[str], empty: Empty) -> History:
    read = [file_rows(frames, source, path, empty) for path in paths]
    rows = sorted(_counted(frames, source.topic, read), key=lambda row: unquote(row["path"]))
    if twice := [row["path"] for row, other in pairwise(rows) if row["path"] == other["path"]]:
        raise ConfigurationError(
            f"files for topic '{source.topic}': {unquote(twice[0])} is given twice, by {' and by '.join(paths)}; its "
            "rows would be there twice. Name each file once"
        )
    index = frames.rows([(row["path"], number) for number, row in enumerate(rows)], "path string, number long")
    timeless, total = sum(row["timeless"] for row in rows), sum(row["rows"] for row in rows)
    digest = hashlib.sha256("".join(f"{row['rows']} {row['hash']}\n" for row in rows).encode()).hexdigest()[:16]
    first, last = (unquote(rows[at]["path"]) if rows else "" for at in (0, -1))
    return History(
        [(_raw(part, index, source.topic), part.reader) for part in read],
        not timeless,
        timeless,
        FilesRead(paths, len(rows), first, last, total, digest, empty or ""),
    )


def _counted(frames: Frames, topic: str, read: Collection[FileRows]) -> list[Row]:
    """For each non-empty file the number of rows, of rows without a time, and an order-independent hash."""
    each = [
        part.frame.select(
            f.lit(number).alias("given"),
            "path",
            f.xxhash64("k", "v", "t").cast("decimal(20,0)").alias("hash"),
            f.col("t").isNull().alias("timeless"),
        )
        for number, part in enumerate(read)
    ]
    totals = f.count("*").alias("rows"), f.count_if("timeless").alias("timeless"), f.sum("hash").alias("hash")
    try:
        with spark_errors(), frames.jobs.step(f"files of topic '{topic}'"):
            return frames.union(each, "").groupBy("given", "path").agg(*totals).collect()
    except ConfigurationError:
        raise
    except ConnectorError as error:
        found = _CAUSE.findall(str(error.__cause__))
        raise ConnectorError(
            f"files for topic '{topic}': {' '.join(found[-1].split()) if found else error}; files that Spark can read, "
            "with the same columns, are needed. Mend the files"
        ) from error


def _raw(part: FileRows, index: DataFrame, topic: str) -> DataFrame:
    """The columns of `RAW`; a broadcast join keeps the rows in their splits, and in their order."""
    return (
        part.frame.join(f.broadcast(index), "path")
        .withColumns(
            {
                "o": f.shiftleft("number", _PLACE_BITS) + f.col("place"),
                "t": f.coalesce("t", f.lit(0)),
                "h": f.lit(None).cast("binary"),
                "p": f.lit(-1),
                "topic": f.lit(topic),
            }
        )
        .select(*names(RAW))
    )
