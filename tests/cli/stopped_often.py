"""A process that forks one `eddy run` after the other, and stops each at a random moment of its start and restore.

`python -m tests.cli.stopped_often TIMES SEED LONGEST_S ARGUMENTS…`. Each run has a folder of its own for states. Prints
one line of JSON: by outcome, how often, and the longest stop.
"""

import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.children import fork_eddy

LATER = ("eddy.cli.run", "eddy.connectors.kafka", "eddy.state.rocksdb", "eddy.program.open_tables")
"""Imported by each run when it needs them."""


def outcome(status: int, said: str) -> str:
    """How a run ended."""
    if status or "Traceback" in said:
        return f"ended with {status}: {said[-3_000:]}"
    ways = {"before it had started": "early", "cannot be interrupted": "abandoned", "records in": "between two steps"}
    return next(
        (way for text, way in ways.items() if text in said), "in silence"
    )  # before it began, or on a busy machine


def stopped_often(times: int, seed: int, longest_s: float, arguments: list[str]) -> dict[str, tuple[int, float]]:
    """By outcome, how often, and the seconds from the signal to the end, at most."""
    dice, found = random.Random(seed), dict[str, tuple[int, float]]()
    for _ in range(times):
        folder = Path(tempfile.mkdtemp())
        with (said := folder / "said").open("wb") as errors:
            pid = fork_eddy([*arguments, "--state", str(folder / "state")], errors.fileno())
        time.sleep(dice.uniform(0.1, longest_s))  # pause: a random moment
        began = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        how = outcome(status, said.read_text())
        count, most_s = found.get(how, (0, 0.0))
        found[how] = count + 1, max(most_s, round(time.monotonic() - began, 2))
        shutil.rmtree(folder)
    return found


if __name__ == "__main__":
    for name in LATER:
        importlib.import_module(name)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # until a run has a handler of its own
    times, seed, longest_s, *arguments = sys.argv[1:]
    print(json.dumps(stopped_often(int(times), int(seed), float(longest_s), arguments)))
