"""Several workers agree on what a recursion holds: one of them decides, and borrows what it has to know.

The *arbiter* is the owner of the loop's first partition. It searches ahead of rows as a sole worker does
(`survey.py`); rows outside that others own it borrows, key by key. So several workers hold what one holds.

    Review → Begin → Holds → (Borrow, Lend)* → Stop, Reached, Release

A worker asks for a review when it has new suspects, when its stops change, when rows outside change that it has lent,
and when it takes partitions over; the arbiter begins one, too, when it takes its partition over. Each worker then tells
its suspects and its stops. The arbiter tells where waves are to stop, and which rows are reached now, or no more. Its
release opens the stops that no cycle reaches, and clears the suspects.

Messages are records of the loop's topics, in the transaction of the epoch that sends them; many rows share a message.
An epoch that takes a message sends the next one, or ends the matter: while something is not agreed on, a message is on
its way. What has to be agreed on is in states, so that no failure loses it. An arbiter that fails loses what it has
borrowed, and its successor begins a review.

Cost: for E keys outside that others own, R reached rows and S suspects and stops some 2 E + R entries, once while rows
outside do not change, and S entries for each review; some hundreds of them are in a message. As many rounds as
owners follow one another on a path.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from eddy.operators.batch import Batch, Row, ZSet
from eddy.operators.exchange import Gate
from eddy.operators.waves.arbiter import Arbiter, Closings, Decide
from eddy.operators.waves.body import Body
from eddy.operators.waves.messages import (
    Begin,
    Borrow,
    Changed,
    Holds,
    Lend,
    Loan,
    Message,
    News,
    Post,
    ReachedRows,
    Release,
    Review,
    Stop,
    Suspect,
    chunks,
    grouped,
)
from eddy.operators.waves.withheld import Withheld
from eddy.state.arrangement import Bag, pairs_of

__all__ = ["Agreement"]


class Taken:
    """The requests of an epoch's messages to a worker: rows to suspect, rows to stop at, and rows that continue."""

    def __init__(self) -> None:
        self.suspects: list[Row] = []
        self.stops: list[Row] = []
        self.flows: ZSet = {}


class _Review:
    """The rows that a worker has told and received in a review, whose messages arrive in each of its partitions."""

    def __init__(self, anew: bool, told: set[Row]) -> None:
        self.anew, self.told = anew, told
        self.come: set[Row] = set()
        self.gone: set[Row] = set()
        self.begins = self.releases = 0


_TOLD = attrgetter("told")


class Agreement:
    """The messages of one worker about one recursion. Between epochs it has memory that a failure may lose.

    `is_there` tells whether a row is in X.
    """

    def __init__(
        self,
        gate: Gate,
        body: Body,
        withheld: Withheld,
        is_there: Callable[[Row], bool],
        closings: Closings,
        decide: Decide,
    ) -> None:
        self._gate, self._body, self._withheld, self._is_there = gate, body, withheld, is_there
        self._post = Post(gate)
        self.arbiter = Arbiter(gate, body, self._post, self._own_bags, closings, decide)
        self.forget()

    def forget(self) -> None:
        """Forget everything: the memory is lost, or belongs to an epoch which was undone."""
        self._reviews: dict[int, _Review] = {}
        self._lent: dict[Any, int] = {}
        self._news, self._reported = News.OWNERS, News.NONE
        self.arbiter.forget()

    @property
    def alone(self) -> bool:
        """Whether this worker owns all rows, so that there is nobody to agree with."""
        return all(gate.owns_all for gate in (self._gate, *self._body.gates))

    @property
    def due(self) -> bool:
        """Whether there is a message to send without any input."""
        return not self.alone and (self._news > self._reported or self.arbiter.due)

    # Messages in

    def split(self, received: Batch, externals: list[Batch]) -> tuple[Batch, list[Message | None]]:
        """Take the messages out of the received rows, and out of the rows of exchanges inside op, in `externals`."""
        received, messages = self._post.opened(received)
        for slot in self._body.received:
            externals[slot - 1], more = self._post.opened(externals[slot - 1])
            messages += more
        return received, messages

    def take(self, messages: Sequence[Message | None]) -> Taken:
        """Take messages in. One of an earlier version, None, asks for a review."""
        taken = Taken()
        for message in messages:
            match message:
                case None:
                    self.change(News.OWNERS)
                case Review() | Changed() | Holds() | Lend():
                    self.arbiter.take(message)
                case Borrow(number, join, keys):
                    self._lend(number, join, keys)
                case Begin():
                    self._begin_review(message)
                case Suspect(rows):
                    taken.suspects += map(self._post.decode, rows)
                case Stop(rows):
                    taken.stops += map(self._post.decode, rows)
                case ReachedRows(number, rows, no_more) if review := self._reviews.get(number):
                    (review.gone if no_more else review.come).update(map(self._post.decode, rows))
                case Release(number, whole) if review := self._reviews.get(number):
                    review.releases += 1
                    if review.releases == len(self._gate.owned):
                        self._release(self._reviews.pop(number), whole, taken)
        return taken

    def _begin_review(self, message: Begin) -> None:
        number = message.number
        review = self._reviews.get(number)
        if review is None:
            review = self._reviews[number] = _Review(message.anew, set(self._withheld.suspects))
            if self._reported is self._news or self._news is not News.OWNERS:  # a new owner has to say so
                self._news = self._reported = News.NONE
            self._lent = {key: last for key, last in self._lent.items() if last >= message.since}
            self._tell(number)
        review.begins += 1
        if review.begins == len(self._gate.owned):  # all messages of earlier reviews have come
            self._reviews = {number: review}

    def _tell(self, number: int) -> None:
        there = [row for row in self._withheld.suspects if self._is_there(row)]
        for chunk in chunks(map(self._post.encode, self._withheld.suspects.difference(there))):
            self._post.send(Holds(number, [], passed=chunk), 0)
        told = list(chunks(map(self._post.encode, [*there, *self._withheld.waiting]))) or [[]]
        for chunk in told:
            self._post.send(Holds(number, chunk, list(self._gate.owned) if chunk is told[-1] else []), 0)

    def _release(self, review: _Review, whole: bool, taken: Taken) -> None:
        withheld = self._withheld
        if review.anew:
            withheld.mark_only(review.come)
        else:
            withheld.mark(review.come)
            withheld.unmark(review.gone)
        withheld.whole = whole
        withheld.suspects -= {row for row in review.told if not (whole and self._is_there(row))}
        if not whole:
            taken.flows = withheld.open([row for row in withheld.stops if not withheld.is_reached(row)])

    # Messages out, of every worker

    def change(self, news: News) -> None:
        """What is held may have changed."""
        self._news = max(self._news, news)

    def suspect_elsewhere(self, rows: Iterable[Row]) -> None:
        """Tell their owners of suspects."""
        self._post.send_rows(rows, Suspect)

    def change_outside(self, keys: Iterable[Any]) -> None:
        """Rows outside with these keys have changed: the arbiter has to know if they were lent."""
        if self._lent and not self._lent.keys().isdisjoint(keys):
            self._lent.clear()
            self._post.send(Changed(), 0)

    def counts_on(self, gone: Iterable[Row]) -> bool:
        """Whether some of the rows that have left X are suspects, on which a review counts."""
        if not self._withheld.suspects:
            return False
        counted = self._withheld.suspects if self._withheld.whole else set().union(*map(_TOLD, self._reviews.values()))
        return not counted.isdisjoint(gone)

    def report(self) -> None:
        """Ask for a review, if what is held may have changed."""
        if self._news > self._reported:
            self._reported = self._news
            self._post.send(Review(self._news), 0)

    def _lend(self, number: int, join: int, keys: list[bytes]) -> None:
        spec = self._body.lookups[join][0].spec
        bags = self._body.bags(join, [spec.key.decode(key) for key in keys])
        self._lent.update(dict.fromkeys(bags, number))
        loans: list[Loan] = []
        for key, bag in zip(keys, bags.values(), strict=True):
            parts = list(chunks(spec.value.encode(value) for value, _ in pairs_of(bag))) or [[]]
            loans += [(key, part, part is not parts[-1]) for part in parts]
        for group in grouped(loans, lambda loan: len(loan[0]) + sum(map(len, loan[1]))):
            self._post.send(Lend(number, join, group), 0)

    def _own_bags(self, number: int, join: int, keys: list[Any]) -> dict[Any, Bag | None]:
        rows = [(key, None) for key in keys]
        mine = [key for key, _ in self._body.gate_before(join, self._gate).mine(rows)]
        self._lent.update(dict.fromkeys(mine, number))
        return self._body.bags(join, mine)
