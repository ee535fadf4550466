"""The format `eddy` of `spark.read`.

Spark creates the source in a Python process beside the driver when `load()` is called, and asks for its schema; the
source, with the offsets that it then pinned, is sent to all later processes. So a frame has the same records each time
it is computed.
"""

import contextlib

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from eddy.connectors.spark.inputs import OffsetRange
from eddy.connectors.spark.pickling import Pickled
from eddy.connectors.spark.source.pinned_source import PinnedSource
from eddy.connectors.spark.source.source_options import READ_OPTIONS, check_names, option_error
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
        """Pin the source. Raises: ConfigurationError; DataError; ConnectorError."""
        check_names("read", self.options, READ_OPTIONS)
        reading: RecordReading | TableReading
        if "table" in self.options:
            source, reading = pinned_table(self.options)
        else:
            source = PinnedSource.of(self.options)
            reading = RecordReading(source.form, source.open_log, source.before_ms)
        with contextlib.closing(source.open_log()) as log:
            check_decoding(source, log)
        self._function = Pickled(reading, source.form.module)
        self._ranges, self._split = source.ranges, "table" not in self.options
        return source.form.ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read the pinned records. Raises: ConfigurationError if the user gave a schema."""
        if self._ranges is None:
            raise option_error("read", "a schema was given; the serdes give the schema. Leave out .schema(…)")
        return TopicReader(self._ranges, self._function, schema, self._split)
