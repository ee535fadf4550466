"""The table of a worker's states: its diagram, its refusals, and what a worker does in each state."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.errors import InvariantError
from eddy.runtime.lifecycle import TRANSITIONS, Event, Lifecycle, WorkerState
from eddy.state.memory import MemoryStore

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "ARCHITECTURE.md"


def diagram() -> str:
    """The table as a Mermaid state diagram: an arrow for each pair of states, with its events."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {WorkerState.JOINING}"]
    for left, events in TRANSITIONS.items():
        for entered in dict.fromkeys(events.values()):
            names = ", ".join(event for event, state in events.items() if state is entered)
            lines.append(f"    {left} --> {entered}: {names}")
    return "\n".join([*lines, f"    {WorkerState.CLOSING} --> [*]", "```"])


def test_diagram_of_the_architecture_is_that_of_the_table() -> None:
    assert diagram() in ARCHITECTURE.read_text(encoding="utf-8"), f"docs/ARCHITECTURE.md has to have:\n{diagram()}"


def test_table_has_every_state_and_event_and_each_state_is_reached() -> None:
    assert set(TRANSITIONS) == set(WorkerState)
    assert {event for events in TRANSITIONS.values() for event in events} == set(Event)
    assert {state for events in TRANSITIONS.values() for state in events.values()} == set(WorkerState)


@pytest.mark.parametrize("state", WorkerState)
def test_event_that_a_state_does_not_expect_is_refused_by_an_error_that_names_both(state: WorkerState) -> None:
    for event in set(Event) - set(TRANSITIONS[state]):
        life = Lifecycle("worker '0'")
        life.state = state
        with pytest.raises(InvariantError) as caught:
            life.on(event)
        assert str(caught.value) == f"worker '0': event '{event}' is not expected in state '{state}'"
        assert life.state is state


def copying() -> eddy.Topology:
    topology = eddy.Topology("copy")
    words = topology.table("words", key=eddy.String, value=eddy.String)
    words.map_values(lambda word: word.upper() if word != "bad" else 1 / 0).to_stream().to("copied")
    return topology


@pytest.fixture
def log() -> Iterator[LocalLog]:
    with closing(LocalLog(None)) as made:
        made.create_topics([TopicSpec("words", 1), TopicSpec("copied", 1)])
        yield made


def write(log: LocalLog, *words: str) -> None:
    with closing(log.producer(None)) as producer:
        producer.begin()
        keys = [f"k{index}".encode() for index in range(len(words))]
        producer.send("words", 0, keys, [word.encode() for word in words], [0] * len(words))
        producer.commit({}, None)


def copied(log: LocalLog) -> list[bytes | None]:
    where = TopicPartition("copied", 0)
    return list(log.read(where, 0, log.end_offsets([where])[where], 100).values)


def states(worker: eddy.Worker) -> list[WorkerState]:
    """The states that a worker enters from now on."""
    entered: list[WorkerState] = []
    worker.lifecycle.observe = lambda left, event, state: entered.append(state)
    return entered


def test_worker_joins_restores_and_processes(log: LocalLog) -> None:
    write(log, "a", "b", "c")
    with closing(eddy.Worker(copying(), log)) as first:
        first.run_until_idle()
    with closing(eddy.Worker(copying(), log, eddy.Config(restore_records=1), store=MemoryStore())) as worker:
        went = states(worker)
        assert worker.state is WorkerState.JOINING
        worker.step()
        assert worker.state is WorkerState.RESTORING
        while worker.restoring:
            worker.step()
        assert went == [WorkerState.JOINING, WorkerState.RESTORING, WorkerState.PROCESSING]
    assert worker.state is WorkerState.CLOSING


def test_worker_without_partitions_waits_for_them_in_processing_nothing(log: LocalLog) -> None:
    with closing(eddy.Worker(copying(), log, member="a")) as first, closing(eddy.Worker(copying(), log)) as other:
        for _ in range(3):
            first.step()
            other.step()
        assert {worker.state for worker in (first, other)} <= {WorkerState.JOINING, WorkerState.PROCESSING}
        write(log, "a")
        assert sum(first.step() + other.step() for _ in range(5)) == 1
    assert copied(log) == [b"A"]


def test_record_that_fails_is_isolated_and_the_others_are_processed(log: LocalLog) -> None:
    with closing(eddy.Worker(copying(), log, eddy.Config(on_error="skip"))) as worker:
        worker.run_until_idle()
        went = states(worker)
        write(log, "a", "bad", "c")
        worker.run_until_idle()
        assert set(went) == {WorkerState.ISOLATING, WorkerState.PROCESSING}
        assert went[-1] is WorkerState.PROCESSING
    assert copied(log) == [b"A", b"C"]


def test_worker_that_failed_joins_again_when_it_is_stepped_again(log: LocalLog) -> None:
    with closing(eddy.Worker(copying(), log)) as worker:
        write(log, "bad")
        with pytest.raises(eddy.DataError, match="division by zero"):
            worker.run_until_idle()
        assert worker.state is WorkerState.FAILED
        went = states(worker)
        write(log, "good")  # of the same key
        worker.run_until_idle()
        assert went[:3] == [WorkerState.JOINING, WorkerState.RESTORING, WorkerState.PROCESSING]
    assert copied(log) == [b"GOOD"]


def test_interrupt_in_an_epoch_loses_nothing(log: LocalLog) -> None:
    def interrupt(step: str) -> None:
        if step in interrupts:
            interrupts.remove(step)
            raise KeyboardInterrupt

    interrupts = ["changelogs sent", "committed"]
    with closing(eddy.Worker(copying(), log, observe=interrupt)) as worker:
        write(log, "a", "b")
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                worker.run_until_idle()
            assert worker.state is WorkerState.JOINING
        worker.run_until_idle()
        assert worker.store("words").all() == {"k0": "a", "k1": "b"}
    assert copied(log) == [b"A", b"B"]


def test_closed_worker_takes_no_step_and_may_be_closed_again(log: LocalLog) -> None:
    worker = eddy.Worker(copying(), log)
    worker.close()
    worker.close()
    with pytest.raises(InvariantError, match="event 'stepped' is not expected in state 'closing'"):
        worker.step()
