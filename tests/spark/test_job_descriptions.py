"""Spark's page names the step of a job, and the session has its own description afterwards."""

from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from tests.spark.rig import TREE, Rig, ancestors

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S = eddy.String


def three_loops() -> eddy.Topology:
    """Linear recursions along a chain and wave by wave, and one by nested time."""
    topology = eddy.Topology("loops")
    parents = topology.table("nodes", S, S)
    ancestors(parents).group_by_key().count("descendants").to("descendants")
    edges = parents.to_relation()
    edges.map(lambda node, parent: (parent, 1)).recursively(
        lambda rows: rows.join(parents, lambda _, far, parent: (parent, far + 1)), "distances"
    )
    edges.recursively(
        lambda paths: (
            paths.map(lambda node, top: (top, node), key=S, value=S)
            .join(paths, lambda _, node, top: (node, top))
            .distinct("paths")
        ),
        "closure",
    ).to_table("tops").to("tops")
    return topology


def descriptions(spark: Any, after: int) -> list[str]:
    """The descriptions of all jobs from this number on."""
    context = spark.sparkContext._jsc.sc()  # private: PySpark's status tracker does not tell descriptions
    context.listenerBus().waitUntilEmpty()
    jobs = context.statusStore().jobsList(None)
    found = [jobs.apply(at) for at in range(jobs.size())]
    return [job.description().get() if job.description().isDefined() else "" for job in found if job.jobId() >= after]


def next_job(spark: Any) -> int:
    """The number of the next job."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId())  # private: PySpark does not tell it


def test_jobs_are_described_by_stage_step_and_iteration(tmp_path: Path, spark: Any) -> None:
    rig = Rig(tmp_path, three_loops, [TopicSpec(name, 2) for name in ("nodes", "descendants", "tops")], spark)
    rig.one_task = 0
    rig.write("nodes", TREE[:4])
    spark.sparkContext.setJobDescription("my own")
    try:
        begin = next_job(spark)
        rig.backfill()
        filled = descriptions(spark, begin)
        begin = next_job(spark)
        verdict = rig.verify()
        found = descriptions(spark, begin)
        begin = next_job(spark)
        spark.range(1).collect()
        assert descriptions(spark, begin) == ["my own"]
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", None)
        rig.close()
    assert verdict.status == 0, list(verdict.lines())
    assert {line.split(": ")[0] for line in filled} == {"backfill loops"}
    assert {"backfill loops: write changelogs", "backfill loops: write outputs"} <= set(filled)
    assert {line.split(": ")[0] for line in found} == {"verify loops"}
    assert "verify loops: compare" in found
    for step in ("distances", "closure"):
        iterations = [line for line in found if line.startswith(f"verify loops: compute: step '{step}': iteration ")]
        assert iterations, found
    assert "verify loops: compute: step 'closure': iteration 1" in found
    assert "verify loops: compute: step 'ancestors': iterations up to 1" in found
