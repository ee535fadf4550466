"""Makes one patch from the buckets of a view at one moment to its buckets later, for a reader that is late.

Such a reader gets this patch in place of each single patch.

Cost: O(rows at both moments). Rows of a bucket are compared by their contents: equal rows at its beginning and at its
end are kept, the rows between them are replaced.
"""

from collections.abc import Mapping

from eddy.live.dataflow.patch import Drop, Entry, Insert, Op, Remove
from eddy.live.dataflow.values import same_row

__all__ = ["difference"]


def difference(old: Mapping[str, list[Entry]], new: Mapping[str, list[Entry]]) -> list[Op]:
    """Return one patch from the old buckets to the new ones."""
    ops: list[Op] = [Drop(bucket) for bucket in old if bucket not in new]
    for bucket, rows in new.items():
        before = old.get(bucket, [])
        if before is rows:
            continue
        start, shorter = 0, min(len(before), len(rows))
        while start < shorter and _same(before[start], rows[start]):
            start += 1
        end = 0
        while end < shorter - start and _same(before[-1 - end], rows[-1 - end]):
            end += 1
        ops += [Remove(bucket, index) for index in range(start, len(before) - end)]
        ops += [Insert(bucket, index, *rows[index]) for index in range(start, len(rows) - end)]
    return ops


def _same(one: Entry, other: Entry) -> bool:
    return same_row(one[0], other[0]) and one[1] == other[1]
