"""The plans of few records are interpreted and not shuffled, those of more are compiled as the session says, and the
session stays.
"""

from typing import Any

import pytest

from eddy.connectors.spark.arrow_functions import ROWS
from eddy.connectors.spark.frames import Frames
from tests.spark.jobs import QUICK_TO_START

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.mark.parametrize(("records", "settings"), [(0, INTERPRETED), (5_000, INTERPRETED), (5_001, COMPILED)])
def test_plans_of_few_records_are_interpreted(records: int, settings: dict[str, str], spark: Any) -> None:
    frames = Frames(spark)
    own = {name: spark.conf.get(name) for name in COMPILED}
    for name, value in COMPILED.items():
        frames.spark.conf.set(name, value)
    frames.fit(records)
    assert {name: frames.spark.conf.get(name) for name in COMPILED} == settings
    assert frames.spark.range(3).selectExpr("sum(id) AS n").collect()[0]["n"] == 3
    assert {name: spark.conf.get(name) for name in own} == own
    frames.release()


@pytest.mark.parametrize(("records", "shuffles"), [(4_999, 0), (5_000, 1)])
def test_few_records_are_in_one_partition_without_a_shuffle(records: int, shuffles: int, spark: Any) -> None:
    frames = Frames(spark)
    frames.fit(records)
    rows = frames.rows([(b"%d" % (n % 3), None, b"v", None, n) for n in range(6)], ROWS)
    merged = frames.consolidated(frames.union([rows, rows], ROWS))
    plan = merged._jdf.queryExecution().executedPlan().toString()  # private: PySpark prints it, and returns no text
    assert plan.count("Exchange") == shuffles
    found = {(bytes(row["k"]), row["w"]) for row in merged.collect()}
    assert found == {(b"0", 6), (b"1", 10), (b"2", 14)}
    frames.release()


def test_java_optimizes_late_beside_the_options_of_the_session(spark: Any) -> None:
    beans = spark._jvm.java.lang.management.ManagementFactory  # private: as PySpark itself does
    given = list(beans.getRuntimeMXBean().getInputArguments())
    assert "-XX:Tier4InvocationThreshold=50000" in given
    assert set(QUICK_TO_START.split()) <= set(given)
