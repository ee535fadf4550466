"""Three recursive questions in SQL: asked once beside DuckDB, kept up to date beside differential-dataflow."""

import sys
import tempfile
from pathlib import Path

from benchmarks.descendants import median_of
from benchmarks.graphs import Graph, graph
from benchmarks.questions import Answers, answers
from benchmarks.report import Section, number
from benchmarks.runs import Figures, Program, interleave, median, ratios
from benchmarks.trees import DIFFERENTIAL, differential

__all__ = ["run"]

_ONCE, _DUCKDB, _KEPT = "eddy.query", "DuckDB", "topology.sql"
_PAIRS = (("once", _ONCE, _DUCKDB), ("kept", _KEPT, DIFFERENTIAL))


def run(quick: bool) -> Section:
    """Closure and components of a graph of 2,000 nodes, shortest paths in one of 20,000; batches of 20."""
    section = Section(
        "sql: recursive questions about a graph, one thread; ×: seconds by the peer's below it",
        ["question", "graph", "rows", "how", "system", "p50 ms", "p99 ms", "all s", "×", "(pairs)", "× CPU", "result"],
    )
    small = graph(200, 240, 100, 20, 1) if quick else graph(2_000, 2_100, 1_000, 20, 1)
    large = graph(2_000, 4_000, 200, 20, 1) if quick else graph(20_000, 40_000, 2_000, 20, 1)
    for question, workload in (("closure", small), ("components", small), ("paths", large)):
        wanted = answers(question, workload)
        runs = _measure(question, workload, wanted, 2 if quick else 3)
        section.runs[question] = runs
        section.wrong += [f"{question}: {name}: {r['wrong']}" for name, rs in runs.items() for r in rs if r["wrong"]]
        named = [question, workload.name, f"{len(wanted.rows()):,}"]
        for how, ours, theirs in _PAIRS:
            section.rows += [[*named, how, *_row(system, runs, theirs)] for system in (ours, theirs)]
    section.notes += [
        "once: the graph after all changes; eddy.query is the whole call, rows in and out, DuckDB the query alone.",
        "kept: 20 edges that come or go an epoch; p50 and p99 are of epochs. Rows: of the answer, at the end.",
        "paths: DuckDB is asked WITH RECURSIVE … USING KEY, eddy WITH MUTUALLY RECURSIVE; else both the same text.",
    ]
    return section


def _measure(question: str, workload: Graph, wanted: Answers, repetitions: int) -> dict[str, list[Figures]]:
    with tempfile.TemporaryDirectory() as folder:
        out, sums = Path(folder) / "rows", Path(folder) / "sums"
        records, batch = str(workload.records), str(workload.batch)
        python = [sys.executable, "-m", "benchmarks.systems.question"]
        commands = {
            _ONCE: [*python, "eddy", question, records, str(out)],
            _DUCKDB: [*python, "duckdb", question, records, str(out)],
            _KEPT: [*python, "kept", question, records, str(out), str(sums), batch],
        }
        if (peer := differential("question")) is not None:
            commands[DIFFERENTIAL] = [str(peer), question, records, str(out), str(sums), batch]
        programs = [Program(name, command, lambda: _check(wanted, out, sums)) for name, command in commands.items()]
        return interleave(programs, repetitions)


def _check(wanted: Answers, out: Path, sums: Path) -> str:
    """Every row at the end, each once; and where it was kept, the checksum after every batch."""
    got, want = out.read_text().splitlines(), wanted.rows()
    same = not sums.exists() or sums.read_text() == wanted.sums.read_text()
    out.unlink()
    sums.unlink(missing_ok=True)
    if differing := len(want ^ set(got)):
        return f"{differing} rows differ, of {len(want)}"
    if len(got) != len(want):
        return f"{len(got)} rows, of which {len(want)} are distinct"
    return "" if same else "a checksum on the way differs"


def _row(system: str, runs: dict[str, list[Figures]], peer: str) -> list[str]:
    if system not in runs:
        return [system, *["–"] * 6, "not run: no cargo, or it could not build"]
    own = runs[system]
    pairs = ratios(own, runs.get(peer, []), "seconds")
    return [
        system,
        number(median(own, "p50_ms")),
        number(median(own, "p99_ms")),
        number(median(own, "seconds")),
        number(median_of(pairs)),
        f"{number(min(pairs))}–{number(max(pairs))}" if pairs else "–",
        number(median_of(ratios(own, runs.get(peer, []), "cpu_seconds"))),
        "WRONG" if any(run["wrong"] for run in own) else "ok",
    ]
