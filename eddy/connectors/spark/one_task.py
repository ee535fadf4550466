"""Parts of a plan in one task: the worker's own circuit, over all rows that the part reads.

    the whole plan   if its input is small: a Spark job takes a second, a shuffle half a second, however few the rows
    a loop           if the loop is small and the plan is not

*Small* means that the part reads at most `limit` records or rows, and that its loops have at most as many rows.
Otherwise the task stops and returns a row that tells this, and the part is computed with Spark's joins and groupings.

A backfill computes all small parts in this way. `verify` does so only with `quick`, because it then shares the worker's
operators, and cannot find an error in them. No other module of this package uses the worker's operators.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.arrow_functions import ROWS, RecordsEntry, RowsEntry, SentExit, encode_rows, place_of
from eddy.connectors.spark.cut_clocks import CutClocks, latest_times
from eddy.connectors.spark.decoded_rows import DecodedRows
from eddy.connectors.spark.frames import Frames, names
from eddy.connectors.spark.made import GAVE_UP, MADE, Made, batches_of, rows_where
from eddy.connectors.spark.step_compiler import BY_A_WORKER
from eddy.errors import EddyError, LoopLimitError
from eddy.operators.batch import EMPTY, Batch, concat, consolidate
from eddy.operators.circuit import Circuit
from eddy.operators.context import Context
from eddy.operators.exchange import Budget
from eddy.operators.operator import State
from eddy.operators.waves.recursion import Waves
from eddy.partitioner import Partitioner
from eddy.serde import Serde
from eddy.state.row_layout import key_in
from eddy.topology.compiler.circuit_compiler import Environment, compile_part, compile_plan
from eddy.topology.plan.plan import Node, Plan

__all__ = ["OneTask"]

Serdes = tuple[Serde[Any], Serde[Any]]


class _TooManyError(EddyError):
    """The part is too large for one task. It is an `EddyError`, because a circuit wraps all other exceptions."""


class _Bounded(Budget):
    """A budget of `rows` rows; more rows raise `_TooManyError`, and do not end the epoch as in a worker."""

    def spend(self, rows: int) -> bool:
        if super().spend(rows):
            raise _TooManyError("too many")
        return False


def _first(key: bytes, count: int) -> int:
    """Return partition 0 for every key, because partitions do not matter in one task."""
    return 0


@dataclass(frozen=True)
class OneTask:
    """Computes a whole plan, or only the loop `step` of it, in one task. `counts` are the partition counts of topics.

    A loop has `reads` and `makes`: the serdes of its inputs and results, by the names of steps. A whole plan has
    `sources`, by topic, and `sinks`, by name. It advances the event times of the topics `timed`, which begin at
    `clocks`. The states `skips` are not returned.
    """

    plan: Plan
    counts: Mapping[str, int]
    step: Node | None = None
    limit: int | None = None
    reads: Mapping[str, Serdes] = field(default_factory=dict)
    makes: Mapping[str, Serdes] = field(default_factory=dict)
    sources: Mapping[str, RecordsEntry] = field(default_factory=dict)
    sinks: Mapping[str, SentExit] = field(default_factory=dict)
    skips: Set[str] = frozenset()
    timed: Set[str] = frozenset()
    clocks: CutClocks = field(default_factory=CutClocks)
    partitioner: Partitioner = _first

    def of_rows(self, frames: Frames, rows: Mapping[str, DataFrame]) -> "Made":
        """Compute the step over the rows that it reads, by the names of steps."""
        parts = [rows[name].select(f.lit(name).alias("read"), *names(ROWS)) for name in self.reads]
        return Made(frames.kept(frames.through(frames.union(parts, "").repartition(1), self, MADE)))

    def of_records(self, frames: Frames, raw: DataFrame) -> "Made":
        """Compute the plan over the records of its sources, in `RAW` columns."""
        return Made(frames.kept(frames.through(raw.coalesce(1), self, MADE)))

    def circuit(self) -> Circuit:
        """Make a new circuit of the plan or the step."""
        budget = Budget(2**62) if self.limit is None else _Bounded(self.limit)
        partitioner = self.partitioner if self.timed else _first
        world = Environment(self.counts, budget=budget, guard=budget, peeks=False, partitioner=partitioner)
        return compile_plan(self.plan, world) if self.step is None else compile_part(self.plan, world, self.step)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Run the task: turn all input rows into `MADE` rows. Raises: DataError; LoopLimitError."""
        gc.disable()  # all objects are in use until the end of the task
        try:
            yield from self._made(batches)
        except _TooManyError:
            yield from batches_of(GAVE_UP, "", 1)
        finally:
            gc.enable()

    def _made(self, batches: Iterable[Any]) -> Iterator[Any]:
        inputs: dict[str, Batch] = {}
        times = {topic: [-1] * self.counts[topic] for topic in self.timed}
        if self.step is None:
            yield from self._records(batches, inputs, times)
        else:
            self._rows(batches, inputs)
        circuit = self.circuit()
        if not inputs and not circuit.due():
            return
        circuit.step(inputs, _context(self.clocks.after(times)))
        _check_ends(circuit)
        outputs = {name: concat(output.batches or [EMPTY]) for name, output in circuit.outputs.items()}
        self._check_errors(circuit)
        for name, serdes in self.makes.items():
            made = outputs[name].consolidated(name)
            k, kc, v, vc = encode_rows(made.rows, *serdes, f"step '{name}'", False)
            yield from batches_of("rows", name, len(made), k=k, kc=kc, v=v, vc=vc, w=made.weights)
        for name, exit_ in self.sinks.items():
            yield from _sent(name, exit_, outputs[name])
        for name, state in circuit.states.items():
            if name not in self.skips:
                yield from _state(name, state)

    def _check_errors(self, circuit: Circuit) -> None:
        """Refuse errors of a recursion that the plan reads. Raises: LoopLimitError if there are any."""
        read = {node.inputs[0].name for node in self.plan.nodes if node.role == "errors"}
        if whys := [why for (name, _), why in circuit.held().items() if name in read]:
            raise LoopLimitError(f"{BY_A_WORKER}: {min(whys)}")

    def _records(
        self, batches: Iterable[Any], inputs: dict[str, Batch], times: Mapping[str, list[int]]
    ) -> Iterator[Any]:
        """Decode the records of sources, in their order, into `inputs`.

        Yields the rejected records, the latest time, and the event times.
        """
        parts: dict[str, list[Batch]] = {}
        latest = 0
        for arrived in self._counted(batches):
            for topic, entry in self.sources.items():
                columns = rows_where(arrived, "topic", topic)
                if not columns["k"]:
                    continue
                batch, homes, bad = _taken_in(entry, columns)
                if topic in times:
                    self._note_times(times[topic], entry, batch, homes)
                parts.setdefault(topic, []).append(batch)
                latest = max(latest, max(batch.times or [0], default=0))
                count = len(bad["k"])
                yield from batches_of("bad", topic, count, **bad)
        inputs.update({topic: concat(part) for topic, part in parts.items()})
        yield from batches_of("time", "", 1, t=[latest])
        for topic, found in times.items():
            yield from batches_of("clock", topic, len(found), p=list(range(len(found))), t=found)

    def _note_times(self, times: list[int], entry: RecordsEntry, batch: Batch, homes: list[int]) -> None:
        """Advance the event times of a topic's partitions."""
        keys = [
            None if key is None or home >= 0 else entry.key.identify_many([key])[0]
            for (key, _), home in zip(batch.rows, homes, strict=True)
        ]
        places = zip(homes, keys, batch.times or [], strict=True)
        for home, time in latest_times(places, len(times), self.partitioner).items():
            times[home] = max(times[home], time)

    def _rows(self, batches: Iterable[Any], inputs: dict[str, Batch]) -> None:
        """Decode the rows of steps."""
        parts: dict[str, list[Batch]] = {}
        entries = {name: RowsEntry(*serdes) for name, serdes in self.reads.items()}
        for arrived in self._counted(batches):
            for name, entry in entries.items():
                columns = rows_where(arrived, "read", name)
                if columns["k"]:
                    rows = entry.rows(columns)
                    parts.setdefault(name, []).append(Batch(rows.rows, rows.weights))
        inputs.update({name: concat(part) for name, part in parts.items()})

    def _counted(self, batches: Iterable[Any]) -> Iterator[Any]:
        count = 0
        for arrived in batches:
            count += arrived.num_rows
            if self.limit is not None and count > self.limit:
                raise _TooManyError("too many")
            yield arrived


def _check_ends(circuit: Circuit) -> None:
    """Refuse endless rows, since it is unknown how many of them a worker has computed. Raises: LoopLimitError."""
    for recursion in circuit.recursions.values():
        if isinstance(recursion, Waves) and recursion.quarantine is not None and recursion.quarantine.holds_all:
            raise LoopLimitError(next(iter((recursion.held() or {}).values())))


def _taken_in(entry: RecordsEntry, raw: dict[str, list[Any]]) -> tuple[Batch, list[int], dict[str, list[Any]]]:
    """Decode records as a worker does. Returns a batch, the rows' partitions, and the rejected records' columns.

    Raises: DataError.
    """
    raw, keys, values, problems = entry.decoded(raw)
    headers = None if raw["h"].count(None) == len(keys) else raw["h"]
    batch = Batch(list(zip(keys, values, strict=True)), [1] * len(keys), 0, raw["t"], headers)
    if not problems:
        return batch, raw["p"], {"k": []}
    bad = {name: [column[at] for at in problems] for name, column in raw.items() if name in "kvthpo"}
    bad |= {"s": [b""] * len(problems), "w": [1] * len(problems), "bad": list(problems.values())}
    good = [at not in problems for at in range(len(keys))]
    return batch.select(good), list(compress(raw["p"], good)), bad


def _context(clocks: CutClocks) -> Context:
    """Return the context of an epoch with these clocks. All partitions must have the same tick."""
    times = {(topic, p): time for topic, times in clocks.event_times.items() for p, time in enumerate(times)}
    return Context(event_time=times, tick=max(clocks.different_ticks, default=None))


def _sent(name: str, exit_: SentExit, batch: Batch) -> Iterator[Any]:
    """Yield a sink's records, in their order."""
    rows = DecodedRows(batch.rows, batch.weights)
    if exit_.facts:
        stamps = [(time, place_of(at)) for at, time in enumerate(batch.times_of_rows())]
        headers = batch.headers or [None] * len(batch)
        rows = DecodedRows(batch.rows, batch.weights, [(*stamp, h) for stamp, h in zip(stamps, headers, strict=True)])
    records: Any = zip(*exit_.columns(rows), strict=True)
    if not exit_.facts and any(weight < 0 for weight in batch.weights):
        # Rows are merged as bytes, since values need not be hashable.
        merged = consolidate(list(records), batch.weights, name)
        records = (record for record, weight in merged.items() if weight > 0)
    if columns := list(map(list, zip(*records, strict=True))):
        key, value, t, s, h = columns
        yield from batches_of("sent", name, len(key), key=key, value=value, t=t, s=s, h=h)


def _state(name: str, state: State) -> Iterator[Any]:
    """Yield a state's rows as in its changelog.

    `k` is the key that is hashed for the partition; null if there is only one.
    """
    changed = [(key, value) for _, key, value in state.changes() if value is not None]
    keys, values = [key for key, _ in changed], [value for _, value in changed]
    homes: list[bytes | None] = [None] * len(keys)
    if state.spec.partitions > 1:
        homes = [key_in(state.spec.kind, key) for key in keys]
    yield from batches_of("state", name, len(keys), k=homes, key=keys, value=values)
