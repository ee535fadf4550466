"""Finds out which buckets of a view are reached from the view's root, also where nests form cycles.

Each bucket counts its *routes*: for each other bucket, how many rows of that bucket lead here. One of these other
buckets is its *anchor*. The anchors form a tree with the root at its top, so that a bucket with an anchor is reached. A
bucket that loses its anchor takes another route that does not lead back to it, found by a walk up the tree. If there is
none, the buckets below it are suspects. Suspects to which no other bucket leads are not reached. So a cycle that was
cut off is dropped.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

__all__ = ["Anchors", "Routed"]


class Routed:
    """A bucket with the number of its routes from each other bucket, and one of the other buckets as its anchor."""

    __slots__ = ("anchor", "routes")

    def __init__(self) -> None:
        self.routes: dict[Routed, int] = {}
        self.anchor: Routed | None = None


B = TypeVar("B", bound=Routed)


class Anchors(Generic[B]):
    """Maintains the anchors of one view.

    `below` returns the buckets, except the root, to which the rows of a bucket lead. `suspects` are the buckets that
    have lost their anchor.
    """

    def __init__(self, root: B, below: Callable[[B], Iterable[B]]) -> None:
        self._root, self._below = root, below
        self.suspects: dict[B, None] = {}

    def lost(self, bucket: B, route: B) -> None:
        """Note that no row of `route` leads to `bucket` any more. A bucket that loses its anchor becomes a suspect."""
        if bucket.anchor is route:
            bucket.anchor = None
            self.suspects[bucket] = None

    def unreached(self) -> dict[B, None]:
        """Find new anchors for the suspects, and clear `suspects`.

        Returns the buckets that are not reached any more.
        """
        while self.suspects:
            stuck = [bucket for bucket in self.suspects if not self._anchored(bucket)]
            self.suspects = dict.fromkeys(stuck)
            if stuck and not any(self._anchored(bucket) for bucket in stuck):
                self.suspects = {}
                return self._cut_off(stuck)
            self.suspects = {bucket: None for bucket in stuck if bucket.anchor is None}
        return {}

    def _anchored(self, bucket: B) -> bool:
        """Return whether a bucket has an anchor, after an attempt to find one.

        An anchor is a route that does not lead back to the bucket.
        """
        if bucket.anchor is not None or bucket is self._root:
            return True
        for route in bucket.routes:
            if self._leads_up(route, bucket):
                bucket.anchor = route
                return True
        return False

    def _leads_up(self, at: Routed | None, avoided: B) -> bool:
        """Whether the anchors lead from a bucket to the root without passing `avoided`."""
        while at is not None and at is not avoided:
            if at is self._root:
                return True
            at = at.anchor
        return False

    def _cut_off(self, stuck: Iterable[B]) -> dict[B, None]:
        """Return the buckets that are not reached, of `stuck` and of all buckets anchored below them.

        A bucket to which a reached bucket leads is reached.
        """
        suspects: dict[B, None] = {}
        todo = list(stuck)
        while todo:
            bucket = todo.pop()
            if bucket not in suspects:
                suspects[bucket] = None
                bucket.anchor = None
                todo += [below for below in self._below(bucket) if below.anchor is bucket]
        reached = [bucket for bucket in suspects if self._rooted(bucket, suspects)]
        for bucket in reached:
            del suspects[bucket]
        while reached:
            bucket = reached.pop()
            for below in self._below(bucket):
                if below in suspects:
                    del suspects[below]
                    below.anchor = bucket
                    reached.append(below)
        return suspects

    def _rooted(self, bucket: B, suspects: dict[B, None]) -> bool:
        for route in bucket.routes:
            if route not in suspects:
                bucket.anchor = route
                return True
        return bucket is self._root
