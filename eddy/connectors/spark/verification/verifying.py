"""Verify: do a worker's outputs and states equal the results of its inputs, at one cut?

A cut names offsets of the inputs, and the offsets of outputs and changelogs up to which these are exactly the results
of the inputs, f(inputs). All topics are read up to the cut, and f is computed anew, so a worker may continue meanwhile.

    equal            every compared sink and state has the expected rows
    different        some of them have other rows; each differing key is named, with the expected and the found value
    could not tell   arrival order decides results, records were deleted, or the input does not determine a state

In a compacted topic a record after the cut may have replaced an earlier one: a key that differs and has such a record
is counted as moved, not as different.

f is computed by Spark's joins and groupings and by code of this package, without a line of a worker's operators. So
errors in these operators are found, too. With `quick` the worker's own circuit computes f, and such errors are not
found.

If the states were also made from files, these files are required. With other files, or if the compaction of an input
may have dropped records from before the cut, an equal result is still valid. A difference then proves no error, because
these records may have caused it.
"""

import functools
import time
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from eddy.connectors.csv_rows import Empty
from eddy.connectors.log import Log, TopicPartition
from eddy.connectors.spark.arrival_order import (
    Ordered,
    check_accepted,
    check_commutes,
    folds_in_any_order,
    order_dependent,
    ordered,
    tainted,
)
from eddy.connectors.spark.changelog import changelog_rows
from eddy.connectors.spark.compacted_inputs import compacted_below
from eddy.connectors.spark.computation import Application, Computation, Computed, last_cut
from eddy.connectors.spark.cut_clocks import CutClocks
from eddy.connectors.spark.files.history import Columns, Files, described, noted, options, read_histories, unlike
from eddy.connectors.spark.frames import Frames
from eddy.connectors.spark.global_joins import GlobalJoins
from eddy.connectors.spark.inputs import OpenLog
from eddy.connectors.spark.readable import Readable, sink_forms
from eddy.connectors.spark.session import ONE_TASK, TOLERANCE
from eddy.connectors.spark.verification.comparison import ExpectedTopic, TopicComparison
from eddy.connectors.spark.verification.equivalence import RowFormat
from eddy.connectors.spark.verification.held_rows import HeldRows
from eddy.connectors.spark.verification.mismatches import Mismatches
from eddy.connectors.spark.verification.repair import Repair
from eddy.connectors.spark.verification.verdict import Compared, Repaired, Since, Verdict
from eddy.errors import ConfigurationError
from eddy.runtime.matching_topics import gone_topics
from eddy.runtime.quiescence import Cut, last_dated_cut, topics_made_anew
from eddy.topology.compiler.circuit_compiler import sink_serdes
from eddy.topology.plan.identity import check_identity, optional_states, states_of
from eddy.topology.plan.plan import Node, Sink
from eddy.topology.topology import Topology

__all__ = ["Verify", "last_cut"]

_POLL_S = 0.2


@dataclass
class Verify:
    """One verification.

    `commutes` names folds of streams that give the same result in any order; `accept` names undetermined steps that are
    left out of the comparison, with everything downstream; `repair` corrects tables.

    `empty` is the meaning of empty cells in CSV `files`. `tolerance` is for floats downstream of folds whose order the
    input does not determine; 0 compares them exactly. If a cut is older than `max_age_s` and records wait, the result
    is "could not tell"; `wall` returns the seconds since 1970. `quick` computes small inputs with the worker's
    operators.
    """

    topology: Topology
    spark: SparkSession
    log: Log
    open_log: OpenLog
    on_error: str = "fail"
    commutes: Collection[str] = ()
    accept: Collection[str] = ()
    mismatches: str | None = None
    cut: Cut | None = None
    wait_s: float = 60.0
    stores: bool = True
    quick: bool = False
    repair: bool = False
    tolerance: float = TOLERANCE
    program: str | None = None
    stage: Callable[[str], None] = lambda name: None
    files: Files = field(default_factory=dict)
    empty: Empty = None
    columns: Columns = field(default_factory=dict)
    max_age_s: float | None = None
    wall: Callable[[], float] = time.time
    _global_joins: GlobalJoins = field(init=False)

    def run(self) -> Verdict:
        """Verify. Raises: ConfigurationError; DataError; LoopLimitError; ConnectorError."""
        self.stage("checks")
        application = Application.of(self.topology, self.log)
        name = self.topology.name
        self._check(application)
        mismatches = Mismatches(self.spark, self.mismatches) if self.mismatches else None
        if mismatches:
            mismatches.check()
        self.stage("cut")
        cut, since = self._cut(application)
        frames = Frames(self.spark, self.program, f"verify {name}")
        try:
            histories = read_histories(frames, name, application.sources, self.files, self.empty, self.columns)
            self._global_joins = self._joins(application, cut)
            other = unlike(application.metadata.files, noted(histories))
            computation = Computation(
                application,
                frames,
                self.open_log,
                cut.inputs,
                self.on_error,
                histories,
                traced=self.stores,
                one_task=ONE_TASK if self.quick else 0,
                clocks=self._clocks(application, cut),
                global_joins=self._global_joins,
            )
            computation.check()
            self._enter(frames, "compute")
            computed = computation.run()
            verdict, differing = self._compared(computed, cut)
            notes = {f"files '{topic}'": remark for topic, h in histories.items() if (remark := h.remark(topic))}
            verdict = replace(verdict, notes={**verdict.notes, **notes}, other_files=list(other.values()), since=since)
            if mismatches:
                self._enter(frames, "mismatches")
                mismatches.replace(differing if verdict.differs else None)
            if not verdict.differs:
                return verdict
            verdict = replace(verdict, compacted=self._compacted(computed, cut, verdict))
            repaired = None
            if self.repair and other:
                repaired = Repaired(refused=f"{'; '.join(other.values())}. Give those files")
            elif self.repair and verdict.compacted:
                named = "; ".join(f"topic '{topic}': {why}" for topic, why in verdict.compacted.items())
                repaired = Repaired(refused=named)
            elif self.repair:
                judge = lambda found, within: self._compared(found, cut, within)[0]  # noqa: E731
                enter = functools.partial(self._enter, frames)
                repaired = Repair(computed, cut, judge, enter).run(verdict, differing)
            return replace(verdict, mismatches=self.mismatches, repaired=repaired)
        finally:
            frames.release()

    def _enter(self, frames: Frames, stage: str) -> None:
        self.stage(stage)
        frames.jobs.stage(stage)

    def _check(self, application: Application) -> None:
        """Refuse requests that cannot be answered. Raises: ConfigurationError."""
        name, topics = self.topology.name, {source.topic for source in application.sources}
        if gone := gone_topics(self.topology, self.log, application.counts):
            raise ConfigurationError(
                f"verify of application '{name}': topic '{gone[0]}' no longer exists, and the results have its "
                "records; without them nothing can be compared. To leave them out for good, start anew: eddy reset …"
            )
        if anew := topics_made_anew(self.log, name, application.inputs()):
            raise ConfigurationError(
                f"verify of application '{name}': topic '{anew[0]}' was deleted and made anew, and the results have "
                "records of the former one; without them nothing can be compared. To begin anew with the records that "
                "are there: eddy reset …, then eddy run …"
            )
        if self.repair and not self.stores:
            raise ConfigurationError(
                f"verify of application '{name}': a repair without stores; only the rows of tables can be corrected. "
                "Leave out one of --repair and --no-stores"
            )
        plan = self.topology.plan
        check_commutes(plan, self.commutes)
        check_accepted(plan, order_dependent(plan, application.counts, self.commutes), self.accept)
        if application.metadata.plan is None:
            raise ConfigurationError(
                f"verify of application '{name}': it has not run on this log; there is nothing to verify. Start it: "
                "eddy run …"
            )
        optional = optional_states(application.circuit)
        check_identity(name, application.metadata.plan, application.lines, optional=optional)
        read = application.metadata.files
        if missing := {topic: read[topic] for topic in read if topic in topics - set(self.files)}:
            raise ConfigurationError(
                f"verify of application '{name}': its states were made from files as well: {described(missing)}; "
                f"without them the right results are unknown, and nothing was compared. Give them: {options(missing)}"
            )

    def _cut(self, application: Application) -> tuple[Cut, Since]:
        """Return the last cut, with its age and later records; wait for the first cut. Raises: ConfigurationError."""
        if self.cut is not None:
            return self.cut, self._since(self.cut, None)
        deadline = time.monotonic() + self.wait_s
        while (found := last_dated_cut(self.log, application.internal.cuts)) is None:
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"verify of application '{self.topology.name}': there was no cut within {self.wait_s:g} s; a "
                    "worker has to run until it is quiescent once, or alone for a second. Start one: eddy run …"
                )
            time.sleep(_POLL_S)
        cut, time_ms = found
        return cut, self._since(cut, self.wall() - time_ms / 1000)

    def _since(self, cut: Cut, age_s: float | None) -> Since:
        offsets = {TopicPartition(topic, p): at for topic, ends in cut.inputs.items() for p, at in enumerate(ends)}
        waiting: dict[str, int] = {}
        for partition, end in self.log.end_offsets(offsets).items():
            if self._holds_records(partition, offsets[partition], end):
                waiting[partition.topic] = waiting.get(partition.topic, 0) + end - offsets[partition]
        return Since(age_s, waiting, self.max_age_s)

    def _holds_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        """Whether a range has a record or an open transaction, rather than only offsets of transactions' ends."""
        while start < end:
            records = self.log.read(partition, start, end, 1)
            if len(records) or records.next_offset == start:
                return True
            start = records.next_offset
        return False

    def _joins(self, application: Application, cut: Cut) -> GlobalJoins:
        """Return the joins with global tables that the worker's notes determine, without accepted ones."""
        plan, wall = self.topology.plan, application.circuit.reads.wall
        files = {topic: topic in application.metadata.files for topic in self.files}
        found = GlobalJoins.of(plan, self.log, application.internal.cuts, cut, files, bool(wall))
        accepted = dict.fromkeys(self.accept, "it is accepted")
        return GlobalJoins(found.versions, {**accepted, **found.undetermined})

    def _clocks(self, application: Application, cut: Cut) -> CutClocks:
        """Return the clocks of the cut. Raises: ConfigurationError if they are needed, and the cut lacks them."""
        reads, specs = application.circuit.reads, application.specs
        idle = {source.topic for source in self.topology.plan.sources() if source.idle_after_ms}
        lossy = {
            topic for topic in reads.sources if specs[topic].drops_replaced or topic in self.files or topic in idle
        }
        clocks = CutClocks.of(cut, lossy)
        read = {topic for topic, offsets in cut.inputs.items() if any(offsets)}
        if (lossy & read) - clocks.event_times.keys() or (reads.wall and read and not clocks.ticks):
            raise ConfigurationError(
                f"verify of application '{self.topology.name}': rows of tables expire, and the cut has no "
                f"clock, since an earlier release wrote it. Let a worker of this release process a record, and "
                f"run again"
            )
        return clocks

    def _compared(
        self, computed: Computed, cut: Cut, within: Collection[Node] | None = None
    ) -> tuple[Verdict, DataFrame]:
        """Compare, and return the verdict and the rows that differ.

        If `within` is given, only these steps are compared, and no step is accepted.
        """
        plan = self.topology.plan
        joins = self._global_joins
        dependent = order_dependent(plan, computed.application.counts, self.commutes, joins.determined(plan))
        dependent |= {
            name: f"{dependent[name]}: {why}" for name, why in joins.undetermined.items() if name in dependent
        }
        left = tainted(plan, self.accept) if within is None else {}
        accepted = {f"step '{name}'": dependent[name] for name in self.accept} if within is None else {}
        skipped = {node.name for node in left}
        downstream = tainted(plan, [name for name in dependent if name not in skipped])
        steps = {node.name for node in plan.nodes if within is None or node in within} - skipped
        undetermined = {f"step '{name}'": why for name, why in dependent.items() if name in steps}
        notes: dict[str, str] = {}
        parts = []
        topics = {sink.topic for sink in computed.results.sinks if within is None or sink in within}
        for part in [
            *self._sinks(computed, topics, undetermined, notes),
            *(self._stores(computed, notes) if self.stores else []),
        ]:
            named = f"{part.what} '{part.name}'"
            if within is not None and not any(node in within for node in part.nodes):
                continue
            if steps_before := [downstream[node] for node in part.nodes if node in downstream]:
                undetermined.setdefault(named, f"it is downstream of step '{steps_before[0]}'")
            elif steps_before := [left[node] for node in part.nodes if node in left]:
                accepted[named] = f"it is downstream of step '{steps_before[0]}'"
            elif why := self._unreadable(part, cut):
                undetermined[named] = why
            else:
                parts.append(part)
        if within is None and not parts:
            undetermined.setdefault(f"application '{plan.name}'", "no output and no state is left to compare")
        self._enter(computed.frames, "compare")
        comparison = TopicComparison(computed.frames, self.log, self.open_log, parts, cut, self.tolerance)
        compared, differing = self._apart_from_inputs(comparison, undetermined)
        left_out = computed.left_out()
        verdict = Verdict(self.topology.name, cut, compared, undetermined, notes, left_out, tolerance=self.tolerance)
        verdict = replace(verdict, quick=self.quick, accepted=accepted)
        return verdict, differing

    def _apart_from_inputs(
        self, comparison: TopicComparison, undetermined: dict[str, str]
    ) -> tuple[list[Compared], DataFrame]:
        """Compare, and return the compared parts and the rows that differ, except for outputs that are inputs, too.

        If such an output differs, it is added to `undetermined` instead.
        """
        plan, compared = self.topology.plan, comparison.run()
        read = {source.topic for source in (*plan.sources(), *plan.global_tables())}
        shared = [part for part in compared if part.what == "sink" and part.name in read and part.differing]
        for part in shared:
            undetermined[f"sink '{part.name}'"] = (
                f"{part.differing:,} of its {part.keys:,} keys differ, such as {part.examples[0].key}; it is an input, "
                "too, so that others may have written them"
            )
        if not shared:
            return compared, comparison.differing
        theirs = (f.col("part") == "sink") & f.col("name").isin([part.name for part in shared])
        return [part for part in compared if part not in shared], comparison.differing.where(~theirs)

    def _compacted(self, computed: Computed, cut: Cut, verdict: Verdict) -> dict[str, str]:
        """Return, by topic, why an input may have lost records from before the cut.

        Returns {} if some differing part is not downstream of such an input.
        """
        application, results, plan = computed.application, computed.results, self.topology.plan
        wrong = [
            {results.states[part.name].node}
            if part.what == "store"
            else {sink for sink in results.sinks if sink.topic == part.name}
            for part in verdict.compared
            if part.differing
        ]
        nodes = set[Node]().union(*wrong)
        sources = [s for s in application.sources if not nodes.isdisjoint(tainted(plan, [s.name]))]
        age_s = None if verdict.since is None else verdict.since.age_s
        lost = compacted_below(computed.frames, self.log, self.open_log, sources, cut.inputs, age_s)
        downstream = tainted(plan, [source.name for source in sources if source.topic in lost])
        return {} if any(part.isdisjoint(downstream) for part in wrong) else lost

    def _sinks(
        self, computed: Computed, within: set[str], undetermined: dict[str, str], notes: dict[str, str]
    ) -> list[ExpectedTopic]:
        """Return an `ExpectedTopic` for each of the topics `within` that sinks write."""
        near, placed = self._near(), sink_serdes(self.topology.plan, computed.application.counts)
        by_topic: dict[str, list[Sink]] = {}
        for sink in computed.results.sinks:
            if sink.topic in within:
                by_topic.setdefault(sink.topic, []).append(sink)
        parts = []
        for topic, sinks in by_topic.items():
            kinds = {sink.kind == "stream" for sink in sinks}
            if len(kinds) > 1:
                undetermined[f"sink '{topic}'"] = "a stream and a table write to it, so that it is neither"
                continue
            if any(serde.id_end for sink in sinks for serde in placed[sink]):
                undetermined[f"sink '{topic}'"] = "the ids of its schemas are in headers, which are not compared"
                continue
            whole = computed.frames.union([computed.results.sinks[s].select("k", "v", "s") for s in sinks], "")
            counts = computed.application.counts
            keyed = all(sink.partitioner is None for sink in sinks)
            unordered = False in kinds or len(sinks) > 1 or not keyed
            order: Ordered = "no" if unordered else ordered(sinks[0].inputs[0], counts)
            if not keyed:
                notes[f"sink '{topic}'"] = (
                    "partitions, and the order of a key's records, are not compared: partitioner="
                )
            elif True in kinds and order == "no":
                notes[f"sink '{topic}'"] = "the order of a key's records is not compared: it depends on their arrival"
            readable = Readable.of_sink(self.topology.plan, counts, sinks[0])
            form = RowFormat(*sink_forms(self.topology.plan, counts, sinks[0]), near=not near.isdisjoint(sinks))
            parts.append(
                ExpectedTopic(
                    *("sink", topic, topic, counts[topic], whole, kinds.pop(), readable, tuple(sinks), form),
                    ordered=order,
                    keyed=keyed,
                )
            )
        return parts

    def _near(self) -> Set[Node]:
        """Return the steps whose floats are compared with the tolerance."""
        plan = self.topology.plan
        return tainted(plan, folds_in_any_order(plan, self.commutes)).keys() if self.tolerance else set()

    def _stores(self, computed: Computed, notes: dict[str, str]) -> list[ExpectedTopic]:
        """Return an `ExpectedTopic` for each state with a changelog."""
        results, parts, near = computed.results, [], self._near()
        application = computed.application
        held = HeldRows.of(application.circuit, results, computed.frames)
        unwritten = optional_states(application.circuit) - set(states_of(application.metadata.plan or ()))
        for name, state in application.circuit.states.items():
            if state.spec.changelog is None and state.spec.source is None:
                notes[f"store '{name}'"] = "not compared: it has no changelog"
            elif state.spec.changelog is None:
                notes[f"store '{name}'"] = f"not compared: its topic '{state.spec.source}' is its changelog"
            elif name not in results.states:
                notes[f"store '{name}'"] = f"not compared: {results.undetermined.get(name, 'nothing computes it')}"
            elif name in unwritten:
                notes[f"store '{name}'"] = "not compared: the worker of an earlier release does not write it"
            elif name in held.skipped:
                notes[f"store '{name}'"] = held.skipped[name]
            else:
                rows = changelog_rows(results.states[name]).select(f.col("key").alias("k"), f.col("value").alias("v"))
                topic, count, of = state.spec.changelog, state.spec.partitions, (results.states[name].node,)
                form = RowFormat(state.spec.key, state.spec.value, state.spec.kind, not near.isdisjoint(of))
                read, left_out = Readable.of_state(state.spec), held.reached.get(name)
                parts.append(ExpectedTopic("store", name, topic, count, rows, False, read, of, form, left_out))
                if left_out is not None:
                    notes[f"store '{name}'"] = "compared only for keys that no cycle reaches"
        return parts

    def _unreadable(self, part: ExpectedTopic, cut: Cut) -> str:
        """Return the reason why a topic does not have all records of the cut; empty if it has all."""
        spec = self.log.topics([part.topic]).get(part.topic)
        partitions = [TopicPartition(part.topic, p) for p in range(part.partitions)]
        if part.topic not in cut.outputs:
            return "the cut does not name its topic"
        if spec is None:
            return "its topic does not exist"
        if part.facts and spec.drops_replaced:
            return "its topic is compacted, and so does not have every record of a stream"
        begins = self.log.begin_offsets(partitions)
        if gone := [tp for tp, begin in begins.items() if begin]:
            return (
                f"partition {gone[0].partition} of its topic begins at offset {begins[gone[0]]}: records were deleted"
            )
        for tp, end in self.log.end_offsets(partitions).items():
            if end < (wanted := cut.outputs[part.topic][tp.partition]):
                return (
                    f"partition {tp.partition} of its topic ends at offset {end}, before the cut's {wanted}: it was "
                    "deleted and made anew"
                )
        return ""
