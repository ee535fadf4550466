"""Memory that epochs have freed is given back, under load and at rest."""

import platform
from pathlib import Path

import pytest

from eddy.cli import freed_memory
from eddy.cli.freed_memory import FreedMemory

MIB = 1 << 20
PAGE = 4096


def resident() -> int:
    """The resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no malloc_trim")
def test_what_is_free_between_used_pieces_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(freed_memory, "thread_time", lambda: now[0])
    freed = FreedMemory()
    made = [b"%d" % number * 400 for number in range(100_000)]
    sizes = sum(map(len, made))
    kept = made[::50]
    del made
    before = resident()
    now[0] = 0.4
    freed.after_epoch(at_rest=False)
    assert before - resident() < 10 * MIB  # it is not due
    now[0] = 0.5
    freed.after_epoch(at_rest=False)
    assert before - resident() > sizes // 2
    assert kept[-1].startswith(b"99950")


def test_it_is_given_back_sooner_at_rest_and_not_without_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], list[int]()
    monkeypatch.setattr(freed_memory, "thread_time", lambda: now[0])
    monkeypatch.setattr(freed_memory, "_trim", lambda: calls.append)  # private: counts the calls of the C library
    freed = FreedMemory()
    for at, at_rest, called in [(0.05, True, 0), (0.1, False, 0), (0.1, True, 1), (0.15, True, 1), (0.65, False, 2)]:
        now[0] = at
        freed.after_epoch(at_rest)
        assert len(calls) == called
    monkeypatch.setattr(freed_memory, "_trim", lambda: None)  # private: another C library
    freed = FreedMemory()
    now[0] = 9.0
    freed.after_epoch(at_rest=True)
    assert len(calls) == 2


def test_a_call_that_takes_long_is_made_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is at rest, and its memory is in a million pieces; later they are gone."""
    now, takes_s, calls = [0.0], [0.1], list[float]()

    def trim(pad: int) -> None:
        calls.append(now[0])
        now[0] += takes_s[0]

    monkeypatch.setattr(freed_memory, "thread_time", lambda: now[0])
    monkeypatch.setattr(freed_memory, "_trim", lambda: trim)  # private: the C library's function takes so long
    freed = FreedMemory()
    while now[0] < 20:
        now[0] += 0.05
        freed.after_epoch(at_rest=True)
    assert calls == pytest.approx([0.1, 5.2, 10.3, 15.4], abs=0.06)
    takes_s[0] = 0.0
    while now[0] < 25:
        now[0] += 0.05
        freed.after_epoch(at_rest=True)
    assert len(calls) > 40
