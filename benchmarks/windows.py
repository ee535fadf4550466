"""What windows cost beside a count without them: records counted by key and window, on the embedded log."""

from benchmarks.report import Section, Target, number
from benchmarks.runs import interleave, median, ratios, system

__all__ = ["run"]

_WHAT = ("count", "update", "close", "brief")
_BY_VALUE = "-by-value"
"""Through an exchange."""


def run(quick: bool) -> Section:
    """By the key of the records, and by another one through an exchange."""
    records, keys, repetitions = (20_000, 1_000, 1) if quick else (1_000_000, 10_000, 3)
    section = Section(
        f"windows: {records:,} records over {keys:,} keys, counted by key and tumbling window; ×: time by that of a "
        "count without windows",
        ["grouped", "what", "median s", "×", "× CPU", "records/s", "result"],
    )
    section.notes = [
        "update and close: ten windows, so that each row counts a tenth of the records of its key; brief: each window "
        "of a key has one record, so as many windows open and close as there are records. A count has one row for "
        "each key and epoch, a window one in the table and one in the calendar, which its end deletes.",
        "each run checks that only the open windows have rows in states, and their counts.",
    ]
    measured: dict[str, float] = {}
    for grouped, suffix in (("by key", ""), ("by value", _BY_VALUE)):
        cases = [system("windows", what + suffix, records, keys) for what in _WHAT]
        runs = section.runs[grouped] = interleave(cases, repetitions)
        for case in cases:
            own, base = runs[case.name], runs[cases[0].name]
            wrong = "; ".join(dict.fromkeys(one["wrong"] for one in own if one["wrong"]))
            section.wrong += [f"{grouped}, {case.name}: {wrong}"] if wrong else []
            times, cpu = ([{"x": pair} for pair in ratios(own, base, f)] for f in ("seconds", "cpu_seconds"))
            if case is not cases[0] and not case.name.startswith("brief"):
                measured[case.name] = median(cpu, "x")
            section.rows.append(
                [
                    *(grouped, case.name.removesuffix(suffix), number(median(own, "seconds"))),
                    *(number(median(times, "x")), number(median(cpu, "x"))),
                    *(number(records / median(own, "seconds")), wrong or "ok"),
                ]
            )
    section.targets = [Target("windows: ten tumbling windows", 4, "× the processor time of a count", measured)]
    return section
