"""The plans of few records are interpreted, those of more are compiled as the session says, and the session stays."""

from typing import Any

import pytest

from eddy.connectors.spark.frames import Frames

pytestmark = [pytest.mark.xdist_group("spark-2"), pytest.mark.timeout(1200)]

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
