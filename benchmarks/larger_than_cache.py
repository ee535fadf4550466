"""A state ten times the cache: whether memory stays where the cache's budget puts it, while the state grows."""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.runs import Figures, Program
from benchmarks.systems.bounded import records, value_of

__all__ = ["run"]

_TIMES = 10
_WIDTH = 50


def run(quick: bool) -> Section:
    """Keys inserted until the state is ten times the cache, then half as many updates of random keys."""
    cache_bytes = (2 if quick else 16) << 20
    row_bytes = len(value_of(0, 0)) + len("k00000000")
    keys = _TIMES * cache_bytes // row_bytes
    updates = keys // 2
    section = Section(
        f"larger than cache: {keys:,} keys of {row_bytes} bytes ({mebibytes(keys * row_bytes)} MiB), "
        f"cache_bytes={cache_bytes >> 20} MiB; then {updates:,} updates of random keys",
        ["records/s", "MiB before", "MiB, cache full", "most MiB after", "state grew MiB", "memory grew MiB", "result"],
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "tables.json"
        arguments = [folder, str(out), str(cache_bytes), str(keys), str(updates)]
        command = [sys.executable, "-m", "benchmarks.systems.bounded", *arguments]
        figures = Program("bounded", command, lambda: _check(out, keys, updates)).run()
    section.runs["eddy"] = [figures]
    section.wrong = [figures["wrong"]] if figures["wrong"] else []
    if "samples" in figures:
        # From twice the cache on: by then both generations of cells and the block cache are full.
        full = next(size for fed, size in figures["samples"] if fed * row_bytes >= 2 * cache_bytes)
        most = max(size for _, size in figures["samples"])
        section.rows.append(_row(figures, full, most, keys * row_bytes - 2 * cache_bytes))
        section.notes += ["resident memory by records:", *plot(figures["samples"])]
        growth = (most - full) / (1 << 20)
        limit = cache_bytes >> 20
        section.targets = [
            Target("larger than cache, memory after the cache was full", limit, "MiB more", {"": growth})
        ]
    return section


def plot(samples: list[list[int]], lines: int = 20) -> list[str]:
    """The memory as bars, evenly picked."""
    most = max(size for _, size in samples)
    picked = samples[:: max(1, len(samples) // lines)]
    return [f"{fed:>9,}  {mebibytes(size):>5} MiB  {'█' * round(_WIDTH * size / most)}" for fed, size in picked]


def _row(figures: Figures, full: int, most: int, grown: int) -> list[str]:
    return [
        number(figures["records"] / figures["seconds"]),
        mebibytes(figures["before_bytes"]),
        mebibytes(full),
        mebibytes(most),
        mebibytes(grown),
        mebibytes(most - full),
        "WRONG" if figures["wrong"] else "ok",
    ]


def _check(out: Path, keys: int, updates: int) -> str:
    """The two tables against the last version of each key."""
    found = json.loads(out.read_text())
    items = {f"k{key:08}": value_of(key, version) for key, version in dict(records(keys, updates)).items()}
    groups = Counter(value[:5] for value in items.values())
    if found["items"] != items:
        return f"items: {len(found['items'])} rows, {len(items)} expected, or values differ"
    return "" if found["groups"] == groups else "groups: counts differ"
