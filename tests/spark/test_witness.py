"""Verify is a witness of its own: it runs no line of a worker's operators, and so finds the errors that they make."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from eddy.connectors.log import TopicSpec
from tests.seeds import on_days
from tests.spark.branches import ERRORS, INPUTS, TIMES, branches, planted_errors
from tests.spark.rig import Rig
from tests.spark.watching import Watch, lines_in

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]


def rig_in(folder: Path, spark: Any, planted: bool) -> Rig:
    topics = ["nodes", "others", "notes", *(sink.topic for sink in branches().plan.sinks())]
    rig = Rig(folder, branches, [TopicSpec(topic, 1) for topic in topics], spark)
    for part, time in zip(INPUTS, TIMES, strict=True):
        for topic, records in part.items():
            rig.write(topic, records, time)
        with planted_errors() if planted else nullcontext():
            rig.work()
    return rig


@pytest.fixture
def watched(orders: Path) -> Iterator[Path]:
    """A file to which the Python workers append the lines of operators that they run."""
    path = orders / "watched"
    path.touch()
    yield path
    path.unlink()


@on_days({0, 2}, 4)
def test_no_line_of_an_operator_runs_in_a_verification(tmp_path: Path, spark: Any, watched: Path) -> None:
    rig = rig_in(tmp_path, spark, planted=False)
    (tmp_path / "driver").touch()
    with Watch(tmp_path / "driver"):
        verdict = rig.verify()
    assert (verdict.status, verdict.undetermined) == (0, {}), list(verdict.lines())
    assert lines_in(watched) == set()
    driver = {line.split(":")[1] for line in lines_in(tmp_path / "driver")}
    assert {name for name in driver if name.endswith(".step")} == set(), "it has a circuit for its states alone"
    assert rig.verify(quick=True, stores=False).status == 0
    assert len(lines_in(watched)) > 100, "the quick way is the worker's own"
    rig.close()


@on_days({1, 3}, 4)
def test_errors_of_every_kind_of_step_are_found(tmp_path: Path, spark: Any, orders: Path) -> None:
    rig = rig_in(tmp_path, spark, planted=True)
    (orders / "errors").touch()
    with planted_errors():
        verdict = rig.verify()
    (orders / "errors").unlink()
    wrong = {part.name for part in verdict.compared if part.what == "sink" and part.differing}
    assert wrong == ERRORS.keys(), list(verdict.lines())
    assert verdict.status == 1
    rig.close()
