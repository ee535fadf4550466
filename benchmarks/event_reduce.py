"""The peer event-reduce: JavaScript from npm, run by Node, on the same documents and edits."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.workloads import CACHE, ROOT

__all__ = ["NOT_RUN", "run_edits"]

NOT_RUN = "not run: no node and npm, or it could not be installed"
_PEER = ROOT / "benchmarks" / "peers" / "event_reduce"


@cache
def _installed() -> Path | None:
    """The directory with the package, installed by npm; None where that is not possible."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None
    target = CACHE / "event_reduce"
    if not (target / "node_modules" / "event-reduce-js").exists():
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(_PEER / "package.json", target)
        command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
        try:
            done = subprocess.run(command, cwd=target, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return None
    return target


def run_edits(
    rows: Sequence[Mapping[str, Any]], edits: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]], limit: int
) -> dict[str, Any] | None:
    """By name of the edits: `us` of processor time for each, the number of `requeries`, the `ids` of the result then.

    An edit is a pair of INSERT, UPDATE or DELETE and a row with `id`, `rank` and `kind`. None where it cannot be run.
    """
    installed = _installed()
    if installed is None:
        return None
    given = {name: [{"op": op, "row": row} for op, row in each] for name, each in edits.items()}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"limit": limit, "rows": rows, "edits": given}, file)
        file.flush()
        command = ["node", str(_PEER / "peer.mjs"), file.name, str(installed)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
