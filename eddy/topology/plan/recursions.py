"""Steps of recursions: loops by waves and by nested time, their variables, bindings and errors."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from eddy.operators.bound import Bound
from eddy.operators.nested.fixpoint import Take
from eddy.operators.waves.held_errors import HeldErrors as HeldErrorsOperator
from eddy.operators.waves.withheld import Stops
from eddy.serde import Int64, String
from eddy.topology.plan.bags import Bag, Weighted
from eddy.topology.plan.compilers import CircuitBuilder, LoopBody, Spark
from eddy.topology.plan.node import Node
from eddy.topology.plan.states_kept import StateKept
from eddy.topology.plan.step_names import Form

__all__ = ["Binding", "Block", "HeldErrors", "Loop", "Recursion", "Variable"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Variable(Node):
    """The rows of a recursion's X, or of a block's binding, inside the loop, at the start of an iteration."""

    crosses = True
    role = "variable"
    drawn_as = "variable"

    @property
    def title(self) -> str:
        """The name of the recursion or binding."""
        return self.label

    @property
    def looked_up_as(self) -> str:
        """The name of the only state that has the rows of X: the name of the recursion."""
        return self.label

    @property
    def shape(self) -> str:
        """A rounded box."""
        return f'(["{self.label}"])'


@dataclass(frozen=True, eq=False, kw_only=True)
class Loop(Node):
    """A recursion or a block: `variables` have its rows at the start of an iteration, `results` at its end."""

    drops = True
    linear = False
    drawn_as: ClassVar[Form] = "recursion"
    seeded: ClassVar[bool] = False
    """Whether the loop begins with its input and each iteration adds its results; otherwise it begins empty."""

    bound: Bound
    iterations: int
    """The number of iterations after which the loop ends, or is considered endless."""

    @property
    def as_loop(self) -> "Loop":
        """Itself."""
        return self

    @property
    def waves(self) -> bool:
        """Whether waves compute the loop if it is in no other loop."""
        return False

    def result_of(self, variable: Node) -> Node:
        """Return the step that has the final rows of a variable."""
        raise NotImplementedError(type(self).__name__)

    def traced_as(self) -> list[list[Node]]:
        """Return, for each binding, the steps whose traces have its rows; the trace of the first step is read.

        A trace of the result lacks the seed, and a trace of X lacks the rows of the last iteration.
        """
        has_x = self.seeded or not self.bound.by_depth
        return [
            [*([] if self.seeded else [result]), *([variable] if has_x else [])]
            for variable, result in zip(self.variables, self.results, strict=True)
        ]

    @property
    def title(self) -> str:
        """Its name, after an arrow."""
        return f"↻ {self.name}"

    @property
    def stops(self) -> bool:
        """Whether the loop's policy stops a worker."""
        return self.bound.stops

    def on_spark(self, spark: Spark) -> None:
        """Compute iterations until nothing changes any more."""
        spark.looped(self)

    @property
    def shape(self) -> str:
        """A hexagon."""
        return f'{{{{"recursively {self.name}"}}}}'


@dataclass(frozen=True, eq=False, kw_only=True)
class Recursion(Loop):
    """X = seed + op(X), by waves or by nested time: `inputs` has the seed, `result` is op(`variable`)."""

    variable: Variable
    result: Node
    include_seeds: bool = True
    nested: str = ""
    """The reason why the recursion is computed by nested time; empty if it is computed by waves."""
    crosses = True
    seeded = True

    @property
    def waves(self) -> bool:
        """Whether op is linear, so that waves can compute the recursion."""
        return not self.nested

    def result_of(self, variable: Node) -> Node:
        """Return the recursion itself, which has the rows of X."""
        return self

    def internal_topic(self, application: str) -> str | None:
        """Return the loop topic, or None if nested time computes the recursion."""
        return None if self.nested else f"{application}-{self.name}-loop"

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """The pair of the recursion and X; by nested time also the pairs with the seed and with the result of op."""
        placed: list[tuple[Node, Node]] = [(self, self.variable)]
        return [*placed, (self, self.inputs[0]), (self, self.result)] if self.nested else placed

    @property
    def strategy(self) -> str:
        """How the recursion is computed, with the reason: waves, or nested time."""
        if self.nested:
            return f"nested time, since {self.nested}; {_owners_of(self)}"
        if self.kind == "stream":
            return "waves of facts, since a KStream's records are never retracted"
        if self.bound.by_depth:
            return f"waves by depth up to {self.bound.depth}, since the answer depends on the depth of rows"
        return "waves, since op is linear"

    @property
    def derived(self) -> tuple[str, ...]:
        """The suffixes of the recursion's own states, for held rows or for waiting rows."""
        if self.nested:
            return ("queued", "given")
        return () if self.kind == "stream" or self.bound.by_depth else ("held", "reached")

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variable that stands for X inside the recursion."""
        return (self.variable,)

    @property
    def results(self) -> tuple[Node, ...]:
        """The step with the result of an iteration."""
        return (self.result,)

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the recursion, by waves or by nested time, and return the slot of its rows."""
        if self.waves:
            return circuit.waves(self)
        slot = circuit.loop(self)
        return circuit.emit(Take(self.name, 0), slot)

    def build_nested(self, loop: LoopBody) -> int:
        """Add the recursion by nested time, as all steps inside a loop are."""
        slot = loop.loop(self)
        return loop.emit(Take(self.name, 0), slot)

    def on_spark(self, spark: Spark) -> None:
        """Compute waves, by semi-naive evaluation; or by nested time iterations until nothing changes any more."""
        if self.waves:
            spark.waves(self)
        else:
            spark.looped(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class Block(Loop):
    """Bindings that are defined by one another. `results` are the definitions of `variables`, in the same order."""

    derived = ("errors", "held", "queued", "given")

    role = "block"

    variables: tuple[Variable, ...] = ()
    results: tuple[Node, ...] = ()

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """Each variable and its definition."""
        return list(zip(self.variables, self.results, strict=True))

    @property
    def strategy(self) -> str:
        """By nested time."""
        return f"nested time, since its bindings are evaluated in turn; {_owners_of(self)}"

    @property
    def error_limit(self) -> int | None:
        """The number of iterations after which the block makes rows of errors; None by its policy."""
        return self.iterations if self.bound.on_limit == "rows" else None

    def result_of(self, variable: Node) -> Node:
        """Return the definition of the variable's binding."""
        return self.results[self.variables.index(variable)]

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the loop; its slot has the rows of all bindings."""
        return circuit.loop(self)

    def build_nested(self, loop: LoopBody) -> int:
        """Add the block inside a loop; its slot has the rows of all bindings."""
        return loop.loop(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class Binding(Node):
    """Takes the rows of one binding from a block. The last binding of a block with a limit has the block's errors."""

    index: int

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """The binding and its variable; errors need no partitions."""
        (block,) = self.inputs
        return [(self, block.variables[self.index])] if self.index < len(block.variables) else []

    @property
    def same_rows_as(self) -> Node | None:
        """The definition of the binding; None for errors."""
        (block,) = self.inputs
        return block.results[self.index] if self.index < len(block.results) else None

    @property
    def errors_kept(self) -> tuple[str, ...]:
        """The states of a block's errors: the changes of the last iteration, and the errors made from them."""
        (block,) = self.inputs
        return (self.name, f"{block.name}-errors") if self._are_errors else ()

    @property
    def _are_errors(self) -> bool:
        (block,) = self.inputs
        return self.index == len(block.variables) and block.error_limit is not None

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the step that takes one of the block's results; return its slot."""
        return circuit.emit(Take(self.name, self.index), circuit.slot_of(self.inputs[0]))

    def build_nested(self, loop: LoopBody) -> int:
        """Add the step inside a loop by nested time, where errors are counted by iteration."""
        slot = loop.emit(Take(self.name, self.index), loop.slot_of(self.inputs[0]))
        return loop.limit_errors(self, slot) if self._are_errors else slot

    def on_spark(self, spark: Spark) -> None:
        """Do nothing: the block computes its rows."""

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Return no rows: only a block's errors use this, and a block that exceeds its limit has no rows to trace."""
        return ()


@dataclass(frozen=True, eq=False, kw_only=True)
class HeldErrors(Node):
    """Rows (name of the recursion, message), one for each partition in which the recursion holds rows.

    The input is the recursion.
    """

    linear = False
    role = "errors"
    untraced = "has messages that a worker makes"
    keeps = (StateKept("", "arrangement", "results"),)

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """No collections have to be co-partitioned, because the step's rows have other keys than its input."""
        return ()

    @property
    def refused_in_nested_time(self) -> str:
        """The reason why `errors` of an inner recursion are refused: only the outermost loop holds rows."""
        return (
            f"the errors of recursively '{self.inputs[0].name}' are read inside; what it holds here, the outermost "
            "recursion holds as a whole: read the .errors of that one"
        )

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the step, and return its slot.

        The step also reads the inputs of the recursion, so that it runs in each epoch in which the recursion runs.
        """
        (recursion,) = self.inputs
        operator, slots = circuit.placed(recursion)
        spec = circuit.spec(recursion, self.name, "arrangement", String).with_key(Int64)
        told = Stops(replace(spec, partitioner=lambda data, _: Int64.decode(data)), circuit.store)
        errors = HeldErrorsOperator(self.name, operator, told, circuit.ownership)
        return circuit.emit(errors, circuit.slot_of(recursion), *slots)

    def on_spark(self, spark: Spark) -> None:
        """Compute the errors, which Spark refuses if there are any."""
        spark.errors(self)


def _owners_of(loop: Loop) -> str:
    if loop.variables[0].single_partition:
        return "at one owner"
    return "each owner its keys, which no step inside changes"
