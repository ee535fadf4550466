"""Compares the schemas of all files of a path, by the footers of Parquet and ORC. Spark reads only one file's schema.

If a file lacks a column, Spark would read nulls, which are tombstones. Spark has no type for nanoseconds, so it reads
them as whole numbers, which look like milliseconds. The footers have the unit.
"""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from eddy.connectors.spark.frames import spark_errors
from eddy.errors import ConfigurationError

__all__ = ["has_nanoseconds"]

_NANOSECONDS = "TIMESTAMP(NANOS"
_AT_ONCE = 8


def has_nanoseconds(
    spark: SparkSession, frame: DataFrame, form: str, names: Collection[str], timestamp: str, where: str
) -> bool:
    """Whether the column `timestamp` of files is in nanoseconds; False for formats other than Parquet.

    Raises: ConfigurationError if a column of `names` is in some files only, or has several types, or if a column other
    than `timestamp` is a time in nanoseconds; ConnectorError for a file without a footer.
    """
    if form not in {"parquet", "orc"}:
        return False
    files = frame.inputFiles()
    footer = _parquet if form == "parquet" else _orc
    with spark_errors(), ThreadPoolExecutor(_AT_ONCE) as threads:
        kinds = list(threads.map(lambda file: footer(spark, file, names), files))
    for name in names:
        if without := [unquote(file) for file, kind in zip(files, kinds, strict=True) if not kind[name]]:
            if len(without) == len(files):  # the column is in the names of folders
                continue
            raise ConfigurationError(
                f"{where}: column '{name}' is not in all files: {len(without):,} of {len(files):,} have none, such as "
                f"{without[0]}; files with the same columns are needed. Name the others in another --input"
            )
    numbers = [name for name, kind in frame.dtypes if name in names and kind == "bigint"] if form == "parquet" else []
    for name in numbers:
        found = {kind[name]: unquote(file) for file, kind in zip(files, kinds, strict=True)}
        if len(found) > 1:
            raise ConfigurationError(
                f"{where}: column '{name}' is {' and '.join(f'{kind} in {file}' for kind, file in found.items())}; one "
                "type is needed. Write all files with one type, or name them in separate options"
            )
        if name != timestamp and any(kind.startswith(_NANOSECONDS) for kind in found):
            raise ConfigurationError(
                f"{where}: column '{name}' has times in nanoseconds, which Spark cannot read; bytes, text or numbers "
                "are needed"
            )
    return timestamp in numbers and any(kind[timestamp].startswith(_NANOSECONDS) for kind in kinds)


def _parquet(spark: SparkSession, file: str, names: Collection[str]) -> dict[str, str]:
    """Return the types of a Parquet file's columns, from its footer; "" for a column that the file lacks."""
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


def _orc(spark: SparkSession, file: str, names: Collection[str]) -> dict[str, str]:
    """Return "there" for each of the columns `names` that an ORC file has, by its footer, otherwise ""."""
    jvm: Any = spark._jvm
    jsc: Any = spark.sparkContext._jsc
    path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
    reader = jvm.org.apache.orc.OrcFile.createReader(
        path, jvm.org.apache.orc.OrcFile.readerOptions(jsc.hadoopConfiguration())
    )
    try:
        there = set(reader.getSchema().getFieldNames())
        return {name: "there" if name in there else "" for name in names}
    finally:
        reader.close()
