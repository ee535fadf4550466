"""Joins with global tables on Spark: what a record was joined with is known at its worker alone."""

from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from eddy.errors import ConfigurationError
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark-2"), pytest.mark.timeout(1200)]

S = eddy.String


def topology() -> eddy.Topology:
    made = eddy.Topology("app")
    countries = made.global_table("countries", S, S)
    orders = made.stream("orders", S, S)
    orders.join(countries, lambda order, country: f"{order} {country}", value=S, select=lambda order: order).to("named")
    orders.group_by_key().count("counts").to("counts")
    return made


def test_the_join_is_left_out_by_name_and_the_rest_is_verified(tmp_path: Path, spark: Any) -> None:
    rig = Rig(tmp_path, topology, [TopicSpec(name, 2) for name in ("countries", "orders", "named", "counts")], spark)
    try:
        rig.write("countries", [(b"ch", b"Schweiz")])
        rig.write("orders", [(b"a", b"ch"), (b"b", b"ch"), (b"a", b"xx")])
        rig.work(cut_interval_s=0.0)
        assert {value for _, value in rig.latest("named").values()} == {b"ch Schweiz"}
        verdict = rig.verify()
        assert (verdict.status, verdict.differs) == (2, False), list(verdict.lines())
        assert "sink 'named'" in verdict.undetermined
        assert {part.name for part in verdict.compared} >= {"counts"}
        with pytest.raises(ConfigurationError, match="each worker reads a global table at its own pace"):
            rig.backfill()
    finally:
        rig.close()
