"""What a change of a view of permissions costs: two recursions, four joins, two DISTINCTs, and the table of rights."""

from benchmarks.report import Section, Target, number
from benchmarks.runs import interleave, median, system

__all__ = ["run"]


def run(quick: bool) -> Section:
    """By 20, and one at a time."""
    users, files, changes, repetitions = (100, 1_000, 400, 1) if quick else (1_000, 10_000, 2_000, 3)
    section = Section(
        f"permissions: {changes:,} changes of {users:,} users, {users // 10:,} groups and {files:,} files, in memory",
        ["changes", "p50 ms", "p99 ms", "changes/s", "changes/s of CPU", "rows of states/s of CPU", "result"],
    )
    cases = {f"by {batch}": (users, files, changes, batch) for batch in (20, 1)}
    runs = interleave([system("permissions", name, *sizes) for name, sizes in cases.items()], repetitions)
    by_cpu = {}
    for name, own in runs.items():
        section.runs[name] = own
        wrong = "; ".join(dict.fromkeys(one["wrong"] for one in own if one["wrong"]))
        section.wrong += [f"{name}: {wrong}"] if wrong else []
        cpu = by_cpu[name] = median(own, "cpu_seconds")
        section.rows.append(
            [
                *(name, number(median(own, "p50_ms")), number(median(own, "p99_ms"))),
                *(number(changes / median(own, "seconds")), number(changes / cpu)),
                *(number(median(own, "state_rows") / cpu), wrong or "ok"),
            ]
        )
    section.targets = [
        Target("permissions, by 20", 1_000, "changes/s of CPU", {"": changes / by_cpu["by 20"]}, at_least=True),
        Target("permissions, one at a time", 700, "changes/s of CPU", {"": changes / by_cpu["by 1"]}, at_least=True),
    ]
    return section
