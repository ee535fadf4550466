"""The conformance suite on Spark: all of a case's input at once, and what its sinks then hold."""

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from eddy.connectors.local import LocalLog
from eddy.connectors.quiescence import Cut
from eddy.connectors.spark.computation import Application, Computation
from eddy.connectors.spark.frames import Frames
from eddy.connectors.spark.order import order_dependent
from eddy.topology.compile import sink_serdes
from eddy.topology.plan import Sink
from tests import oracle
from tests.conformance.cases import CASES, Case
from tests.conformance.engines import Run, Written

pytestmark = pytest.mark.xdist_group("spark")

CANNOT = {"stream-table-joins": "all input is one epoch here, in which tables come first"}
"""Cases to the reason why they give something else; `verify` refuses them."""


def computed(case: Case, partitions: int, folder: Path, spark: Any) -> Written:
    """What the sinks hold when all batches have been taken in, one after the other, at once."""
    log = LocalLog(folder)
    run = Run(case, log, partitions)
    for batch in case.batches:
        run.write(batch)
    frames = Frames(spark)
    application = Application.of(run.topology, log)
    ends = Cut.by_topic(log.end_offsets(application.inputs()))
    computation = Computation(application, frames, functools.partial(LocalLog, folder), ends, traced=False)
    compiler = computation.run()
    sent = [rows.select("k", "v", f.lit(sink.name).alias("sink")) for sink, rows in compiler.sinks.items()]
    records = frames.union(sent, "").collect()
    written: Written = {}
    for sink, (key, value) in sink_serdes(run.topology.plan, run.counts).items():
        assert isinstance(sink, Sink)
        written[sink.topic] = [
            (key.decode(bytes(row["k"])), None if row["v"] is None else value.decode(bytes(row["v"])))
            for row in records
            if row["sink"] == sink.name
        ]
    frames.release()
    log.close()
    return written


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_spark_gives_the_result(case: Case, tmp_path: Path, spark: Any, request: pytest.FixtureRequest) -> None:
    if reason := CANNOT.get(case.name):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    written = computed(case, 3, tmp_path / "log", spark)
    for topic, expected in case.expected.items():
        if isinstance(expected, dict):
            assert oracle.latest(written[topic]) == expected, topic
        else:
            assert Counter(written[topic]) == Counter(expected), topic


def test_what_gives_something_else_is_what_verify_refuses() -> None:
    refused = {case.name for case in CASES if order_dependent(case.topology().plan, dict.fromkeys(_topics(case), 3))}
    assert set(CANNOT) <= refused


def _topics(case: Case) -> set[str]:
    return {source.topic for source in case.topology().plan.sources()}
