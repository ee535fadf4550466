"""An application that an earlier version has run goes on without `reset` and without `--accept-plan`, and is right."""

import shutil
import tarfile
from pathlib import Path

import pytest

from tests.upgrade.applications import APPLICATIONS, EVENTS, Application
from tests.upgrade.rig import produce, run, tables

KEPT = sorted(Path(__file__).parent.glob("kept-*.tar.xz"))
every_application = pytest.mark.parametrize("application", APPLICATIONS, ids=lambda application: application.name)
every_version = pytest.mark.parametrize("archive", KEPT, ids=lambda archive: archive.name.removesuffix(".tar.xz"))


def test_there_is_an_earlier_version() -> None:
    assert KEPT


@every_version
@every_application
@pytest.mark.parametrize("states", ["as they are", "lost"])
def test_an_application_goes_on_and_comes_to_what_it_does_from_scratch(
    tmp_path: Path, application: Application, archive: Path, states: str
) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    kept, scratch = tmp_path / application.name, tmp_path / "scratch"
    stopped_s = (kept / "log").stat().st_mtime  # states that slept for half a day are restored
    if states == "lost":
        shutil.rmtree(kept / "state")
    produce(kept, application, 2, EVENTS)
    worker = run(kept, application, wall=lambda: stopped_s + 60, max_epoch_records=50)
    assert worker.statistics.records == EVENTS
    assert bool(worker.statistics.restored) is (states == "lost")
    for seed in (1, 2):
        produce(scratch, application, seed, EVENTS)
    run(scratch, application)
    assert tables(kept, application) == tables(scratch, application)
    assert all(tables(kept, application).values())
