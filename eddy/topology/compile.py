"""From plan to circuit: every node becomes operators over numbered slots.

The compiler decides what is remembered: a join looks into the table of its input where that has
one, into X where its input is a recursion's variable, and else into an arrangement of its own,
`<join>-left` or `<join>-right`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Any

from eddy.errors import TopologyError
from eddy.operators import aggregate, clamp, join, stateless, tables
from eddy.operators.circuit import Circuit, Output
from eddy.operators.exchange import Budget, Gate, Ownership
from eddy.operators.exchange import Exchange as ExchangeOperator
from eddy.operators.operator import Operator
from eddy.operators.recursion import Body, FactWaves, Step, Waves
from eddy.serde import Int64, Native, Plain, Serde
from eddy.state.arrangement import Arrangement
from eddy.state.spec import StateSpec
from eddy.state.store import Store
from eddy.state.table import Table
from eddy.topology import plan as nodes
from eddy.topology.compile_fixpoint import fixpoint, tree_totals
from eddy.topology.placement import Placement, place
from eddy.topology.plan import Node, Plan, Recursion, Source, Variable, body_of

__all__ = ["Environment", "compile_plan", "sink_serdes"]


@dataclass
class Environment:
    """What a circuit needs of the world: partition counts, owners, a budget and a place for state.

    `max_cells` bounds the cells of all states in memory together, where there is a store beneath.
    """

    topic_partitions: Mapping[str, int]
    compacted: frozenset[str] = frozenset()
    ownership: Ownership = field(default_factory=Ownership)
    budget: Budget = field(default_factory=lambda: Budget(2**62))
    partitioner: Callable[[bytes, int], int] = lambda key, count: 0
    store: Store | None = None
    max_cells: int | None = None


def compile_plan(plan: Plan, environment: Environment) -> Circuit:
    """Compile a plan. Raises: TopologyError where placement or a step's use does not work out."""
    return _Compiler(plan, environment).circuit()


class _Scope:
    """Steps over slots: those of the circuit, or those of one recursion's body."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.slots: dict[Node, int] = {}
        self.received: dict[Node, int] = {}
        self.count = 0

    def slot(self) -> int:
        """A new slot."""
        self.count += 1
        return self.count - 1

    def emit(self, operator: Operator, *inputs: int) -> int:
        """Place an operator; return the slot of its output."""
        output = self.slot()
        self.steps.append(Step(operator, inputs, output))
        return output

    def inputs_of(self, node: Node) -> list[int]:
        """The slots of a node's inputs."""
        return [self.slots[source] for source in node.inputs]


class _Compiler:
    def __init__(self, plan: Plan, environment: Environment) -> None:
        self._plan, self._world = plan, environment
        self._placements = place(plan, environment.topic_partitions)
        self._bodies = {r: body_of(plan, r.variable) for r in plan.recursions()}
        self._inside = {node: r for r, body in self._bodies.items() for node in (r.variable, *body)}
        self._scope = _Scope()
        self._inputs: dict[str, int] = {}
        self._tables: dict[Node, Table[Any, Any]] = {}
        self._arrangements: dict[tuple[Node, str], Arrangement[Any, Any]] = {}

    def circuit(self) -> Circuit:
        """Compile every node that is not inside a recursion; recursions compile their bodies."""
        scope = self._scope
        for node in self._plan.nodes:
            if isinstance(node, nodes.Exchange | Recursion):
                scope.received[node] = self._inputs[_topic(self._plan, node)] = scope.slot()
        for node in self._plan.nodes:
            self._check_scope(node)
            if node not in self._inside:
                self._compile(node)
        world = self._world
        return Circuit(scope.steps, scope.count, self._inputs, world.ownership, world.budget, world.max_cells)

    def _check_scope(self, node: Node) -> None:
        for source in node.inputs:
            if source in self._inside and node not in self._inside:
                raise TopologyError(
                    f"step '{node.name}': its input '{source.name}' lies inside recursively "
                    f"'{self._inside[source].name}'; outside, what recursively returns is needed"
                )

    @singledispatchmethod
    def _compile(self, node: Node) -> None:
        raise NotImplementedError(f"no operator for {type(node).__name__}")

    @_compile.register
    def _source(self, node: Source) -> None:
        slot = self._inputs[node.topic] = self._scope.slot()
        if node.kind == "table":
            table = self._table(node, node.name, source=node.topic)
            slot = self._scope.emit(tables.Upsert(node.name, table), slot)
        self._scope.slots[node] = slot

    @_compile.register
    def _transform(self, node: nodes.Transform) -> None:
        self._scope.slots[node] = self._scope.emit(_transformation(node), *self._scope.inputs_of(node))

    @_compile.register
    def _merge(self, node: nodes.Merge) -> None:
        self._scope.slots[node] = self._scope.emit(stateless.Union(node.name), *self._scope.inputs_of(node))

    @_compile.register
    def _latest(self, node: nodes.Latest) -> None:
        self._scope.slots[node] = self._scope.emit(stateless.Latest(node.name), *self._scope.inputs_of(node))

    @_compile.register
    def _upsert(self, node: nodes.Upsert) -> None:
        self._scope.slots[node] = self._scope.emit(
            tables.Upsert(node.name, self._table(node, node.name)), *self._scope.inputs_of(node)
        )

    @_compile.register
    def _exchange(self, node: nodes.Exchange) -> None:
        operator = ExchangeOperator(node.name, self._gate(node))
        self._scope.slots[node] = self._scope.emit(operator, *self._scope.inputs_of(node), self._scope.received[node])

    @_compile.register
    def _count_rows(self, node: nodes.Count) -> None:
        self._scope.slots[node] = self._scope.emit(
            aggregate.Count(node.name, self._table(node, node.name)), *self._scope.inputs_of(node)
        )

    @_compile.register
    def _aggregate(self, node: nodes.Aggregate) -> None:
        counts: Table[Any, int] | None = None
        if node.subtractor is not None:
            counts = Table(self._spec(node, f"{node.name}-rows", "table", Int64), self._world.store)
        operator = aggregate.Aggregate(
            node.name, self._table(node, node.name), node.initial, node.adder, node.subtractor, counts
        )
        self._scope.slots[node] = self._scope.emit(operator, *self._scope.inputs_of(node))

    @_compile.register
    def _clamp(self, node: nodes.Clamp) -> None:
        f = clamp.one_if_positive if node.form == "distinct" else clamp.positive_part
        operator = clamp.Clamp(node.name, self._arrangement(node, node.name), f)
        self._scope.slots[node] = self._scope.emit(operator, *self._scope.inputs_of(node))

    @_compile.register
    def _stream_table_join(self, node: nodes.StreamTableJoin) -> None:
        table = self._table_of(node.inputs[1], f"{node.name}-right")
        operator = join.StreamTableJoin(node.name, table, node.joiner, node.left)
        self._scope.slots[node] = self._scope.emit(operator, *self._scope.inputs_of(node))

    @_compile.register
    def _table_join(self, node: nodes.TableJoin) -> None:
        left = self._table_of(node.inputs[0], f"{node.name}-left")
        right = self._table_of(node.inputs[1], f"{node.name}-right")
        operator = join.TableJoin(node.name, left, right, node.joiner, node.join)
        self._scope.slots[node] = self._scope.emit(operator, *self._scope.inputs_of(node))

    @_compile.register
    def _join(self, node: nodes.Join) -> None:
        (left, left_name), (right, right_name) = zip(node.inputs, ("left", "right"), strict=True)
        recursion, merge = self._inside.get(node), node.merge
        if right in self._inside:
            left, left_name, right, right_name = right, right_name, left, left_name
            merge = _swapped(node.merge)
        operator = join.Join(
            node.name,
            self._lookup(left, f"{node.name}-{left_name}"),
            self._lookup(right, f"{node.name}-{right_name}"),
            merge,
            2 if recursion is None else 1,
            recursion is not None and recursion.bound.leveled,
        )
        scope = self._scope
        scope.slots[node] = scope.emit(operator, scope.slots[left], scope.slots[right])

    @_compile.register
    def _fixpoint(self, node: nodes.Fixpoint) -> None:
        operator = fixpoint(node, self._plan.name, self._world.store)
        self._scope.slots[node] = self._scope.emit(operator, *self._scope.inputs_of(node))

    @_compile.register
    def _tree_totals(self, node: nodes.TreeTotals) -> None:
        operator = tree_totals(node, self._plan.name, self._world.store)
        self._scope.slots[node] = self._scope.emit(operator, *self._scope.inputs_of(node))

    @_compile.register
    def _sink(self, node: nodes.Sink) -> None:
        self._scope.emit(Output(node.name), *self._scope.inputs_of(node))

    @_compile.register
    def _recursion(self, node: Recursion) -> None:
        """Compile `op` in a scope of its own: slot 0 is X, then what comes from outside."""
        body = self._bodies[node]
        self._prepare_lookups(body)
        outer, inner = self._scope, _Scope()
        inner.slots[node.variable] = inner.slot()
        outside = []
        for source in self._externals(node, body):
            inner.slots[source] = inner.slot()
            outside.append(outer.slots[source])
        for exchange in body:
            if isinstance(exchange, nodes.Exchange):
                inner.received[exchange] = inner.slot()
                outside.append(outer.received[exchange])
        self._scope = inner
        for step in body:
            self._compile(step)
        self._scope = outer
        waves = self._waves(node, Body(inner.steps, inner.count, inner.slots[node.result]))
        seed = outer.slots[node.inputs[0]]
        outer.slots[node] = outer.emit(waves, seed, outer.received[node], *outside)

    def _externals(self, node: Recursion, body: list[Node]) -> list[Node]:
        """The collections that the body reads from outside."""
        inside = {node.variable, *body}
        return list(dict.fromkeys(source for step in body for source in step.inputs if source not in inside))

    def _prepare_lookups(self, body: list[Node]) -> None:
        """Make, outside, the states that joins inside look into."""
        for step in body:
            if isinstance(step, nodes.Join | nodes.StreamTableJoin):
                for side, name in zip(step.inputs, ("left", "right"), strict=True):
                    if side not in self._inside and (isinstance(step, nodes.Join) or name == "right"):
                        self._lookup(side, f"{step.name}-{name}")

    def _waves(self, node: Recursion, body: Body) -> Operator:
        shared = (node.name, body, self._gate(node), node.bound, self._world.budget)
        if node.kind == "stream":
            return FactWaves(*shared, node.include_seeds)
        arrangement = self._arrangements.get((node.variable, node.name))
        return Waves(*shared, arrangement)

    def _lookup(self, node: Node, name: str) -> Any:
        """What a join looks into for `node`; `name` is that of a state made for it."""
        if node.kind == "table":
            return self._table_of(node, name)
        recursion = self._inside.get(node)
        if isinstance(node, Variable):
            name = node.label
        if (node, name) not in self._arrangements:
            leveled = recursion is not None and recursion.bound.leveled
            arrangement = self._arrangements[node, name] = self._arrangement(node, name, leveled)
            if not isinstance(node, Variable):
                arrange = join.Arrange(name, arrangement, recursion is not None, leveled)
                self._scope.slots[node] = self._scope.emit(arrange, self._scope.slots[node])
        return self._arrangements[node, name]

    def _table_of(self, node: Node, name: str) -> Table[Any, Any]:
        """The table of a node: its own, or one that is made for a join."""
        if node not in self._tables:
            table = self._tables[node] = Table(self._spec(node, name, "table", node.value), self._world.store)
            self._scope.slots[node] = self._scope.emit(join.Materialize(name, table), self._scope.slots[node])
        return self._tables[node]

    def _table(self, node: Node, name: str, source: str | None = None) -> Table[Any, Any]:
        table = self._tables[node] = Table(self._spec(node, name, "table", node.value, source), self._world.store)
        return table

    def _arrangement(self, node: Node, name: str, leveled: bool = False) -> Arrangement[Any, Any]:
        value = node.value or Native
        spec = self._spec(node, name, "arrangement", _with_level(value) if leveled else value)
        return Arrangement(spec, self._world.store)

    def _spec(self, node: Node, name: str, kind: str, value: Serde[Any] | None, source: str | None = None) -> StateSpec:
        place: Placement = self._placements[node]
        restored = source is not None and source in self._world.compacted
        return StateSpec(
            name,
            kind,
            place.key,
            value or Native,
            place.partitions,
            self._world.partitioner,
            None if restored else f"{self._plan.name}-{name}-changelog",
            source if restored else None,
        )

    def _gate(self, node: Node) -> Gate:
        place = self._placements[node]
        return Gate(
            _topic(self._plan, node),
            place.key,
            node.value or Native,
            place.partitions,
            self._world.ownership,
            self._world.partitioner,
        )


def sink_serdes(plan: Plan, topic_partitions: Mapping[str, int]) -> dict[Node, tuple[Serde[Any], Serde[Any]]]:
    """The serdes of each sink: those named there, or those of what it writes, or `Plain`."""
    placements = place(plan, topic_partitions)
    found: dict[Node, tuple[Serde[Any], Serde[Any]]] = {}
    for sink in plan.sinks():
        written = placements[sink.inputs[0]].key
        found[sink] = (sink.key or (Plain if written is Native else written), sink.value or Plain)
    return found


def _topic(plan: Plan, node: Node) -> str:
    return f"{plan.name}-{node.name}-loop" if isinstance(node, Recursion) else f"{plan.name}-{node.name}"


def _transformation(node: nodes.Transform) -> Operator:
    name, function = node.name, node.function
    if node.verb == "negate":
        return stateless.Negate(name)
    assert function is not None
    if node.verb in {"filter", "filter-not"}:
        return stateless.Filter(name, function, keep=node.verb == "filter")
    if node.verb == "map-values":
        return stateless.MapValues(name, function, table=node.kind == "table")
    operator: Callable[[str, Any], Operator] = {
        "map": stateless.Map,
        "flat-map": stateless.FlatMap,
        "flat-map-values": stateless.FlatMapValues,
        "select-key": stateless.SelectKey,
        "peek": stateless.Peek,
    }[node.verb]
    return operator(name, function)


def _swapped(merge: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    return lambda key, right, left: merge(key, left, right)


def _with_level(value: Serde[Any]) -> Serde[Any]:
    """The serde of (level, value) pairs: four bytes of level, then the value."""

    def leveled(encode: Callable[[Any], bytes]) -> Callable[[tuple[int, Any]], bytes]:
        return lambda pair: pair[0].to_bytes(4, "big") + encode(pair[1])

    def decode(data: bytes) -> tuple[int, Any]:
        return int.from_bytes(data[:4], "big"), value.decode(data[4:])

    identify = None if value.identify is None else leveled(value.identify)
    return Serde(f"level+{value.name}", leveled(value.encode), decode, identify=identify)
