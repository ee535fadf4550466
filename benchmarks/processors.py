"""What a processor with one store costs beside eddy's own step: records counted by key, on the embedded log."""

from benchmarks.report import Section, Target, number
from benchmarks.runs import interleave, median, ratios, system

__all__ = ["run"]

_WHAT = ("count", "quiet", "processor")


def run(quick: bool) -> Section:
    """Few keys and many."""
    records, repetitions = (20_000, 1) if quick else (200_000, 3)
    section = Section(
        f"processors: {records:,} records counted by key; ×: time by that of eddy's own count",
        ["keys", "what", "median s", "×", "× CPU", "records/s", "result"],
    )
    section.notes = [
        "quiet: a processor that forwards nothing; processor: it forwards each count, so one record of output for each "
        "record of input, where count writes one for each key and epoch.",
    ]
    measured: dict[str, float] = {}
    for keys in (1_000, records // 2):
        cases = [system("processors", what, records, keys) for what in _WHAT]
        runs = section.runs[f"{keys:,} keys"] = interleave(cases, repetitions)
        for case in cases:
            own, base = runs[case.name], runs[_WHAT[0]]
            wrong = "; ".join(dict.fromkeys(one["wrong"] for one in own if one["wrong"]))
            section.wrong += [f"{keys:,} keys, {case.name}: {wrong}"] if wrong else []
            times, cpu = ([{"x": pair} for pair in ratios(own, base, f)] for f in ("seconds", "cpu_seconds"))
            if case.name != _WHAT[0]:
                measured[f"{case.name}, {keys:,} keys"] = median(cpu, "x")
            section.rows.append(
                [
                    *(f"{keys:,}", case.name, number(median(own, "seconds")), number(median(times, "x"))),
                    *(number(median(cpu, "x")), number(records / median(own, "seconds")), wrong or "ok"),
                ]
            )
    section.targets = [Target("processors: one with one store", 4, "× the processor time of a count", measured)]
    return section
