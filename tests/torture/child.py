"""A worker in a process of its own, which does something to itself at a named step of an epoch.

`python -m tests.torture.child ORDER`, an order being JSON. What it owns it says on stdout, a line each
time that changes; the stacks of all its threads it writes to stderr on SIGUSR1. It ends with SIGTERM,
with an error's exit status, or with the process that started it, which holds its stdin open.
"""

import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

import eddy
from eddy.cli.exits import exit_status
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.runtime.lifecycle import WorkerState
from tests.children import Doom, end_with_parent, signal_self
from tests.torture.planted import PLANTS
from tests.torture.programs import program_of

__all__ = ["KILL", "STOP", "Order", "settings_of"]

KILL, STOP = "kill", "stop"
DEEDS = {KILL: signal_self(signal.SIGKILL), STOP: signal_self(signal.SIGSTOP)}


class Order(msgspec.Struct, kw_only=True):
    """What a worker is to run, and at the how manieth `step` of that name which `deed` befalls it."""

    bootstrap: str
    clients: dict[str, str]
    program: str
    run: str
    member: str
    state_dir: str
    config: dict[str, int | float]
    step: str = ""
    time: int = 1
    deed: str = KILL
    planted: str = ""


def settings_of(bootstrap: str, clients: dict[str, str]) -> KafkaSettings:
    """The settings of a connection."""
    return KafkaSettings.of(bootstrap, pairs=[f"{key}={value}" for key, value in clients.items()], environ={})


class Fate:
    """The worker's hook: at the order's step, the time it names, this process gets the signal.

    A worker that was stopped in an epoch is a zombie when it goes on: that epoch has to be undone. A plan or a cut
    that it sends by itself does no harm, since it says nothing that was not so.
    """

    def __init__(self, order: Order) -> None:
        self._doom = Doom(order.step, order.time, self._befall)
        self._deed = DEEDS[order.deed]
        self._in_epoch = False
        self._doomed_at = -1
        self.worker: eddy.Worker | None = None

    def __call__(self, step: str) -> None:
        """Observe a step."""
        self._in_epoch = step == "stepped" or (self._in_epoch and step != "done")
        if step == "committed" and self._aborts() == self._doomed_at:
            logging.error("a zombie has committed")
            os._exit(os.EX_SOFTWARE)
        self._doom(step)

    def _befall(self) -> None:
        self._deed()
        self._doomed_at = self._aborts() if self._in_epoch else -1

    def _aborts(self) -> int:
        return self.worker.statistics.aborts if self.worker else 0


def report(worker: eddy.Worker) -> Callable[[], None]:
    """Say what the worker owns and has the states of, each time that changes: `topic partition …`."""
    said: object = set()

    def say() -> None:
        nonlocal said
        ready = worker.state in (WorkerState.PROCESSING, WorkerState.ISOLATING)
        owned = set(worker._consumer.assignment()) if ready else set()  # private: the group's word
        if owned != said:
            said = owned
            print(*(f"{topic} {partition}" for topic, partition in sorted(owned)), flush=True)

    return say


def work(order: Order) -> None:
    """Run until SIGTERM."""
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    log = KafkaLog(settings_of(order.bootstrap, order.clients))
    config = eddy.Config(state_dir=Path(order.state_dir), **order.config)  # type: ignore[arg-type]
    topology = program_of(order.program, order.run).topology()
    fate = Fate(order)
    fate.worker = worker = eddy.Worker(topology, log, config, member=order.member, observe=fate)
    worker.run(told.is_set, after=report(worker))
    log.close()


def main(order: Order) -> int:
    """Returns the exit status."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    end_with_parent()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
    logging.getLogger("eddy.kafka.client").addFilter(lambda line: not line.getMessage().startswith("FAIL"))
    if order.planted:
        PLANTS[order.planted]()
    try:
        work(order)
    except eddy.EddyError as error:
        logging.error("%s: %s", type(error).__name__, error)
        return exit_status(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(msgspec.json.decode(sys.argv[1], type=Order)))
