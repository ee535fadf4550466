"""Evaluates a plan from scratch over tables: the rows of a wanted step, and of all steps upstream of it.

    X = seed + op(X)     linear: F(0) = seed, F(n+1) = op(F(n)), X = Σ F(n)
                         else X(n+1) = seed + op(X(n)), until nothing changes

Rows on a cycle of a linear op, and the rows derived from them, have no finite weight. They are held, as by a worker:
their keys have no row downstream.

Inside a loop, a step's rows are computed from all rows of X, so that they explain each row of X. A stream's facts are
made from all its records; rows of windows are passed on when the event times of these records allow it. Three kinds of
steps are not evaluated: recursions of facts, recursions with algorithms of their own, and steps whose rows only a
worker can compute.
"""

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count, islice
from typing import Any

from eddy.errors import QueryError
from eddy.topology.plan.bags import Bag, Row, identity
from eddy.topology.plan.facts import Fact
from eddy.topology.plan.plan import Loop, Node, Plan
from eddy.topology.plan.scopes import Scopes
from eddy.topology.tracing.row_cycles import CyclicRows, cyclic_rows
from eddy.topology.tracing.source_clocks import SourceClocks

__all__ = ["Evaluation"]

_PATIENCE = 10_000
_MADE_EACH = 20
_CHUNK = 10_000
_SEARCHES = frozenset(64 * 2**n for n in range(8))
"""The iterations after which cycles are searched for."""
_NONE_HELD = CyclicRows({}, ())
_NAMED = 5


class _FailedRecordsError(Exception):
    """A step fails on single records of a stream. `reasons` has the errors, by the records' places."""

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__(f"{len(reasons)} records")
        self.reasons = reasons


class Evaluation:
    """Computes the rows of `wanted` and of all steps upstream of it, as `bags` by step.

    `tables` has the rows of each source by topic: the rows of a table, or the facts of a stream, by rising offset.

    `iterations` has, for each row of a loop, the first iteration that made it. `waves` has the loops that are linear,
    each with F(0), F(1), … if the depth of rows is bounded. `held` has the rows that loops hold. `waiting` has the rows
    that steps do not pass on yet, with the reasons. `by_arrival` has the reasons why a worker's rows may differ.
    `failed` has the records of streams that are left out because a step fails on them, by place, with the reasons. If
    `wanted` is a table of windows, its rows are the rows of all windows that there ever were.

    `max_rows` bounds the number of different rows of all steps and iterations together; up to twenty times as many
    rows may be computed before equal rows are merged.
    Raises: QueryError for steps that cannot be evaluated, more than `max_rows` rows, or rows without a finite answer.
    """

    def __init__(
        self,
        plan: Plan,
        wanted: Node,
        tables: Mapping[str, Iterable[Row]],
        max_rows: int = 5_000_000,
        clocks: SourceClocks | None = None,
    ) -> None:
        self._tables, self._max_rows, self._scopes, self._wanted = tables, max_rows, Scopes(plan), wanted
        self._topics = {source: source.topic for source in plan.sources()}
        self.clocks = clocks or SourceClocks({})
        self.failed: dict[str, str] = {}
        self._begin()
        needed, nodes = self._needed(wanted), list(plan.nodes)
        while nodes:
            try:
                for node in nodes:
                    if node in needed and node not in self._scopes.around:
                        self._evaluate(node)
                nodes = []
            except _FailedRecordsError as error:  # a worker rejects the whole record, so evaluate all without it
                self.failed |= error.reasons
                self._begin()

    def _begin(self) -> None:
        """Drop all rows, so that the evaluation begins again."""
        self._left, self._left_to_make = self._max_rows, _MADE_EACH * self._max_rows
        self.bags: dict[Node, Bag] = {}
        self.iterations: dict[Node, dict[Any, int]] = {}
        self.waves: dict[Node, list[Bag]] = {}
        self.held: dict[Node, CyclicRows] = {}
        self.waiting: dict[Node, list[tuple[Row, str]]] = {}
        self.by_arrival: list[str] = []

    def left_out(self) -> list[str]:
        """Return messages on the records that are left out because a step fails on them; only the first if many."""
        more = len(self.failed) - _NAMED
        rest = [f"{more:,} more records are left out, since steps fail on them"] if more > 0 else []
        return [f"record {place} is left out: {why}" for place, why in islice(self.failed.items(), _NAMED)] + rest

    def iteration(self, loop: Node, row: Row) -> int:
        """Return the iteration in which a row of a loop's result first appeared."""
        return self.iterations.get(loop, {}).get(identity(row), 0)

    def inside(self, loop: Loop) -> set[Node]:
        """Return the variables of a loop, and the steps inside it."""
        return {*loop.variables, *self._scopes.body[loop]}

    def joined(self, loop: Loop) -> list[Node]:
        """Return the steps outside a loop whose rows `op` joins with rows that it makes from its variables' rows."""
        inside, found = self.inside(loop), []
        for node in self._scopes.body[loop]:
            if node.bilinear and any(_leads_to(source, loop) for source in node.inputs):
                found += [source for source in node.inputs if source not in inside]
        return found

    def _needed(self, wanted: Node) -> set[Node]:
        needed: set[Node] = set()
        todo = [wanted]
        while todo:
            node = todo.pop()
            if node not in needed:
                needed.add(node)
                loop, same = self._scopes.around.get(node), node.same_rows_as
                reads = self._scopes.reads(node) if same is None or same in self._scopes.around else [same]
                todo += [*reads, *([] if loop is None else [loop])]
        return needed

    def _evaluate(self, node: Node) -> None:
        if node.as_loop is not None:
            self._loop(node.as_loop)
        elif node.same_rows_as is not None:
            self.bags[node] = self._passed_on(node, self.bags[node.same_rows_as])
        else:
            inputs = [self.bags[source] for source in node.inputs]
            self._note_arrival(node, inputs)
            self.bags[node] = self._passed_on(node, self._made(node, inputs))
            if node.begins:
                self.clocks.see(row for row, _ in self.bags[node])

    def _passed_on(self, node: Node, rows: Bag) -> Bag:
        """Return the rows of a step that do not wait for event times.

        For the wanted table, if it has windows, all rows are returned.
        """
        if not node.waits_for:
            return rows
        there, waiting = Bag(), self.waiting.setdefault(node, [])
        for row, weight in rows:
            closing = node.closing(row)
            reason = self.clocks.waits(closing) if closing is not None and closing.waits else ""
            if reason:
                waiting.append((row, reason))
            if not reason or (node is self._wanted and node.closes):
                there.add([(row, weight)])
        return there

    def _note_arrival(self, node: Node, inputs: Sequence[Bag]) -> None:
        """Note why a worker's rows may differ from the computed rows, if the order of arrival decides the rows."""
        found = node.arrival
        if found is not None and (not found.mixed or any(map(_is_mixed, inputs))):
            self.by_arrival.append(f"step '{node.name}' ({node.does}) has {found.reason}")

    def _made(self, node: Node, inputs: list[Bag]) -> Bag:
        if node in self._topics:
            rows = self._without_failed(self._tables[self._topics[node]])
            return self._bag((row, 1) for row in rows if row[0] is not None or node.kind == "stream")
        made = None if node.only_by_worker else node.rows_from(*inputs)
        if made is None:
            raise self._refused(node, node.only_by_worker or f"it {node.untraced}")
        try:
            return self._bag(made)
        except QueryError:
            raise
        except Exception as error:
            if reasons := _failing(node, inputs):
                raise _FailedRecordsError(reasons) from error
            raise QueryError(f"trace: step '{node.name}' fails on a row: {error!r}") from error

    def _without_failed(self, rows: Iterable[Row]) -> Iterable[Row]:
        """Yield the rows of the records on which no step fails. The clocks see all records, as a worker's clocks do."""
        for row in rows:
            if isinstance(row, Fact) and row.record.place in self.failed:
                self.clocks.see([row])
            else:
                yield row

    def _refused(self, node: Node, why: str) -> QueryError:
        return QueryError(
            f"trace: step '{node.name}' ({node.does}), on which the rows depend, is not computed again here: {why}. "
            "`eddy verify` computes what it can again, from the topics"
        )

    def _bag(self, rows: Iterable[tuple[Row, int]]) -> Bag:
        """Return a step's rows as a bag. Raises: QueryError as soon as there are too many."""
        bag, left = Bag(), iter(rows)
        while chunk := list(islice(left, _CHUNK)):
            bag.add(chunk)
            self._left_to_make -= len(chunk)
            if len(bag) > self._left or self._left_to_make < 0:
                raise QueryError(
                    "trace: the steps have too many rows to compute them again here; a larger limit is needed"
                )
        self._left -= len(bag)
        return bag

    def _loop(self, loop: Loop) -> None:
        if loop.kind == "stream":
            raise self._refused(loop, "it is a recursion of facts")
        inner = any(node.variables for node in self._scopes.body[loop])
        if loop.waves and not inner:
            self._waves(loop)
        else:
            self._iterate(loop)

    def _last_iteration(self, loop: Loop) -> tuple[int, bool]:
        """Return the number of iterations after which a loop stops, and whether the bound is part of the answer."""
        return (loop.iterations, True) if loop.bound.by_depth else (_PATIENCE, False)

    def _waves(self, loop: Loop) -> None:
        """Compute the waves of a loop. Whenever rows on cycles are found, begin again without these rows."""
        left = self._left
        while (found := self._waves_without(loop, self.held.get(loop, _NONE_HELD).rows)) is not None:
            before, self._left = self.held.get(loop, found), left
            self.held[loop] = CyclicRows(before.rows | found.rows, before.cycle)

    def _waves_without(self, loop: Loop, held: Collection[Any]) -> CyclicRows | None:
        """Run the waves without the rows in `held`.

        Returns further rows on cycles as soon as some are found, else None.
        """
        body, (variable,), (result,) = self._scopes.body[loop], loop.variables, loop.results
        totals = {node: Bag() for node in body}
        first = self.iterations[loop] = {}
        x, frontier = Bag(), self.bags[loop.inputs[0]]
        last_iteration, is_answer = self._last_iteration(loop)
        searches = not is_answer and loop not in self._scopes.around
        self.waves[loop] = []
        rows: dict[Any, Row] = {}
        for iteration in range(last_iteration + 1):
            if held:
                frontier = Bag(item for item in frontier if identity(item[0]) not in held)
            x.add(frontier)
            rows.update((identity(row), row) for row, _ in frontier)
            if searches and iteration in _SEARCHES and (found := self._cyclic(loop, rows.values())) is not None:
                return found
            if is_answer:
                self.waves[loop].append(frontier)
            for row, _ in frontier:
                first.setdefault(identity(row), iteration)
            if not len(frontier) or (iteration == last_iteration and is_answer):
                break
            self._check(loop, iteration, last_iteration)
            bags: dict[Node, Bag] = {variable: frontier}
            for node in body:
                bags[node] = self._made(node, [self._inside(bags, node, source, iteration) for source in node.inputs])
                totals[node].add(bags[node])
            frontier = bags[result] if result in bags else Bag() if iteration else self.bags[result]
        self.bags |= totals
        self.bags[variable] = self.bags[loop] = x
        if loop in self.held:
            keys = self.held[loop].keys
            self.bags[loop] = Bag(item for item in x if identity(item[0][0]) not in keys)
        return None

    def _cyclic(self, loop: Loop, rows: Iterable[Row]) -> CyclicRows | None:
        """Return the rows on cycles among `rows`, with all rows derived from them; None if there are none."""
        (variable,), (result,) = loop.variables, loop.results
        bags = self._applied(loop, rows)
        if result not in bags:
            return None
        found = cyclic_rows(variable, self._scopes.body[loop], result, ChainMap(bags, self.bags))
        news = [] if found is None else list(found.rows.values())
        for iteration in count():
            if found is None or not news:
                return found
            self._check(loop, iteration, _PATIENCE)
            made = self._applied(loop, news)[result]
            news = [row for row, _ in made if identity(row) not in found.rows]
            found.rows.update((identity(row), row) for row in news)
        return found

    def _applied(self, loop: Loop, rows: Iterable[Row]) -> dict[Node, Bag]:
        """Return the rows of the steps inside a loop, made from one copy of each of these rows of its variable."""
        bags: dict[Node, Bag] = {loop.variables[0]: Bag((row, 1) for row in rows)}
        for node in self._scopes.body[loop]:
            bags[node] = self._made(node, [self._inside(bags, node, source, 1) for source in node.inputs])
        return bags

    def _inside(self, bags: Mapping[Node, Bag], node: Node, source: Node, iteration: int) -> Bag:
        """Return an input of a step in a wave, from the step `source`.

        A sum of collections gets rows from outside once, in the first wave. A join gets them in every wave.
        """
        if source in bags:
            return bags[source]
        return Bag() if node.role == "sum" and iteration else self.bags[source]

    def _iterate(self, loop: Loop) -> None:
        body = self._scopes.body[loop]
        seeds = [self.bags[source] for source in loop.inputs]
        found = [Bag(row for seed in seeds for row in seed) for _ in loop.variables]
        first = self.iterations[loop] = {}
        last_iteration, is_answer = self._last_iteration(loop)
        for iteration in range(last_iteration + 1):
            for bag in found:
                for row, _ in bag:
                    first.setdefault(identity(row), iteration)
            for variable, bag in zip(loop.variables, found, strict=True):
                self.bags[variable] = bag
            if iteration == last_iteration and is_answer:
                break
            self._check(loop, iteration, last_iteration)
            for node in body:
                self._evaluate(node)
            after = [Bag([*(row for seed in seeds for row in seed), *self.bags[result]]) for result in loop.results]
            if all(one.same(other) for one, other in zip(found, after, strict=True)):
                break
            found = after
        self.bags[loop] = found[0] if loop.seeded else Bag()

    def _check(self, loop: Loop, iteration: int, last_iteration: int) -> None:
        if iteration == last_iteration:
            raise QueryError(
                f"trace: recursion '{loop.name}' has no finite answer in these rows: it still changes after "
                f"{iteration:,} iterations. `eddy status` names the path; mend the data"
            )


def _failing(node: Node, inputs: Sequence[Bag]) -> dict[str, str]:
    """Return why a step with one input fails on single facts, by the places of their records."""
    found: dict[str, str] = {}
    for row, weight in inputs[0] if len(inputs) == 1 else ():
        if isinstance(row, Fact):
            try:
                list(node.rows_from(Bag([(row, weight)])) or ())
            except Exception as error:
                found[row.record.place] = f"step '{node.name}' fails on it: {error!r}"
    return found


def _is_mixed(rows: Bag) -> bool:
    """Return whether facts with the same key are from several partitions."""
    places: dict[Any, tuple[str, int]] = {}
    for row, _ in rows:
        if isinstance(row, Fact):
            place = row.record.topic, row.record.partition
            if places.setdefault(identity(row[0]), place) != place:
                return True
    return False


def _leads_to(node: Node, loop: Loop) -> bool:
    """Return whether each row of a step is made from a single row of a loop's variable."""
    while node not in loop.variables:
        if len(node.inputs) != 1:
            return False
        (node,) = node.inputs
    return True
