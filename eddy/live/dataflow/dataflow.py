"""The graph of the operators of all live queries, and the processing of one batch of changes by them.

A batch has a delta for each table: for each changed key, the new row, or None for a removed row. An operator computes
its changes from the changes of its inputs, once for each batch. Only operators that a change reaches are called, in the
order in which they were made. A change is a triple (key, old row, new row), with None for a row that does not exist: a
pair −old +new of a Z-set.

Operators are shared: `Dataflow.shared` returns the same operator for equal identities, as long as it has users.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping
from time import perf_counter
from typing import TypeVar, cast

from eddy.live.dataflow.held_bytes import held_bytes
from eddy.live.dataflow.stored_map import StoredMap
from eddy.live.dataflow.values import Flat, Row, same_row
from eddy.state.spaces import Spaces

__all__ = ["Change", "Dataflow", "QueryOperator", "Schedule", "TableRows"]

Change = tuple[Flat, Row | None, Row | None]
Schedule = Callable[["QueryOperator"], None]


class QueryOperator:
    """One step of the graph. `out` has its changes until the batch ends. Views (`is_output`) are stepped last."""

    is_output = False
    is_spent = False
    """Whether new queries need a new operator in its place; present queries keep this one."""
    is_shared = True
    """Whether a new query with an operator of the same identity shares this one; if not, only its present users do."""

    def __init__(self, inputs: "Iterable[QueryOperator]" = ()) -> None:
        self.inputs = list(inputs)
        self.dependents: dict[QueryOperator, None] = {}
        self.out: Iterable[Change] = ()  # false if it is empty
        self.rank = 0
        self.is_scheduled = False
        self.users = 0
        self.identity: Hashable = None
        self.seconds = 0.0
        """The seconds that the operator's steps have taken since the operator was made."""

    def step(self, schedule: Schedule) -> None:
        """Process the changes of the inputs.

        `schedule(operator)` adds another operator to the batch, for an effect that is not in `out`.
        """
        raise NotImplementedError

    def end(self) -> None:
        """Drop the changes in `out`, because the batch is over."""
        self.out = ()

    def rebind(self, found: "Mapping[QueryOperator, QueryOperator]") -> None:
        """Replace the operators that this operator reads, by the map `found`.

        It maps each of them to an operator with the same rows in another dataflow.
        """
        self.inputs = [found.get(each, each) for each in self.inputs]
        for name, value in vars(self).items():
            if isinstance(value, QueryOperator):
                setattr(self, name, found.get(value, value))

    def held_bytes(self) -> int:
        """Estimate the bytes that the operator holds in memory."""
        return sum(held_bytes(value) for value in vars(self).values() if isinstance(value, dict | list | set))

    def discard(self) -> None:
        """Remove the operator's data on disk. Called when it has no users any more."""
        for value in vars(self).values():
            if isinstance(value, StoredMap):
                value.close()


class TableRows(QueryOperator):
    """The rows of a table by key; `take` applies changes to them.

    The operators over the table keep their rows in `spaces`; None means memory. `rows` are the rows at the beginning.
    If the table is on disk, an order keeps its positions in memory while there are at most `most_positions` rows.
    """

    def __init__(
        self,
        rows: MutableMapping[Flat, Row],
        name: str = "",
        spaces: Spaces | None = None,
        most_positions: int = 0,
    ) -> None:
        super().__init__()
        self.rows, self.name, self.spaces, self.most_positions = rows, name, spaces, most_positions
        self._olds: dict[Flat, Row | None] | None = None
        self.journals: list[dict[Flat, Row | None]] = []
        """Maps from keys to new rows (None if removed): each change of the table is added to each of these maps."""

    def take(self, delta: Mapping[Flat, Row | None]) -> None:
        """Apply a delta. A row equal to the former row makes no change."""
        rows, self._olds = self.rows, None
        out: list[Change] = []
        self.out = out
        if self.spaces is not None:
            self.stored.fetch(delta)
        for key, new in delta.items():
            old = rows.get(key)
            if old == new and same_row(old, new):
                continue
            if new is None:
                del rows[key]
            else:
                rows[key] = new
            out.append((key, old, new))
        if self.journals:
            for journal in self.journals:
                journal.update((key, new) for key, _, new in out)

    @property
    def olds(self) -> dict[Flat, Row | None]:
        """The former row of each key that the batch changes; None for a new key."""
        if self._olds is None:
            self._olds = {key: old for key, old, _ in self.out}
        return self._olds

    @property
    def stored(self) -> StoredMap[Row]:
        """The map of the rows, for a table that is on disk."""
        assert isinstance(self.rows, StoredMap)
        return self.rows

    @property
    def can_keep_order(self) -> bool:
        """Whether an order may have the positions of all rows in memory, although the rows are on disk."""
        return self.spaces is not None and len(self.rows) <= self.most_positions

    def was(self, key: Flat) -> Row | None:
        """Return the row of a key before the batch."""
        olds = self.olds
        return olds[key] if key in olds else self.rows.get(key)

    def end(self) -> None:
        """Forget the former rows, because the batch is over."""
        self.out = ()
        self._olds = None


Op = TypeVar("Op", bound=QueryOperator)


class Dataflow:
    """Operators by identity, and tables by name. Not for several threads."""

    def __init__(self) -> None:
        self.tables: dict[str, TableRows] = {}
        self.operators: dict[Hashable, QueryOperator] = {}
        """The operators that have users, by identity."""
        self._rank = 0
        self._queue: list[tuple[int, QueryOperator]] = []
        self._outputs: list[QueryOperator] = []
        self._called: list[QueryOperator] = []

    def __len__(self) -> int:
        return len(self.operators)

    def __contains__(self, identity: Hashable) -> bool:
        return identity in self.operators and not self.operators[identity].is_spent

    def shared(self, identity: Hashable, make: Callable[[], Op]) -> Op:
        """Return the operator with this identity; `make` makes it if there is none.

        Call `release` once for each call.
        """
        self._part_with_spent(identity)
        found = self.operators.get(identity)
        if found is None:
            found = make()
            found.identity = identity
            for source in found.inputs:
                source.users += 1
            self.operators[identity] = found
            self._rank += 1
            found.rank = self._rank
            for source in found.inputs:
                source.dependents[found] = None
        found.users += 1
        return cast("Op", found)

    def _part_with_spent(self, identity: Hashable) -> None:
        """If the operator with this identity is spent, give it an identity of its own, so that it gets no new users."""
        found = self.operators.get(identity)
        if found is not None and found.is_spent:
            del self.operators[identity]
            found.identity = (found.rank, identity)
            self.operators[found.identity] = found

    def adopt(self, other: "Dataflow", found: Mapping[QueryOperator, QueryOperator]) -> None:
        """Take over the operators of another dataflow. `found` maps the other dataflow's tables to tables here.

        An operator whose identity is already used here gets an identity of its own, and no further query shares it.
        """
        for operator in other.operators.values():
            operator.rebind(found)
            self._rank += 1
            operator.rank = self._rank
            self._part_with_spent(operator.identity)
            if operator.identity in self.operators:
                operator.identity = (self._rank, operator.identity)
                operator.is_shared = False
            self.operators[operator.identity] = operator
            for source in operator.inputs:
                source.dependents[operator] = None

    def release(self, operator: QueryOperator) -> None:
        """Subtract one user. An operator without users is removed, and releases its inputs."""
        operator.users -= 1
        if operator.users <= 0 and operator.identity is not None:
            del self.operators[operator.identity]
            operator.discard()
            for source in operator.inputs:
                source.dependents.pop(operator, None)
                self.release(source)

    def step(self, deltas: Mapping[str, Mapping[Flat, Row | None]]) -> list[QueryOperator]:
        """Process one batch of deltas by table.

        Returns the views that were called: read their changes, then call `end`.
        """
        queue, called = self._queue, self._called
        push, pop = heapq.heappush, heapq.heappop
        for name, delta in deltas.items():
            table = self.tables[name]
            table.take(delta)
            called.append(table)
            if table.out:
                for dependent in table.dependents:
                    if not dependent.is_scheduled:
                        dependent.is_scheduled = True
                        push(queue, (dependent.rank, dependent))
        while queue:
            operator = pop(queue)[1]
            operator.is_scheduled = False
            self._call(operator)
            # Step the only dependent directly, without the queue.
            while operator.out and not queue and len(operator.dependents) == 1:
                (operator,) = operator.dependents
                self._call(operator)
            if operator.out:
                for dependent in operator.dependents:
                    if not dependent.is_scheduled:
                        dependent.is_scheduled = True
                        push(queue, (dependent.rank, dependent))
        outputs = self._outputs
        if outputs:
            self._outputs = []
            for operator in outputs:
                operator.is_scheduled = False
                self._call(operator)
        return outputs

    def _call(self, operator: QueryOperator) -> None:
        began = perf_counter()
        operator.step(self._schedule)
        operator.seconds += perf_counter() - began
        self._called.append(operator)

    def end(self) -> None:
        """End the batch for all operators that it has called."""
        for operator in self._called:
            operator.end()
        self._called.clear()

    def _schedule(self, operator: QueryOperator) -> None:
        if not operator.is_scheduled:
            operator.is_scheduled = True
            if operator.is_output:
                self._outputs.append(operator)
            else:
                heapq.heappush(self._queue, (operator.rank, operator))
