"""The main job, end to end: 82,115 concepts in shuffled order, counted, then moved and removed live.

    python examples/wordnet/demo.py

It runs on the embedded log in a temporary folder, with RocksDB for state, and checks every count
against one made from scratch by plain Python.
"""

import csv
import gzip
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from topology import Concept, Size, topology  # noqa: E402 - a neighbour, found through the line above

Concepts = dict[str, Concept]
CONCEPT, SIZE = eddy.Struct(Concept), eddy.Struct(Size)
console = Console(highlight=False)


def load() -> Concepts:
    """All concepts by id."""
    with gzip.open(HERE / "nouns.tsv.gz", "rt", encoding="utf-8") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {node: Concept(name, parent or None) for node, parent, name in rows}


class Job:
    """The topology on an embedded log, and what its output says by now."""

    def __init__(self, folder: Path) -> None:
        self.log = LocalLog(folder / "log")
        self.log.create_topics([TopicSpec("concepts", 1, {"cleanup.policy": "compact"}), TopicSpec("sizes", 1)])
        self.worker = eddy.Worker(topology, self.log, eddy.Config(state_dir=folder / "state"))
        self.sizes: dict[str, Size] = {}
        self._read = 0

    def write(self, records: list[tuple[str, Concept | None]]) -> None:
        """Produce records to the topic of concepts, in one transaction."""
        producer = self.log.producer(None)
        producer.begin()
        values = [None if concept is None else CONCEPT.encode(concept) for _, concept in records]
        now = [time.time_ns() // 1_000_000] * len(records)
        producer.send("concepts", 0, [node.encode() for node, _ in records], values, now)
        producer.commit({}, None)
        producer.close()

    def run(self) -> float:
        """Run to quiescence and read what came out; return the seconds that the run took."""
        start = time.perf_counter()
        self.worker.run_until_idle()
        seconds = time.perf_counter() - start
        sizes = TopicPartition("sizes", 0)
        end = self.log.end_offsets([sizes])[sizes]
        while self._read < end:
            records = self.log.read(sizes, self._read, end, 50_000)
            for key, value in zip(records.keys, records.values, strict=True):
                if value is None:
                    self.sizes.pop(key.decode(), None)
                else:
                    self.sizes[key.decode()] = SIZE.decode(value)
            self._read = records.next_offset
        return seconds

    def close(self) -> None:
        """Stop."""
        self.worker.close()
        self.log.close()


def from_scratch(concepts: Concepts) -> dict[str, Size]:
    """The expected sizes: every concept counts once for each of its ancestors."""
    counts: Counter[str] = Counter()
    for concept in concepts.values():
        above = concept.parent
        while above is not None and above in concepts:
            counts[above] += 1
            above = concepts[above].parent
    return {node: Size(concepts[node].name, count) for node, count in counts.items()}


def check(job: Job, concepts: Concepts) -> None:
    """Compare every count with one made from scratch; stop where one differs."""
    expected = from_scratch(concepts)
    if job.sizes != expected:
        wrong = sum(job.sizes.get(node) != expected.get(node) for node in job.sizes.keys() | expected)
        raise SystemExit(f"{wrong} of {len(expected)} counts are wrong")
    console.print(f"[green]✓[/] all {len(expected):,} counts equal those counted from scratch\n")


def find(concepts: Concepts, name: str, parent: str) -> str:
    """The id of the concept called `name` whose parent is called `parent`."""
    return next(
        node
        for node, concept in concepts.items()
        if concept.name == name and concept.parent and concepts[concept.parent].name == parent
    )


def subtree(concepts: Concepts, root: str) -> list[str]:
    """`root` and all below it, from the top down."""
    children: dict[str, list[str]] = {}
    for node, concept in concepts.items():
        children.setdefault(concept.parent or "", []).append(node)
    found = [root]
    for node in found:
        found += children.get(node, [])
    return found


def path(concepts: Concepts, node: str) -> list[str]:
    """`node` and its ancestors."""
    found: list[str] = []
    above: str | None = node
    while above is not None:
        found.append(above)
        above = concepts[above].parent
    return found


def show_change(title: str, nodes: list[str], before: dict[str, Size], after: dict[str, Size]) -> None:
    """The counts of some concepts, before and after."""
    console.print(f"[bold]{title}[/]")
    table = Table()
    table.add_column("concept")
    for column in ("before", "after", "difference"):
        table.add_column(column, justify="right")
    for node in nodes:
        old, new = (sizes[node].descendants if node in sizes else 0 for sizes in (before, after))
        name = (after.get(node) or before[node]).name
        table.add_row(name, f"{old:,}", f"{new:,}", f"{new - old:+,}")
    console.print(table)


def main() -> None:
    """Load, move, remove; check each time."""
    concepts = load()
    with tempfile.TemporaryDirectory(prefix="eddy-demo-") as folder:
        job = Job(Path(folder))
        records: list[tuple[str, Concept | None]] = list(concepts.items())
        random.Random(1).shuffle(records)
        job.write(records)
        console.print(f"{len(records):,} concepts in shuffled order, children before parents …")
        seconds = job.run()
        rate = len(records) / seconds
        console.print(
            f"counted in {seconds:.2f} s: {rate:,.0f} records/s, exactly once, state and changelogs on disk\n"
        )
        console.print("[bold]The ten concepts with the most descendants[/]")
        top = Table()
        top.add_column("concept")
        top.add_column("descendants", justify="right")
        for size in sorted(job.sizes.values(), key=lambda size: -size.descendants)[:10]:
            top.add_row(size.name, f"{size.descendants:,}")
        console.print(top)
        check(job, concepts)
        move(job, concepts)
        remove(job, concepts)
        job.close()


def move(job: Job, concepts: Concepts) -> None:
    """Move a subtree: one record, and every count on the way up follows."""
    dog, furniture = find(concepts, "dog", "canine"), find(concepts, "furniture", "furnishing")
    before, old_path = dict(job.sizes), path(concepts, dog)
    concepts[dog] = Concept(concepts[dog].name, furniture)
    job.write([(dog, concepts[dog])])
    seconds = job.run()
    watched = list(dict.fromkeys([*path(concepts, dog)[:4], *old_path[1:8]]))
    title = f"'dog' becomes a kind of furniture: one record, {seconds * 1e3:.1f} ms"
    show_change(title, watched, before, job.sizes)
    check(job, concepts)


def remove(job: Job, concepts: Concepts) -> None:
    """Remove a subtree, record by record, in no particular order."""
    bird = find(concepts, "bird", "vertebrate")
    before, above, gone = dict(job.sizes), path(concepts, bird), subtree(concepts, bird)
    random.Random(2).shuffle(gone)
    job.write([(node, None) for node in gone])
    seconds = job.run()
    show_change(
        f"'bird' and all below it are removed: {len(gone):,} records, {seconds * 1e3:.0f} ms",
        above[:8],
        before,
        job.sizes,
    )
    for node in gone:
        del concepts[node]
    check(job, concepts)


if __name__ == "__main__":
    main()
