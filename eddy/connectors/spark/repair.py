"""Repair: the corrections of a verification as records through the worker's own input, or nothing at all.

A worker takes a record of a table's topic as  old → new,  old being what its table holds, and all that follows by the
difference of the two. So a table of a source can be corrected through its topic, and with it what is derived, where

    found = f(the tables as they are)       then, with the corrections,       found + Δf = f(the inputs)

This is computed before anything is written: f anew, with the tables that differ as they are. Where something else
than follows from them was found, differences would leave it wrong, or make wrong what is right: that is refused, and
so is what differs without a table.

The corrections are one transaction. It is given up where anybody else has written to their partitions behind the
cut, so that none takes the place of a newer record.
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
from eddy.connectors.quiescence import Cut
from eddy.connectors.spark.computation import Computation
from eddy.connectors.spark.frames import told
from eddy.connectors.spark.inputs import RAW, OpenLog, Stretch, facts_of, read_topics
from eddy.connectors.spark.order import tainted
from eddy.connectors.spark.passes import Reader, arrow_schema, record_batch
from eddy.connectors.spark.verdict import Compared, Repaired, Verdict
from eddy.errors import EddyError
from eddy.topology.plan import Node, Source

__all__ = ["Judge", "Repair", "Sending"]

Judge = Callable[[Computation, Collection[Node]], Verdict]
"""Compares what these steps hold and have written with what a computation makes."""

_SENT = "topic string, p int, n long, late int"
_ANEW = "Begin anew: eddy backfill … --replace; or eddy reset …, then eddy run …"


@dataclass
class Repair:
    """One repair, behind a verification of `computation` at `cut` that found differences."""

    computation: Computation
    cut: Cut
    judge: Judge
    stage: Callable[[str], None]

    def run(self, verdict: Verdict, differing: DataFrame) -> Repaired:
        """Write the corrections, or refuse and write nothing. Raises: DataError; LoopLimitError; ConnectorError."""
        names = {part.name for part in verdict.compared if part.what == "store" and part.differing}
        tables = [s for s in self.computation.application.sources if s.kind == "table" and s.name in names]
        if not tables:
            wrong = [part for part in verdict.compared if part.differing]
            return Repaired(
                refused=f"{_named(wrong)}: no table of a source differs, and a record that says what its table "
                f"holds already changes nothing behind it. {_ANEW}"
            )
        as_found = self._as_found(tables)
        if refused := self._does_not_follow(verdict, tables, as_found):
            return Repaired(refused=refused)
        self.stage("write corrections")
        return self._write(self._corrections(differing, tables, as_found), tables)

    def _does_not_follow(self, verdict: Verdict, tables: list[Source], as_found: "_AsFound") -> str:
        """Why the corrections would not lead to what the inputs make; empty where they would."""
        plan = self.computation.application.topology.plan
        behind = tainted(plan, [source.name for source in tables])
        self.stage("compute with the tables as they are")
        try:
            as_found.run()
            judged = self.judge(as_found, behind)
        except EddyError as error:
            error.add_note("repair: raised by what the tables hold as they are; nothing was written")
            raise
        reached = {(part.what, part.name) for part in judged.compared}
        apart = [part for part in verdict.compared if part.differing and (part.what, part.name) not in reached]
        if wrong := [*apart, *(part for part in judged.compared if part.differing)]:
            return (
                f"{_named(wrong)}: not what follows from the tables as they are, so that differences from these "
                f"would not make it right. {_ANEW}"
            )
        names = ", ".join(f"'{source.name}'" for source in tables)
        for what, why in judged.untold.items():
            return f"{what} is behind {names}, and whether it follows cannot be told: {why}. {_ANEW}"
        if any(part.moved for part in judged.compared):
            return (
                f"keys behind {names} have moved on since the cut, and whether they follow cannot be told. Let the "
                "worker come to rest, and run again"
            )
        return ""

    def _as_found(self, tables: list[Source]) -> "_AsFound":
        """The same computation from the tables as their changelogs hold them at the cut."""
        known, found = self.computation, {}
        for source in tables:
            changelog = known.application.circuit.states[source.name].spec.changelog
            assert changelog is not None
            stretches = [Stretch(p, 0, end) for p, end in enumerate(self.cut.outputs[changelog])]
            found[source.topic] = read_topics(known.frames, known.open_log, {changelog: stretches})
        return _AsFound(
            known.application,
            known.frames,
            known.open_log,
            known.ends,
            known.on_error,
            known.files,
            one_task=known.one_task,
            found=found,
        )

    def _corrections(self, differing: DataFrame, tables: list[Source], as_found: "_AsFound") -> DataFrame:
        """A record for each key that differs, with the bytes that it has in its topic."""
        frames = self.computation.frames
        topics = frames.rows([(source.name, source.topic) for source in tables], "name string, source string")
        wanted = differing.where("part = 'store'").join(topics, "name")
        wanted = wanted.select(
            f.col("source").alias("topic"), f.col("key").alias("k"), f.col("expected").alias("value")
        )
        came = frames.union([as_found.keys_as_they_came(source) for source in tables], "")
        keyed = wanted.join(came, ["topic", "k"], "left")
        return keyed.select("topic", f.coalesce("came", "k").alias("key"), "value")

    def _write(self, corrections: DataFrame, tables: list[Source]) -> Repaired:
        known = self.computation
        inputs = {source.topic: self.cut.inputs[source.topic] for source in tables}
        sending = Sending(known.open_log, f"{known.application.topology.name}-repair", inputs, int(time.time() * 1000))
        with told():
            sent = known.frames.through(corrections.repartition(1), sending, _SENT).collect()
        if late := [f"'{row['topic']}' partition {row['p']}" for row in sent if row["late"]]:
            return Repaired(
                refused=f"topic {', '.join(late)}: records have come behind the cut, and a correction could take the "
                "place of a newer one. Stop what produces them, let the worker come to rest, and run again"
            )
        written: Counter[str] = Counter()
        for row in sent:
            written[row["topic"]] += row["n"]
        return Repaired(dict(written))


@dataclass
class _AsFound(Computation):
    """What follows where some tables are as they were found, by topic; all else as the inputs say."""

    found: Mapping[str, DataFrame] = field(default_factory=dict)

    def _raw(self, source: Source) -> list[tuple[DataFrame, Reader]]:
        if source.topic not in self.found:
            return super()._raw(source)
        # Like records of files these are none that a worker has left out.
        return [(self.found[source.topic].withColumns({"p": f.lit(-1), "topic": f.lit(source.topic)}), iter)]

    def keys_as_they_came(self, source: Source) -> DataFrame:
        """By the identity `k` of a key of a source's, how it is written in its topic: the last of equal ones."""
        frames = self.frames
        raw = [(frames.through(*read, RAW).withColumn("h", f.col("k")), iter) for read in super()._raw(source)]
        facts, _ = facts_of(frames, replace(self._entry(source), fail=False), raw, frames.maximum())
        return facts.groupBy("k").agg(f.max_by("h", "s").alias("came")).withColumn("topic", f.lit(source.topic))


@dataclass(frozen=True)
class Sending:
    """Sends corrections in one transaction, which it gives up where others have written behind `inputs`."""

    open_log: OpenLog
    transactional_id: str
    inputs: Mapping[str, Sequence[int]]
    time: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Columns `topic key value` in; out the records of each partition, and whether others came first there."""
        with contextlib.closing(self.open_log()) as log, contextlib.closing(log.producer(self.transactional_id)) as to:
            at = {TopicPartition(topic, p): end for topic, ends in self.inputs.items() for p, end in enumerate(ends)}
            ends = log.end_offsets(at)
            late = {tp for tp, start in at.items() if _has_more(log, tp, start, ends[tp])}
            to.begin()
            sent: Counter[TopicPartition] = Counter()
            for batch in batches:
                for topic, keys, values in _by_topic(batch):
                    homes = [log.partitioner(key, len(self.inputs[topic])) for key in keys]
                    sent.update(TopicPartition(topic, home) for home in homes)
                    if late.isdisjoint(sent):
                        to.send(topic, homes, keys, values, [self.time] * len(keys))
            if late.isdisjoint(sent):
                reached = to.flush()  # behind all that others have sent meanwhile
                late |= {tp for tp, count in sent.items() if reached[tp] != ends[tp] + count}
            if late.isdisjoint(sent):
                to.commit({}, None)
            else:
                to.abort()
        schema = arrow_schema(_SENT)
        rows = [(tp.topic, tp.partition, count, int(tp in late)) for tp, count in sorted(sent.items())]
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        yield record_batch(columns, schema)


def _named(parts: Iterable[Compared]) -> str:
    return ", ".join(f"{part.what} '{part.name}'" for part in parts)


def _by_topic(batch: Any) -> Iterator[tuple[str, list[bytes], list[bytes | None]]]:
    rows = batch.to_pylist()
    for topic in dict.fromkeys(row["topic"] for row in rows):
        mine = [row for row in rows if row["topic"] == topic]
        yield topic, [row["key"] for row in mine], [row["value"] for row in mine]


def _has_more(log: Log, partition: TopicPartition, start: int, end: int) -> bool:
    """Whether anything but ends of transactions lies between two offsets; one that has not ended may."""
    while start < end:
        records = log.read(partition, start, end, 1)
        if len(records) or records.next_offset == start:
            return True
        start = records.next_offset
    return False
