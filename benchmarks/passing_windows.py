"""Whether windows that have opened and closed leave anything: rows of states, memory and disk, while windows pass."""

from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.runs import Figures, system
from benchmarks.systems.passing_windows import KINDS

__all__ = ["run"]

_FROM = 0.5
"""The share of the windows after which caches are full."""


def run(quick: bool) -> Section:
    """Each kind of window once."""
    records = 60_000 if quick else 1_000_000
    section = Section(
        f"passing-windows: {records:,} records whose windows open and close, on disk, cache_bytes=16 MiB",
        ["kind", "records/s", "most rows in states", "in the end", "MiB half-way", "MiB after", "disk MiB", "result"],
    )
    section.notes = [
        "rows in states: at most those of open windows; in the end those of one record, and as-of's 1,000 last values.",
        "so many as you like: python -m benchmarks.systems.passing_windows tumbling 10000000",
        "by windows: rows in states, resident MiB, MiB on disk",
    ]
    grown: dict[str, float] = {}
    for kind in KINDS:
        figures = system("passing_windows", kind, records).run()
        section.runs[kind] = [figures]
        section.wrong += [f"{kind}: {figures['wrong']}"] if figures["wrong"] else []
        if "samples" not in figures:
            continue
        half, most = _memory(figures, records)
        grown[kind] = (most - half) / (1 << 20)
        section.rows.append(
            [
                *(kind, number(records / figures["seconds"])),
                *(number(max(sample[1] for sample in figures["samples"])), number(figures["last_rows"])),
                *(mebibytes(half), mebibytes(most), mebibytes(max(sample[3] for sample in figures["samples"]))),
                figures["wrong"] or "ok",
            ]
        )
        section.notes += [
            f"{kind:>10}  {windows:>10,}  {rows:>6,}  {mebibytes(memory):>5}  {mebibytes(disk):>5}"
            for windows, rows, memory, disk in figures["samples"][::4]
        ]
    section.targets = [Target("passing windows: memory gained in the second half", 16, "MiB", grown)]
    return section


def _memory(figures: Figures, records: int) -> tuple[int, int]:
    """The resident memory once caches are full, and the most after that."""
    later = [memory for windows, _, memory, _ in figures["samples"] if windows >= _FROM * records]
    return later[0], max(later)
