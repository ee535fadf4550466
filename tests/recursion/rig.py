"""Plays a story of edits through a circuit, and holds every epoch to the naive evaluator.

A story is drawn from a seed: edits of tables, cut into epochs, and what befalls each epoch: it is
undone and done again, the circuit is made anew over its store, or over what its changelogs hold.
After every epoch

1. the sum of all deltas that left is what the plan says of the tables as they are now,
2. no delta that left holds a row twice, or one of weight 0,

and at the end

3. the states are those of a circuit that is given the tables as they are now in one epoch,
4. when all rows are deleted, the states are those of a circuit that never had any.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import eddy
from eddy.operators.batch import Batch
from eddy.operators.circuit import Circuit
from eddy.state.memory import MemoryStore
from eddy.topology.compiler.circuit_compiler import Environment, compile_plan
from eddy.topology.plan import plan
from tests.naive import Bag, Naive, bag
from tests.recursion.programs import Edit, Program, Watched

__all__ = ["Played", "Rig", "Story", "draw", "play", "watch"]

Tables = dict[str, dict[int, Any]]
FATES = ["commit"] * 6 + ["undo", "undo another", "restart", "replay"]
DELETED = 1 << 20
"""A key of no row: its deletion makes an epoch in which nothing comes."""


def watch(topology: eddy.Topology, relations: Watched) -> None:  # private: the DSL sends no deltas
    """Let the rows of `relations` leave, as deltas."""
    for name, relation in relations.items():
        topology._builder.add(
            plan.Sink, f"watch-{name}", label=name, kind="relation", inputs=(relation._node,), topic=f"watch-{name}"
        )


def taken(tables: Mapping[str, Mapping[int, Any]], edits: Sequence[Edit]) -> Tables:
    """The tables after these edits."""
    after = {topic: dict(rows) for topic, rows in tables.items()}
    for topic, key, value in edits:
        after.setdefault(topic, {})[key] = value
        if value is None:
            del after[topic][key]
    return after


@dataclass(frozen=True)
class Story:
    """Edits in epochs, and what befalls each."""

    partitions: int
    max_cells: int | None
    epochs: list[tuple[str, list[Edit]]]

    def edits(self) -> list[Edit]:
        """All of them."""
        return [edit for _, edits in self.epochs for edit in edits]


def draw(program: Program, rng: random.Random, edits: int = 24, mixed: float = 0.15) -> Story:
    """A story: first the graph grows, then there are so many edits; in some, equal values are written otherwise."""
    nodes = rng.randrange(2, program.nodes + 1)
    there: Tables = {}
    told: list[Edit] = []
    grown, often = rng.randint(0, 3 * nodes), rng.choice([0.1, 0.2, 0.4])
    while len(told) < grown + edits:
        gone = 0.0 if len(told) < grown else often
        told.append(program.edit(rng, nodes, there, gone))
        there = taken(there, told[-1:])
    if rng.random() < mixed:
        told = [(topic, key, otherwise(value, rng)) for topic, key, value in told]
    return Story(rng.choice([1, 4]), rng.choice([None, None, 3]), cut(told, rng))


def otherwise(value: Any, rng: random.Random) -> Any:
    """An equal value that is written otherwise: 1 as 1.0 or True."""
    if isinstance(value, tuple):
        return tuple(otherwise(item, rng) for item in value)
    return rng.choice([value, float(value), bool(value) if value in (0, 1) else value]) if value is not None else None


def cut(edits: Sequence[Edit], rng: random.Random) -> list[tuple[str, list[Edit]]]:
    """The same edits in any epochs."""
    epochs, left, most = [], list(edits), rng.choice([1, 2, 4, 12])
    while left:
        size = rng.randint(1, most)
        epochs.append((rng.choice(FATES), left[:size]))
        left = left[size:]
    return epochs


@dataclass
class Rig:
    """One circuit, its store and its changelogs, and all that has left it."""

    topology: eddy.Topology
    partitions: int = 1
    max_cells: int | None = None
    store: MemoryStore = field(default_factory=MemoryStore)
    changelog: dict[bytes, bytes | None] = field(default_factory=dict)
    left: dict[str, Bag] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left = {sink.topic: Counter() for sink in self.topology.plan.sinks()}
        self.circuit = self._circuit()

    def _circuit(self) -> Circuit:
        counts = {source.topic: self.partitions for source in self.topology.plan.sources()}
        world = Environment(
            counts, partitioner=lambda key, count: sum(key) % count, store=self.store, max_cells=self.max_cells
        )
        return compile_plan(self.topology.plan, world)

    def step(self, edits: Sequence[Edit]) -> dict[str, Batch]:
        """Begin an epoch. Returns what leaves, by topic."""
        inputs: dict[str, Batch] = {}
        for topic, key, value in edits:
            batch = inputs.setdefault(topic, Batch([], []))
            batch.rows.append((key, value))
            batch.weights.append(1)
        self.circuit.step(inputs)
        self.changes = self.circuit.changes()
        outputs = {name: op.batches for name, op in self.circuit.outputs.items()}
        return {name: joined(batches) for name, batches in outputs.items()}

    def commit(self, out: Mapping[str, Batch]) -> None:
        """End the epoch."""
        for topic, batch in out.items():
            self.left[topic] = bag([*self.left[topic].items(), *zip(batch.rows, batch.weights, strict=True)])
        for name, changed in self.changes.items():
            spec = self.circuit.states[name].spec
            rows = [(spec.prefix(partition) + key, value) for partition, key, value in changed]
            self.store.write(rows)
            self.changelog.update(rows)
        self.circuit.commit()

    def undo(self) -> None:
        """Undo the epoch."""
        self.circuit.rollback()

    def epoch(self, edits: Sequence[Edit]) -> dict[str, Batch]:
        """Take an epoch through. Returns what left."""
        out = self.step(edits)
        self.commit(out)
        return out

    def restart(self) -> None:
        """A new circuit over the store."""
        self.circuit = self._circuit()

    def replay(self) -> None:
        """A new circuit over a store that is restored from the changelogs."""
        self.store = MemoryStore()
        self.store.write(list(self.changelog.items()))
        self.restart()

    def states(self) -> dict[str, dict[Any, Any]]:
        """What every state holds, as its operators see it."""
        return {name: dict(state.items()) for name, state in self.circuit.states.items()}  # type: ignore[attr-defined]

    def stored(self) -> dict[bytes, None]:
        """The keys that the store holds."""
        return dict.fromkeys(key for key, _ in self.store.scan(b""))


def joined(batches: Sequence[Batch]) -> Batch:
    """All rows of an epoch, as they left."""
    return Batch([r for b in batches for r in b.rows], [w for b in batches for w in b.weights])


@dataclass
class Played:
    """How much was played."""

    stories: int = 0
    epochs: int = 0
    rows: int = 0


class Answers:
    """What is to be expected after each epoch: while a limit's errors are there, nothing else is."""

    def __init__(self, topology: eddy.Topology) -> None:
        self._plan = topology.plan
        self._none: dict[str, Bag] = {sink.topic: Counter() for sink in topology.plan.sinks()}
        self.held = False

    def of(self, tables: Tables) -> dict[str, Bag]:
        """What has left in all, by topic, when the tables are these."""
        found = Naive(self._plan, tables).sinks()
        self.held = bool(found.get("watch-errors"))
        return {**self._none, "watch-errors": found["watch-errors"]} if self.held else found


def play(program: Program, seed: int, played: Played | None = None) -> None:
    """Play the story of `seed`, and the same edits in other epochs on another number of partitions.

    Raises: AssertionError naming the epoch, the edits and the rows that differ.
    """
    played = played or Played()
    rng = random.Random(f"{program.name} {seed}")
    story = draw(program, rng)
    again = Story(5 - story.partitions, rng.choice([None, 3]), cut(story.edits(), rng))
    where = f"{program.name}, seed {seed}"
    seen: dict[int, dict[str, Bag]] = {}
    for one in (story, again):
        play_one(program, one, rng, played, seen, where)
    played.stories += 1


def play_one(
    program: Program, story: Story, rng: random.Random, played: Played, seen: dict[int, dict[str, Bag]], where: str
) -> None:
    """Play one cut of a story. `seen` is what had left after so many edits, at points that other cuts share."""
    topology, watched = program.topology()
    watch(topology, watched)
    rig, answers = Rig(topology, story.partitions, story.max_cells), Answers(topology)
    tables: Tables = {}
    done = 0
    for number, (fate, edits) in enumerate(story.epochs):
        at = f"{where}, epoch {number} of {story}"
        befall(rig, fate, edits, rng, story, at)
        tables, done = taken(tables, edits), done + len(edits)
        out = rig.epoch(edits)
        played.epochs += 1
        played.rows += sum(map(len, out.values()))
        check(rig, out, answers, tables, at)
        if not answers.held:
            agree(f"what another cut gave after {done} edits, {at}", rig.left, seen.setdefault(done, dict(rig.left)))
    end(rig, topology, answers, tables, f"{where}, after {story}")


def befall(rig: Rig, fate: str, edits: Sequence[Edit], rng: random.Random, story: Story, where: str) -> None:
    """What happens before an epoch is done."""
    before = {} if fate == "commit" else rig.states()
    if fate == "undo":
        rig.step(edits)
        rig.undo()
    elif fate == "undo another":
        rig.step(rng.sample(story.edits(), 3))
        rig.undo()
    elif fate == "restart":
        rig.restart()
    elif fate == "replay":
        rig.replay()
    if before:
        agree(f"states after '{fate}', {where}", rig.states(), before)


def check(rig: Rig, out: Mapping[str, Batch], answers: Answers, tables: Tables, where: str) -> None:
    """What has left is what the plan says, and each delta is consolidated."""
    for topic, batch in out.items():
        twice = [row for row, times in Counter(batch.rows).items() if times > 1]
        assert not twice, f"{topic}: {twice[:3]} left more than once in one epoch: {batch}: {where}"
        assert all(batch.weights), f"{topic}: a row of weight 0 left: {batch}: {where}"
    for topic, rows in answers.of(tables).items():
        agree(f"{topic}, {where}, tables {tables}", rig.left[topic], rows)


def end(rig: Rig, topology: eddy.Topology, answers: Answers, tables: Tables, where: str) -> None:
    """What is remembered is a function of what is there now, and of nothing that was."""
    if not answers.held:
        fresh = Rig(topology, rig.partitions, rig.max_cells)
        fresh.epoch(present(topology, tables))
        agree(f"states, against those of one epoch, {where}", rig.states(), fresh.states())
        agree(f"store, against that of one epoch, {where}", rig.stored(), fresh.stored())
    rig.epoch([(topic, key, None) for topic, rows in tables.items() for key in rows])
    empty = Rig(topology, rig.partitions, rig.max_cells)
    empty.epoch(present(topology, {}))
    check(rig, {}, answers, {}, where)
    if not answers.held:
        agree(f"what is left when all is deleted, {where}", rig.stored(), empty.stored())
        agree(f"states when all is deleted, {where}", rig.states(), empty.states())


def present(topology: eddy.Topology, tables: Tables) -> list[Edit]:
    """The edits that make the tables, and one for each source that makes nothing."""
    made = [(topic, key, value) for topic, rows in tables.items() for key, value in rows.items()]
    return [*made, *((source.topic, DELETED, None) for source in topology.plan.sources())]


def agree(what: str, found: Any, answer: Any) -> None:
    """Raise an AssertionError that shows what is missing, wrong or too much."""
    if found != answer:
        names = sorted((name for name in {**found, **answer} if found.get(name) != answer.get(name)), key=repr)
        shown = "; ".join(f"{name!r}: {found.get(name)!r}, not {answer.get(name)!r}" for name in names[:4])
        raise AssertionError(f"{len(names)} differ: {shown}\nin {what}")
