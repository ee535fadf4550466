"""A process that has eddy imported and forks a child for each order: `eddy …` with something done to it.

An order is a line of JSON on stdin, an answer one on stdout. In the child the worker's `observe` is
a hook of ours, which at the order's step does its deed; nothing in eddy knows of it.
"""

import dataclasses
import json
import os
import resource
import signal
import sys
from typing import Any

import eddy.cli.run
import eddy.runtime.worker
from eddy.runtime.changelog_replay import Restore
from tests.children import Doom, fork_eddy, signal_self

KILL, TERMINATE, FILL_DISK = "kill", "terminate", "fill the disk"
RESTORED = "restored a slice"
"""A step of our own beside those of an epoch."""


def fill_disk() -> None:
    """From here on no file can grow: a write fails as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


DEEDS = {
    KILL: signal_self(signal.SIGKILL),
    TERMINATE: signal_self(signal.SIGTERM),
    FILL_DISK: fill_disk,
}


def hook_in(order: dict[str, Any]) -> None:
    """Make each worker of this process do the deed at the order's step, the time it names."""
    observe = Doom(order["step"], order["time"], DEEDS[order["deed"]])
    make = eddy.runtime.worker.Worker.__init__

    def made(worker: Any, topology: Any, log: Any, config: eddy.Config, **others: Any) -> None:
        settings = dataclasses.replace(config, **order["settings"])
        make(worker, topology, log, settings, observe=observe, **others)

    restore = Restore.step

    def restored(part: Restore, *others: Any) -> int:
        records = restore(part, *others)
        observe(RESTORED)
        return records

    eddy.runtime.worker.Worker.__init__ = made  # type: ignore[method-assign]
    Restore.step = restored  # type: ignore[method-assign]


def carry_out(order: dict[str, Any]) -> dict[str, Any]:
    """Fork, kill after a while where the order says so, and tell how it ended: a signal is negative."""
    read, write = os.pipe()  # not a file, which could not grow once the disk is full

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        hook_in(order)

    pid = fork_eddy(order["arguments"], write, prepare)
    os.close(write)
    if order["kill_after_s"] is not None and signal.sigtimedwait({signal.SIGCHLD}, order["kill_after_s"]) is None:
        os.kill(pid, signal.SIGKILL)
    with open(read, encoding="utf-8") as errors:
        said = errors.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signal.sigtimedwait({signal.SIGCHLD}, 0)
    return {"status": status, "errors": said}


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for line in sys.stdin:
        print(json.dumps(carry_out(json.loads(line))), flush=True)
