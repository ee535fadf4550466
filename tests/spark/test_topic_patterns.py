"""Topics by a pattern on Spark: topics of the cut are computed; for results of a deleted topic there is no verdict."""

from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark.session import ONE_TASK
from eddy.errors import ConfigurationError
from tests.spark.rig import Rig, latest_of

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64


def topology() -> eddy.Topology:
    """The records of each key in all topics."""
    made = eddy.Topology("words")
    made.stream(pattern="in-.*", key=S, value=S).group_by_key().count("counts").to("out")
    return made


@pytest.fixture
def rig(tmp_path: Path, spark: Any) -> Any:
    rig = Rig(tmp_path, topology, [TopicSpec(name, 2) for name in ("in-a", "in-b", "out")], spark)
    rig.write("in-a", [(b"a", b"x"), (b"b", b"x")])
    rig.write("in-b", [(b"a", b"y")])
    yield rig
    rig.close()


def counts(rig: Rig) -> dict[bytes | None, int]:
    return {key: N.decode(value) for key, (_, value) in latest_of(rig.log, "out").items()}


@pytest.mark.parametrize("one_task", [0, ONE_TASK])
def test_a_worker_goes_on_from_a_backfill_and_both_take_a_new_topic(rig: Rig, one_task: int) -> None:
    rig.one_task = one_task
    rig.backfill()
    assert counts(rig) == {b"a": 2, b"b": 1}
    rig.work()
    rig.log.create_topics([TopicSpec("in-c", 2)])
    rig.write("in-c", [(b"a", b"z"), (b"c", b"z")])
    verdict = rig.verify()  # no worker has read it
    assert (verdict.status, verdict.word) == (0, "equal"), list(verdict.lines())
    rig.work()
    assert counts(rig) == {b"a": 3, b"b": 1, b"c": 1}
    verdict = rig.verify()
    assert (verdict.status, verdict.word) == (0, "equal"), list(verdict.lines())


def test_without_a_topic_that_was_read_there_is_no_verdict(rig: Rig) -> None:
    rig.work()
    rig.log.delete_topics(["in-b"])
    with pytest.raises(ConfigurationError, match="topic 'in-b' no longer exists, and the results have its records"):
        rig.verify()
    rig.work()
    with pytest.raises(ConfigurationError, match="topic 'in-b' no longer exists"):
        rig.verify()
