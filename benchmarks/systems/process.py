"""What every measured Python program does around its work: read, settle, report."""

import contextlib
import ctypes
import gc
import json
import resource
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

__all__ = ["Start", "percentiles_ms", "read_changes", "read_rows", "report", "resident_bytes", "settle", "write_counts"]

Change = tuple[str, int, int, int | None]


def read_rows(path: str, key: Callable[[str], Any] = int) -> list[tuple[Any, Any]]:
    """The records of a tree; equal keys are objects of their own, as those that are decoded from a topic."""
    rows = []
    with Path(path).open() as lines:
        for line in lines:
            node, parent = line.split()
            rows.append((key(node), key(parent)))
    return rows


def read_changes(path: str) -> list[Change]:
    """(what, node, parent, new parent of a move)."""
    found: list[Change] = []
    with Path(path).open() as lines:
        for line in lines:
            what, node, parent, *target = line.split()
            found.append((what, int(node), int(parent), int(target[0]) if target else None))
    return found


class Start(NamedTuple):
    """The moment from which a program is measured: what was resident, and both clocks."""

    resident: int
    wall_s: float
    cpu_s: float


def settle() -> Start:
    """Take what is loaded out of the collector's sight, as `eddy run` sets it; measure from here on.

    The kernel counts the peak of memory anew, where it can (Linux).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return Start(resident_bytes(), perf_counter(), process_time())


def resident_bytes() -> int:
    """The memory that is resident now."""
    return _status("VmRSS")


def report(start: Start, **figures: Any) -> None:
    """Print time and memory since `start`, and the figures given, as one line of JSON."""
    spent = {"seconds": perf_counter() - start.wall_s, "cpu_seconds": process_time() - start.cpu_s}
    memory = {"before_bytes": start.resident, "peak_bytes": _status("VmHWM")}
    json.dump(spent | memory | figures, sys.stdout)
    print(flush=True)


def percentiles_ms(seconds: Iterable[float]) -> dict[str, float]:
    """The median and the 99th percentile, in milliseconds."""
    ordered = sorted(seconds)
    return {name: ordered[int((len(ordered) - 1) * p)] * 1e3 for name, p in (("p50_ms", 0.5), ("p99_ms", 0.99))}


def write_counts(path: str, counts: Iterable[tuple[object, int]]) -> None:
    """Write the counts that are not 0."""
    with Path(path).open("w") as file:
        file.writelines(f"{node} {count}\n" for node, count in counts if count)


def _status(field: str) -> int:
    """A size from /proc, in bytes; where there is none, the peak that the system knows of."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    (line,) = (line for line in status.splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024
