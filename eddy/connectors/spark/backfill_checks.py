"""The checks before a backfill writes anything. Each check refuses a backfill whose results no worker could use.

`BackfillChecks.begun` lets an unfinished backfill continue, if it has the same plan, files and topics.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from pyspark.sql import SparkSession

from eddy.connectors.log import Log, TopicPartition
from eddy.connectors.spark.compacted_inputs import compacted_below
from eddy.connectors.spark.computation import Application, Computation, Computed, last_cut
from eddy.connectors.spark.files.history import described, options, unlike
from eddy.connectors.spark.frames import Frames
from eddy.connectors.spark.inputs import OffsetRange, OpenLog
from eddy.connectors.spark.session import check_one_task
from eddy.errors import ConfigurationError
from eddy.runtime.metadata import FilesRead, Unfinished
from eddy.runtime.own_positions import committed
from eddy.runtime.quiescence import Cut
from eddy.topology.compiler.circuit_compiler import sink_serdes
from eddy.topology.plan.expiring_tables import ExpiringTable
from eddy.topology.plan.valid_relations import ValidRows
from eddy.topology.topology import Topology

__all__ = ["BackfillChecks", "check_steps", "plan_lines"]

_REPLAY = "Let the worker replay the input: eddy run …"


def check_steps(topology: Topology, spark: SparkSession, one_task: int) -> None:
    """Refuse a plan that Spark cannot compute, or too large a part for one task. Raises: ConfigurationError."""
    check_one_task(spark, one_task)
    plan = topology.plan
    as_of_offsets = {*plan.global_tables(), *plan.global_joins()}
    for node in plan.nodes:
        if node.only_by_worker and node not in as_of_offsets:
            raise ConfigurationError(
                f"backfill of application '{topology.name}': a worker alone computes step '{node.name}': "
                f"{node.only_by_worker}. Let a worker read the input from its beginning: eddy run …"
            )


def plan_lines(application: Application) -> list[str]:
    """Return the plan identity, and lines for the expiry of rows and for global tables.

    Expiry and global tables may change between two runs of a worker, but not within a backfill.
    """
    tables = (node for node in application.topology.plan.nodes if isinstance(node, ExpiringTable))
    expiries = [f"expiry {node.name} {node.expiry.after_ms} {node.expiry.clock}" for node in tables]
    valid = (node for node in application.topology.plan.nodes if isinstance(node, ValidRows))
    expiries += [f"global table {node.name} {node.topic}" for node in application.topology.plan.global_tables()]
    return application.lines + expiries + [f"valid {node.name} {node.clock}" for node in valid]


@dataclass(frozen=True)
class BackfillChecks:
    """The checks of one backfill into a log. With `replace` the backfill first deletes existing state."""

    application: Application
    replace: bool
    retained_only: bool

    @property
    def where(self) -> str:
        """The beginning of each message."""
        return f"backfill of application '{self.application.topology.name}'"

    @property
    def log(self) -> Log:
        """The log of the application."""
        return self.application.log

    def idle(self) -> None:
        """Refuse while a worker runs. Raises: ConfigurationError."""
        if self.log.groups().get(self.application.topology.name):
            raise ConfigurationError(
                f"{self.where}: a worker of it runs on this log; it has to be stopped. Stop eddy run"
            )

    def finished(self, files: Mapping[str, FilesRead]) -> Cut | None:
        """Return the cut of an earlier, finished run of this plan and these files; None if there is no such run.

        None also if a worker has continued since.
        """
        application, metadata, internal = self.application, self.application.metadata, self.application.internal
        finished = metadata.finished
        if self.replace or finished is None or metadata.plan != application.lines or not _same(finished.files, files):
            return None
        positions = committed(self.log, application.topology.name, application.inputs())
        at = {(tp.topic, tp.partition): position.offset for tp, position in positions.items()}
        if at != {(topic, p): end for topic, ends in finished.inputs.items() for p, end in enumerate(ends)}:
            return None
        if (cut := last_cut(self.log, internal.cuts)) is None or internal.make(self.log, create=False):
            return None
        return msgspec.structs.replace(cut, inputs=finished.inputs)

    def begun(self, files: Mapping[str, FilesRead]) -> Unfinished | None:
        """Return the record of an unfinished backfill; None if there is none.

        Raises: ConfigurationError if it has another plan or other files, or if the application has state.
        """
        begun = self.application.metadata.backfill
        if self.replace:
            self._check_replaced(files)
            return None
        if begun is None:
            self._check_anew()
            return None
        if begun.plan != plan_lines(self.application):
            raise ConfigurationError(
                f"{self.where}: an unfinished backfill was made with another topology. Restore that topology to "
                "continue it, or begin anew: --replace"
            )
        if begun.files is not None and not _same(begun.files, files):
            raise ConfigurationError(
                f"{self.where}: one has begun from other files: {described(begun.files) or 'none'}; those given now "
                f"are {described(files) or 'none'}. Give the same files to continue it: "
                f"{options(begun.files) or 'no --input'}; or begin anew: --replace"
            )
        return begun

    def _check_anew(self) -> None:
        application, log, found = self.application, self.log, []
        if log.committed(application.topology.name, application.inputs()):
            found.append("positions")
        if application.metadata.plan is not None:
            found.append("a plan")
        there = log.topics(application.internal.changelogs)
        ends = log.end_offsets(TopicPartition(topic, p) for topic in there for p in range(there[topic].partitions))
        if any(ends.values()):
            found.append("changelogs")
        if found:
            raise ConfigurationError(
                f"{self.where}: the application has run on this log and has {', '.join(found)}; a backfill needs an "
                "application without state. Delete its states and begin anew: --replace; outputs remain, "
                "except for keys that are no longer in a table"
            )
        application.internal.make(log, create=False)

    def _check_replaced(self, files: Mapping[str, FilesRead]) -> None:
        """Refuse to delete rows that an earlier backfill read from files, unless the files are given again."""
        metadata = self.application.metadata
        before = metadata.files if metadata.backfill is None else metadata.backfill.files or {}
        missing = {topic: read for topic, read in before.items() if topic not in files}
        if missing and not self.retained_only:
            raise ConfigurationError(
                f"{self.where}: the states that are to be replaced were made from files as well: "
                f"{described(missing)}; without them the rows that are only in files would be lost. Give them: "
                f"{options(missing)}; or begin with the records in the topics: --retained-only"
            )

    def topics(self, computation: Computation) -> None:
        """Refuse inputs that lack records, and outputs that Spark cannot write, or that have records already.

        Raises: ConfigurationError.
        """
        computation.check()
        application, plan = self.application, self.application.topology.plan
        read = {source.topic for source in (*plan.sources(), *plan.global_tables())}
        for sink, serdes in sink_serdes(plan, application.counts).items():
            where = f"{self.where}: topic '{sink.topic}'"
            if sink.partitioner is not None:
                raise ConfigurationError(f"{where} is written with partitioner=, and Spark places by keys. {_REPLAY}")
            if any(serde.id_end for serde in serdes):
                raise ConfigurationError(
                    f"{where} is written with the ids of schemas in headers, and Spark writes them before the data. "
                    f"{_REPLAY}"
                )
            if sink.kind == "stream" and self.held_before(sink.topic):
                begun = application.metadata.backfill is not None
                raise ConfigurationError(
                    f"{where} holds records already, and the records of a stream would be written twice. "
                    f"{'Go on with the backfill that has begun: without --replace; or delete' if begun else 'Delete'} "
                    "and create the topic, or let the worker replay the input: eddy run …"
                )
            if sink.topic in read and self.held_before(sink.topic):
                raise ConfigurationError(
                    f"{where} is an input and an output, and holds records already; those whose keys are not in the "
                    f"output would be deleted. {_REPLAY}"
                )
        restored = {state.spec.source or "" for state in application.circuit.states.values()}
        if both := sorted(restored & set(computation.histories)):
            raise ConfigurationError(
                f"{self.where}: files for '{both[0]}', whose table is restored from the topic itself, since that is "
                "compacted; rows that only the files hold would be lost. Produce them into the topic: "
                f"eddy produce {both[0]} …"
            )

    def compacted(self, frames: Frames, open_log: OpenLog, pinned: Cut) -> None:
        """Refuse to continue if inputs may have lost records since the backfill began, because rows would differ.

        Raises: ConfigurationError.
        """
        read = [*self.application.sources, *self.application.topology.plan.global_tables()]
        ends = pinned.tables | pinned.inputs
        for topic, why in compacted_below(frames, self.log, open_log, read, ends, None).items():
            raise ConfigurationError(
                f"{self.where}: topic '{topic}' may have lost records since the backfill began, so that what it has "
                f"written does not fit: {why}. Begin anew: --replace"
            )

    def made_anew(self, topic_ids: Mapping[str, int]) -> None:
        """Refuse to continue if an input was deleted and made anew meanwhile. Raises: ConfigurationError."""
        now = self.log.topic_ids(topic_ids)()
        if anew := sorted(topic for topic, id_ in topic_ids.items() if now.get(topic, id_) != id_):
            raise ConfigurationError(
                f"{self.where}: topic '{anew[0]}' was deleted and made anew since the backfill began, so that what it "
                "has written does not fit. Begin anew: --replace"
            )

    def states(self, computed: Computed) -> None:
        """Refuse results that lack the rows of a state. Raises: ConfigurationError."""
        undetermined = computed.results.undetermined
        for name, state in self.application.circuit.states.items():
            if state.spec.changelog is not None and name not in computed.results.states:
                raise ConfigurationError(
                    f"{self.where}: state '{name}' cannot be made on Spark: "
                    f"{undetermined.get(name, 'nothing computes it')}. {_REPLAY}"
                )

    def held_before(self, topic: str) -> list[OffsetRange]:
        """Return, for each partition of an output topic, the range of offsets that it had before the backfill began."""
        partitions = [TopicPartition(topic, p) for p in range(self.application.counts[topic])]
        begun = self.application.metadata.backfill
        ends = Cut.by_topic(self.log.end_offsets(partitions)) if begun is None or self.replace else begun.outputs
        begins = self.log.begin_offsets(partitions)
        spans = [OffsetRange(tp.partition, begins[tp], ends[topic][tp.partition]) for tp in partitions]
        return [span for span in spans if span.start < span.end]


def _same(before: Mapping[str, FilesRead], now: Mapping[str, FilesRead]) -> bool:
    """Whether the files `before` and the files `now` have the same rows for the same topics."""
    return before.keys() == now.keys() and not unlike(before, now)
