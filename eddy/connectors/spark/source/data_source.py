"""The format `eddy` of `spark.read` and `DataFrame.write`.

When `load()` is called, Spark creates the source in a Python process beside the driver, and asks for its schema. The
source pins its offsets then, and is sent with them to all later processes. So a frame has the same records each time it
is computed.
"""

import contextlib
from typing import Any

from pyspark import __version__ as version
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from eddy.connectors.spark.inputs import OffsetRange
from eddy.connectors.spark.pickling import Pickled
from eddy.connectors.spark.source.frame_writing import FrameWriter, JobTarget
from eddy.connectors.spark.source.pinned_source import PinnedSource
from eddy.connectors.spark.source.source_options import READ_OPTIONS, NamedLog, check_names, option_error
from eddy.connectors.spark.source.source_reading import RecordReading, TopicReader, check_decoding
from eddy.connectors.spark.source.source_tables import TableReading, pinned_table

__all__ = ["EddySource"]


class EddySource(DataSource):
    """Topics of a log for Spark. Invariant: between processes the serdes of a program are `Pickled`."""

    _ranges: tuple[OffsetRange, ...] | None = None
    _function: Pickled
    _split: bool

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "eddy"

    def schema(self) -> str:
        """Pin the source's offsets, and return its columns. Raises: ConfigurationError; DataError; ConnectorError."""
        check_names("read", self.options, READ_OPTIONS)
        reading: RecordReading | TableReading
        if "table" in self.options:
            source, reading = pinned_table(self.options)
        else:
            named = NamedLog.of("read", self.options)
            with contextlib.closing(named.open_log()) as log:
                source = PinnedSource.of(self.options, named, log)
                check_decoding(source, log)
            reading = RecordReading(source.form, source.open_log, source.before_ms)
        self._function = Pickled(reading, source.form.module)
        self._ranges, self._split = source.ranges, "table" not in self.options
        return source.form.ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the pinned records. Raises: ConfigurationError if the user gave a schema."""
        if "max_offsets_per_trigger" in self.options:
            raise option_error("read", "option 'max_offsets_per_trigger' is for streams. Omit it, or write readStream")
        return self._reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader of a topic, batch by batch. Raises: ConfigurationError."""
        streams = _streams("read")
        for name in ("table", "until"):
            if name in self.options:
                raise option_error("read", f"option '{name}' has no meaning for a stream. Omit it, or read a frame")
        most = self.options.get("max_offsets_per_trigger")
        if most is not None and not (most.isdecimal() and int(most)):
            raise option_error(
                "read", f"option 'max_offsets_per_trigger' is '{most}'; one or more are needed. Correct it"
            )
        parts, open_log = self._reader(schema), NamedLog.of("read", self.options).open_log
        reader: DataSourceStreamReader = streams.StreamReader(
            self.options["topic"], open_log, parts, None if most is None else int(most)
        )
        return reader

    def _reader(self, schema: StructType) -> TopicReader:
        if self._ranges is None:
            raise option_error("read", "a schema was given; the serdes give the schema. Omit .schema(…)")
        return TopicReader(self._ranges, self._function, schema, self._split)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of a frame. Raises: ConfigurationError; ConnectorError."""
        return FrameWriter(JobTarget.of(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return a writer of a stream. Raises: ConfigurationError; ConnectorError."""
        streams = _streams("write")
        options = {name: value for name, value in self.options.items() if name not in _OF_STREAMS}
        if "batch" in options:
            raise option_error("write", "option 'batch' is Spark's own number in a stream. Omit it")
        writer: DataSourceStreamWriter = streams.StreamWriter(JobTarget.of(options, schema, overwrite))
        return writer


_OF_STREAMS = ("checkpointlocation", "queryname")
"""Spark's own options, which Spark passes to the source, too."""


def _streams(where: str) -> Any:
    """Import the module of streams. Raises: ConfigurationError for a PySpark that is too old."""
    try:
        from eddy.connectors.spark.source import source_streams
    except ImportError as error:
        raise option_error(
            where,
            f"a stream needs PySpark 4.2 or later, {version} is installed. Install it: pip install 'pyspark>=4.2'",
        ) from error
    return source_streams
