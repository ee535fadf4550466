"""Compiles a plan to a circuit: every node becomes operators, which pass rows through numbered slots.

The compiler chooses the states. A join reads the table of its input if the input has one. If the input is a recursion's
variable, the join reads the recursion's X. Otherwise it reads a new arrangement, `<join>-left` or `<join>-right`.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from eddy.errors import TopologyError
from eddy.operators import join
from eddy.operators.bound import Bound
from eddy.operators.circuit import Circuit, Output
from eddy.operators.errors.guarded import unguarded
from eddy.operators.errors.row_sizes import MAX_ROW_BYTES, OVERHEAD, RowSizes
from eddy.operators.errors.set_aside import Aside
from eddy.operators.exchange import Budget, Gate, Ownership
from eddy.operators.nested.fixpoint import Fixpoint
from eddy.operators.operator import Operator
from eddy.operators.waves.body import Body
from eddy.operators.waves.fact_waves import FactWaves
from eddy.operators.waves.quarantine import Quarantine
from eddy.operators.waves.recursion import Waves
from eddy.operators.waves.withheld import Stops, Withheld
from eddy.partitioner import Partitioner
from eddy.serde import Native, Plain, Serde
from eddy.state.arrangement import Arrangement
from eddy.state.global_rows import GlobalRows
from eddy.state.memory import MemoryStore
from eddy.state.partitioned_map import PartitionedMap
from eddy.state.spec import Refusals, StateSpec, refuses_none
from eddy.state.store import Store
from eddy.state.table_state import Table
from eddy.topology.compiler.guard_placement import Guarding
from eddy.topology.compiler.loop_compiler import LoopCompiler
from eddy.topology.plan.placement import Placement, place
from eddy.topology.plan.plan import DeclaredStore, Exchange, Loop, Node, Plan, Recursion, Sink
from eddy.topology.plan.scopes import Scopes
from eddy.topology.plan.slots import Slots, with_time

__all__ = ["Environment", "check_reads", "compile_part", "compile_plan", "row_serdes", "sink_serdes"]


@dataclass
class Environment:
    """What a circuit needs from its worker: partition counts, owners, budgets and stores.

    `budget` limits the waves of an epoch, `guard` the work of nested time before it is considered endless. `max_cells`
    is the most entries that all states together keep in memory, if there is a store. If `peeks`, the functions of
    `peek` steps are called. `written` names the states of an earlier run; None if there was no earlier run.
    `max_row_bytes` is the most bytes of a recursion's row. `clock` returns seconds; it measures the work of steps.
    `refusals` returns the errors of records that the internal topics do not accept.
    """

    topic_partitions: Mapping[str, int]
    compacted: frozenset[str] = frozenset()
    ownership: Ownership = field(default_factory=Ownership)
    budget: Budget = field(default_factory=lambda: Budget(2**62))
    guard: Budget = field(default_factory=lambda: Budget(2**62))
    partitioner: Partitioner = lambda key, count: 0
    store: Store | None = None
    max_cells: int | None = None
    peeks: bool = True
    written: frozenset[str] | None = None
    max_row_bytes: int = MAX_ROW_BYTES
    clock: Callable[[], float] = lambda: 0.0
    refusals: Refusals = refuses_none

    def lacks(self, state: str) -> bool:
        """Return whether an earlier run has stored states, but not the state of this name."""
        return self.written is not None and state not in self.written


def compile_plan(plan: Plan, environment: Environment) -> Circuit:
    """Compile a plan to a circuit. Raises: TopologyError if it cannot be placed or a step is misused."""
    return _PlanCompiler(plan, environment).circuit()


def compile_part(plan: Plan, environment: Environment, node: Node) -> Circuit:
    """Compile one step with all steps inside it.

    The circuit's inputs have the names of the steps that `node` reads. Its output has the name of `node`; for a block
    there is an output for each binding, with the binding's name.
    """
    return _PlanCompiler(plan, environment).part(node)


class _PlanCompiler:
    def __init__(self, plan: Plan, environment: Environment) -> None:
        self._plan, self.world = plan, environment
        self._placements = place(plan, environment.topic_partitions)
        self.scopes = Scopes(plan)
        self._inside = self.scopes.around
        self.guarding = Guarding(plan, self._placements, environment.ownership, environment.partitioner)
        self._scope = Slots()
        self._inputs: dict[str, int] = {}
        self._tables: dict[Node, Table[Any, Any]] = {}
        self._arrangements: dict[tuple[Node, str], Arrangement[Any, Any]] = {}
        self._state_stores: dict[str, PartitionedMap[Any, Any]] = {}
        self._global_tables: dict[str, Table[Any, Any]] = {}

    def circuit(self) -> Circuit:
        """Compile every node that is not inside a loop; a loop compiles the nodes inside it."""
        scope = self._scope
        for node in self._plan.nodes:
            if self._topic_of(node):
                scope.received[node] = self._inputs[self._topic_of(node)] = scope.slot()
        for node in self._plan.nodes:
            self._check_scope(node)
            if node not in self._inside:
                self._place(node)
        return self._circuit()

    def _place(self, node: Node) -> None:
        """Compile a step outside of loops. If the step can set rows aside, its operators are wrapped in `Guarded`."""
        start = len(self._scope.steps)
        self._compile(node)
        self.guarding.guard(node, self._scope.steps, start)

    def part(self, node: Node) -> Circuit:
        """Compile one step as a separate circuit, whose inputs are the steps that it reads."""
        scope = self._scope
        for source in self.scopes.reads(node):
            if source not in scope.slots:
                scope.slots[source] = self._inputs[source.name] = scope.slot()
        for step in self.scopes.deep([node]):
            if self._topic_of(step):
                scope.received[step] = scope.slot()
        self._compile(node)
        for made in self._plan.made_by(node):
            if made is not node:
                self._compile(made)
            scope.emit(Output(made.name), scope.slots[made])
        return self._circuit()

    def _circuit(self) -> Circuit:
        scope, world = self._scope, self.world
        budgets = (world.budget, world.guard)
        care = self.guarding.care
        circuit = Circuit(
            scope.steps, scope.count, self._inputs, world.ownership, budgets, world.max_cells, care, world.clock
        )
        circuit.global_tables = self._global_tables
        return circuit

    def _check_scope(self, node: Node) -> None:
        around = self._around(node)
        for source in node.inputs:
            if source not in self._placements:
                raise TopologyError(
                    f"step '{node.name}': its input '{source.name}' was built inside a recursion, whose function is "
                    "called twice; outside, the result of recursively is needed"
                )
            if self._inside.get(source) not in around:
                raise TopologyError(
                    f"step '{node.name}': its input '{source.name}' lies inside recursively "
                    f"'{self._inside[source].name}'; outside, the result of recursively is needed"
                )

    def _around(self, node: Node) -> list[Node | None]:
        """Return the loops around a step, the innermost first.

        The last element is None, for the outside of all loops.
        """
        loops: list[Node | None] = []
        loop = self._inside.get(node)
        while loop is not None:
            loops.append(loop)
            loop = self._inside.get(loop)
        return [*loops, None]

    def _topic_of(self, node: Node) -> str:
        """Return the topic through which a step's rows reach their owners; empty if they need no topic."""
        if (node.role == "exchange" and self.stays(node)) or (node.variables and node in self._inside):
            return ""
        return node.gate_topic(self._plan.name) or ""

    def _by_waves(self, loop: Loop) -> bool:
        return loop.waves and loop not in self._inside

    def _compile(self, node: Node) -> None:
        self._scope.slots[node] = node.build(self)

    # The methods that steps call while they are built in the circuit

    @property
    def application(self) -> str:
        """The name of the plan, which is the application id."""
        return self._plan.name

    @property
    def store(self) -> Store | None:
        """The store in which all states keep their entries; None if they are in memory alone."""
        return self.world.store

    @property
    def ownership(self) -> Ownership:
        """The partitions that this worker owns."""
        return self.world.ownership

    @property
    def refusals(self) -> Refusals:
        """The function that returns the errors of records that the internal topics do not accept."""
        return self.world.refusals

    @property
    def peeks(self) -> bool:
        """Whether the functions of `peek` steps are called."""
        return self.world.peeks

    @property
    def guard(self) -> Budget:
        """The limit of an epoch's work in nested time."""
        return self.world.guard

    @property
    def inside(self) -> Container[Node]:
        """All steps that are inside loops."""
        return self._inside

    def slot_of(self, node: Node) -> int:
        """Return the slot of a node's rows."""
        return self._scope.slots[node]

    def emit(self, operator: Operator, *slots: int) -> int:
        """Add an operator that reads `slots`. Returns the slot of its output."""
        return self._scope.emit(operator, *slots)

    def source(self, topic: str) -> int:
        """Add and return a slot for the records of a topic."""
        slot = self._inputs[topic] = self._scope.slot()
        return slot

    def global_table(self, node: Node) -> Table[Any, Any]:
        """Return the state of a global table. No operator writes its rows."""
        if node.name not in self._global_tables:
            spec = replace(self.spec(node, node.name, "table", node.value), changelog=None)
            self._global_tables[node.name] = Table(spec, self.world.store)
        return self._global_tables[node.name]

    def global_rows(self, node: Node) -> GlobalRows[Any, Any]:
        """Return the rows of a global table, for processors.

        They are empty without a store, because nothing is processed then.
        """
        return GlobalRows(self.global_table(node), self.world.store or MemoryStore())

    def received(self, node: Node) -> int:
        """Return the slot of the rows of a node that other workers have sent."""
        return self._scope.received[node]

    def partition_count(self, node: Node) -> int:
        """Return the number of partitions of a node's rows."""
        return self._placements[node].partitions

    def stays(self, exchange: Node) -> bool:
        """Return whether an exchange has nothing to send, because all rows are already in its single partition."""
        return exchange.single_partition and self._placements[exchange.inputs[0]].partitions == 1

    def share_table(self, node: Node, source: Node) -> None:
        """Note that the table of `source`, if it has one, also has the rows of `node`."""
        if source in self._tables:
            self._tables[node] = self._tables[source]

    def needs_keys(self, exchange: Exchange) -> bool:
        """Return whether an exchange drops records without a key."""
        return self._plan.needs_keys(exchange)

    def carries_times(self, exchange: Exchange) -> Literal["", "plain", "placed"]:
        """Return what an exchange's rows carry: "" for nothing, "plain" for event times, "placed" for places, too."""
        return self._plan.carries_times(exchange)

    def waves_around(self, node: Node) -> Bound | None:
        """Return the bound of the recursion by waves around a step; None if the step is in no such recursion."""
        loop = self._inside.get(node)
        return loop.bound if loop is not None and self._by_waves(loop) else None

    def placed(self, recursion: Node) -> tuple[Operator, Sequence[int]]:
        """Return the operator of a recursion, and the slots that it reads."""
        for step in self._scope.steps:
            operator = unguarded(step.operator)
            if operator.name == recursion.name and isinstance(operator, Waves | Fixpoint):
                return operator, step.inputs
        raise KeyError(recursion.name)

    def aside(self, sink: Node) -> Aside | None:
        """Return the memory for rows that a sink cannot write; None if their records are rejected instead."""
        return self.guarding.sink(sink)

    def waves(self, node: Recursion) -> int:
        """Compile a recursion by waves. Returns the slot of its result.

        `op` has slots of its own: slot 0 is X, and the next slots are the steps outside that `op` reads.
        """
        body = self.scopes.body[node]
        self._prepare_lookups(body)
        outer, inner = self._scope, Slots()
        inner.slots[node.variable] = inner.slot()
        outside = []
        for source in self.scopes.externals[node]:
            if source is not node.inputs[0] or any(source in step.inputs for step in body):
                inner.slots[source] = inner.slot()
                outside.append(outer.slots[source])
        for exchange in body:
            if exchange.role == "exchange":
                inner.received[exchange] = inner.slot()
                outside.append(outer.received[exchange])
        self._scope = inner
        for step in body:
            self._place(step)
        self._scope = outer
        operator = self._waves(node, Body(inner.steps, inner.count, inner.slots[node.result]))
        seed = outer.slots[node.inputs[0]]
        return outer.emit(operator, seed, outer.received[node], *outside)

    def loop(self, node: Loop) -> int:
        """Compile a loop by nested time. Returns the slot of its result."""
        compiler = LoopCompiler(self, node)
        operator = self.guarding.loop(compiler.fixpoint(), compiler.externals)
        return self._scope.emit(operator, *map(self.slot_of, compiler.externals))

    def _prepare_lookups(self, body: list[Node]) -> None:
        """Create, outside the loop, the states that joins inside the loop read."""
        for step in body:
            for side, name in step.looks_up:
                if side not in self._inside:
                    self.lookup(side, name)

    def _waves(self, node: Recursion, body: Body) -> Operator:
        gate, facts = self.gate(node), node.kind == "stream"
        sizes = RowSizes(gate.encode, self.max_row_bytes, lenient=facts)
        shared = (node.name, body, gate, node.bound, self.world.budget, sizes)
        if facts:
            return FactWaves(*shared, node.include_seeds)
        arrangement = self._arrangements.get((node.variable, node.name))
        if node.bound.by_depth or (arrangement is None and self.world.lacks(node.name)):
            return Waves(*shared, arrangement)
        x = arrangement or self.arrangement(node.variable, node.name)
        x.spec = replace(x.spec, max_row_bytes=self.max_row_bytes - OVERHEAD)
        value = node.value or Native
        specs = [
            replace(self.spec(node.variable, f"{node.name}-{kind}", "arrangement", value), optional=True)
            for kind in ("held", "reached")
        ]
        waiting, reached = Stops(specs[0], self.world.store), Arrangement[Any, Any](specs[1], self.world.store)
        withheld = Withheld(waiting, reached, gate.mine, gate.homes_of)
        quarantine = Quarantine(node.name, body, gate, node.bound, x, withheld, sizes)
        return Waves(*shared, x, quarantine)

    @property
    def max_row_bytes(self) -> int:
        """The most bytes of a recursion's row."""
        return self.world.max_row_bytes

    def lookup(self, node: Node, name: str) -> Any:
        """Return the state in which a join finds the rows of `node`. If a state has to be made, it is called `name`."""
        if node.kind == "table":
            return self.table_of(node, name)
        bound = self.waves_around(node)
        name = node.looked_up_as or name
        if (node, name) not in self._arrangements:
            by_depth = bound is not None and bound.by_depth
            arrangement = self._arrangements[node, name] = self.arrangement(node, name, by_depth)
            if not node.looked_up_as:
                arrange = join.Arrange(name, arrangement, bound is not None, by_depth)
                self._scope.slots[node] = self._scope.emit(arrange, self._scope.slots[node])
        return self._arrangements[node, name]

    def table_of(self, node: Node, name: str) -> Table[Any, Any]:
        """Return the table of a node, or create one under `name` for a join."""
        if node not in self._tables:
            table = self._tables[node] = Table(self.spec(node, name, "table", node.value), self.world.store)
            self._scope.slots[node] = self._scope.emit(join.Materialize(name, table), self._scope.slots[node])
        return self._tables[node]

    def table(self, node: Node, name: str, source: str | None = None) -> Table[Any, Any]:
        """Create the table that a node writes; joins can read it, too."""
        table = self._tables[node] = Table(self.spec(node, name, "table", node.value, source), self.world.store)
        return table

    def state_store(self, node: Node, store: DeclaredStore) -> PartitionedMap[Any, Any]:
        """Return a declared state store. All steps that use the store must have their rows in the same partitions."""
        if store.name not in self._state_stores:
            spec = replace(self.spec(node, store.name, "key-value", store.value), key=store.key, memory=store.memory)
            spec = spec if store.changelog else replace(spec, changelog=None)
            self._state_stores[store.name] = PartitionedMap(spec, None if store.memory else self.world.store)
        return self._state_stores[store.name]

    def arrangement(self, node: Node, name: str, by_depth: bool = False) -> Arrangement[Any, Any]:
        """Create an arrangement for a node's rows, with their depths if `by_depth`."""
        value = node.value or Native
        spec = self.spec(node, name, "arrangement", with_time(value) if by_depth else value)
        return Arrangement(spec, self.world.store)

    def spec(self, node: Node, name: str, kind: str, value: Serde[Any] | None, source: str | None = None) -> StateSpec:
        """Return the spec of a state. `source` is a topic from which it can be restored if that topic is compacted."""
        place: Placement = self._placements[node]
        restored = source is not None and source in self.world.compacted
        return StateSpec(
            name,
            kind,
            place.key,
            value or Native,
            place.partitions,
            self.world.partitioner,
            None if restored else f"{self._plan.name}-{name}-changelog",
            source if restored else None,
            refusals=self.world.refusals,
        )

    def gate(self, node: Node) -> Gate:
        """Return the gate that sends the rows of a node to their owners."""
        place = self._placements[node]
        return Gate(
            self._topic_of(node),
            place.key,
            node.value or Native,
            place.partitions,
            self.world.ownership,
            self.world.partitioner,
            self.max_row_bytes - OVERHEAD if node.variables or node in self._inside else None,
            self.world.refusals,
        )


def check_reads(plan: Plan) -> None:
    """Refuse a plan that reads no topic and has no constant. Raises: TopologyError."""
    if not any(node.begins or node.role == "pattern" for node in plan.nodes):
        raise TopologyError(
            f"topology '{plan.name}': it reads nothing; a source is needed. Write topology.stream('topic', …), "
            ".table(…) or .constant(…)"
        )


def sink_serdes(plan: Plan, topic_partitions: Mapping[str, int]) -> dict[Sink, tuple[Serde[Any], Serde[Any]]]:
    """Return the serdes that write each sink's topic: `row_serdes`, in a schema registry's form where they have one."""
    return {
        sink: (key.in_topic(sink.topic, "key"), value.in_topic(sink.topic, "value"))
        for sink, (key, value) in row_serdes(plan, topic_partitions).items()
    }


def row_serdes(plan: Plan, topic_partitions: Mapping[str, int]) -> dict[Sink, tuple[Serde[Any], Serde[Any]]]:
    """Return the serdes of the keys and of the values that each sink writes.

    A sink without serdes of its own writes keys by the serde of its input, or by `Plain` if this is `Native`, and
    values by `Plain`.
    """
    placements = place(plan, topic_partitions)
    found: dict[Sink, tuple[Serde[Any], Serde[Any]]] = {}
    for sink in plan.sinks():
        written = placements[sink.inputs[0]].key
        found[sink] = (sink.key or (Plain if written is Native else written), sink.value or Plain)
    return found
