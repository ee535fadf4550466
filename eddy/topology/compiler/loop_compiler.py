"""Compiles a loop by nested time to a `Fixpoint`: every step becomes an operator whose rows have an iteration.

A join with a collection outside all loops reads that collection's state, as a join outside loops does. Rows from an
enclosing loop are stored by iteration, as rows from inside are. A state has the name that it would have outside a loop;
`<step>-made` has the results of a reduction.
"""

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any, Protocol

from eddy.operators.errors.row_sizes import OVERHEAD, RowSizes
from eddy.operators.exchange import Budget
from eddy.operators.nested.fixpoint import Fixpoint, NestedBody
from eddy.operators.nested.limit_errors import InnerErrors, InnerLimit, LimitBarrier
from eddy.operators.nested.outermost import Outermost
from eddy.operators.nested.outermost_states import Given, Queue
from eddy.operators.operator import Operator
from eddy.operators.stateless import Map
from eddy.serde import Native, Serde
from eddy.state.arrangement import Arrangement
from eddy.state.iteration_trace import Trace
from eddy.state.spec import StateSpec
from eddy.state.store import Store
from eddy.topology.compiler.guard_placement import Guarding
from eddy.topology.plan.compilers import States
from eddy.topology.plan.plan import Loop, Node
from eddy.topology.plan.scopes import Scopes
from eddy.topology.plan.slots import Slots, with_time

__all__ = ["LoopCompiler", "Outside"]

_ITERATION_BYTES = bytes(4)
"""The iteration of a row in a trace."""


class Outside(States, Protocol):
    """The compiler around a loop, as the loop sees it: the compiler of the plan, or of an enclosing loop."""

    scopes: Scopes
    guarding: Guarding

    @property
    def peeks(self) -> bool:
        """Whether the functions of `peek` steps are called."""

    @property
    def guard(self) -> Budget:
        """The limit of an epoch's work in nested time."""

    @property
    def max_row_bytes(self) -> int:
        """The most bytes of a recursion's row."""


class LoopCompiler:
    """Compiles one loop, and the loops inside it."""

    def __init__(self, outside: Outside, loop: Loop) -> None:
        self._outside, self._loop = outside, loop
        self._scopes = outside.scopes
        self._depth = self._scopes.depth(loop) + 1
        self._inner = Slots()
        self._errors: dict[Node, InnerErrors] = {}
        self._traces: dict[Node, Trace[Any, Any]] = {}

    def fixpoint(self) -> Fixpoint:
        """Return the operator of the loop. Its inputs are the rows of `externals`, in this order."""
        loop, inner = self._loop, self._inner
        for node in (*loop.variables, *self.externals):
            inner.slots[node] = inner.slot()
        for node in self._scopes.body[loop]:
            start = len(inner.steps)
            inner.slots[node] = node.build_nested(self)
            self._outside.guarding.guard(node, inner.steps, start, nested=True)
        results = [inner.slots[result] for result in loop.results]
        body = NestedBody(inner.steps, inner.count, len(loop.variables), results)
        names = [variable.label for variable in loop.variables]
        bound, iterations, seeded, guard = loop.bound, loop.iterations, loop.seeded, self.guard
        sizes = [self._sizes(*pair) for pair in zip(loop.variables, loop.results, strict=True)]
        if self._depth > 1:
            limit = InnerLimit() if loop.error_limit is not None else None
            return Fixpoint(loop.name, names, body, self._depth, iterations, bound, guard, limit, seeded, sizes)
        operator = Outermost(loop.name, names, body, 1, iterations, bound, guard, None, seeded, sizes)
        limits = self._limit_barrier() if loop.error_limit is not None or self._errors else None
        outside = self._outside
        return operator.keep(self._queue(), self._given(), limits, outside.ownership, outside.guarding.care)

    def _queue(self) -> Queue:
        """Return the state in which the loop's input waits while a bound is met, with the reasons."""
        loop, inputs = self._loop, self.externals
        keyed = not (loop.variables[0].single_partition or loop.single_partition)
        key = self._key(loop.variables[0]) if keyed else Native
        keys, values = [*map(self._key, inputs), key], [*(step.value or Native for step in inputs), Native]
        spec = self._numbered_spec(f"{loop.name}-queued", keys, values)
        sizes = [self._row_sizes(self._key(step), step.value or Native, _ITERATION_BYTES) for step in inputs]
        return Queue(Arrangement(spec, self._store), sizes, keyed)

    def _given(self) -> Given:
        """Return the object that has the rows of the bindings: traces, and a state for bindings without a trace."""
        loop = self._loop
        traces = [
            next((self._traces[step] for step in steps if step in self._traces), None) for steps in loop.traced_as()
        ]
        if None not in traces:
            return Given(traces, None)
        keys, values = list(map(self._key, loop.variables)), [step.value or Native for step in loop.variables]
        return Given(traces, Arrangement(self._numbered_spec(f"{loop.name}-given", keys, values), self._store))

    def _key(self, step: Node) -> Serde[Any]:
        """Return the serde of a step's keys."""
        return self._outside.spec(step, step.name, "", None).key

    def _numbered_spec(self, name: str, keys: list[Serde[Any]], values: list[Serde[Any]]) -> StateSpec:
        """Return the spec of a state of numbered rows, such as the loop's queue.

        Its rows are in the same partitions as the loop's rows.
        """
        spec = self._outside.spec(self._loop.variables[0], name, "arrangement", _by_number(values))
        home = spec.partitioner
        at_home = lambda data, count: home(data[1:], count)  # noqa: E731
        return replace(spec, key=_by_number(keys), partitioner=at_home, optional=True)

    @property
    def externals(self) -> list[Node]:
        """The steps outside the loop that the loop reads."""
        return self._scopes.externals[self._loop]

    # The methods that steps call while they are built inside the loop

    @property
    def outside(self) -> States:
        """The states outside all loops."""
        return self._outside

    @property
    def peeks(self) -> bool:
        """Whether the functions of `peek` steps are called."""
        return self._outside.peeks

    @property
    def guard(self) -> Budget:
        """The limit of an epoch's work in nested time."""
        return self._outside.guard

    @property
    def inside(self) -> Container[Node]:
        """All steps that are inside loops."""
        return self._scopes.around

    def slot_of(self, node: Node) -> int:
        """Return the slot of a node's rows."""
        return self._inner.slots[node]

    def emit(self, operator: Operator, *slots: int) -> int:
        """Add an operator that reads `slots`; return the slot of its output."""
        return self._inner.emit(operator, *slots)

    def loop(self, node: Loop) -> int:
        """Compile a loop inside this loop; return the slot of its result."""
        compiler = LoopCompiler(self._outside, node)
        operator = compiler.fixpoint()
        self._errors |= compiler._errors
        return self._inner.emit(operator, *map(self.slot_of, compiler.externals))

    def limit_errors(self, binding: Node, changes: int) -> int:
        """Add the errors of a block inside this loop; return the slot of their rows."""
        (block,) = binding.inputs
        traces = [self._numbered(name, "trace", block.variables, self._depth) for name in binding.errors_kept]
        operator = self._errors[block] = InnerErrors(binding.name, *(Trace(spec, self._store) for spec in traces))
        names = [variable.label for variable in block.variables]
        named = Map(binding.name, lambda key, value: (names[key[0]], (key[1], value[1])))
        return self.emit(named, self.emit(operator, changes))

    def trace(self, node: Node, name: str) -> Trace[Any, Any]:
        """Create a trace for a node's rows."""
        spec = self._outside.spec(node, name, "trace", with_time(node.value or Native, self._depth))
        spec = replace(spec, max_row_bytes=self._outside.max_row_bytes - OVERHEAD)
        trace = self._traces[node] = Trace[Any, Any](spec, self._store)
        return trace

    @property
    def _store(self) -> Store | None:
        return self._outside.store

    def _sizes(self, variable: Node, result: Node) -> RowSizes | None:
        """Return the checks of the size of a binding's rows; None if no trace stores these rows as they are."""
        if self._traces.keys().isdisjoint({variable, result}):
            return None
        return self._row_sizes(variable.key or Native, variable.value or Native)

    def _row_sizes(self, key: Serde[Any], value: Serde[Any], more: bytes = b"") -> RowSizes:
        return RowSizes(lambda row: more + key.encode(row[0]) + value.encode(row[1]), self._outside.max_row_bytes)

    def _limit_barrier(self) -> LimitBarrier:
        loop, found = self._loop, self._scopes.withheld(self._loop)
        variables = [variable for _, variable in found]
        specs = [self._numbered(f"{loop.name}-{kind}", "arrangement", variables) for kind in ("errors", "held")]
        errors, held = (Arrangement[Any, Any](spec, self._store) for spec in specs)
        first, inside = len(loop.variables), []
        for block in self._scopes.limits(loop):
            inside.append((first, self._errors[block]))
            first += len(block.variables)
        return LimitBarrier([name for name, _ in found], errors, held, inside)

    def _numbered(self, name: str, kind: str, variables: Sequence[Node], depth: int = 0) -> StateSpec:
        """Return the spec of a state with rows of several bindings, in the partitions of the first binding's rows."""
        key, value = (_by_number([getattr(v, part) or Native for v in variables]) for part in ("key", "value"))
        return self._outside.spec(variables[0], name, kind, with_time(value, depth) if depth else value).with_key(key)


def _by_number(serdes: list[Serde[Any]]) -> Serde[Any]:
    """Return the serde of pairs (number of a binding, its key or value)."""

    def encode(pair: tuple[int, Any]) -> bytes:
        return pair[0].to_bytes(1, "big") + serdes[pair[0]].encode(pair[1])

    def identify(pair: tuple[int, Any]) -> bytes:
        return pair[0].to_bytes(1, "big") + serdes[pair[0]].identify_many([pair[1]])[0]

    def decode(data: bytes) -> tuple[int, Any]:
        return data[0], serdes[data[0]].decode(data[1:])

    name = "|".join(serde.name for serde in serdes)
    return Serde(name, encode, decode, identify=identify, recipe=(_by_number, (serdes,)))
