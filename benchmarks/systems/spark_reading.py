"""A topic of Kafka, read whole: by Spark's tasks through eddy's client, or by confluent-kafka alone.

MASTER|client BOOTSTRAP TOPIC RECORDS
"""

import functools
import logging
import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import functions as f

from benchmarks.cluster import batches_of
from benchmarks.processes import cpu_seconds, tree
from benchmarks.systems.process import report, settle
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import TopicPartition
from eddy.connectors.spark import local_session
from eddy.connectors.spark.frames import Frames
from eddy.connectors.spark.inputs import OffsetRange, read_topics


def main() -> None:
    """Run as `python -m benchmarks.systems.spark_reading`."""
    master, bootstrap, topic, records = sys.argv[1:5]
    wanted = (int(records), sum(len(b"%d" % n) for n in range(int(records))))
    if master == "client":
        start, spent = settle(), _tree_cpu()
        found = _by_client(bootstrap, topic, wanted[0])
        report(start, right=found == wanted, tree_cpu_seconds=_tree_cpu() - spent)
        return
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # where a cluster of Spark's own listens
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    logging.getLogger("py4j").setLevel(logging.ERROR)
    settings = {} if master.startswith("local[") else {"spark.executor.memory": "1g", "spark.cores.max": "2"}
    spark = local_session(master, "1g", {"spark.sql.shuffle.partitions": "2", **settings})
    open_log = functools.partial(KafkaLog, KafkaSettings.of(bootstrap))
    log = open_log()
    count = log.topics([topic])[topic].partitions
    ends = log.end_offsets(TopicPartition(topic, partition) for partition in range(count))
    log.close()
    frames = Frames(spark)
    _read(frames, open_log, topic, [OffsetRange(tp.partition, 0, min(end, 1_000)) for tp, end in ends.items()])
    start, spent = settle(), _tree_cpu()
    found = _read(frames, open_log, topic, [OffsetRange(tp.partition, 0, end) for tp, end in ends.items()])
    report(start, right=found == wanted, tree_cpu_seconds=_tree_cpu() - spent)
    spark.stop()


def _read(
    frames: Frames, open_log: functools.partial[KafkaLog], topic: str, ranges: list[OffsetRange]
) -> tuple[int, int]:
    """The number of records, and of bytes in their keys."""
    rows = read_topics(frames, open_log, {topic: ranges})
    row = rows.agg(f.count("v").alias("n"), f.sum(f.length("k")).alias("bytes")).first()
    assert row is not None
    return row["n"], row["bytes"]


def _by_client(bootstrap: str, topic: str, records: int) -> tuple[int, int]:
    """The same, by confluent-kafka alone."""
    found = size = 0
    for batch in batches_of(bootstrap, topic, records):
        found, size = found + len(batch), size + sum(len(message.key() or b"") for message in batch)
    return found, size


def _tree_cpu() -> float:
    """Processor time of this process, the JVM, Spark's executors and Python workers."""
    return cpu_seconds(tree(os.getpid()), waited_for=True)


if __name__ == "__main__":
    main()
