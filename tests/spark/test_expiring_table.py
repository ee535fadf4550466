"""Spark refuses tables whose rows expire, by name, before anything is computed."""

from datetime import timedelta
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark.computation import Application


@pytest.mark.parametrize("by", ["event time", "wall clock"])
def test_a_table_whose_rows_expire_is_refused(by: Any) -> None:
    topology = eddy.Topology("app")
    topology.stream("in", key=eddy.String, value=eddy.String).to_table("live", timedelta(hours=1), by).to("out")
    log = LocalLog(None)
    log.create_topics(TopicSpec(name, 1) for name in ("in", "out"))
    with pytest.raises(
        eddy.TopologyError, match=f"application 'app': table 'live' has rows that expire by {by}, .* A worker"
    ):
        Application.of(topology, log)
    log.close()
