"""The units of numbers in Parquet files: plain numbers, or nanoseconds as pandas and Arrow write times.

Spark has no type for nanoseconds. It reads them as whole numbers, which look like milliseconds; the footers of the
files tell which they are.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from eddy.errors import ConfigurationError

__all__ = ["has_nanoseconds"]

_COLUMNS = ("key", "value", "timestamp")
_NANOSECONDS = "TIMESTAMP(NANOS"
_AT_ONCE = 8


def has_nanoseconds(spark: SparkSession, frame: DataFrame, where: str) -> bool:
    """Whether the column `timestamp` of a frame of Parquet files is in nanoseconds; False if it has no numbers.

    Raises: ConfigurationError if files differ in its type, or a key or a value is a time in nanoseconds.
    """
    numbers = [name for name, kind in frame.dtypes if name in _COLUMNS and kind == "bigint"]
    if not numbers:
        return False
    files = frame.inputFiles()
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        kinds = list(threads.map(lambda file: _kinds(spark, file, numbers), files))
    for name in numbers:
        found = {kind[name]: unquote(file) for file, kind in zip(files, kinds, strict=True) if kind[name]}
        if len(found) > 1:
            raise ConfigurationError(
                f"{where}: column '{name}' is {' and '.join(f'{kind} in {file}' for kind, file in found.items())}; one "
                "type is needed. Write all files with one type, or name them in separate options"
            )
        if name != "timestamp" and any(kind.startswith(_NANOSECONDS) for kind in found):
            raise ConfigurationError(
                f"{where}: column '{name}' has times in nanoseconds, which Spark cannot read; bytes, text or numbers "
                "are needed"
            )
    return any(kind.get("timestamp", "").startswith(_NANOSECONDS) for kind in kinds)


def _kinds(spark: SparkSession, file: str, names: list[str]) -> dict[str, str]:
    """The types of a file's columns by its footer; empty for a column that it does not have."""
    jvm: Any = spark._jvm
    jsc: Any = spark.sparkContext._jsc
    path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
    input_file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, jsc.hadoopConfiguration())
    reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(input_file)
    try:
        schema = reader.getFooter().getFileMetaData().getSchema()
        return {name: _kind(schema, name) for name in names}
    finally:
        reader.close()


def _kind(schema: Any, name: str) -> str:
    if not schema.containsField(name):
        return ""
    annotation = schema.getType(schema.getFieldIndex(name)).getLogicalTypeAnnotation()
    kind = "a number" if annotation is None else str(annotation.toString())
    return "a number" if kind.startswith("INTEGER(") else kind
