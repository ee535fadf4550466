"""A bench for operators: wires them to a circuit and takes epochs through it as the worker does.

`Bench.epoch` steps, writes the store, commits and returns the consolidated output. `undone` does
the same and rolls back. `restarted` starts anew from the changelog alone.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from eddy.operators.batch import Batch
from eddy.operators.circuit import Circuit, Output
from eddy.operators.exchange import Budget, Gate, Outgoing, Ownership, Received
from eddy.operators.operator import Operator, Step
from eddy.serde import Native
from eddy.state.arrangement import Arrangement
from eddy.state.memory import MemoryStore
from eddy.state.spec import StateSpec
from eddy.state.table_state import Table
from tests.oracle import Bag, Row, bag, plus

MEMORIES = {"unbounded": None, "evicted": 2}
"""How many cells a state keeps in memory: all, or next to none."""

keys = st.sampled_from("abc")
values = st.integers(1, 3)
rows = st.tuples(keys, values)
weights = st.integers(-2, 3).filter(bool)
deltas = st.lists(st.tuples(rows, weights), max_size=6)
"""Changes of a relation, not consolidated: the same row may come several times."""
records = st.lists(st.tuples(keys, st.one_of(st.none(), values)), max_size=6)
"""Records of a table; None deletes."""


def batch(items: Iterable[tuple[Row, int]], time: int = 0) -> Batch:
    found = list(items)
    return Batch([row for row, _ in found], [weight for _, weight in found], time)


def facts(items: Iterable[Row], time: int = 0) -> Batch:
    return batch([(row, 1) for row in items], time)


def contents(one: Batch) -> Bag:
    """What a batch says, consolidated."""
    return bag(zip(one.rows, one.weights, strict=True))


def spec(name: str, kind: str) -> StateSpec:
    return StateSpec(name, kind, Native, Native, 1, lambda key, count: 0, f"{name}-changelog")


class Wiring:
    """Numbered slots, operators between them, states in one store."""

    def __init__(self, store: MemoryStore | None = None, max_cells: int | None = None) -> None:
        self.steps: list[Step] = []
        self.inputs: dict[str, int] = {}
        self.store, self.max_cells = store, max_cells
        self._slots = 0

    def source(self, name: str) -> int:
        self.inputs[name] = self._slots
        self._slots += 1
        return self.inputs[name]

    def add(self, operator: Operator, *inputs: int) -> int:
        self.steps.append(Step(operator, inputs, self._slots))
        self._slots += 1
        return self._slots - 1

    def table(self, name: str) -> Table[Any, Any]:
        return Table(spec(name, "table"), self.store)

    def arrangement(self, name: str) -> Arrangement[Any, Any]:
        return Arrangement(spec(name, "arrangement"), self.store)

    def circuit(self) -> Circuit:
        return Circuit(self.steps, self._slots, self.inputs, Ownership(), [Budget(1 << 60)], self.max_cells)


Build = Callable[[Wiring], int]
"""Wires sources and operators; returns the slot of the result."""


def built(build: Build) -> Callable[[MemoryStore, int | None], Circuit]:
    """A maker of circuits that end in an output named "out"."""

    def make(store: MemoryStore, max_cells: int | None) -> Circuit:
        wiring = Wiring(store, max_cells)
        wiring.add(Output("out"), build(wiring))
        return wiring.circuit()

    return make


class Bench:
    """Takes epochs through a circuit, and knows what its changelogs hold and what came out in all."""

    def __init__(self, make: Callable[[MemoryStore, int | None], Circuit], max_cells: int | None = None) -> None:
        self._make, self._max_cells = make, max_cells
        self.store = MemoryStore()
        self.circuit = make(self.store, max_cells)
        self.changelog: dict[bytes, bytes | None] = {}
        self.total: dict[str, Bag] = {}

    def epoch(self, **inputs: Batch) -> Bag:
        """Take an epoch through. Returns the delta of "out", consolidated."""
        self.step(inputs)
        return self.end().get("out", Counter())

    def undone(self, **inputs: Batch) -> None:
        """Take an epoch as far as a worker does, and undo it."""
        self.step(inputs)
        self.circuit.changes()
        self.circuit.rollback()

    def step(self, inputs: Mapping[str, Batch], settling: bool = False) -> None:
        there = {name: one for name, one in inputs.items() if one.rows}
        self.circuit.compute(there, settling=settling)
        while any(self._is_refused(gate) for gate in self.circuit.gates):
            self.circuit.rollback()
            self.circuit.compute(there, settling=settling)

    def _is_refused(self, gate: Gate) -> bool:
        """Whether a row that leaves cannot be written, as a worker would find out; its recursion is careful then."""
        try:
            sizes = [len(gate.encode(row)) for one in gate.outbox for row in one.batch.rows if one.iteration >= 0]
        except OverflowError:
            return self.circuit.be_careful(gate.topic)
        most = gate.max_row_bytes
        return most is not None and max(sizes, default=0) > most and self.circuit.be_careful(gate.topic)

    def end(self) -> dict[str, Bag]:
        """Write, commit, and return what reached each output."""
        came = {name: plus(*(contents(one) for one in output.batches)) for name, output in self.circuit.outputs.items()}
        for name, changes in self.circuit.changes().items():
            state = self.circuit.states[name].spec
            written = [(state.prefix(partition) + key, value) for partition, key, value in changes]
            self.store.write(written)
            self.changelog.update(written)
        self.circuit.commit()
        for name, delta in came.items():
            self.total[name] = plus(self.total.get(name, Counter()), delta)
        return came

    def restarted(self) -> "Bench":
        """Another one, its store restored from the changelog."""
        other = Bench(self._make, self._max_cells)
        other.changelog, other.total = dict(self.changelog), dict(self.total)
        other.store.write(list(self.changelog.items()))
        other.circuit = self._make(other.store, self._max_cells)
        return other

    def states(self) -> dict[str, dict[Any, Any]]:
        """The contents of every state."""
        return {name: dict(state.items()) for name, state in self.circuit.states.items()}  # type: ignore[attr-defined]

    @property
    def integral(self) -> Bag:
        return self.total.get("out", Counter())


def received(outbox: Iterable[Outgoing]) -> Received:
    """What left through a gate, as it comes back in."""
    rows_: list[Row] = []
    weights_: list[int] = []
    iterations: list[int] = []
    time = 0
    for one in outbox:
        rows_ += one.batch.rows
        weights_ += one.batch.weights
        iterations += [one.iteration] * len(one.batch)
        time = max(time, one.batch.time)
    return Received(Batch(rows_, weights_, time), iterations)


def run_to_rest(bench: Bench, **inputs: Batch) -> int:
    """Take an epoch through, then feed back what left, until nothing leaves. Returns the number of epochs."""
    epochs = 0
    waiting: dict[str, Batch] = dict(inputs)
    while any(one.rows for one in waiting.values()):
        bench.step(waiting)
        gates: list[Gate] = bench.circuit.gates
        waiting = {gate.topic: received(gate.outbox) for gate in gates if gate.outbox}
        bench.end()
        epochs += 1
    return epochs


@st.composite
def stories(draw: st.DrawFn, **inputs: st.SearchStrategy[Any]) -> list[tuple[str, dict[str, Any]]]:
    """A few epochs, each ("commit" | "undo" | "restart", what comes in by source)."""
    count = draw(st.integers(1, 5))
    return [
        (
            draw(st.sampled_from(["commit", "commit", "commit", "undo", "restart"])),
            {name: draw(strategy) for name, strategy in inputs.items()},
        )
        for _ in range(count)
    ]


def live(
    build: Build | Callable[[MemoryStore, int | None], Circuit],
    max_cells: int | None,
    story: Iterable[tuple[str, dict[str, Batch]]],
    check: Callable[[Bench, dict[str, Batch]], None],
    wired: bool = True,
) -> None:
    """Live through a story: `check` is called after every commit with what has just come in."""
    bench = Bench(built(build) if wired else build, max_cells)  # type: ignore[arg-type]
    for what, inputs in story:
        if what == "undo":
            before = bench.states()
            bench.undone(**inputs)
            assert bench.states() == before, "a rollback restores exactly"
        if what == "restart":
            before = bench.states()
            bench = bench.restarted()
            assert bench.states() == before, "a replayed changelog restores the same"
        bench.epoch(**inputs)
        check(bench, inputs)
