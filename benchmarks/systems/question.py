"""A question of `questions.py` in SQL: asked once, of eddy or of DuckDB, or kept up to date by eddy.

`once` asks about the graph after all its changes: of eddy the whole call of `eddy.query` is timed, rows in and out; of
DuckDB the query alone, its table loaded before, on one thread. Modules are loaded before, as DuckDB is.
`kept` is a view in memory, no log, no store: the step of its whole circuit, its delta read row by row, the commit.
"""

import argparse
from collections import Counter
from pathlib import Path
from time import perf_counter

import eddy
from benchmarks.questions import QUESTIONS, Edges, duckdb_text, eddy_text, read, weight
from benchmarks.systems.process import percentiles_ms, report, settle
from eddy.operators.batch import Batch
from eddy.operators.circuit import Circuit, Output
from eddy.topology.compiler.circuit_compiler import Environment, compile_plan
from eddy.topology.dsl.table import add_sink

_COLUMNS = {"id": "bigint", "src": "bigint", "dst": "bigint", "w": "bigint"}
Rows = list[tuple[int, int]]


def ask_eddy(question: str, edges: Edges) -> Rows:
    """The answer by `eddy.query`."""
    rows = [(number, a, b, weight(a, b)) for number, (a, b) in edges.last().items()]
    text = eddy_text(question, edges.root)
    eddy.query("WITH MUTUALLY RECURSIVE n(x int) AS (SELECT 1) SELECT x FROM n")  # imports the circuit, too
    start = settle()
    begun = perf_counter()
    found = eddy.query(text, {"edges": (_COLUMNS, rows)}).rows
    seconds = perf_counter() - begun
    report(start, seconds=seconds)
    return found


def ask_duckdb(question: str, edges: Edges) -> Rows:
    """The answer by DuckDB."""
    # At exit its binding prints what it has leaked; so it is imported only where it is asked.
    import duckdb

    numbers = list(edges.last().items())
    columns = [
        [number for number, _ in numbers],
        [a for _, (a, _) in numbers],
        [b for _, (_, b) in numbers],
        [weight(a, b) for _, (a, b) in numbers],
    ]
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute("CREATE TABLE edges (id bigint, src bigint, dst bigint, w bigint)")
    connection.execute("INSERT INTO edges SELECT unnest($1), unnest($2), unnest($3), unnest($4)", columns)
    text = duckdb_text(question, edges.root)
    start = settle()
    begun = perf_counter()
    found = connection.execute(text).fetchall()
    seconds = perf_counter() - begun
    report(start, seconds=seconds)
    return found


class View:
    """A circuit, and what its view holds: rows with their weights, and Σ (x + 1) × (y + 1)."""

    def __init__(self, circuit: Circuit, output: Output) -> None:
        self._circuit, self._output = circuit, output
        self.rows: Counter[tuple[int, int]] = Counter()
        self.total = 0

    def run(self, records: list[tuple[int, tuple[int, int, int] | None]]) -> None:
        """An epoch."""
        self._circuit.step({"edges": Batch(records, [1] * len(records))})
        rows, total = self.rows, 0
        for batch in self._output.batches:
            for (_, row), times in zip(batch.rows, batch.weights, strict=True):
                x, y = row
                total += times * (x + 1) * (y + 1)
                rows[row] += times
                if not rows[row]:
                    del rows[row]
        self.total += total
        self._circuit.commit()


def view(question: str, root: int) -> View:
    """The view of a question, empty."""
    topology = eddy.Topology("questions")
    edges = topology.table("edges", key=eddy.Int64, value=eddy.Native)
    kept = topology.sql(eddy_text(question, root), {"edges": (edges, _COLUMNS)}, name="question")
    add_sink(topology._builder, kept._node, "answer", None, None)
    circuit = compile_plan(topology.plan, Environment({"edges": 1, "answer": 1}))
    (output,) = circuit.outputs.values()
    return View(circuit, output)


def keep(question: str, edges: Edges, batch: int, sums: Path) -> Rows:
    """The graph in one epoch, then its changes; the view's rows at the end."""
    kept = view(question, edges.root)
    begun = perf_counter()
    kept.run([(number, (a, b, weight(a, b))) for number, (a, b) in edges.first.items()])
    load_seconds = perf_counter() - begun
    changes = [(number, (a, b, weight(a, b)) if what == "+" else None) for what, number, (a, b) in edges.changes]
    epochs = [changes[at : at + batch] for at in range(0, len(changes), batch)]
    start = settle()
    seconds, totals = [], []
    for epoch in epochs:
        begun = perf_counter()
        kept.run(epoch)
        seconds.append(perf_counter() - begun)
        totals.append(kept.total)
    report(start, **percentiles_ms(seconds), seconds=sum(seconds), load_seconds=load_seconds)
    sums.write_text("".join(f"{total}\n" for total in totals))
    return list(kept.rows.elements())


def main() -> None:
    """Run as `python -m benchmarks.systems.question`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["eddy", "duckdb", "kept"])
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("sums", type=Path, nargs="?")
    parser.add_argument("batch", type=int, nargs="?", help="changes an epoch")
    arguments = parser.parse_args()
    edges = read(arguments.file)
    if arguments.what == "kept":
        rows = keep(arguments.question, edges, arguments.batch, arguments.sums)
    else:
        rows = (ask_eddy if arguments.what == "eddy" else ask_duckdb)(arguments.question, edges)
    arguments.out.write_text("".join(f"{x} {y}\n" for x, y in rows))


if __name__ == "__main__":
    main()
