"""A worker and a view server in processes of their own, to be killed while input keeps coming."""

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

import eddy
from eddy.connectors.log import Log
from tests.children import Child, end_with_parent, ordered
from tests.waiting import PATIENCE_S, wait_for

__all__ = ["Arena", "Part", "carry_out"]


class Part(msgspec.Struct, kw_only=True):
    """Which part of an application a process is to be, and on which log: a broker's, or the one at a path."""

    name: str
    path: str
    bootstrap: str
    role: str = ""
    state_dir: str = ""

    def open_log(self) -> Log:
        """The log of the application."""
        return eddy.kafka(self.bootstrap) if self.bootstrap else eddy.open_log(self.path)


def carry_out(part: Any, roles: Mapping[str, Callable[[Any, Log], None]]) -> None:
    """Be this part of an application, again where the broker was away as it started."""
    end_with_parent()
    log = part.open_log()
    while True:
        try:
            roles[part.role](part, log)
        except eddy.ConnectorError as error:
            if not error.retriable:
                raise


class Arena(ABC):
    """An application on a log, a producer that never rests, and a process for each role that was started."""

    def __init__(self, folder: Path, order: Part, seed: int) -> None:
        self.folder, self.order, self.rng = folder, order, random.Random(seed)
        self.log = order.open_log()
        self.children: dict[str, Child] = {}
        self.stopping, self._turns = threading.Event(), 0
        self._feed = threading.Thread(target=self._feeding)

    def start(self, role: str, **more: Any) -> Child:
        """Start a process with this role, and more in its order."""
        order = msgspec.structs.replace(self.order, role=role, state_dir=str(self.folder / role), **more)
        self.children[role] = ordered(self.folder, order)
        return self.children[role]

    @abstractmethod
    def write(self, log: Log, rng: random.Random) -> None:
        """Write one transaction of input."""

    def _feeding(self) -> None:
        log, rng = self.order.open_log(), random.Random(self.rng.random())
        while not self.stopping.wait(rng.uniform(0.0, 0.04)):
            self.write(log, rng)
            self._turns += 1
        log.close()

    def feed(self, turns: int) -> None:
        """Wait for some more transactions."""
        aim = self._turns + turns
        wait_for(lambda: self._turns >= aim, PATIENCE_S, "the producer")

    def stop_feeding(self) -> None:
        """End the input."""
        self.stopping.set()
        self._feed.join()

    def __enter__(self) -> Self:
        self._feed.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_feeding()
        for child in self.children.values():
            child.kill()
        self.log.close()
