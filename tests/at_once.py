"""Processes that do the same thing at the same moments, to find what two of them together get wrong."""

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.waiting import PATIENCE_S, WaitTimeoutError

_STARTS_S = 2.0
_PROGRAM = """
import json, pathlib, sys, time
from collections import Counter
from eddy.errors import StateInUseError
{imports}
folder, times, began, told = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Counter()
for number in range(times):
    path = folder / str(number)
    while time.time() < began + number / 40:
        pass
    try:
        {action}
    except StateInUseError:
        pass
    except Exception as error:
        told[f"{{type(error).__name__}}: {{error}}"] += 1
print(json.dumps(told))
"""


def errors_of(action: str, imports: str, folder: Path, *, times: int, processes: int) -> Counter[str]:
    """Run `action`, a statement that uses `path`, on `times` paths in `folder`, on each by all processes at one moment.

    Returns the errors that came, without StateInUseError.
    """
    program = _PROGRAM.format(imports=imports, action=action)
    command = [sys.executable, "-c", program, str(folder), str(times), str(time.time() + _STARTS_S)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    told: Counter[str] = Counter()
    for process in running:
        told.update(_read(process))
    return told


def _read(process: subprocess.Popen[str]) -> dict[str, int]:
    try:
        found, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.communicate()
        raise WaitTimeoutError(f"a process that does the same as others: {error}") from error
    assert process.returncode == 0
    errors: dict[str, int] = json.loads(found)
    return errors
