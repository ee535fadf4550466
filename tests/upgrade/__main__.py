"""Keep what this version of eddy stores, for the tests of later ones: `python -m tests.upgrade VERSION`.

It writes `kept-VERSION.tar.xz` beside this file: for each application a log and the states of a worker that has taken
in `EVENTS` records of seed 1.
"""

import sys
import tarfile
import tempfile
from pathlib import Path

from tests.upgrade.applications import APPLICATIONS, EVENTS
from tests.upgrade.rig import produce, run


def keep(version: str) -> Path:
    """Write the archive. Returns: its path."""
    archive = Path(__file__).with_name(f"kept-{version}.tar.xz")
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive, "w:xz") as tar:
        for application in APPLICATIONS:
            home = Path(folder, application.name)
            home.mkdir()
            produce(home, application, 1, EVENTS)
            run(home, application)
            tar.add(home, application.name)
    return archive


if __name__ == "__main__":
    print(keep(*sys.argv[1:]))
