"""The conformance suite on Spark: all input at once, and what the sinks then hold. All in one task: `test_part`.

Each case goes a way every sixteenth day, the two ways on different days, and both in the long form.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from eddy.connectors.local import LocalLog
from eddy.connectors.spark.arrival_order import order_dependent
from eddy.connectors.spark.computation import Application, Computation
from eddy.connectors.spark.frames import Frames
from eddy.errors import EddyError
from eddy.runtime.quiescence import Cut
from eddy.topology.compiler.circuit_compiler import sink_serdes
from eddy.topology.plan.plan import Sink
from tests import oracle
from tests.conformance.cases import CASES, Case
from tests.conformance.engines import Run, Written
from tests.conformance.processors import PROCESSED
from tests.seeds import DAY

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

CANNOT = {
    "stream-table-joins": "all input is one epoch here, in which tables come first",
    "partitions-that-a-function-chooses": "the records of a topic that the topology writes, too, are not there yet",
    **dict.fromkeys(PROCESSED, "processors are computed by a worker alone"),
}
"""Cases to the reason why they give something else; `verify` refuses them."""
STEP_BY_STEP = {
    "a-block-is-empty-while-there-is-an-error": "a bound is an error",
    "a-block-is-empty-while-an-inner-limit-is-too-low": "a bound is an error",
}
"""The same where no loop goes into one task."""


class _NotWhole(Computation):
    """Loops go into one task, but not the plan: as where other inputs are large."""

    def _in_one_task(self) -> None:
        return None


WAYS: dict[str, Callable[..., Computation]] = {
    "loops-in-one-task": _NotWhole,
    "step-by-step": functools.partial(Computation, one_task=0),
}


@pytest.fixture(scope="module")
def written(
    tmp_path_factory: pytest.TempPathFactory, spark: Any, request: pytest.FixtureRequest
) -> Callable[[str, str], Written]:
    """What the sinks of a case hold that went a way; the first case of a way takes all others that are tested along."""
    tested = {item.name for item in request.session.items}

    @functools.cache
    def through(way: str) -> Callable[[str], Written]:
        cases = [case for case in CASES if f"{test_spark_gives_the_result.__name__}[{way}-{case.name}]" in tested]
        return all_through(way, cases, tmp_path_factory.mktemp(way), spark)

    return lambda way, case: through(way)(case)


def all_through(way: str, cases: list[Case], folder: Path, spark: Any) -> Callable[[str], Written]:
    """What the sinks of each case hold: the loops of all cases one after the other, all else in one job."""
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    frames = Frames(spark)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    sent: list[Any] = []
    failed: dict[str, EddyError] = {}
    readers: dict[tuple[str, str], tuple[Any, Any, Any]] = {}
    for case in cases:
        try:
            run, sinks = compiled(case, WAYS[way], folder / case.name, frames)
        except EddyError as error:
            failed[case.name] = error
            continue
        for sink, (key, value) in sink_serdes(run.topology.plan, run.counts).items():
            readers[case.name, sink.name] = sink, key, value
            named = f.lit(case.name).alias("case"), f.lit(sink.name).alias("sink")
            sent.append(sinks[sink].select("k", "v", *named))
    found: dict[str, Written] = {case.name: {} for case in cases}
    for (name, _), (sink, _, _) in readers.items():
        found[name].setdefault(sink.topic, [])
    for row in frames.union(sent, "").collect():
        sink, key, value = readers[row["case"], row["sink"]]
        record = tuple(
            None if row[name] is None else serde.decode(bytes(row[name])) for name, serde in (("k", key), ("v", value))
        )
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
    sinks = computation.run().results.sinks
    log.close()
    return run, sinks


_DAYS = 16


def each_case() -> Iterator[Any]:
    """The cases, way by way."""
    for turn, way in enumerate(WAYS):
        for number, case in enumerate(CASES, turn):
            marks = () if (DAY + number) % _DAYS == 0 else pytest.mark.long
            yield pytest.param(way, case, id=f"{way}-{case.name}", marks=marks)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("way", "case"), [*each_case()])
def test_spark_gives_the_result(
    way: str, case: Case, written: Callable[[str, str], Written], request: pytest.FixtureRequest
) -> None:
    if reason := (CANNOT | (STEP_BY_STEP if way == "step-by-step" else {})).get(case.name):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    for topic, expected in case.expected.items():
        rows = written(way, case.name)[topic]
        if isinstance(expected, dict):
            assert oracle.latest(rows) == expected, topic
        else:
            assert Counter(rows) == Counter(expected), topic


def test_what_arrival_order_decides_is_what_verify_refuses() -> None:
    refused = {case.name for case in CASES if order_dependent(case.topology().plan, dict.fromkeys(_topics(case), 3))}
    assert refused == {
        "a-function-calls-out",
        "a-global-table-is-joined",
        "a-function-reads-records",
        "a-processor-counts",
        "a-processor-has-children",
        "a-processor-keeps-sessions-and-versions",
        "a-processor-tells-by-event-time",
        "processors-after-an-exchange",
        "processors-of-a-table",
        "processors-that-share-a-store",
        "cogroup-of-two-streams",
        "functions-that-take-the-key",
        "partitions-that-a-function-chooses",
        "sliding-windows-after-two-repartitions",
        "sums-of-sessions",
        "two-kinds-of-windows-after-a-repartition",
        "windows-without-an-end",
        "hopping-windows-close-behind-an-exchange",
        "sessions-behind-an-exchange",
        "sliding-windows-behind-an-exchange",
        "windows-count",
        "stream-table-joins",
        "the-example-of-kip-857",
        "the-example-of-kip-857-to-the-letter",
        "joins-of-records-without-a-key-or-a-value",
        "joins-of-records-without-a-key-or-a-value-without-serdes",
    }


def _topics(case: Case) -> set[str]:
    return {source.topic for source in case.topology().plan.sources()}
