"""Processors: the step, the state stores that it uses, and the source whose event time its rows have."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eddy.operators.operator import Operator
from eddy.operators.processors import child_stream, processing
from eddy.operators.processors.processing import ProcessorSpec
from eddy.operators.processors.task import Factory
from eddy.operators.processors.timed_store import RetainedStore
from eddy.serde import Bytes, Int64, Serde, String
from eddy.topology.plan.compilers import Spark, States
from eddy.topology.plan.global_steps import GlobalTable
from eddy.topology.plan.node import Arrival, Node
from eddy.topology.plan.record_steps import is_source_of_records, record_steps
from eddy.topology.plan.states_kept import StateKept

__all__ = ["ChildStream", "DeclaredStore", "Process", "StoreKind", "clock_of"]

StoreKind = Literal["key-value", "window", "session", "versioned"]


@dataclass(frozen=True, eq=False, kw_only=True)
class DeclaredStore:
    """A state store of a topology. `changelog`: rows survive the loss of the disk; `memory`: no row is on disk.

    In a store of kind "window" or "session", the serde of keys writes windows or sessions; windows are `size_ms` long.
    In a store of kind "versioned", the serde of values also writes the timestamp of the latest version. The rows of
    these three kinds of stores are kept for `retention_ms`.
    """

    name: str
    key: Serde[Any]
    value: Serde[Any]
    changelog: bool = True
    memory: bool = False
    kind: StoreKind = "key-value"
    size_ms: int = 0
    retention_ms: int = 0
    version: Serde[Any] | None = None
    """The serde of a version's value, in a tuple, for kind "versioned"; else None."""

    @property
    def states(self) -> "tuple[DeclaredStore, ...]":
        """The states of the store: itself, its versions, and the times of its rows in their order."""
        found = [self]
        if self.version is not None:
            found.append(self._beside("versions", self.version))
        if self.kind != "key-value":
            found.append(self._beside("times", Bytes))
        return tuple(found)

    def _beside(self, suffix: str, value: Serde[Any]) -> "DeclaredStore":
        return DeclaredStore(
            name=f"{self.name}-{suffix}", key=Bytes, value=value, changelog=self.changelog, memory=self.memory
        )

    @property
    def retained(self) -> RetainedStore:
        """The store's kind, the time for which its rows are kept, and the names of its other states."""
        return RetainedStore(self.kind, self.size_ms, self.retention_ms, tuple(one.name for one in self.states[1:]))

    @property
    def written(self) -> str:
        """The author's name."""
        return self.name

    @property
    def note(self) -> str:
        """The store's name and properties, for `describe()`."""
        notes = [] if self.changelog else ["no changelog: begins empty where its disk is lost"]
        notes += ["in memory"] if self.memory else []
        told = {"window": f"windows of {self.size_ms} ms", "session": "sessions", "versioned": "versions"}
        if self.kind in told:
            notes.append(f"{told[self.kind]}, kept for {self.retention_ms} ms")
        return f"{self.name} ({', '.join(notes)})" if notes else self.name


@dataclass(frozen=True, eq=False, kw_only=True)
class Process(Node):
    """Passes each row to the processor of its partition, which forwards facts.

    `tables` are the global tables that the processors read, each as a whole.
    `sharing` are the earlier steps that use one of its stores; the rows of all these steps need the same partitions.
    """

    linear = False
    crosses = True
    only_by_worker = "its calls depend on the order of records, on the worker's clock and on the author's code"
    keeps = (StateKept("moments", "key-value", "others"),)

    factory: Factory
    stores: tuple[DeclaredStore, ...] = ()
    tables: tuple[GlobalTable, ...] = ()
    keeps_keys: bool = False
    weights: bool = False
    children: tuple[str, ...] = ()
    """The names of the streams to which records are forwarded; empty if the step itself is their only stream."""
    sharing: tuple[Node, ...] = ()

    @property
    def does(self) -> str:
        """Its verb."""
        return "process values" if self.keeps_keys else "process"

    @property
    def rekeys(self) -> bool:  # type: ignore[override]
        """Whether rows may get new keys, which may belong to other partitions."""
        return not self.keeps_keys

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """The step and its input, unless it changes keys; also its input with inputs of steps that share a store."""
        own = [] if self.rekeys else list(super().co_partitioned)
        return own + [(self.inputs[0], other.inputs[0]) for other in self.sharing]

    @property
    def store_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names of the step's state stores."""
        return tuple(state.name for store in self.stores for state in store.states)

    def headline(self, application: str, stores: Sequence[str]) -> str:
        """Return the step with its state stores, and how each store is kept."""
        others = [name for name in stores if name not in self.store_names]
        read = [f"{table.name} (global table)" for table in self.tables]
        return super().headline(application, [*(store.note for store in self.stores), *read, *others])

    @property
    def arrival(self) -> Arrival:
        """The part that depends on the order of arrival: all rows, because the author's function may depend on it."""
        lost = ", ".join(f"'{store.name}'" for store in self.stores if not store.changelog)
        told = f"; what it keeps in {lost}, without a changelog, is lost with the disk" if lost else ""
        return Arrival(f"a processor: {self.only_by_worker}{told}")

    def operator(self, states: States) -> Operator:
        """Return the operator that runs the processors, with their stores."""
        (source,) = self.inputs
        rows = states.spec(source, f"{self.name}-moments", "key-value", Int64)
        maps = {one.name: states.state_store(source, one) for store in self.stores for one in store.states}
        retained = {store.name: store.retained for store in self.stores if store.kind != "key-value"}
        tables = {table.name: states.global_rows(table) for table in self.tables}
        clock, why = clock_of(source)
        spec = ProcessorSpec(
            states.application,
            self.name,
            self.factory,
            (clock.user_topic or "") if clock else "",
            why,
            self.keeps_keys,
            self.weights,
            retained,
            self.children,
        )
        moments = states.state_store(source, DeclaredStore(name=rows.name, key=String, value=Int64))
        count, ownership = rows.partitions, states.ownership
        return processing.Process(spec, maps, moments, rows, lambda: ownership.of(count), tables)

    def on_spark(self, spark: Spark) -> None:
        """Mark the step as computed only by a worker, and not on Spark; `arrival` has the reason."""
        spark.by_a_worker(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class ChildStream(Node):
    """Keeps the records that processors forward to this child, and the records that they forward to all children."""

    keeps_records = True
    drops = True

    child: str

    @property
    def does(self) -> str:
        """Its kind."""
        return "child"

    def operator(self, states: States) -> Operator:
        """Return the operator that selects the child's records."""
        return child_stream.ChildStream(self.name, self.child)

    def on_spark(self, spark: Spark) -> None:
        """Mark the step as computed only by a worker, because processors do not run on Spark."""
        spark.by_a_worker(self)


def clock_of(facts: Node) -> tuple[Node | None, str]:
    """Return the source whose event time the rows have; or None, and the reason why there is no such source."""
    sources = []
    for node in record_steps(facts):
        if node.role == "pattern":
            return None, (
                f"step '{node.name}' reads topics by a pattern, and event time is the time of one; one source is "
                "needed. Name the topic, or use 'wall clock'"
            )
        if is_source_of_records(node):
            sources.append(node)
        elif node.role == "exchange" or node.rekeys:
            return None, (
                f"step '{node.name}' moves records to other partitions, and event time is the time of a record's "
                "source partition; records where their source has them are needed. Process them before, or "
                "use 'wall clock'"
            )
        elif node.kind != "stream" or not node.keeps_records:
            return None, (
                f"step '{node.name}' makes rows that are not records of a source, and event time is the time of a "
                "source; a stream of records is needed. Process the source's stream, or use 'wall clock'"
            )
    if len(sources) == 1:
        return sources[0], ""
    topics = ", ".join(sorted(f"'{source.user_topic}'" for source in sources))
    return None, (
        f"the records come from several topics, {topics}, and event time is the time of one; one source is needed. "
        "Process each topic, with one store for both, or use 'wall clock'"
    )
