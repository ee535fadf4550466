"""The arbiter searches ahead of rows for all workers of a recursion. It borrows rows outside from the other workers.

See `operators/waves/agreement.py` for the course of a review.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from eddy.operators.batch import Row
from eddy.operators.exchange import Gate
from eddy.operators.waves.body import Asked, Body
from eddy.operators.waves.explorer import Explorer
from eddy.operators.waves.messages import (
    Begin,
    Borrow,
    Changed,
    Holds,
    Lend,
    Loan,
    News,
    Post,
    ReachedRows,
    Release,
    Review,
    Stop,
    chunks,
)
from eddy.operators.waves.survey import Survey
from eddy.state.arrangement import Bag

__all__ = ["Arbiter", "Closings", "Decide"]

_FEW = 4  # the number of rows of one key that are explored to find the keys to borrow
_MOST_DISCARDED = 3  # the most reviews in a row that are discarded because of changes meanwhile
_QUIET = 64  # the number of epochs for which loans are kept after a review if no row is held
_TERM_BITS = 20

OwnBags = Callable[[int, int, list[Any]], dict[Any, Bag | None]]
"""A function of the number of a review, the number of a join, and keys. It returns this worker's rows outside."""
Closings = Callable[[Explorer, Sequence[Row]], list[Row]]
"""A function that returns a row on each cycle ahead of some rows."""
Decide = Callable[[Explorer, list[Row]], tuple[Survey, str]]
"""A function that searches ahead of rows. It returns the result, and the message about held rows; empty for none."""


class _Loans:
    """Rows outside that other workers have lent. `missing` has the keys that were looked up, but not borrowed yet."""

    def __init__(self, body: Body) -> None:
        self._lookups = body.lookups
        self._parts: dict[Asked, list[Any]] = {}
        self.bags: dict[Asked, Bag | None] = {}
        self.missing: set[Asked] = set()
        self._asked_for: set[Asked] = set()

    def take(self, join: int, loans: Sequence[Loan]) -> None:
        """Add borrowed rows that have arrived. If a key has many rows, they arrive in parts."""
        spec = self._lookups[join][0].spec
        for key, values, more in loans:
            asked = join, spec.key.decode(key)
            if asked not in self._asked_for or asked in self.bags:
                continue
            self._parts.setdefault(asked, []).extend(map(spec.value.decode, values))
            if not more:
                self.bags[asked] = dict.fromkeys(self._parts.pop(asked), 1) or None

    def wanted(self, keys: Iterable[Asked]) -> set[Asked]:
        """Return the keys that were not requested yet, and note them as requested."""
        new = set(keys) - self._asked_for
        self._asked_for |= new
        return new

    @property
    def waits(self) -> bool:
        """Whether some keys are still to be lent."""
        return len(self.bags) < len(self._asked_for)


class _ReviewSearch:
    """The arbiter's search for cycles and endless paths, from the stops and the suspects of all partitions.

    `owners`: the partitions whose stops and suspects have arrived. `rounds`: how often the search has waited for rows
    that it borrows from other workers. `stopped`: the rows that this search has made stops.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.starts: dict[Row, None] = {}
        self.passed: dict[Row, None] = {}
        self.owners: set[int] = set()
        self.rounds = 0
        self.stopped: set[Row] = set()
        self._todo: deque[Row] = deque()
        self._seen: set[Row] = set()
        self._parked: dict[Asked, list[Row]] = {}
        self._explored: Counter[Any] = Counter()

    def begin_at(self, rows: Iterable[Row]) -> None:
        """Search ahead of these rows, too."""
        for row in rows:
            self.starts[row] = None
            self._come_to(row)

    def look_ahead_of(self, passed: Iterable[Row]) -> None:
        """Search ahead of rows that are no longer in X. Such rows are not held, but may lead to cycles."""
        for row in passed:
            self.passed[row] = None
            self._come_to(row)

    def _come_to(self, row: Row) -> None:
        if row not in self._seen:
            self._seen.add(row)
            self._todo.append(row)

    def explore(self, explore: Explorer, loans: _Loans) -> set[Asked]:
        """Explore rows ahead, a few of each key, as far as rows outside are known. Returns the keys to borrow."""
        for asked in loans.bags.keys() & self._parked.keys():
            for row in self._parked.pop(asked):
                self._explored[row[0]] -= 1
                self._todo.append(row)
        while self._todo:
            row = self._todo.popleft()
            self._explored[row[0]] += 1
            if self._explored[row[0]] > _FEW:
                continue
            loans.missing = set()
            made = explore(row)
            for asked in loans.missing:
                self._parked.setdefault(asked, []).append(row)
            if made.met and not loans.missing:
                for child in made.rows:
                    self._come_to(child)
        return set(self._parked)


class _Lookups:
    """Finds rows outside for the arbiter, among this worker's own rows and the borrowed rows."""

    def __init__(self, own_bags: OwnBags, number: int, loans: _Loans) -> None:
        self._own_bags, self._number, self._loans = own_bags, number, loans

    def over(self, join: int, keys: Sequence[Any]) -> "_Bags":
        """The bags of these keys for a join."""
        return _Bags(self._own_bags(self._number, join, list(keys)), join, self._loans)


class _Bags:
    def __init__(self, own: dict[Any, Bag | None], join: int, loans: _Loans) -> None:
        self._own, self._join, self._loans = own, join, loans

    def get_many(self, keys: list[Any]) -> list[Bag | None]:
        """Return the bag of each key. For a key that was not borrowed yet, return None, and note the key as missing."""
        found: list[Bag | None] = []
        for key in keys:
            asked = self._join, key
            if key in self._own:
                found.append(self._own[key])
            elif asked in self._loans.bags:
                found.append(self._loans.bags[asked])
            else:
                self._loans.missing.add(asked)
                found.append(None)
        return found


class Arbiter:
    """Runs reviews if this worker owns the loop's first partition.

    `own_bags` returns the rows outside that it owns itself. `message` is the message about held rows. It is empty if no
    row is held, and None before the first decision.
    """

    def __init__(
        self, gate: Gate, body: Body, post: Post, own_bags: OwnBags, closings: Closings, decide: Decide
    ) -> None:
        self._gate, self._body, self._post, self._own_bags = gate, body, post, own_bags
        self._closings, self._decide = closings, decide
        self._counter = 0
        self.forget()

    def forget(self) -> None:
        """Empty the memory, so that a review is needed."""
        self.message: str | None = None
        self._search: _ReviewSearch | None = None
        self._news = News.OWNERS
        self._reached: set[Row] | None = None
        self._discarded = 0
        self._forget_loans()

    def _forget_loans(self) -> None:
        self._loans_changed, self._quiet_epochs = False, 0
        self._loans = _Loans(self._body)
        self._since = self._counter + 1

    @property
    def is_mine(self) -> bool:
        """Whether this worker is the arbiter."""
        return self._gate.first == 0

    @property
    def due(self) -> bool:
        """Whether a review can begin without any input."""
        return self.is_mine and self._news > News.NONE and self._search is None

    def take(self, message: Review | Changed | Holds | Lend) -> None:
        """Process a message to the arbiter."""
        search = self._search
        match message:
            case Review(news):
                self._news = max(self._news, news)
            case Changed():
                if search is None:
                    self._forget_loans()
                else:
                    self._loans_changed = True
                if search is not None or self.message != "":
                    self._news = max(self._news, News.STOPS)
            case Holds(number, rows, partitions, passed) if search is not None and number == search.number:
                search.begin_at(map(self._post.decode, rows))
                search.look_ahead_of(map(self._post.decode, passed))
                search.owners.update(partitions)
            case Lend(number, join, loans) if self._is_valid(number):
                self._loans.take(join, loans)

    def _is_valid(self, number: int) -> bool:
        """Return whether rows that were lent for the review of this number are still valid.

        They are if no change of rows outside was reported since.
        """
        return self._number(self._since) <= number <= self._number(self._counter)

    def decide(self) -> None:
        """Begin reviews and continue them at the end of an epoch, as far as the rows that are known here allow."""
        if not self.is_mine:
            return
        self._quiet_epochs += 1
        while self._search is not None or self._news > News.NONE:
            self._quiet_epochs = 0
            if self._search is None:
                self._begin()
            if not self._continue_review():
                return
        if self._quiet_epochs == _QUIET and self.message == "":
            self._forget_loans()

    def _begin(self) -> None:
        if self._news is News.OWNERS or self._loans_changed:
            self._forget_loans()
        if self._news is News.OWNERS:
            self._reached = None
        self._news = News.NONE
        self._counter += 1
        self._search = _ReviewSearch(self._number(self._counter))
        self._post.tell_all(Begin(self._search.number, self._reached is None, self._number(self._since)))

    def _continue_review(self) -> bool:
        """Continue the review. Returns whether it has ended."""
        search, loans = self._search, self._loans
        assert search is not None
        if len(search.owners) < self._gate.partitions:
            return False
        explore = Explorer(self._body, _Lookups(self._own_bags, search.number, loans))
        new = loans.wanted(search.explore(explore, loans))
        if not new and not loans.waits:
            loans.missing = set()
            found, message = self._decide(explore, list(search.starts))
            closings = self._closings(explore, [*search.starts, *search.passed])
            chase = bool(search.passed) and self._decide(explore, list(search.passed))[0].endless is not None
            new = loans.wanted(loans.missing)
            if not new:
                self._finish(search, found, closings, message, chase)
                return True
        self._borrow(search, new)
        self._stop_early(search, explore)
        return False

    def _stop_early(self, search: _ReviewSearch, explore: Explorer) -> None:
        """Stop waves at cycles among the known rows, after 1, 2, 4, … rounds of borrowing.

        Until a review ends, waves run on in these cycles.
        """
        search.rounds += 1
        if search.rounds & (search.rounds - 1) == 0:
            closings = self._closings(explore, [*search.starts, *search.passed])
            closings = [row for row in closings if row not in search.stopped]
            search.stopped.update(closings)
            self._post.send_rows(closings, Stop)

    def _finish(self, search: _ReviewSearch, found: Survey, closings: list[Row], message: str, chase: bool) -> None:
        """End a review: send the rows that become stops, are newly reached, or are no longer reached.

        `chase`: paths ahead of retracted rows are endless, so the retractions could follow the insertions for ever.
        Then the recursion is held as a whole, so that waves stop everywhere and retractions and insertions meet.
        Another review follows.
        """
        self._search = None
        if self._news > News.SUSPECTS and self._discarded < _MOST_DISCARDED:
            self._discarded += 1
            return
        self._discarded = 0
        self.message = message
        self._post.send_rows(closings, Stop)
        before, self._reached = self._reached or set(), found.reached
        self._post.send_rows(found.reached - before, lambda rows: ReachedRows(search.number, rows))
        self._post.send_rows(before - found.reached, lambda rows: ReachedRows(search.number, rows, True))
        self._post.tell_all(Release(search.number, chase or found.endless is not None))
        if chase:
            self._news = max(self._news, News.SUSPECTS)

    def _borrow(self, search: _ReviewSearch, keys: set[Asked]) -> None:
        places: dict[tuple[int, int], list[bytes]] = {}
        for join, key in keys:
            (home,) = self._body.gate_before(join, self._gate).homes_of([(key, None)])
            places.setdefault((join, home), []).append(self._body.lookups[join][0].spec.key.encode(key))
        for (join, home), encoded in places.items():
            gate = self._body.gate_before(join, self._gate)
            for chunk in chunks(encoded):
                self._post.send(Borrow(search.number, join, chunk), home, gate)

    def _number(self, counter: int) -> int:
        """Return the number of the review for a counter. No earlier arbiter has used this number."""
        return (self._gate.term << _TERM_BITS) + counter
