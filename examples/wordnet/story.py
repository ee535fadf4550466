"""What both demonstrations tell: greatest counts, a subtree that moves, one that goes; all counts checked each time."""

import random
from collections.abc import Iterable
from typing import Protocol

from concepts import Concepts, Records, find, from_scratch, path, subtree
from rich.console import Console
from rich.table import Table
from topology import Concept, Size

__all__ = ["Job", "check", "console", "move", "remove", "show_top"]

console = Console(highlight=False)


class Job(Protocol):
    """The topology on a log, and what its output says by now."""

    sizes: dict[str, Size]

    def write(self, records: Records) -> None:
        """Produce records to the topic of concepts."""

    def run(self) -> float:
        """Let it take everything in, and read what came out; return the seconds since the last `write` began."""


def show_top(sizes: Iterable[Size]) -> None:
    """The ten concepts with the most descendants."""
    console.print("[bold]The ten concepts with the most descendants[/]")
    top = Table()
    top.add_column("concept")
    top.add_column("descendants", justify="right")
    for size in sorted(sizes, key=lambda size: -size.descendants)[:10]:
        top.add_row(size.name, f"{size.descendants:,}")
    console.print(top)


def check(job: Job, concepts: Concepts) -> None:
    """Compare every count with one made from scratch; stop where one differs."""
    expected = from_scratch(concepts)
    if job.sizes != expected:
        wrong = sum(job.sizes.get(node) != expected.get(node) for node in job.sizes.keys() | expected)
        raise SystemExit(f"{wrong} of {len(expected)} counts are wrong")
    console.print(f"[green]✓[/] all {len(expected):,} counts equal those counted from scratch\n")


def move(job: Job, concepts: Concepts) -> None:
    """Move a subtree: one record, and every count on the way up follows."""
    dog, furniture = find(concepts, "dog", "canine"), find(concepts, "furniture", "furnishing")
    before, old_path = dict(job.sizes), path(concepts, dog)
    concepts[dog] = Concept(concepts[dog].name, furniture)
    job.write([(dog, concepts[dog])])
    seconds = job.run()
    watched = list(dict.fromkeys([*path(concepts, dog)[:4], *old_path[1:8]]))
    title = f"'dog' becomes a kind of furniture: one record, {seconds * 1e3:.1f} ms"
    _show_change(title, watched, before, job.sizes)
    check(job, concepts)


def remove(job: Job, concepts: Concepts) -> None:
    """Remove a subtree, record by record, in no particular order."""
    bird = find(concepts, "bird", "vertebrate")
    before, above, gone = dict(job.sizes), path(concepts, bird), subtree(concepts, bird)
    random.Random(2).shuffle(gone)
    job.write([(node, None) for node in gone])
    seconds = job.run()
    title = f"'bird' and all below it are removed: {len(gone):,} records, {seconds * 1e3:.0f} ms"
    _show_change(title, above[:8], before, job.sizes)
    for node in gone:
        del concepts[node]
    check(job, concepts)


def _show_change(title: str, nodes: list[str], before: dict[str, Size], after: dict[str, Size]) -> None:
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
