"""From the steps of a loop by nested time to a `Fixpoint`: every step becomes an operator that knows rounds.

Joins with collections from outside all loops look into their states, as elsewhere; what comes out of a
loop around is kept by round, like what is inside. States are called like those of the same step outside,
and `<step>-made` is what a reduction made.
"""

from functools import singledispatchmethod
from typing import Any, Protocol

from eddy.operators import reduce
from eddy.operators.clamp import one_if_positive, positive_part
from eddy.operators.fixpoint import Fixpoint, Scope, Take
from eddy.operators.held import Held
from eddy.operators.operator import Operator
from eddy.operators.stateless import Union
from eddy.operators.timed import Function, TimedJoin, TimedLookupJoin, TimedReduce
from eddy.serde import Native, Serde
from eddy.state.arrangement import Arrangement
from eddy.state.spec import StateSpec
from eddy.state.trace import Trace
from eddy.topology import plan as nodes
from eddy.topology.plan import Block, Node, Recursion
from eddy.topology.scopes import Loop, Scopes
from eddy.topology.slots import Slots, swapped, with_time

__all__ = ["LoopCompiler", "Outside"]


class Outside(Protocol):
    """What a loop's compiler needs of the one that compiles what is around."""

    world: Any
    scopes: Scopes

    def lookup(self, node: Node, name: str) -> Any:
        """The state in which joins find the rows of a step outside all loops."""

    def spec(self, node: Node, name: str, kind: str, value: Serde[Any] | None) -> StateSpec:
        """The identity of a state for rows that lie where those of `node` do."""


class LoopCompiler:
    """Compiles one loop, and those inside it."""

    def __init__(self, outside: Outside, loop: Loop) -> None:
        self._outside, self._loop = outside, loop
        self._scopes = outside.scopes
        self._depth = self._scopes.depth(loop) + 1
        self._inner = Slots()

    def fixpoint(self) -> Fixpoint:
        """The operator of the loop; its inputs are `externals`, in their order."""
        loop, inner = self._loop, self._inner
        for node in (*loop.variables, *self.externals):
            inner.slots[node] = inner.slot()
        for node in self._scopes.body[loop]:
            self._compile(node)
        results = [inner.slots[result] for result in loop.results]
        scope = Scope(inner.steps, inner.count, len(loop.variables), results)
        names = [variable.label for variable in loop.variables]
        bound = loop.bound
        rounds = loop.rounds if isinstance(loop, Block) else bound.depth if bound.leveled else bound.limit
        seeded = isinstance(loop, Recursion)
        held = self._held(names) if bound.on_limit == "rows" else None
        return Fixpoint(loop.name, names, scope, self._depth, rounds, bound, self._outside.world.guard, held, seeded)

    @property
    def externals(self) -> list[Node]:
        """What the loop reads of the steps around it."""
        return self._scopes.externals[self._loop]

    @singledispatchmethod
    def _compile(self, node: Node) -> None:
        raise NotImplementedError(f"no operator inside a loop for {type(node).__name__}")

    def _emit(self, node: Node, operator: Operator) -> None:
        self._inner.slots[node] = self._inner.emit(operator, *self._inner.inputs_of(node))

    @_compile.register
    def _transform(self, node: nodes.Transform) -> None:
        self._inner.transform(node, self._outside.world.peeks)

    @_compile.register
    def _merge(self, node: nodes.Merge) -> None:
        self._emit(node, Union(node.name))

    @_compile.register
    def _reduce(self, node: nodes.Reduce) -> None:
        self._reduction(node, reduce.making(node.function))

    @_compile.register
    def _count(self, node: nodes.Count) -> None:
        self._reduction(node, reduce.counting)

    @_compile.register
    def _aggregate(self, node: nodes.Aggregate) -> None:
        self._reduction(node, reduce.folding(node.initial, node.adder))

    @_compile.register
    def _clamp(self, node: nodes.Clamp) -> None:
        f = one_if_positive if node.form == "distinct" else positive_part
        self._reduction(node, reduce.adding_up(f), signed=True)

    def _reduction(self, node: Node, function: Function, signed: bool = False) -> None:
        taken = self._trace(node.inputs[0], node.name)
        self._emit(node, TimedReduce(node.name, taken, self._trace(node, f"{node.name}-made"), function, signed))

    @_compile.register
    def _join(self, node: nodes.Join) -> None:
        (left, left_name), (right, right_name) = zip(node.inputs, ("left", "right"), strict=True)
        merge, around = node.merge, self._scopes.around
        if left not in around:
            left, left_name, right, right_name = right, right_name, left, left_name
            merge = swapped(merge)
        kept = self._trace(left, f"{node.name}-{left_name}")
        operator: Operator
        if right in around:
            operator = TimedJoin(node.name, kept, self._trace(right, f"{node.name}-{right_name}"), merge)
        else:
            found = self._outside.lookup(right, f"{node.name}-{right_name}")
            operator = TimedLookupJoin(node.name, kept, found, merge)
        slots = self._inner.slots
        slots[node] = self._inner.emit(operator, slots[left], slots[right])

    @_compile.register
    def _exchange(self, node: nodes.Exchange) -> None:
        self._inner.slots[node] = self._inner.slots[node.inputs[0]]

    @_compile.register
    def _loop_inside(self, node: Recursion) -> None:
        compiler = LoopCompiler(self._outside, node)
        operator = compiler.fixpoint()
        slots = self._inner.slots
        results = self._inner.emit(operator, *(slots[source] for source in compiler.externals))
        slots[node] = self._inner.emit(Take(node.name, 0), results)

    def _trace(self, node: Node, name: str) -> Trace[Any, Any]:
        spec = self._outside.spec(node, name, "trace", with_time(node.value or Native, self._depth))
        return Trace(spec, self._outside.world.store)

    def _held(self, names: list[str]) -> Held:
        variables = self._loop.variables
        keys, values = ([getattr(v, part) or Native for v in variables] for part in ("key", "value"))

        def arrangement(kind: str) -> Arrangement[Any, Any]:
            spec = self._outside.spec(variables[0], f"{self._loop.name}-{kind}", "arrangement", _by_number(values))
            return Arrangement(spec.with_key(_by_number(keys)), self._outside.world.store)

        return Held(names, arrangement("errors"), arrangement("held"))


def _by_number(serdes: list[Serde[Any]]) -> Serde[Any]:
    """The serde of (number of a binding, its key or value) pairs."""

    def encode(pair: tuple[int, Any]) -> bytes:
        return pair[0].to_bytes(1, "big") + serdes[pair[0]].encode(pair[1])

    def identify(pair: tuple[int, Any]) -> bytes:
        return pair[0].to_bytes(1, "big") + serdes[pair[0]].identify_many([pair[1]])[0]

    def decode(data: bytes) -> tuple[int, Any]:
        return data[0], serdes[data[0]].decode(data[1:])

    return Serde("|".join(serde.name for serde in serdes), encode, decode, identify=identify)
