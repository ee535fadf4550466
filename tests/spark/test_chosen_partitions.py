"""Sinks with `partitioner=` on Spark: their records are compared, and a backfill of them is refused by name."""

from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.errors import ConfigurationError
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64


def topology() -> eddy.Topology:
    made = eddy.Topology("parcels")
    made.stream("in", key=S, value=N).to("out", partitioner=lambda key, value, partitions: value % partitions)
    return made


def test_records_where_a_function_has_placed_them_are_verified_and_not_backfilled(tmp_path: Path, spark: Any) -> None:
    rig = Rig(tmp_path, topology, [TopicSpec("in", 2), TopicSpec("out", 3)], spark)
    rig.write("in", [(key.encode(), N.encode(number)) for number, key in enumerate("abcabcab")])
    with pytest.raises(
        ConfigurationError, match=r"'out' is written with partitioner=.*Let the worker replay the input"
    ):
        rig.backfill()
    rig.work()
    sizes = [len(rig.log.read(TopicPartition("out", p), 0, 100, 100)) for p in range(3)]
    assert sizes == [3, 3, 2]
    verdict = rig.verify()
    assert (verdict.status, verdict.word) == (0, "equal"), list(verdict.lines())
    assert any("partitions, and the order of a key's records, are not compared" in line for line in verdict.lines())
    producer = rig.log.producer(None)
    producer.begin()
    producer.send("out", 2, [b"z"], [N.encode(8)], [0])
    producer.commit({}, None)
    producer.close()
    rig.write("in", [(b"a", N.encode(10))])
    rig.work()
    assert rig.verify().word == "different"
    rig.close()
