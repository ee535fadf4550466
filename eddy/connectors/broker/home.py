"""The folder of a broker: the files written for Kafka, and the files of Kafka.

broker.json, broker.json.new           port and version of the last start; it marks the folder as a broker's
server.properties, log4j2.properties   written anew by each start
data/                                  Kafka's logs
broker.log                             the output of the last run
lock, pid                              the lock and the process id of `process.py`
"""

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eddy.connectors.broker import process
from eddy.connectors.broker.server_settings import DATA, LOG_SETTINGS, properties
from eddy.errors import ConnectorError

__all__ = ["LOG_PROPERTIES", "SERVER_PROPERTIES", "Home"]

SERVER_PROPERTIES, LOG_PROPERTIES = "server.properties", "log4j2.properties"
_ABOUT, _NEW = "broker.json", "broker.json.new"


class Home:
    """Reads and writes the files of a broker's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / process.LOG

    def about(self) -> dict[str, Any]:
        """Read the `port` and `version` that the last start wrote; empty before the first start."""
        try:
            about: dict[str, Any] = json.loads((self.folder / _ABOUT).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return about

    def make(self) -> None:
        """Make the folder if it is missing. Raises: ConnectorError if it has files that are not a broker's."""
        process.make_folder(self.folder)
        try:
            # Read the folder once: another process may be starting or removing a broker.
            names = set(os.listdir(self.folder))
        except FileNotFoundError:
            return  # the folder was removed at this moment; `process.claimed` makes it again
        others = names - {process.LOCK, process.PID, _NEW}
        if others and _ABOUT not in names:
            raise ConnectorError(
                f"broker {self.folder}: holds {len(others)} other files ({min(others)!r}, …); an empty folder "
                f"is needed. Name one: --data DIR"
            )

    def prepare(self, port: int, version: str, settings: Mapping[str, str]) -> None:
        """Remove the output of the last run, and write the settings of the next one."""
        # The log is removed before the start: a process that waits for this run must not find lines of the last one.
        self.log.unlink(missing_ok=True)
        (self.folder / _NEW).write_text(json.dumps({"port": port, "version": version}), encoding="utf-8")
        (self.folder / _NEW).replace(self.folder / _ABOUT)
        (self.folder / SERVER_PROPERTIES).write_text(properties(settings), encoding="ascii")
        (self.folder / LOG_PROPERTIES).write_text(LOG_SETTINGS, encoding="ascii")

    @property
    def formatted(self) -> bool:
        """Whether Kafka has made its storage here: whether the file exists that Kafka writes last, and in one step."""
        return (self.folder / DATA / "meta.properties").exists()

    def says(self, line: bytes) -> bool:
        """Whether the output of the last run has `line`."""
        try:
            return line in self.log.read_bytes()
        except FileNotFoundError:
            return False

    def last_words(self) -> str:
        """Return the line of the log that best explains why the last run ended."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        said = [line.strip() for line in lines if line.strip() and not line.startswith(("\tat ", "Picked up"))]
        reasons = [line for line in said if "Exception" in line or " ERROR " in line or " FATAL " in line]
        return (reasons or said or [""])[-1]

    def remove(self) -> None:
        """Remove a broker's files, and the folder if it is then empty.

        Raises: ConnectorError while a broker runs in it.
        """
        if not (self.folder / _ABOUT).exists():
            return
        with process.claimed(self.folder) as lock:
            if lock is None:
                raise ConnectorError(
                    f"broker {self.folder}: runs, or is being started; it has to be stopped first. Stop it: "
                    f"eddy broker stop"
                )
            shutil.rmtree(self.folder / DATA, ignore_errors=True)
            for name in (SERVER_PROPERTIES, LOG_PROPERTIES, process.LOG, _NEW, _ABOUT, process.LOCK):
                (self.folder / name).unlink(missing_ok=True)
            # The folder has other files, or another process is starting a broker in it.
            with contextlib.suppress(OSError):
                self.folder.rmdir()
