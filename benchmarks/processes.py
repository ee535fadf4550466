"""What the kernel knows of processes and their children: processor time, peak memory. Linux; elsewhere nothing."""

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["busy_seconds", "cpu_seconds", "peak_bytes", "tree"]

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


def tree(root: int) -> list[int]:
    """A process and all its descendants that are there now."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*"):
        fields = _stat(int(entry.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_seconds(pids: Iterable[int], *, waited_for: bool = False) -> float:
    """Processor time of these processes; `waited_for`: and that of their children which have ended."""
    fields = slice(11, 15 if waited_for else 13)
    return sum(sum(map(int, _stat(pid)[fields])) for pid in pids) / _TICKS


def peak_bytes(pids: Iterable[int]) -> int:
    """The most memory that was resident, process by process, added up."""
    total = 0
    for pid in pids:
        try:
            status = (_PROC / str(pid) / "status").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    return total * 1024


def busy_seconds() -> float:
    """Processor time that the whole machine has spent."""
    try:
        fields = (_PROC / "stat").read_text().splitlines()[0].split()
    except OSError:
        return 0.0
    return sum(int(fields[i]) for i in (1, 2, 3, 6, 7, 8)) / _TICKS


def _stat(pid: int) -> list[str]:
    """The fields behind the name, which may hold blanks: state, parent, …; none where the process is gone."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
