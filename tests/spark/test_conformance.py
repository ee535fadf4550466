"""The conformance suite on Spark: all input at once, and what the sinks then hold. All in one task: `test_part`."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from eddy.connectors.local import LocalLog
from eddy.connectors.quiescence import Cut
from eddy.connectors.spark.computation import Application, Computation
from eddy.connectors.spark.frames import Frames
from eddy.connectors.spark.order import order_dependent
from eddy.errors import EddyError
from eddy.topology.compile import sink_serdes
from eddy.topology.plan import Sink
from tests import oracle
from tests.conformance.cases import CASES, Case
from tests.conformance.engines import Run, Written

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

CANNOT = {
    "stream-table-joins": "all input is one epoch here, in which tables come first",
    "changes-are-held-back-while-there-is-an-error": "what is behind keeps what earlier input made",
}
"""Cases to the reason why they give something else; `verify` refuses them."""


class _NotWhole(Computation):
    """Loops go into one task, but not the plan: as where other inputs are large."""

    def _in_one_task(self) -> bool:
        return False


WAYS: dict[str, Callable[..., Computation]] = {
    "loops-in-one-task": _NotWhole,
    "step-by-step": functools.partial(Computation, one_task=0),
}


@pytest.fixture(scope="module", params=WAYS)
def written(
    tmp_path_factory: pytest.TempPathFactory, spark: Any, request: pytest.FixtureRequest
) -> Callable[[str], Written]:
    """What the sinks of a case hold: the loops of all cases one after the other, all else in one job."""
    folder = tmp_path_factory.mktemp("cases")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    frames = Frames(spark)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    sent: list[Any] = []
    failed: dict[str, EddyError] = {}
    readers: dict[tuple[str, str], tuple[Any, Any, Any]] = {}
    for case in CASES:
        try:
            run, sinks = compiled(case, WAYS[request.param], folder / case.name, frames)
        except EddyError as error:
            failed[case.name] = error
            continue
        for sink, (key, value) in sink_serdes(run.topology.plan, run.counts).items():
            readers[case.name, sink.name] = sink, key, value
            named = f.lit(case.name).alias("case"), f.lit(sink.name).alias("sink")
            sent.append(sinks[sink].select("k", "v", *named))
    found: dict[str, Written] = {case.name: {} for case in CASES}
    for (name, _), (sink, _, _) in readers.items():
        found[name].setdefault(sink.topic, [])
    for row in frames.union(sent, "").collect():
        sink, key, value = readers[row["case"], row["sink"]]
        record = key.decode(bytes(row["k"])), None if row["v"] is None else value.decode(bytes(row["v"]))
        found[row["case"]][sink.topic].append(record)
    frames.release()

    def of(case: str) -> Written:
        if case in failed:
            raise failed[case]
        return found[case]

    return of


def compiled(
    case: Case, way: Callable[..., Computation], folder: Path, frames: Frames
) -> tuple[Run, Mapping[Sink, Any]]:
    """A case with all of its batches on a log, and the frames of its sinks."""
    log = LocalLog(folder)
    run = Run(case, log, 3)
    for batch in case.batches:
        run.write(batch)
    application = Application.of(run.topology, log)
    ends = Cut.by_topic(log.end_offsets(application.inputs()))
    computation = way(application, frames, functools.partial(LocalLog, folder), ends, traced=False)
    sinks = computation.run().sinks
    log.close()
    return run, sinks


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_spark_gives_the_result(case: Case, written: Callable[[str], Written], request: pytest.FixtureRequest) -> None:
    if reason := CANNOT.get(case.name):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    for topic, expected in case.expected.items():
        rows = written(case.name)[topic]
        if isinstance(expected, dict):
            assert oracle.latest(rows) == expected, topic
        else:
            assert Counter(rows) == Counter(expected), topic


def test_what_arrival_order_decides_is_what_verify_refuses() -> None:
    refused = {case.name for case in CASES if order_dependent(case.topology().plan, dict.fromkeys(_topics(case), 3))}
    assert refused == {"stream-table-joins", "the-example-of-kip-857", "the-example-of-kip-857-to-the-letter"}


def _topics(case: Case) -> set[str]:
    return {source.topic for source in case.topology().plan.sources()}
