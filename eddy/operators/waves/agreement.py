"""Several workers agree on the rows that a recursion holds: one of them decides, and borrows the rows that it needs.

The *arbiter* is the owner of the loop's first partition. It searches ahead of rows as a single worker does
(`survey.py`). It borrows rows outside that others own, key by key. So several workers hold the same rows as one.

    Review → Begin → Holds → (Borrow, Lend)* → Stop, Reached, Release

A worker requests a review when it has new suspects, when its stops change, when rows outside that it has lent change,
and when it takes partitions over. The arbiter also begins a review when it takes over the loop's first partition. Each
worker then sends its suspects and its stops. The arbiter sends the rows at which waves stop, and the rows that are
newly reached or no longer reached. Its release opens the stops that no cycle reaches, and clears the suspects.

Messages are records of the loop's topics, in the transaction of the epoch that sends them; many rows share a message.
An epoch that receives a message sends the next one, or ends the review: until the workers agree, some message is in
flight. Suspects and stops are in states, so that no failure loses them. An arbiter that fails loses its borrowed rows,
and its successor begins a review.

Cost: let E be the keys of rows outside that other workers own, R the reached rows, S the suspects and stops. Each
review sends S entries. The first one also sends about 2 E + R entries; later reviews send them again only if rows
outside have changed. A message has some hundreds of entries. A review takes a round for each change of owner on a path.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from eddy.operators.batch import Batch, Row, ZSet, merge_into
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
    """The requests in an epoch's messages to a worker.

    They are the rows to suspect, the rows to stop at, and in `flows` the released rows, which continue.
    """

    def __init__(self) -> None:
        self.suspects: list[Row] = []
        self.stops: list[Row] = []
        self.flows: ZSet = {}


class _Review:
    """A worker's part of a review: the suspects that it has `told`, and the newly and no longer reached rows.

    `begins` and `releases` count messages: one of each kind arrives in each of the worker's partitions.
    """

    def __init__(self, anew: bool, told: set[Row]) -> None:
        self.anew, self.told = anew, told
        self.come: set[Row] = set()
        self.gone: set[Row] = set()
        self.begins = self.releases = 0


_TOLD = attrgetter("told")


class Agreement:
    """Sends and receives the messages of one worker about one recursion. Its memory may be lost between epochs.

    `is_there` returns whether a row is in X.
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
        """Empty the memory, because it belongs to an epoch that was undone, or to other owners."""
        self._reviews: dict[int, _Review] = {}
        self._lent: dict[Any, int] = {}
        self._news, self._reported = News.OWNERS, News.NONE
        self.arbiter.forget()

    @property
    def alone(self) -> bool:
        """Whether this worker owns all rows, so that no agreement is needed."""
        return all(gate.owns_all for gate in (self._gate, *self._body.gates))

    @property
    def due(self) -> bool:
        """Whether there is a message to send without any input."""
        return not self.alone and (self._news > self._reported or self.arbiter.due)

    # Messages in

    def split(self, received: Batch, externals: list[Batch]) -> tuple[Batch, list[Message | None]]:
        """Separate messages from rows, in `received` and in the inputs of exchanges inside op among `externals`.

        Returns two values: the received rows, and all messages.
        """
        received, messages = self._post.opened(received)
        for slot in self._body.received:
            externals[slot - 1], more = self._post.opened(externals[slot - 1])
            messages += more
        return received, messages

    def take(self, messages: Sequence[Message | None]) -> Taken:
        """Process messages, and return the requests in them.

        A message of an earlier version, None here, requests a review.
        """
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
            # News of new owners is kept until it is reported.
            if self._reported is self._news or self._news is not News.OWNERS:
                self._news = self._reported = News.NONE
            self._lent = {key: last for key, last in self._lent.items() if last >= message.since}
            self._tell(number)
        review.begins += 1
        if review.begins == len(self._gate.owned):  # all messages of earlier reviews have arrived
            self._reviews = {later: found for later, found in self._reviews.items() if later >= number}

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
            opened = withheld.open([row for row in withheld.stops if not withheld.is_reached(row)])
            merge_into(taken.flows, opened, opened.values())

    # Messages out, of every worker

    def change(self, news: News) -> None:
        """Note that the held rows may have changed, and why."""
        self._news = max(self._news, news)

    def suspect_elsewhere(self, rows: Iterable[Row]) -> None:
        """Send suspects to the workers that own them."""
        self._post.send_rows(rows, Suspect)

    def change_outside(self, keys: Iterable[Any]) -> None:
        """Note that rows outside with these keys have changed. If they were lent, the arbiter is informed."""
        if self._lent and not self._lent.keys().isdisjoint(keys):
            self._lent.clear()
            self._post.send(Changed(), 0)

    def counts_on(self, gone: Iterable[Row]) -> bool:
        """Return whether some of the rows `gone`, which were removed from X, are suspects of a running review."""
        if not self._withheld.suspects:
            return False
        counted = self._withheld.suspects if self._withheld.whole else set().union(*map(_TOLD, self._reviews.values()))
        return not counted.isdisjoint(gone)

    def report(self) -> None:
        """Request a review, if the held rows may have changed."""
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
