"""How long a worker with 1,000,000 keys is away: restarted on its state, and restored from its changelogs."""

import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.embedded import COUNTS, create_topics, produce, read_all
from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.runs import Figures, Program, median
from benchmarks.systems.process import read_rows
from benchmarks.workloads import Workload, read_counts, tree
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition

__all__ = ["run"]

_OUTPUT = TopicPartition(COUNTS, 0)
_WORKER = [sys.executable, "-m", "benchmarks.systems.worker"]


def run(quick: bool) -> Section:
    """Before each start a new leaf waits in the topic; its ancestors' counts and the whole table are checked."""
    workload = tree("random", 10_000 if quick else 1_000_000)
    section = Section(
        f"restart: {workload.nodes:,} keys, 1 partition; from `Worker(…)` to the first processed record",
        ["state", "median s", "min s", "max s", "made in s", "restored", "restored/s", "peak MiB", "result"],
    )
    with tempfile.TemporaryDirectory() as name:
        place = _Place(Path(name), workload)
        filled = place.fill()
        section.notes = [
            f"filled first, by the worker: {number(filled.get('records', 0) / filled.get('seconds', 1))} records/s, "
            f"peak {mebibytes(filled.get('peak_bytes', 0))} MiB; stopped cleanly."
        ]
        section.wrong += [filled["wrong"]] if filled["wrong"] else []
        there = [] if section.wrong else [place.start() for _ in range(3)]
        lost = [] if section.wrong else [place.start(lose_state=True) for _ in range(2)]
    for state, runs in (("there", there), ("deleted", lost)):
        section.runs[state] = runs
        section.wrong += [f"state {state}: {run['wrong']}" for run in runs if run["wrong"]]
        section.rows.append(_row(state, runs))
    section.targets = [Target("restart, state there", 5, "s", {workload.name: median(there, "seconds")})]
    return section


class _Place:
    """A log and a state directory, and what the counts in them have to be."""

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.log_dir, self.state = folder / "log", folder / "state"
        self._out, self._workload = folder / "counts", workload
        rows = read_rows(str(workload.records))
        self._parents: dict[int, int] = dict(rows)
        self._counts = {int(node): int(count) for node, count in read_counts(workload.expected).items()}
        self._next, self._rows = workload.nodes, rows

    def fill(self) -> Figures:
        """Have the worker take the whole tree in."""
        log = LocalLog(self.log_dir)
        create_topics(log, 1)
        produce(log, self._rows, 1)
        log.close()
        return Program("fill", [*_WORKER, "run", str(self.log_dir), str(self.state)], lambda: "").run()

    def start(self, *, lose_state: bool = False) -> Figures:
        """One more leaf in the topic, then a start of the worker."""
        if lose_state:
            shutil.rmtree(self.state)
        above = self._add_leaf()
        log = LocalLog(self.log_dir)
        leaf = self._next - 1
        produce(log, [(leaf, self._parents[leaf])], 1)
        begin = log.end_offsets([_OUTPUT])
        log.close()
        command = [*_WORKER, "restart", str(self.log_dir), str(self.state), str(self._out)]
        return Program("restart", command, lambda: self._check(above, begin)).run()

    def _add_leaf(self) -> dict[str, int | None]:
        """Hang a leaf under the last node; return the new counts of all above it."""
        leaf, parent = self._next, self._workload.nodes - 1
        self._next += 1
        self._parents[leaf] = parent
        above: dict[str, int | None] = {}
        node: int | None = parent
        while node is not None:
            self._counts[node] = self._counts.get(node, 0) + 1
            above[str(node)] = self._counts[node]
            node = self._parents.get(node)
        return above

    def _check(self, above: dict[str, int | None], begin: dict[TopicPartition, int]) -> str:
        log = LocalLog(self.log_dir)
        written = dict(read_all(log, begin))
        log.close()
        if written != above:
            return f"the output after the start is {written}, it should be {above}"
        got = read_counts(self._out)
        want = {str(node): str(count) for node, count in self._counts.items() if count}
        return "" if got == want else f"{len(got)} counts in the table, {len(want)} expected, or values differ"


def _row(state: str, runs: list[Figures]) -> list[str]:
    seconds = [run["seconds"] for run in runs if "seconds" in run]
    restored = median(runs, "restored")
    return [
        state,
        number(median(runs, "seconds")),
        number(min(seconds, default=float("nan"))),
        number(max(seconds, default=float("nan"))),
        number(median(runs, "made_seconds")),
        number(restored),
        number(restored / median(runs, "restore_seconds")) if restored > 0 else "–",
        mebibytes(median(runs, "peak_bytes")),
        "ok" if runs and not any(run["wrong"] for run in runs) else "WRONG",
    ]
