"""Repair: writes the corrections that a verification has found as records of the worker's input, or refuses to.

A worker applies a record of a table's topic as  old → new,  where old is the value in its table, and updates all
downstream results by the difference. So a record in a table's topic corrects the table and the results downstream, if

    found = f(the tables as they are)       and then, with the corrections,       found + Δf = f(the inputs)

This is checked before anything is written: f is computed again, with the differing tables as they are. If the results
found do not follow from these tables, corrected tables would not correct the results, or would make correct results
wrong, so the repair is refused. It is also refused if results differ and no table differs.

The corrections are one transaction. It is aborted if another producer has written to their partitions after the cut, so
that no correction replaces a newer record.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.log import Log, TopicPartition
from eddy.connectors.spark.arrival_order import tainted
from eddy.connectors.spark.arrow_functions import Reader, RecordsEntry, arrow_schema, record_batch
from eddy.connectors.spark.computation import Computation, Computed, Timestamp
from eddy.connectors.spark.frames import spark_errors
from eddy.connectors.spark.inputs import RAW, OffsetRange, OpenLog, facts_of, read_topics, records_of
from eddy.connectors.spark.verification.verdict import Compared, Repaired, Verdict
from eddy.errors import EddyError
from eddy.partitioner import partitions_of
from eddy.runtime.quiescence import Cut
from eddy.serde import Native, Serde
from eddy.topology.plan.plan import Node, Source
from eddy.topology.plan.topic_steps import TopicRead

__all__ = ["Judge", "Repair", "Sending"]

Judge = Callable[[Computed, Collection[Node]], Verdict]
"""Compares the states and outputs of these steps with the results of a computation."""

_SENT = "topic string, p int, n long, late int"
_ANEW = "Begin anew: eddy backfill … --replace; or eddy reset …, then eddy run …"


@dataclass
class Repair:
    """One repair, after a verification at `cut` that found differences."""

    computed: Computed
    cut: Cut
    judge: Judge
    stage: Callable[[str], None]

    def run(self, verdict: Verdict, differing: DataFrame) -> Repaired:
        """Write the corrections, or refuse and write nothing. Raises: DataError; LoopLimitError; ConnectorError."""
        names = {part.name for part in verdict.compared if part.what == "store" and part.differing}
        tables = [s for s in self.computed.application.sources if s.kind == "table" and s.name in names]
        if not tables:
            wrong = [part for part in verdict.compared if part.differing]
            return Repaired(
                refused=f"{_named(wrong)}: no source table differs, and a record equal to the table's row "
                f"changes nothing downstream. {_ANEW}"
            )
        if misplaced := [part for part in verdict.compared if part.misplaced]:
            return Repaired(
                refused=f"{_named(misplaced)}: records lie in other partitions than their keys' partitions, and "
                f"no record "
                f"of an input removes them. {_ANEW}"
            )
        as_found = self._as_found(tables)
        if refused := self._does_not_follow(verdict, tables, as_found):
            return Repaired(refused=refused)
        self.stage("write corrections")
        return self._write(self._corrections(differing, tables, as_found), tables)

    def _does_not_follow(self, verdict: Verdict, tables: list[Source], as_found: "_AsFound") -> str:
        """Return the reason why the corrections would not lead to the results of the inputs; empty if they would."""
        plan = self.computed.application.topology.plan
        downstream = tainted(plan, [source.name for source in tables])
        self.stage("compute with the tables as they are")
        try:
            judged = self.judge(as_found.run(), downstream)
        except EddyError as error:
            error.add_note("repair: raised while computing from the tables as they are; nothing was written")
            raise
        reached = {(part.what, part.name) for part in judged.compared}
        apart = [part for part in verdict.compared if part.differing and (part.what, part.name) not in reached]
        if wrong := [*apart, *(part for part in judged.compared if part.differing)]:
            return (
                f"{_named(wrong)}: it does not follow from the tables as they are, so corrections of the tables would "
                f"not correct it. {_ANEW}"
            )
        names = ", ".join(f"'{source.name}'" for source in tables)
        for what, why in judged.undetermined.items():
            return f"{what} is downstream of {names}, and whether it follows from them is unknown: {why}. {_ANEW}"
        if any(part.moved for part in judged.compared):
            return (
                f"keys downstream of {names} have changed since the cut; whether they follow from them is unknown. "
                "Wait until the worker is idle, and run again"
            )
        return ""

    def _as_found(self, tables: list[Source]) -> "_AsFound":
        """Return the same computation from the tables as they are in their changelogs at the cut."""
        known, found = self.computed.computation, {}
        for source in tables:
            changelog = known.application.circuit.states[source.name].spec.changelog
            assert changelog is not None
            ranges = [OffsetRange(p, 0, end) for p, end in enumerate(self.cut.outputs[changelog])]
            found[source.topic] = read_topics(known.frames, known.open_log, {changelog: ranges})
        return _AsFound(
            known.application,
            known.frames,
            known.open_log,
            known.ends,
            known.on_error,
            known.histories,
            one_task=known.one_task,
            clocks=self.computed.clocks,
            global_joins=known.global_joins,
            found=found,
        )

    def _corrections(self, differing: DataFrame, tables: list[Source], as_found: "_AsFound") -> DataFrame:
        """Make a record for each key that differs, with the key's original bytes."""
        frames = self.computed.frames
        topics = frames.rows([(source.name, source.topic) for source in tables], "name string, source string")
        wanted = differing.where("part = 'store'").join(topics, "name")
        wanted = wanted.select(
            f.col("source").alias("topic"), f.col("key").alias("k"), f.col("expected").alias("value")
        )
        came = frames.union([as_found.original_keys(source) for source in tables], "")
        keyed = wanted.join(came, ["topic", "k"], "left")
        return keyed.select("topic", f.coalesce("came", "k").alias("key"), "value")

    def _write(self, corrections: DataFrame, tables: list[Source]) -> Repaired:
        known = self.computed.computation
        inputs = {source.topic: self.cut.inputs[source.topic] for source in tables}
        tails = {source.topic: source.key.tail if source.key else 0 for source in tables}
        forms = {source.topic: (source.value, source.topic_value) for source in tables if source.value is not None}
        name, now = f"{known.application.topology.name}-repair", int(time.time() * 1000)
        sending = Sending(known.open_log, name, inputs, tails, now, forms)
        with spark_errors():
            sent = known.frames.through(corrections.repartition(1), sending, _SENT).collect()
        if late := [f"'{row['topic']}' partition {row['p']}" for row in sent if row["late"]]:
            return Repaired(
                refused=f"topic {', '.join(late)}: records have arrived after the cut, and a correction could replace "
                "a newer one. Stop their producers, wait until the worker is idle, and run again"
            )
        written: Counter[str] = Counter()
        for row in sent:
            written[row["topic"]] += row["n"]
        return Repaired(dict(written))


@dataclass
class _AsFound(Computation):
    """Computes the results of the inputs, but with the tables `found`, by topic, as a worker has them."""

    found: Mapping[str, DataFrame] = field(default_factory=dict)

    def _entry(self, source: TopicRead, timestamp: Timestamp | None = None) -> RecordsEntry:
        entry = super()._entry(source, timestamp)
        return replace(entry, by_time=False, from_state=True) if source.topic in self.found else entry

    def _raw(self, source: Source) -> list[tuple[DataFrame, Reader]]:
        if source.topic not in self.found:
            return super()._raw(source)
        # Partition -1 is for records of files, none of which a worker has rejected.
        return [(self.found[source.topic].withColumns({"p": f.lit(-1), "topic": f.lit(source.topic)}), iter)]

    def original_keys(self, source: Source) -> DataFrame:
        """Return the original bytes of a source's keys, by the identity `k`; of equal keys the last one's bytes."""
        frames = self.frames
        raw = [(frames.through(*read, RAW).withColumn("h", f.col("k")), iter) for read in super()._raw(source)]
        entry = replace(super()._entry(source, source.timestamp), fail=False)
        return (
            facts_of(records_of(frames, entry, raw, frames.maximum()))
            .groupBy("k")
            .agg(f.max_by("h", "s").alias("came"))
            .withColumn("topic", f.lit(source.topic))
        )


@dataclass(frozen=True)
class Sending:
    """Sends corrections in one transaction, which is aborted if other producers have written after `inputs`.

    `forms` has the serdes of values in states and in topics, by topic.
    """

    open_log: OpenLog
    transactional_id: str
    inputs: Mapping[str, Sequence[int]]
    tails: Mapping[str, int]
    time: int
    forms: Mapping[str, tuple[Serde[Any], Serde[Any]]] = field(default_factory=dict)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Send columns `topic key value`. Yields the number of records by partition, and whether others wrote there."""
        with contextlib.closing(self.open_log()) as log, contextlib.closing(log.producer(self.transactional_id)) as to:
            at = {TopicPartition(topic, p): end for topic, ends in self.inputs.items() for p, end in enumerate(ends)}
            ends = log.end_offsets(at)
            late = {tp for tp, start in at.items() if _has_more(log, tp, start, ends[tp])}
            to.begin()
            sent: Counter[TopicPartition] = Counter()
            for batch in batches:
                for topic, keys, values in _by_topic(batch):
                    homes = partitions_of(keys, len(self.inputs[topic]), log.partitioner, self.tails[topic])
                    sent.update(TopicPartition(topic, home) for home in homes)
                    if late.isdisjoint(sent):
                        to.send(topic, homes, keys, self._in_topic(topic, values), [self.time] * len(keys))
            if late.isdisjoint(sent):
                reached = to.flush()  # the ends after all records that other producers have sent meanwhile
                late |= {tp for tp, count in sent.items() if reached[tp] != ends[tp] + count}
            if late.isdisjoint(sent):
                to.commit({}, None)
            else:
                to.abort()
        schema = arrow_schema(_SENT)
        rows = [(tp.topic, tp.partition, count, int(tp in late)) for tp, count in sorted(sent.items())]
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        yield record_batch(columns, schema)

    def _in_topic(self, topic: str, values: list[bytes | None]) -> list[bytes | None]:
        """Encode values of states as values of the topic."""
        stored, written = self.forms.get(topic, (Native, Native))
        if written is stored:
            return values
        return [None if value is None else written.encode(stored.decode(value)) for value in values]


def _named(parts: Iterable[Compared]) -> str:
    return ", ".join(f"{part.what} '{part.name}'" for part in parts)


def _by_topic(batch: Any) -> Iterator[tuple[str, list[bytes], list[bytes | None]]]:
    rows = batch.to_pylist()
    for topic in dict.fromkeys(row["topic"] for row in rows):
        mine = [row for row in rows if row["topic"] == topic]
        yield topic, [row["key"] for row in mine], [row["value"] for row in mine]


def _has_more(log: Log, partition: TopicPartition, start: int, end: int) -> bool:
    """Whether there are records, rather than only markers of transactions, between two offsets.

    An open transaction counts as records.
    """
    while start < end:
        records = log.read(partition, start, end, 1)
        if len(records) or records.next_offset == start:
            return True
        start = records.next_offset
    return False
