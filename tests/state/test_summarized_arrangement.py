"""Summaries of bags are those of the rows, whatever is undone, aged and forgotten in between."""

from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from eddy.serde import Bytes, String
from eddy.state.memory import MemoryStore
from eddy.state.spec import StateSpec
from eddy.state.summarized_arrangement import Part, SummarizedArrangement

KEYS, VALUES = "ab", [bytes([n, m]) for n in range(4) for m in range(2)]
PARTS: list[Part] = [(b"\x00", b"\x02"), (b"\x02", b"\x04")]
Rows = SummarizedArrangement[str, "Counter[bytes]"]


def summarize(pairs: Iterable[tuple[bytes, int]]) -> "Counter[bytes]":
    return Counter(dict(pairs))


changes = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES), st.integers(1, 2)), max_size=4)
operations = st.lists(st.tuples(st.sampled_from(["add", "drop", "undo", "age", "forget", "read"]), changes))


@given(operations, st.booleans())
def test_a_summary_is_that_of_the_rows(operations: list[tuple[str, list[tuple[str, bytes, int]]]], whole: bool) -> None:
    store = MemoryStore()
    rows = Rows(StateSpec("a", "arrangement", String, Bytes, 1, lambda data, count: 0), store, summarize)
    there: dict[str, Counter[bytes]] = {key: Counter() for key in KEYS}
    parts: list[Part] = [None] if whole else PARTS
    for what, changed in operations:
        match what:
            case "add" | "undo":
                before = {key: Counter(bag) for key, bag in there.items()}
                add(rows, there, changed, parts)
                if what == "undo":
                    rows.rollback()
                    there = before
            case "drop":
                for key in {key for key, _, _ in changed}:
                    rows.integrate({(key, data): -weight for data, weight in there[key].items()})
                    rows.replace(key, dict.fromkeys(parts))
                    there[key] = Counter()
            case "age":
                rows.age()
            case "forget":
                rows.forget()
        store.write([(rows.spec.prefix(partition) + key, value) for partition, key, value in rows.changes()])
        rows.commit()
        if what == "read":
            check(rows, there, parts)
    check(rows, there, parts)


def add(rows: Rows, there: dict[str, Counter[bytes]], changed: list[tuple[str, bytes, int]], parts: list[Part]) -> None:
    """Change the rows, their summaries and the oracle, as an operator does."""
    summaries = {(key, part): rows.summary(key, part) for key, _, _ in changed for part in parts}
    delta: dict[tuple[str, bytes], int] = {}
    for key, data, weight in changed:
        part = next(part for part in parts if part is None or part[0] <= data < part[1])
        summaries[key, part][data] += weight
        there[key][data] += weight
        delta[key, data] = delta.get((key, data), 0) + weight
    rows.integrate(delta)


def check(rows: Rows, there: dict[str, Counter[bytes]], parts: list[Part]) -> None:
    for key, bag in there.items():
        for part in parts:
            expected = {data: n for data, n in bag.items() if part is None or part[0] <= data < part[1]}
            assert rows.summary(key, part) == expected
    rows.commit()
