"""From the steps of a loop by nested time to a `Fixpoint`: every step becomes an operator over iterations.

Joins with collections outside all loops read their states, as elsewhere; rows from an enclosing loop are stored by
iteration, like those inside. States have the names of the same step outside a loop; `<step>-made` holds the results of
a reduction.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import singledispatchmethod
from typing import Any, Protocol

from eddy.operators.fixpoint import Fixpoint, NestedBody, Take
from eddy.operators.given import Given
from eddy.operators.inner_limits import InnerErrors, InnerLimit
from eddy.operators.limit_barrier import LimitBarrier
from eddy.operators.nested_operators import NestedJoin, NestedLookupJoin, NestedReduce, NestedWeights
from eddy.operators.operator import Operator
from eddy.operators.outermost import Outermost
from eddy.operators.queued import Queue
from eddy.operators.stateless import Map
from eddy.serde import Native, Serde
from eddy.state.arrangement import Arrangement
from eddy.state.spec import StateSpec
from eddy.state.trace import Trace
from eddy.topology import plan as nodes
from eddy.topology.node import States
from eddy.topology.plan import Binding, Block, Node, Recursion, Variable
from eddy.topology.scopes import Loop, Scopes
from eddy.topology.slots import Slots, swapped, with_time

__all__ = ["LoopCompiler", "Outside"]


class Outside(States, Protocol):
    """The interface to the compiler of the surrounding plan or loop."""

    world: Any
    scopes: Scopes

    def lookup(self, node: Node, name: str) -> Any:
        """The state with the rows of a step outside all loops, for joins."""


class LoopCompiler:
    """Compiles one loop, and those inside it."""

    def __init__(self, outside: Outside, loop: Loop) -> None:
        self._outside, self._loop = outside, loop
        self._scopes = outside.scopes
        self._depth = self._scopes.depth(loop) + 1
        self._inner = Slots()
        self._errors: dict[Block, InnerErrors] = {}
        self._traces: dict[Node, Trace[Any, Any]] = {}

    def fixpoint(self) -> Fixpoint:
        """The operator of the loop; its inputs are `externals`, in their order."""
        loop, inner = self._loop, self._inner
        for node in (*loop.variables, *self.externals):
            inner.slots[node] = inner.slot()
        for node in self._scopes.body[loop]:
            self._compile(node)
        results = [inner.slots[result] for result in loop.results]
        body = NestedBody(inner.steps, inner.count, len(loop.variables), results)
        names = [variable.label for variable in loop.variables]
        bound = loop.bound
        iterations = loop.iterations if isinstance(loop, Block) else bound.depth if bound.by_depth else bound.limit
        seeded = isinstance(loop, Recursion)
        guard = self._outside.world.guard
        encoders = [self._encoder(*pair) for pair in zip(loop.variables, loop.results, strict=True)]
        if self._depth > 1:
            limit = InnerLimit() if bound.on_limit == "rows" else None
            return Fixpoint(loop.name, names, body, self._depth, iterations, bound, guard, limit, seeded, encoders)
        operator = Outermost(loop.name, names, body, 1, iterations, bound, guard, None, seeded, encoders)
        limits = self._limit_barrier() if bound.on_limit == "rows" or self._errors else None
        return operator.keep(self._queue(), self._given(seeded), limits, self._outside.world.ownership)

    def _queue(self) -> Queue:
        """The state in which the loop's inputs wait while a bound is met, with the reasons."""
        loop, inputs = self._loop, self.externals
        keyed = not (loop.variables[0].single_partition or loop.single_partition)
        key = self._key(loop.variables[0]) if keyed else Native
        keys, values = [*map(self._key, inputs), key], [*(step.value or Native for step in inputs), Native]
        spec = self._beside(f"{loop.name}-queued", keys, values)
        return Queue(Arrangement(spec, self._store), len(inputs), keyed)

    def _given(self, seeded: bool) -> Given:
        """The traces, or else a state, with the rows of the bindings.

        A trace of the result lacks the seed, and a trace of X the last iteration.
        """
        loop, traces = self._loop, []
        for variable, result in zip(loop.variables, loop.results, strict=True):
            found = None if seeded else self._traces.get(result)
            if found is None and (seeded or not loop.bound.by_depth):
                found = self._traces.get(variable)
            traces.append(found)
        if None not in traces:
            return Given(traces, None)
        keys, values = list(map(self._key, loop.variables)), [step.value or Native for step in loop.variables]
        return Given(traces, Arrangement(self._beside(f"{loop.name}-given", keys, values), self._store))

    def _key(self, step: Node) -> Serde[Any]:
        """The serde of a step's keys."""
        return self._outside.spec(step, step.name, "", None).key

    def _beside(self, name: str, keys: list[Serde[Any]], values: list[Serde[Any]]) -> StateSpec:
        """The spec of a state of numbered rows, co-partitioned with the loop's rows by their keys."""
        spec = self._outside.spec(self._loop.variables[0], name, "arrangement", _by_number(values))
        home = spec.partitioner
        at_home = lambda data, count: home(data[1:], count)  # noqa: E731
        return replace(spec, key=_by_number(keys), partitioner=at_home, optional=True)

    @property
    def externals(self) -> list[Node]:
        """The steps outside that the loop reads."""
        return self._scopes.externals[self._loop]

    @singledispatchmethod
    def _compile(self, node: Node) -> None:
        """A function of all values of a key, or a step without a state; only other steps have a method here."""
        grouping = node.grouping
        if grouping is None:
            self._emit(node, node.operator(self._outside))
            return
        taken, made = self._trace(node.inputs[0], node.name), self._trace(node, f"{node.name}-made")
        if grouping.of_weight is not None:
            self._emit(node, NestedWeights(node.name, taken, made, grouping.of_weight))
        else:
            self._emit(node, NestedReduce(node.name, taken, made, grouping.function))

    def _emit(self, node: Node, operator: Operator) -> None:
        self._inner.slots[node] = self._inner.emit(operator, *self._inner.inputs_of(node))

    @_compile.register
    def _transform(self, node: nodes.Transform) -> None:
        self._inner.transform(node, self._outside.world.peeks)

    @_compile.register
    def _join(self, node: nodes.Join) -> None:
        (left, left_name), (right, right_name) = zip(node.inputs, ("left", "right"), strict=True)
        merge, around = node.merge, self._scopes.around
        if left not in around:
            left, left_name, right, right_name = right, right_name, left, left_name
            merge = swapped(merge)
        kept = self._trace(left, f"{node.name}-{left_name}")
        operator: Operator
        guard = self._outside.world.guard
        if right in around:
            operator = NestedJoin(node.name, kept, self._trace(right, f"{node.name}-{right_name}"), merge, guard)
        else:
            found = self._outside.lookup(right, f"{node.name}-{right_name}")
            operator = NestedLookupJoin(node.name, kept, found, merge, guard)
        slots = self._inner.slots
        slots[node] = self._inner.emit(operator, slots[left], slots[right])

    @_compile.register
    def _exchange(self, node: nodes.Exchange) -> None:
        self._inner.slots[node] = self._inner.slots[node.inputs[0]]

    @_compile.register
    def _recursion(self, node: Recursion) -> None:
        self._inner.slots[node] = self._inner.emit(Take(node.name, 0), self._loop_inside(node))

    @_compile.register
    def _block(self, node: Block) -> None:
        self._inner.slots[node] = self._loop_inside(node)

    def _loop_inside(self, node: Loop) -> int:
        compiler = LoopCompiler(self._outside, node)
        operator = compiler.fixpoint()
        self._errors |= compiler._errors
        return self._inner.emit(operator, *(self._inner.slots[source] for source in compiler.externals))

    @_compile.register
    def _binding(self, node: Binding) -> None:
        (block,) = node.inputs
        assert isinstance(block, Block)
        slot = self._inner.emit(Take(node.name, node.index), self._inner.slots[block])
        if node.index == len(block.variables) and block.bound.on_limit == "rows":
            traces = [
                self._numbered(name, "trace", block.variables, self._depth)
                for name in (node.name, f"{block.name}-errors")
            ]
            operator = self._errors[block] = InnerErrors(node.name, *(Trace(spec, self._store) for spec in traces))
            names = [variable.label for variable in block.variables]
            named = Map(node.name, lambda key, value: (names[key[0]], (key[1], value[1])))
            slot = self._inner.emit(named, self._inner.emit(operator, slot))
        self._inner.slots[node] = slot

    @property
    def _store(self) -> Any:
        return self._outside.world.store

    def _encoder(self, variable: Node, result: Node) -> Callable[[tuple[Any, Any]], object] | None:
        """The encoder of a binding's rows, if a state stores them unchanged; else None."""
        if self._traces.keys().isdisjoint({variable, result}):
            return None
        key, value = variable.key or Native, variable.value or Native
        return lambda row: (key.encode(row[0]), value.encode(row[1]))

    def _trace(self, node: Node, name: str) -> Trace[Any, Any]:
        spec = self._outside.spec(node, name, "trace", with_time(node.value or Native, self._depth))
        trace = self._traces[node] = Trace[Any, Any](spec, self._store)
        return trace

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

    def _numbered(self, name: str, kind: str, variables: Sequence[Variable], depth: int = 0) -> StateSpec:
        """The identity of a state with rows of several bindings, co-partitioned with those of the first."""
        key, value = (_by_number([getattr(v, part) or Native for v in variables]) for part in ("key", "value"))
        return self._outside.spec(variables[0], name, kind, with_time(value, depth) if depth else value).with_key(key)


def _by_number(serdes: list[Serde[Any]]) -> Serde[Any]:
    """The serde of (number of a binding, its key or value) pairs."""

    def encode(pair: tuple[int, Any]) -> bytes:
        return pair[0].to_bytes(1, "big") + serdes[pair[0]].encode(pair[1])

    def identify(pair: tuple[int, Any]) -> bytes:
        return pair[0].to_bytes(1, "big") + serdes[pair[0]].identify_many([pair[1]])[0]

    def decode(data: bytes) -> tuple[int, Any]:
        return data[0], serdes[data[0]].decode(data[1:])

    return Serde("|".join(serde.name for serde in serdes), encode, decode, identify=identify)
