"""Rows of moments are a plain dict's, also through restarts and aborted epochs."""

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from eddy.partitioner import partition_of
from eddy.serde import Native, String
from eddy.state.calendar import MOST_MS
from eddy.state.memory import MemoryStore
from eddy.state.spec import StateSpec
from eddy.state.timed_rows import TimedRows
from eddy.windows import SessionWindowed, Windowed

Row = tuple[str, int, float]
"""A key, a moment and a value."""
SPEC = StateSpec("near", "arrangement", SessionWindowed(String), Native, 3, partition_of)


def add(
    rows: TimedRows[str, float], news: Sequence[tuple[Row, int]], stored_ms: Mapping[int, int] | None = None
) -> None:
    given_rows = rows.encoded([(Windowed(key, time, time), value) for (key, time, value), _ in news])
    rows.add(given_rows, [weight for _, weight in news], stored_ms)


class Model:
    """The rows, and those of the last commit."""

    def __init__(self) -> None:
        self.rows: Counter[Row] = Counter()
        self.before: Counter[Row] = Counter()

    def stored_ms(self, slack: int) -> dict[int, int]:
        """A moment after which the store has no row, of each partition."""
        found = dict.fromkeys(range(SPEC.partitions), -1)
        for key, time, _ in self.before:
            home, _ = plain_of(key)
            found[home] = max(found[home], time + slack)
        return found

    def between(self, key: str, first: int, last: int) -> list[tuple[int, float, int]]:
        found = [(time, value, count) for (of, time, value), count in self.rows.items() if of == key]
        return sorted(row for row in found if first <= row[0] <= last)


def plain_of(key: str) -> tuple[int, bytes]:
    return partition_of(key.encode(), 3), key.encode()


keys = st.sampled_from(["a", "b", "ab", ""])
moments = st.integers(0, 30)
row = st.tuples(keys, moments, st.sampled_from([0, 1, 2.5]))
slacks = st.one_of(st.none(), st.integers(0, 2))
"""How much later than the last row of the store a moment is after which it is known to have none; None: unknown."""
actions = st.one_of(
    st.tuples(st.just("add"), st.lists(st.tuples(row, st.integers(1, 2)), max_size=6), slacks),
    st.tuples(st.just("look"), keys, st.integers(-5, 35), st.integers(-5, 35), slacks),
    st.tuples(st.just("take"), keys, moments),
    st.tuples(st.sampled_from(["commit", "rollback", "restart"])),
)


@given(st.lists(actions, max_size=40), st.booleans(), st.sampled_from([0, 0, 20, 90]))
def test_rows_are_those_of_a_dict(steps: list[tuple[object, ...]], on_disk: bool, many: int) -> None:
    store = MemoryStore() if on_disk else None
    rows, model = TimedRows[str, float](SPEC, store), Model()
    first: list[tuple[object, ...]] = [
        ("add", [(("a", at // 3, float(at)), 1) for at in range(many)], None),
        ("commit",),
    ]
    for step in first + steps:
        match step:
            case ("add", list(news), int() | None as slack):
                add(rows, news, None if slack is None else model.stored_ms(slack))
                for one, weight in news:
                    model.rows[one] += weight
            case ("look", str(key), int(first), int(last), int() | None as slack):
                home, plain = plain_of(key)
                known = MOST_MS if slack is None else model.stored_ms(slack)[home]
                found = rows.between(home, plain, max(first, 0), last, known)
                assert sorted(found) == model.between(key, first, last)
                assert [time for time, _, _ in found] == sorted(time for time, _, _ in found)
            case ("take", str(key), int(time)):
                taken = sorted((Native.decode(value), weight) for value, weight in rows.take(*plain_of(key), time))
                assert taken == [(value, weight) for _, value, weight in model.between(key, time, time)]
                for value, _ in taken:
                    del model.rows[key, time, value]
            case ("commit",):
                if store is not None:
                    store.write(SPEC.stored(rows.changes()))
                rows.commit()
                model.before = Counter(model.rows)
            case ("rollback",):
                rows.rollback()
                model.rows = Counter(model.before)
            case ("restart",) if store is not None:
                rows, model.rows = TimedRows(SPEC, store), Counter(model.before)
    found = Counter({(key[0], key[1], value): weight for (key, value), weight in rows.items()})
    assert found == model.rows


def test_of_equal_values_one_is_kept_in_whatever_order_they_come() -> None:
    for values in ([1, 1.0], [1.0, 1]):
        rows = TimedRows[str, float](SPEC, MemoryStore())
        for value in values:
            add(rows, [(("a", 5, value), 1)])
        (found,) = rows.between(*plain_of("a"), 0, 9)
        assert repr(found) == "(5, 1.0, 2)"
