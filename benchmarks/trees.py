"""What `descendants` and `live` share: the systems compared, their commands, the check against the oracle."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.runs import Figures, Program, interleave
from benchmarks.workloads import CACHE, Workload, read_counts

__all__ = ["DIFFERENTIAL", "EDDY", "EDDY_STR", "PLAIN", "Case", "differential", "measure"]

EDDY, EDDY_STR, DIFFERENTIAL, PLAIN = "eddy", "eddy, str keys", "differential-dataflow", "plain dict"
_CRATE = Path(__file__).parent / "peers" / "differential"


@dataclass(frozen=True, slots=True)
class Case:
    """One workload in batches of `batch` records; 0: all in one."""

    workload: Workload
    batch: int
    repetitions: int

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.workload.name}, {f'batches of {self.batch:,}' if self.batch else 'one batch'}"


def measure(case: Case, systems: Sequence[str]) -> tuple[dict[str, list[Figures]], list[str]]:
    """Every system's runs, in turn, and what was wrong with them; a peer that cannot run is left out."""
    with tempfile.TemporaryDirectory() as folder:
        programs = [
            _program(case, name, command, Path(folder)) for name in systems if (command := _command(name)) is not None
        ]
        runs = interleave(programs, case.repetitions)
    wrong = [f"{case.name}: {name}: {run['wrong']}" for name, found in runs.items() for run in found if run["wrong"]]
    return runs, wrong


def _command(system: str) -> list[str] | None:
    python = [sys.executable, "-m"]
    if system == DIFFERENTIAL:
        binary = differential()
        return None if binary is None else [str(binary)]
    return python + (["benchmarks.systems.plain"] if system == PLAIN else ["benchmarks.systems.circuit"])


def _program(case: Case, system: str, command: list[str], folder: Path) -> Program:
    workload, out, sums = case.workload, folder / "counts", folder / "sums"
    arguments = [str(workload.records), str(out), str(case.batch)]
    if workload.changes is not None:
        arguments = ["live", *arguments, str(workload.changes), str(sums)]
    else:
        arguments = ["load", *arguments]
    if system == EDDY_STR:
        arguments += ["--keys", "str"]
    return Program(system, command + arguments, lambda: _check(workload, out, sums))


def _check(workload: Workload, out: Path, sums: Path) -> str:
    """Every count, and the checksums on the way, against the oracle; then forget them."""
    got, want = read_counts(out), read_counts(workload.expected)
    out.unlink()
    differing = sum(1 for node in want.keys() | got.keys() if want.get(node) != got.get(node))
    if differing:
        return f"{differing} of {len(want)} counts differ"
    if workload.sums is not None:
        same = sums.read_text() == workload.sums.read_text()
        sums.unlink()
        return "" if same else "a checksum on the way differs"
    return ""


@cache
def differential(binary: str = "ddpeer") -> Path | None:
    """A binary of the peer, built by cargo where cargo is; None where it is not, or cannot build."""
    if shutil.which("cargo") is None:
        return None
    target = CACHE / "cargo"
    print("building the peer differential-dataflow (the first time takes minutes) …", file=sys.stderr)
    built = subprocess.run(
        ["cargo", "build", "--release", "--locked", "--quiet"],
        cwd=_CRATE,
        env=os.environ | {"CARGO_TARGET_DIR": str(target)},
        stderr=subprocess.PIPE,
        text=True,
    )
    if built.returncode:
        print(built.stderr, file=sys.stderr)
        return None
    return target / "release" / binary
