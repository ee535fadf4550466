"""Spark as a second engine: `backfill` makes the states of long histories, `verify` checks a worker's states.

These two functions take a `SparkSession`, so that they run on a cluster as well as on this machine. PySpark is imported
when they are called. Nothing else in eddy imports PySpark.

    with KafkaLog(settings) as log: …
    verdict = verify(topology, spark, log, open_log)

`register` gives a session the format `eddy`: topics and tables as frames.

A map of the package, in the order in which to read it:

    frames            operations on DataFrames that all others use; `session`, `job_descriptions`, `daemon`
    arrow_functions   columns of bytes → rows → steps of `decoded_rows` → columns, in Spark's Python workers, which
                      functions reach by `pickling` and `pickled_structs`
    computation       the results of the inputs up to given offsets: reads `inputs`, after `files`, and compiles
      files           history in files, before the records of topics
      compiler        a plan as DataFrames: `step_compiler`, `step_frames`, and a module for each kind of step
      loops           recursions: waves, pointer doubling, nested time; `whole_graphs`
      folds           `declared_folds`, `fold_functions`, `grouped_values`, `exact_sums`
      time            `cut_clocks`, `closing_times`, `closed_windows`, `window_steps`, `joined_streams`, `as_of_frames`,
                      `valid_frames`, `deduplicated_frames`
      SQL             `sql_expressions`; `sql_aggregates`, `sql_casts`, `sql_numbers`, `sql_texts`, `sql_windows`
      one_task        small parts by the worker's own circuit; their results are `made`
    backfilling       writes results: `backfill_checks`, `changelog`, `result_writing`; `result_files` into a lake
    verification      compares results with a worker's: a verdict, or a repair; `readable` keys and values
    arrival_order     results that the input does not determine; `global_joins`: those that a worker's notes determine
    compacted_inputs  inputs from which compaction may have removed records
    source            the format `eddy`
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddy.connectors.log import Log
from eddy.connectors.spark.session import driver_errors, local_session, require_spark
from eddy.errors import ConfigurationError
from eddy.topology.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.connectors.spark.backfilling import Backfilled
    from eddy.connectors.spark.verification.disk_verdict import DiskVerdict
    from eddy.connectors.spark.verification.verdict import Verdict

__all__ = ["backfill", "backfill_files", "local_session", "register", "verify", "verify_disk"]


def backfill(
    topology: Topology, spark: "SparkSession", log: Log, open_log: Callable[[], Log], **options: Any
) -> "Backfilled":
    """Write the states, outputs and positions that a worker would have after the whole input. Options: see `Backfill`.

    `open_log` opens the same log in Spark's workers; it is pickled.
    Raises: ConfigurationError; DataError; LoopLimitError; ConnectorError.
    """
    require_spark()
    from eddy.connectors.spark.backfilling import Backfill

    with driver_errors():
        return Backfill(topology, spark, log, open_log, **options).run()


def backfill_files(
    topology: Topology, spark: "SparkSession", log: Log, open_log: Callable[[], Log], folder: str, **options: Any
) -> "Backfilled":
    """Write the outputs that the whole input gives into files below `folder`, and nothing to the log.

    Options: see `BackfillFiles`. Raises: ConfigurationError; DataError; LoopLimitError; ConnectorError.
    """
    require_spark()
    from eddy.connectors.spark.result_files import BackfillFiles

    with driver_errors():
        return BackfillFiles(topology, spark, log, open_log, folder=folder, **options).run()


def verify(
    topology: Topology, spark: "SparkSession", log: Log, open_log: Callable[[], Log], **options: Any
) -> "Verdict":
    """Compare a worker's states and outputs with the results of its inputs, at a cut. See `Verify`.

    Raises: ConfigurationError; DataError; LoopLimitError; ConnectorError.
    """
    require_spark()
    from eddy.connectors.spark.verification.verifying import Verify

    with driver_errors():
        return Verify(topology, spark, log, open_log, **options).run()


def verify_disk(topology: Topology, log: Log, folder: Path, wait_s: float = 60.0) -> "DiskVerdict":
    """Compare the stores of states in a folder with their changelogs, without Spark. See `DiskComparison`.

    Raises: ConfigurationError; StateInUseError; StateError; ConnectorError.
    """
    from eddy.connectors.spark.verification.disk_comparison import DiskComparison

    return DiskComparison(topology, log, folder, wait_s).run()


def register(spark: "SparkSession") -> None:
    """Let a session read and write the format `eddy`: `spark.read.format("eddy")`. A second call changes nothing.

    The session becomes the active session of this thread, in which Spark looks up the formats of frames to be written.

    Raises: ConfigurationError if a package is missing, or `spark` is not a session.
    """
    require_spark()
    from eddy.connectors.spark.frames import activate
    from eddy.connectors.spark.source.data_source import EddySource

    if not hasattr(spark, "dataSource"):
        raise ConfigurationError(f"register: {spark!r} is not a session of Spark; one is needed. Write register(spark)")
    activate(spark)
    spark.dataSource.register(EddySource)
