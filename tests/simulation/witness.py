"""The omniscient witness: reads the log beside the workers and holds everything in it to the oracle.

What it knows comes from the log's records and the group's positions alone, never from a worker's
memory, and it decodes rows by its own code. Shared with the kill tests.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import eddy
from eddy.connectors.log import Log, Position, Records, TopicPartition
from eddy.operators.operator import State
from eddy.runtime.internal_topics import InternalTopics
from eddy.runtime.metadata import read_metadata
from eddy.runtime.quiescence import cuts_of, last_cut, quiescent
from eddy.state.memory import MemoryStore
from eddy.state.partitioned_map import PartitionedMap
from eddy.state.timed_rows import TimedRows
from eddy.topology.compiler.circuit_compiler import sink_serdes
from eddy.topology.plan.identity import optional_states
from tests.simulation.programs import Expected, Program, Timed

__all__ = ["Witness"]

Ends = Mapping[TopicPartition, int]


class Witness:
    """Watches one program on one log. `worker` lends what its plan compiles to: names and serdes."""

    def __init__(self, program: Program, log: Log, worker: eddy.Worker) -> None:
        self.program, self.log = program, log
        plan = program.topology().plan
        self._sources = {source.topic: source for source in plan.sources()}
        self._sinks = {sink.topic: sink for sink in plan.sinks()}
        counts = {name: spec.partitions for name, spec in log.topics().items()}
        self._sink_serdes = {sink.topic: pair for sink, pair in sink_serdes(plan, counts).items()}
        self.states: dict[str, State] = dict(worker.circuit.states)
        self._held_nothing: dict[str, dict[Any, Any]] = {name: {} for name in optional_states(worker.circuit)}
        self.internal: InternalTopics = worker.internal
        self.group = program.topology().name
        self.partitions = {name: [TopicPartition(name, p) for p in range(n)] for name, n in counts.items()}
        self.inputs = self._all(self._sources)
        self.exchanges = self._all(self.internal.exchanges)
        self._counted: dict[TopicPartition, int] = {}
        self.exchanged = 0
        self.cuts = 0
        self._meant: dict[TopicPartition, Position] = {}
        self._cut_position = 0

    def _all(self, topics: Iterable[str]) -> list[TopicPartition]:
        return [partition for topic in topics for partition in self.partitions[topic]]

    def _records(self, partition: TopicPartition, ends: Ends | None = None) -> Records:
        begin = self.log.begin_offsets([partition])[partition]
        end = self.log.end_offsets([partition])[partition] if ends is None else ends[partition]
        return self.log.read(partition, begin, end, 1 << 30)

    def _rows(self, topic: str, ends: Ends | None = None) -> Iterator[tuple[bytes, bytes | None]]:
        for partition in self.partitions[topic]:
            records = self._records(partition, ends)
            yield from zip(records.keys, records.values, strict=True)  # type: ignore[misc]

    def _places(self, topic: str, ends: Ends | None = None) -> Iterator[tuple[int, int]]:
        """The partition and the timestamp of each record."""
        for partition in self.partitions[topic]:
            yield from ((partition.partition, time) for time in self._records(partition, ends).timestamps)

    # What should be

    def expected(self, ends: Ends | None = None) -> Expected:
        """The oracle's answer for all inputs, or for those before `ends`."""
        inputs: dict[str, Any] = {}
        for topic, source in self._sources.items():
            decode_key, decode_value = source.key.decode, source.value.decode
            rows = [(decode_key(k), None if v is None else decode_value(v)) for k, v in self._rows(topic, ends)]
            if self.program.timed:
                places = self._places(topic, ends)
                timed = zip(rows, places, strict=True)
                good = [(*row, *place) for row, place in timed if self.program.good(topic, [row])]
                inputs[topic] = Timed(good, len(self.partitions[topic]))
                continue
            rows = self.program.good(topic, rows)
            inputs[topic] = rows if source.kind == "stream" else latest(rows)
        return self.program.expect(inputs)

    # What is

    def sink(self, topic: str, ends: Ends | None = None) -> Any:
        """What a sink's topic folds to: a Counter of facts, or a dict of the latest values."""
        decode_key, decode_value = (serde.decode for serde in self._sink_serdes[topic])
        rows = [(decode_key(k), None if v is None else decode_value(v)) for k, v in self._rows(topic, ends)]
        return Counter(rows) if self._sinks[topic].kind == "stream" else latest(rows)

    def state(self, name: str, ends: Ends | None = None) -> dict[Any, Any]:
        """What a state's changelog folds to, over all partitions, decoded."""
        spec = self.states[name].spec
        if spec.changelog is None:
            return {}
        folded = latest(self._rows(spec.changelog, ends))
        return dict(self._decoded(name, key, value) for key, value in folded.items())

    def _decoded(self, name: str, key: bytes, value: bytes) -> tuple[Any, Any]:
        spec = self.states[name].spec
        if spec.kind in ("table", "key-value"):
            return spec.key.decode(key), spec.value.decode(value)
        if spec.kind == "calendar":
            return (spec.key.decode(key[8:]), struct.unpack_from(">q", key)[0]), len(value)
        length = struct.unpack_from(">I", key)[0]
        row = spec.key.decode(key[4 : 4 + length]), spec.value.decode(key[4 + length :])
        if spec.kind == "trace":
            row = row[0], *row[1]
        return row, struct.unpack(">q", value)[0]

    # That they agree

    def check_exact(self, ends: Ends | None = None, expected_at: Ends | None = None) -> None:
        """Sinks and changelogs, up to `ends`, are the oracle's answer for the inputs before `expected_at`."""
        expected = self.expected(expected_at)
        states = self._states_of(expected)
        for topic, answer in expected.sinks.items():
            agree(f"sink '{topic}'", self.sink(topic, ends), answer)
        for name, rows in states.items():
            if self.states[name].spec.changelog is not None:
                agree(f"changelog of '{name}'", self.state(name, ends), rows)

    def _states_of(self, expected: Expected) -> dict[str, dict[Any, Any]]:
        """All states, or those that are a function of the inputs where something is held."""
        if expected.holds:
            return expected.states
        states = self._held_nothing | expected.states
        assert set(states) == set(self.states), "the oracle knows other states"
        return states

    def check_store(self, worker: eddy.Worker, owned: Iterable[TopicPartition]) -> None:
        """What a worker has in its store, and sees of it, is what the log says, for the partitions owned."""
        expected = self._states_of(self.expected())
        mine = {(len(self.partitions[topic]), partition) for topic, partition in owned}
        for name in expected:
            state = worker.circuit.states[name]
            homes = [p for p in range(state.spec.partitions) if (state.spec.partitions, p) in mine]
            held = {}
            for partition in homes:
                prefix = state.spec.prefix(partition)
                pairs = (getattr(state, "own", None) or worker.local_store).scan(prefix)
                held.update(self._decoded(name, key[len(prefix) :], value) for key, value in pairs)
            answer = {row: weight for row, weight in expected[name].items() if home(state, row) in homes}
            agree(f"store of '{name}' in {homes}", held, answer)
            seen = [seen_by(state, row) for row in answer]
            agree(f"memory of '{name}' in {homes}", dict(zip(answer, seen, strict=True)), answer)

    def check_cuts(self) -> None:
        """Each cut that is new: its outputs are the oracle's answer for its inputs."""
        (partition,) = self.partitions[self.internal.cuts]
        end = self.log.end_offsets([partition])[partition]
        if end == self._cut_position:
            return
        found = self.log.read(partition, self._cut_position, end, 1 << 30)
        self._cut_position = end
        for cut in cuts_of(found):
            inputs, outputs = by_partition(cut.inputs), by_partition(cut.outputs)
            agree("inputs of a cut", dict.fromkeys(inputs, True), dict.fromkeys(self.inputs, True))
            self.check_exact(outputs, inputs)
            self.cuts += 1

    def check_letters(self) -> None:
        """Each record that cannot be processed has one letter, of a table one at most; no other record has any."""
        letters = Counter[tuple[str, int, int]]()
        for partition in self.partitions[self.internal.dead_letter]:
            for headers in self._records(partition).headers or ():
                told = dict(headers)
                if "eddy.step" in told:  # of a row
                    continue
                place = told["eddy.topic"].decode(), int(told["eddy.partition"]), int(told["eddy.offset"])
                letters[place] += 1
        poison = set(self._poison())
        assert set(letters) <= poison, f"letters of good records: {set(letters) - poison}"
        assert all(times == 1 for times in letters.values()), f"letters written twice: {letters}"
        missing = {place for place in poison - set(letters) if self._sources[place[0]].kind == "stream"}
        assert not missing, f"no letters of {missing}"

    def check_set_aside(self) -> None:
        """The application remembers as many rows set aside, and keys withheld, as the oracle expects."""
        memory = read_metadata(self.log, self.internal.plan)
        found, expected = sum(kept.weight for kept in memory.set_aside.values()), self.expected().set_aside
        assert found == expected, f"{found} rows set aside, not {expected}: {memory.set_aside}"

    def _poison(self) -> Iterator[tuple[str, int, int]]:
        for partition in self.inputs:
            source, records = self._sources[partition.topic], self._records(partition)
            for offset, key, value in zip(records.offsets, records.keys, records.values, strict=True):
                row = source.key.decode(key), None if value is None else source.value.decode(value)
                if not self.program.good(partition.topic, [row]):
                    yield *partition, offset

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """The positions that workers have committed last, whatever others have made of them since."""
        wanted = list(partitions)
        committed = {tp: at for tp, at in self.log.committed(self.group, wanted).items() if at.metadata}
        return {tp: self._meant[tp] for tp in wanted if tp in self._meant} | committed

    def before_others_write(self) -> list[TopicPartition]:
        """Remember the positions. Returns the partitions that have one."""
        self._meant = self.positions([*self.inputs, *self.exchanges])
        return sorted(self._meant)

    def are_others(self) -> bool:
        """Whether the group has other positions than those that workers have committed last."""
        return self.log.committed(self.group, [*self._meant]) != self.positions(self._meant)

    def pending(self) -> list[str]:
        """What is left to do, as far as records and positions tell: inputs unread, rows under way."""
        partitions = [*self.inputs, *self.exchanges]
        committed = self.positions(partitions)
        begins, ends = self.log.begin_offsets(partitions), self.log.end_offsets(partitions)
        left = []
        for partition in partitions:
            at = committed[partition].offset if partition in committed else begins[partition]
            assert begins[partition] <= at, f"{partition}: purged up to {begins[partition]}, committed {at}"
            if ends[partition] > at and len(self.log.read(partition, at, ends[partition], 1)):
                left.append(f"{partition.topic}-{partition.partition} from {at}")
        return left

    def count_exchanged(self) -> None:
        """Count the rows that were written to loops and repartitions since the last time."""
        begins, ends = self.log.begin_offsets(self.exchanges), self.log.end_offsets(self.exchanges)
        for partition in self.exchanges:
            start = self._counted.get(partition, 0)
            if ends[partition] > start:
                assert begins[partition] <= start, f"{partition}: purged before the witness saw it"
                self.exchanged += len(self.log.read(partition, start, ends[partition], 1 << 30))
                self._counted[partition] = ends[partition]

    def quiescent(self) -> bool:
        """What eddy says; where it says yes, nothing may be left and everything has to be exact."""
        if not quiescent(self.log, self.group, self.inputs, self.exchanges, self.internal.anchors):
            return False
        assert not (left := self.pending()), f"quiescent too early: {left}"
        if not self._agreed():
            return False
        self.check_exact()
        return True

    def _agreed(self) -> bool:
        """Whether all workers agree on what is held, as `eddy wait` asks: there is a cut at the present positions."""
        if not read_metadata(self.log, self.internal.plan).held:
            return True
        cut, positions = last_cut(self.log, self.internal.cuts), self.positions(self.inputs)
        return cut is not None and all(cut.inputs[at.topic][at.partition] == p.offset for at, p in positions.items())

    def check_counters(self, seen: int | None) -> None:
        """As many rows emitted as consumed, by what the commits booked, and as many as were `seen` in the topics.

        What a constant books at its anchor is in no topic.
        """
        positions = self.positions([*self.inputs, *self.exchanges])
        emitted = consumed = 0
        for partition, position in positions.items():
            if position.metadata and partition not in self.internal.anchors:
                here, taken, *others = position.metadata.split()
                emitted += int(here) + sum(int(other.split("=")[1]) for other in others if other[0] != "@")
                consumed += int(taken)
        assert emitted == consumed, f"emitted {emitted}, consumed {consumed}"
        assert seen in (None, emitted), f"emitted {emitted}, seen {seen}"


def latest(rows: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """The last value of each key, None deleting."""
    return {key: value for key, value in dict(rows).items() if value is not None}


def by_partition(offsets: Mapping[str, list[int]]) -> dict[TopicPartition, int]:
    """Offsets by topic as offsets by partition."""
    return {TopicPartition(topic, p): offset for topic, many in offsets.items() for p, offset in enumerate(many)}


def home(state: State, row: Any) -> int:
    """The partition that a row of a state belongs to."""
    if state.spec.name.endswith("-marks"):  # which have their partition in the key
        return int(row[0])
    key = row if state.spec.kind in ("table", "key-value") else row[0]
    return state.spec.partitions_of([state.spec.key.encode(key)])[0]


def seen_by(state: State, row: Any) -> Any:
    """What a state says about a row: a table's value, an arrangement's weight, a trace's weight at an iteration."""
    if state.spec.kind == "trace":
        key, time, value = row
        return dict((state.get_many([key])[0] or {}).get(value, ())).get(time)  # type: ignore[attr-defined]
    if state.spec.kind == "calendar" or isinstance(state, TimedRows):
        return dict(state.items()).get(row)  # type: ignore[attr-defined]
    if isinstance(state, PartitionedMap):
        return state.get(row, [home(state, row)])
    return state.get(row) if state.spec.kind == "table" else state.weights([row])[0]  # type: ignore[attr-defined]


def agree(what: str, found: Any, answer: Any) -> None:
    """Raise an AssertionError that shows what is missing, wrong or too much."""
    if found != answer:
        keys = [key for key in {**found, **answer} if found.get(key) != answer.get(key)]
        shown = ", ".join(f"{key!r}: {found.get(key)!r}, not {answer.get(key)!r}" for key in sorted(keys, key=repr)[:5])
        raise AssertionError(f"{what}: {len(keys)} rows differ from the oracle: {shown}")


class KeptStore(MemoryStore):
    """A store in memory that survives its worker, as a directory does."""

    def close(self) -> None:
        """Keep the rows."""

    def copy(self) -> "KeptStore":
        """As it is now."""
        made = KeptStore()
        made.write(self.scan(b""))
        return made
