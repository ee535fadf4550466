"""Windows over one bucket are told of the rows that left, entered and changed, by their index."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eddy.live.dataflow import row_positions as positions_module
from eddy.live.dataflow.window import Bounds, BucketDelta, SortedBucket, Window, WindowDelta

numbers = st.integers(0, 20)
limits = st.none() | st.integers(0, 5)
changes = st.dictionaries(numbers, st.none() | numbers, max_size=4)
"""By key, the new place of its row, or None: each key has a place of its own."""


def position(place: int, key: int = 0) -> bytes:
    return b"%02d %02d\x03" % (place, key)


bounds = st.builds(Bounds, st.none() | numbers.map(position), st.booleans(), st.integers(0, 4), limits)


class Told:
    """An owner that notes what it is told."""

    def __init__(self) -> None:
        self.delta = WindowDelta()

    def rows_changed(self, delta: WindowDelta, schedule: Any) -> None:
        self.delta = delta

    def warned(self, *, is_short: bool, schedule: Any) -> None:
        raise AssertionError


def shown(bounds: Bounds, places: list[bytes]) -> list[bytes]:
    start = bounds.start
    found = [each for each in places if start is None or each > start or (each == start and bounds.inclusive)]
    end = None if bounds.limit is None else bounds.skip + bounds.limit
    return found[bounds.skip : end]


def difference(before: list[bytes], after: list[bytes], changed: list[bytes]) -> WindowDelta:
    left = {each[-3:]: (index, each) for index, each in enumerate(before) if each not in after}
    entered = {each[-3:]: (index, each) for index, each in enumerate(after) if each not in before}
    return WindowDelta(
        [found for key, found in left.items() if key not in entered],
        [found for key, found in entered.items() if key not in left],
        [(left[key][0], *found) for key, found in entered.items() if key in left],
        sorted((after.index(each), each) for each in changed if each in before and each in after),
    )


@settings(max_examples=200)
@given(
    st.dictionaries(numbers, numbers, max_size=12),
    st.lists(bounds, min_size=1, max_size=3) | st.lists(bounds, min_size=9, max_size=10),
    st.lists(changes, max_size=6),
    st.sampled_from([2, 1_024]),
)
@pytest.mark.slow
def test_they_are_told_of_the_difference(
    rows: dict[int, int], bounds: list[Bounds], batches: list[dict[int, int | None]], run: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(positions_module, "RUN", run)
        patch.setattr(positions_module, "SHORT_RUN", 1)
        places = {key: position(place, key) for key, place in rows.items()}
        bucket = SortedBucket(sorted(places.values()))
        owners = [Told() for _ in bounds]
        windows = [bucket.open(each, owner) for each, owner in zip(bounds, owners, strict=True)]
        for batch in batches:
            before = [shown(each, sorted(places.values())) for each in bounds]
            delta, changed = BucketDelta(), []
            for key, place in batch.items():
                old, new = places.pop(key, None), None if place is None else position(place, key)
                bucket.change(old, new, delta)
                if new is not None:
                    places[key] = new
                    changed += [new] if new == old else []
            for owner in owners:
                owner.delta = WindowDelta()
            if delta:
                bucket.tell(delta, lambda operator: None)
            for each, owner, window, rows_before in zip(bounds, owners, windows, before, strict=True):
                after = shown(each, sorted(places.values()))
                assert window.rows() == after
                owner.delta.changed.sort()
                assert owner.delta == difference(rows_before, after, changed)


@given(st.lists(st.tuples(bounds, st.booleans()), max_size=14))
def test_edge_is_the_last_one_of_the_open_windows(found: list[tuple[Bounds, bool]]) -> None:
    bucket, windows = SortedBucket([position(place) for place in range(0, 20, 2)]), list[Window]()
    for bounds, is_closed in found:
        windows.append(bucket.open(bounds, Told()))
        if is_closed:
            bucket.close(windows.pop(0))
        edges = [window.edge for window in windows]
        assert bucket.edge == (None if None in edges else max((edge for edge in edges if edge), default=b""))
        assert list(bucket.windows) == windows


def test_a_change_beyond_all_windows_is_told_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = SortedBucket([position(place) for place in range(0, 90, 10)])
    bucket.open(Bounds(limit=2), Told())
    bucket.open(Bounds(skip=1, limit=3), Told())
    delta = BucketDelta()
    for before, after in ((80, 31), (50, 50), (None, 70)):
        bucket.change(None if before is None else position(before), position(after), delta)
    assert not delta
    bucket.change(None, position(29), delta)
    steps: list[Window] = []
    monkeypatch.setattr(Window, "step", lambda self, delta: steps.append(self) or WindowDelta())
    bucket.tell(delta, lambda operator: None)
    assert [window.bounds.skip for window in steps] == [1], "the first two rows are before the change"
