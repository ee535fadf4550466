"""Windows computed from all records at once, for traces: facts' windows, late facts, and why a window has no row.

    late       the event time of the fact's partition, up to the fact, has reached the window's end + lag
    session    facts of a key in the order of time, each at most `gap_ms` after the fact before it
    sliding    the windows that facts of a key make; a fact is in each that has its time and is not over for it

Nothing here reads a state or shares code with the operators.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from eddy.errors import DataError
from eddy.topology.plan.bags import Bag, Row, identity
from eddy.topology.plan.facts import Fact, moment_text, span_text
from eddy.windows import SlidingWindows, Span, Windowed, Windows

__all__ = [
    "Made",
    "facts_of",
    "in_sessions",
    "late_spans",
    "late_text",
    "no_such_window",
    "record_of",
    "slid",
    "timely_rows",
]

Made = tuple[Row, Row]
"""A row that a step makes, and the input row from which it is made."""
_NAMED = 3


def record_of(row: Row) -> Any:
    """Return the record of a fact."""
    assert isinstance(row, Fact)
    return row.record


def facts_of(rows: Bag) -> Iterator[Fact]:
    """Yield the facts that get windows: with a key, a value and a time. A fact of weight n is yielded n times."""
    for row, weight in rows:
        if row[0] is not None and row[1] is not None and record_of(row).timestamp_ms >= 0:
            assert isinstance(row, Fact)
            yield from (row for _ in range(weight))


def _spans(windows: Windows, fact: Fact) -> Sequence[Span]:
    try:
        return windows.of(fact.record.timestamp_ms)
    except DataError:  # no calendar window has this time, and so the error policy has left the record out
        return ()


def timely_rows(windows: Windows, rows: Bag) -> Iterator[Made]:
    """Yield each fact under its windows that are not over; for sliding windows, with the first end that is not over."""
    for fact in facts_of(rows):
        now = fact.record.event_time_ms - windows.lag_ms
        for start, end in _spans(windows, fact):
            if end > now:
                last = max(start, now + 1) if isinstance(windows, SlidingWindows) else end
                yield Fact((Windowed(fact[0], start, last), fact[1]), fact.record), fact


def late_spans(windows: Windows, rows: Bag) -> Iterator[tuple[Fact, Span]]:
    """Yield the facts that were late for a window, each with the span of this window."""
    for fact in facts_of(rows):
        for start, end in _spans(windows, fact):
            if end <= fact.record.event_time_ms - windows.lag_ms:
                yield fact, (start, end)


def _by_key(made: Iterable[Made]) -> dict[Any, list[Made]]:
    """Group facts by their keys without windows, in the order of time."""
    found: dict[Any, list[Made]] = defaultdict(list)
    for each in made:
        found[identity(each[0][0].key)].append(each)
    for of_key in found.values():
        of_key.sort(key=lambda each: record_of(each[0]).timestamp_ms)
    return found


def in_sessions(made: Iterable[Made], gap_ms: int) -> Iterator[Made]:
    """Yield each fact under its session, given facts under sessions of one fact each."""
    for of_key in _by_key(made).values():
        times = [record_of(row).timestamp_ms for row, _ in of_key]
        first = 0
        for number in range(1, len(times) + 1):
            if number == len(times) or times[number] - times[number - 1] > gap_ms:
                for row, source in of_key[first:number]:
                    session = Windowed(row[0].key, times[first], times[number - 1])
                    yield Fact((session, row[1]), record_of(row)), source
                first = number


def slid(rows: Bag, windows: SlidingWindows) -> Iterator[Made]:
    """Yield each fact under each existing window that it is in, given facts as `timely_rows` yields them."""
    size = windows.difference_ms
    for of_key in _by_key((row, row) for row, weight in rows for _ in range(weight)).values():
        times = [record_of(row).timestamp_ms for row, _ in of_key]
        starts = {time + 1 for time in times}
        for (row, _), time in zip(of_key, times, strict=True):
            if (own := max(0, time - size)) + size >= row[0].end_ms:
                starts.add(own)
        for start in sorted(starts):
            for row, source in of_key[bisect_left(times, start) : bisect_right(times, start + size)]:
                if row[0].end_ms <= start + size:
                    window = Windowed(row[0].key, start, start + size)
                    yield Fact((window, row[1]), record_of(row)), source


def no_such_window(keys: Iterable[Any], made: Iterable[Made], rows: Bag) -> str:
    """Return why there is no row with one of these keys, as a verb and its object.

    `made` has the rows with windows, `rows` the facts before windows were assigned.
    """
    asked = [key for key in keys if isinstance(key, tuple) and len(key) == _NAMED]
    plain = set(map(identity, [key[0] for key in asked] or keys))
    facts = sorted(
        (fact for fact in facts_of(rows) if identity(_plain(fact[0])) in plain), key=lambda f: f.record.timestamp_ms
    )
    if not facts:
        return f"has no record with this key, among {len(rows):,}"
    windows = sorted({row[0][1:] for row, _ in made if identity(row[0].key) in plain})
    if not asked:
        return f"makes keys with windows, and this one names none; there is {_some(windows)}"
    _, start, end = asked[0]
    inside = [fact for fact in facts if start <= fact.record.timestamp_ms < max(end, start + 1)]
    if inside:
        return f"has no such window; a record of this key at {inside[0].record} is there, and there is {_some(windows)}"
    before = [fact for fact in facts if fact.record.timestamp_ms < start][-1:]
    near = " and ".join(str(fact.record) for fact in (*before, *_first_after(facts, start)))
    return f"has no record of this key from {span_text(start, end)}; the nearest: {near}"


def _first_after(facts: Sequence[Fact], start_ms: int) -> Sequence[Fact]:
    return [fact for fact in facts if fact.record.timestamp_ms >= start_ms][:1]


def _plain(key: Any) -> Any:
    return key.key if isinstance(key, Windowed) else key


def _some(windows: Sequence[Span]) -> str:
    if not windows:
        return "no window of this key that has a record in time"
    start, end = windows[-1]
    return f"the window {span_text(start, end)}, [KEY, {start}, {end}]" + (
        f", and {len(windows) - 1:,} more" if len(windows) > 1 else ""
    )


def late_text(fact: Fact, end_ms: int, lag_ms: int) -> str:
    """Return why a fact is late for a window, as a verb and its object."""
    record = fact.record
    return (
        f"leaves it out as late: partition {record.partition} of '{record.topic}' had a record of "
        f"{moment_text(record.event_time_ms)} already, and the window was over at {moment_text(end_ms + lag_ms)}"
    )
