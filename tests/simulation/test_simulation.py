"""Seeds of `world.py`, and proof that it takes the same turns again and can fail.

A seed that fails is printed with its trace, and replayed by `python -m tests.simulation SEED`.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.local import group as local_group
from eddy.connectors.log import Position, TopicPartition
from eddy.operators.aggregate import Aggregate
from eddy.operators.batch import Batch
from eddy.operators.circuit import Circuit
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside
from eddy.operators.exchange import Gate
from eddy.operators.processors import processing
from eddy.operators.valid_rows import ValidRows
from eddy.operators.waves.quarantine import Quarantine
from eddy.operators.waves.withheld import Withheld
from eddy.operators.windows import deduplicate
from eddy.operators.windows.frontier import Marked, Marks
from eddy.operators.windows.windowed_fold import WindowedFold
from eddy.runtime import changelog_replay, provenance, quiescence
from eddy.runtime import positions as ledger
from eddy.runtime.decoding import Decoder
from eddy.runtime.epoch import Epoch
from eddy.runtime.internal_topics import InternalTopics
from eddy.runtime.isolation import Part
from eddy.runtime.lifecycle import TRANSITIONS, Event, Lifecycle, WorkerState
from eddy.runtime.own_positions import OwnPositions
from eddy.runtime.positions import EpochEntry, Positions
from eddy.runtime.quiescence import Counters
from eddy.runtime.shares import Share
from eddy.state.partitioned_map import MapPartition
from eddy.state.store import Store
from eddy.topology.plan import joins_as_of
from tests.seeds import in_turn, of_today
from tests.simulation.programs import PROGRAMS
from tests.simulation.world import FATES, STEPS, World
from tests.torture.planted import changes_written_early

CHUNK, CHUNKS = 50, 20
"""So many seeds a test, and so many tests in the long form."""
TODAY = 100
"""How many seeds each day tries besides."""
COVERED_WITHIN = 300
"""Every transition of a worker's states is taken within so many seeds."""
COVERING = [64, 96, 17, 44, 1]
"""Seeds that are tried first, since they take all of them; no more than a shorter way."""
PLANTED_WITHIN = 500
"""A planted bug is found within so many seeds."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Aborts are logged by the thousand."""
    with caplog.at_level("ERROR", logger="eddy.worker"):
        yield


def chunks() -> Iterator[Any]:
    """Today's seeds; the other chunks in the long form. The first chunk has a test of its own."""
    for first in of_today(TODAY)[::CHUNK]:
        yield pytest.param(first, id=f"from-{first}")
    for first in range(CHUNK, CHUNK * CHUNKS, CHUNK):
        yield pytest.param(first, id=f"from-{first}", marks=pytest.mark.long)


def lived(seed: int) -> World:
    """A world that has kept every invariant."""
    world = World(seed)
    try:
        return world.run()
    except BaseException as error:
        trace = "\n".join(world.trace)
        pytest.fail(f"{trace}\nseed {seed}: {error!r}\nreplay: python -m tests.simulation {seed}")


@pytest.mark.parametrize("seed", [73994820])
def test_seeds_that_have_failed(seed: int) -> None:
    """Messages of one partition are read behind those of another one, so that two reviews overlap."""
    lived(seed)


@pytest.mark.parametrize("first", [*chunks()])
def test_every_invariant_holds_whatever_goes_wrong(first: int) -> None:
    for seed in range(first, first + CHUNK):
        lived(seed)


def test_every_invariant_holds_and_the_seeds_reach_every_program_and_every_fault() -> None:
    worlds = [lived(seed) for seed in range(CHUNK)]
    assert {world.program.name for world in worlds} == {program.name for program in PROGRAMS}
    traces = "\n".join(line for world in worlds for line in world.trace)
    for what in [
        *FATES,
        "is thrown out",
        "dies between",
        "leaves",
        "an older copy",
        "compact",
        "meddling: forget",
        "meddling: reset",
        "meddling: stranger",
        "aborted",
        "rocksdb=True",
        "skip",
        "dead-letter",
    ]:
        assert what in traces, f"no seed of the first {CHUNK} has '{what}'"
    assert sum(world.witness.cuts for world in worlds) > CHUNK
    assert sum(world.witness.exchanged for world in worlds) > CHUNK


def test_workers_take_every_transition_of_the_table() -> None:
    missing = {(state, event) for state, events in TRANSITIONS.items() for event in events}
    for seed in (*COVERING, *range(COVERED_WITHIN)):
        missing -= World(seed).run().transitions
        if not missing:
            return
    pytest.fail(f"not taken by {COVERED_WITHIN} seeds: {sorted(missing)}")


def test_the_same_seed_takes_the_same_turns() -> None:
    for seed in range(8):
        assert World(seed).run().digest() == World(seed).run().digest()


def test_the_same_seed_takes_the_same_turns_however_strings_are_hashed() -> None:
    program = "from tests.simulation.world import World; print(*(World(seed).run().digest() for seed in range(8)))"
    digests = set()
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        root = Path(__file__).parents[2]
        done = subprocess.run([sys.executable, "-c", program], env=environment, cwd=root, capture_output=True)
        digests.add(done.stdout)
        assert done.returncode == 0, done.stderr.decode()
    assert len(digests) == 1


def test_steps_are_all_those_of_an_epoch() -> None:
    seen: list[str] = []
    program = PROGRAMS[0]
    with closing(LocalLog(None)) as log:
        eddy.create_topics(program.topology(), log)
        with closing(eddy.Worker(program.topology(), log, observe=seen.append)) as worker:
            worker.run_until_idle()
            seen.clear()
            producer = log.producer(None)
            producer.begin()
            producer.send("nodes", 0, [b"a"], [b"b"], [0])
            producer.commit({}, None)
            worker.run_until_idle()
    assert seen[: len(STEPS)] == STEPS


# Planted bugs: each is found, or the simulation proves nothing

Plant = Callable[[pytest.MonkeyPatch], None]


def take_undone_work_as_done(patch: pytest.MonkeyPatch) -> None:
    """A rollback that commits."""
    patch.setattr(Circuit, "rollback", Circuit.commit)


def stay_after_an_abort(patch: pytest.MonkeyPatch) -> None:  # private: planted
    """No rewind: the consumer goes on behind the records that were undone."""
    rewind = eddy.Worker._rewind

    def only_at_takeover(worker: eddy.Worker) -> None:
        if sys._getframe(1).f_code.co_name == "_take_over":
            rewind(worker)

    patch.setattr(eddy.Worker, "_rewind", only_at_takeover)


def purge_what_is_only_read(patch: pytest.MonkeyPatch) -> None:
    """Purge up to the ends, not up to what is committed."""

    def purge(internal: InternalTopics, log: LocalLog, group: str) -> dict[object, int]:
        ends = log.end_offsets(ledger.partitions_of(internal.exchanges))
        log.delete_records(ends)
        return dict(ends)

    patch.setattr(InternalTopics, "purge", purge)


def write_the_store_before_the_commit(patch: pytest.MonkeyPatch) -> None:  # private: planted
    """The rows of an epoch are in the store already when its transaction begins."""
    patch.setattr(Circuit, "changes", changes_written_early)


def cut_with_rows_in_loops(patch: pytest.MonkeyPatch) -> None:
    """The counters are ignored where a cut is written."""
    patch.setattr(EpochEntry, "in_loops", 0)


def call_it_done_by_counters_alone(patch: pytest.MonkeyPatch) -> None:
    """Positions are ignored where the end is detected."""

    def by_counters(
        log: LocalLog, group: str, inputs: Iterable[TopicPartition], internal: Iterable[TopicPartition], *_: object
    ) -> dict[TopicPartition, Position] | None:
        committed = log.committed(group, [*inputs, *internal])
        done = not any(counters.under_way for counters in quiescence.tally(committed).values())
        return dict(committed) if done else None

    patch.setattr("eddy.runtime.quiescence.quiescent_at", by_counters)
    patch.setattr("eddy.runtime.positions.quiescent_at", by_counters)


def keep_the_outbox_of_an_undone_epoch(patch: pytest.MonkeyPatch) -> None:
    """Rows for others are sent again with the next epoch."""
    rollback = Circuit.rollback

    def forgetful(circuit: Circuit) -> None:
        kept = [list(gate.outbox) for gate in circuit.gates]
        rollback(circuit)
        for gate, outbox in zip(circuit.gates, kept, strict=True):
            gate.outbox = outbox

    patch.setattr(Circuit, "rollback", forgetful)


def let_zombies_commit(patch: pytest.MonkeyPatch) -> None:
    """The group's generation is not asked at the commit."""
    patch.setattr(local_group.ConsumerGroups, "check", lambda groups, membership, partitions: None)


def restore_nothing(patch: pytest.MonkeyPatch) -> None:
    """A takeover goes on with the store as it is."""
    patch.setattr("eddy.runtime.recovery.restores", lambda *arguments: [])


def keep_memory_after_a_takeover(patch: pytest.MonkeyPatch) -> None:
    """Cells of before the takeover are believed."""
    patch.setattr(Circuit, "forget", lambda circuit: None)


def ignore_an_unknown_commit(patch: pytest.MonkeyPatch) -> None:
    """A commit of which the answer was lost is taken for one that did not happen."""
    on = Lifecycle.on
    patch.setattr(Lifecycle, "on", lambda life, event: on(life, Event.REWOUND if event is Event.LOST else event))


def overtake_rows_on_their_way(patch: pytest.MonkeyPatch) -> None:  # private: planted
    """Own rows go on in memory while earlier ones wait in the topic."""
    patch.setattr(Positions, "draining", lambda self, records: dict.fromkeys(self._exchanges, frozenset()))


def sleep_through_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    """A partition that went to another member and came back is taken for one that never went."""
    refresh = local_group.ConsumerGroups.refresh
    patch.setattr(local_group.ConsumerGroups, "refresh", lambda groups, member: (*refresh(groups, member)[:2], False))


def believe_an_answer_of_before_a_pause(patch: pytest.MonkeyPatch) -> None:  # private: planted
    """Positions are asked for before first offsets: what others purge in between looks as if it were lost."""
    reread = Positions.reread

    def stale_first(ledger: Positions, owned: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        partitions = list(owned)
        log, committed = ledger._log, ledger._log.committed(ledger._group, partitions)

        class Stale:
            def __getattr__(self, name: str) -> Any:
                return getattr(log, name)

            def committed(self, group: str, wanted: object) -> object:
                return committed

        ledger._log = Stale()  # type: ignore[assignment]
        try:
            return reread(ledger, partitions)
        finally:
            ledger._log = log

    patch.setattr(Positions, "reread", stale_first)


def blame_the_next_record(patch: pytest.MonkeyPatch) -> None:
    """A good neighbour is left out as well."""
    found = provenance.records_to_blame

    def neighbours(circuit: Circuit, decoder: Decoder, sinks: Any, part: Part, *others: Any) -> dict[int, Any]:
        blamed = found(circuit, decoder, sinks, part, *others)
        return blamed | {number + 1: blamed[number] for number in blamed if number + 1 < len(part)}

    patch.setattr("eddy.runtime.worker.records_to_blame", neighbours)


def keep_the_parts_of_an_undone_epoch(patch: pytest.MonkeyPatch) -> None:
    """What is in memory is taken in, and then once more as it is polled again after an abort."""
    patch.setitem(TRANSITIONS[WorkerState.ISOLATING], Event.REWOUND, WorkerState.ISOLATING)  # type: ignore[arg-type]


def forget_what_is_set_aside(patch: pytest.MonkeyPatch) -> None:
    """Whoever takes a partition over knows nothing of the keys that are withheld there."""
    patch.setattr(Circuit, "recall", lambda circuit, memories: None)


def set_aside_what_is_undone(patch: pytest.MonkeyPatch) -> None:
    """Rows of an epoch that was undone are set aside with those of the next one."""
    patch.setattr(Aside, "rollback", lambda aside: None)


def set_retractions_aside_as_rows(patch: pytest.MonkeyPatch) -> None:  # private: planted
    """The weight of a row that goes is lost: it never finds its row."""
    take = Aside.take

    def positive(aside: Aside, row: Any, weight: int, error: Exception, time: int = 0) -> None:
        take(aside, row, abs(weight), error, time)

    patch.setattr(Aside, "take", positive)
    patch.setattr(Aside, "add_weight", lambda aside, row, weight: aside._add(row, abs(weight), "", 0, not aside.facts))


def leave_a_withheld_key_in_its_table(patch: pytest.MonkeyPatch) -> None:  # private: planted
    """A group whose value cannot be written keeps its last one."""
    patch.setattr(Aggregate, "_shown", lambda step, aside, key, value: None if value is None else min(value, 2**63 - 1))


def let_held_rows_leave(patch: pytest.MonkeyPatch) -> None:
    """Keys that a cycle reaches keep the rows that they have."""
    patch.setattr(Withheld, "visible", lambda withheld, delta, x: delta)


def overlook_a_mended_cycle(patch: pytest.MonkeyPatch) -> None:  # private: planted
    """Where op makes other rows of held ones, what cycles reach is not searched again."""
    patch.setattr(Quarantine, "_lookups_changed", lambda quarantine, externals: False)


def lose_what_waits_at_an_opened_stop(patch: pytest.MonkeyPatch) -> None:
    """Rows that waited are not taken up again."""
    opened = Withheld.open
    patch.setattr(Withheld, "open", lambda withheld, rows: dict.fromkeys(opened(withheld, rows), 0))


def forget_the_event_time(patch: pytest.MonkeyPatch) -> None:
    """The time of a partition begins anew with a takeover."""
    of = Counters.of
    patch.setattr(Counters, "of", lambda position: msgspec.structs.replace(of(position), event_time=-1))


def call_it_done_while_rows_are_due(patch: pytest.MonkeyPatch) -> None:
    """What a step has left for the next epoch is not counted."""
    patch.setattr(Circuit, "left_due", frozenset())


def believe_positions_that_others_wrote(patch: pytest.MonkeyPatch) -> None:
    """The group's positions are taken, whoever wrote them."""
    believed = lambda log, group, wanted: OwnPositions(log.committed(group, wanted))  # noqa: E731
    patch.setattr("eddy.runtime.positions.own_positions", believed)


def call_it_done_by_positions_that_others_wrote(patch: pytest.MonkeyPatch) -> None:
    """A stranger that has read everything makes it look as if it were processed."""
    believed = lambda log, group, wanted: OwnPositions(log.committed(group, wanted))  # noqa: E731
    patch.setattr("eddy.runtime.quiescence.own_positions", believed)


def own_what_a_stranger_has_a_part_of(patch: pytest.MonkeyPatch) -> None:
    """A worker takes a partition number for its own if it has that partition of one topic."""

    def any_topic(assignment: frozenset[TopicPartition], counts: Mapping[str, int]) -> Share:
        numbers = {n: frozenset(tp.partition for tp in assignment if counts[tp.topic] == n) for n in counts.values()}
        return Share(numbers, assignment)

    patch.setattr(Share, "of", staticmethod(any_topic))


def keep_what_a_failed_record_wrote(patch: pytest.MonkeyPatch) -> None:
    """A processor's stores have the changes of a record on which it has raised."""
    patch.setattr(MapPartition, "take_back", MapPartition.accept)


def look_after_the_last_record(patch: pytest.MonkeyPatch) -> None:
    """Punctuations by event time wait for the end of their epoch."""
    patch.setattr(processing._Run, "_punctuate", lambda run, partition, place: None)  # private: a planted bug


def sleep_through_a_moment(patch: pytest.MonkeyPatch) -> None:
    """A processor is stepped with records alone: who moved event time, and was filtered out, calls nothing."""
    patch.setattr(processing.Process, "wakes_at", lambda step: None)


def send_marks_before_rows(patch: pytest.MonkeyPatch) -> None:  # private: planted
    """Marks are earlier in their transaction than the rows that were read before them."""
    send = Epoch._send_exchanges

    def marks_first(epoch: Epoch, *arguments: Any) -> dict[str, int]:
        circuit = epoch._parts.circuit
        circuit.gates = sorted(circuit.gates, key=lambda gate: all(out.iteration >= 0 for out in gate.outbox))
        return send(epoch, *arguments)

    patch.setattr(Epoch, "_send_exchanges", marks_first)


def overtake_rows_by_marks(patch: pytest.MonkeyPatch) -> None:
    """A mark for an own partition is kept at once, while earlier rows are still in its topic."""

    class Undrained(Gate):
        draining = frozenset()  # type: ignore[assignment]

    step = Marks.step

    def hasty(marks: Marks, context: Context, *inputs: Batch) -> Batch:
        marks.gate.__class__ = Undrained
        return step(marks, context, *inputs)

    patch.setattr(Marks, "step", hasty)


def restore_nothing_of(ending: str, patch: pytest.MonkeyPatch) -> None:
    """A takeover begins without the states whose names have this ending."""
    planned = changelog_replay.restores

    def without_them(log: Any, store: Any, application: str, states: Any, *others: Any) -> Any:
        return planned(log, store, application, [s for s in states if not s.spec.name.endswith(ending)], *others)

    patch.setattr("eddy.runtime.recovery.restores", without_them)


def forget_marks_in_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    """A takeover begins without the marks of its partitions."""
    restore_nothing_of("-marks", patch)


def forget_who_waits_in_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    """A takeover begins without the records that wait for a value of their time."""
    restore_nothing_of("-waiting", patch)


def forget_moments_in_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    """A takeover begins without the next moments of rows that are there for a while."""
    restore_nothing_of("-moments", patch)


def forget_who_is_alone_in_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    """A takeover begins without what tells which records of a join have no match."""
    restore_nothing_of("-unmatched", patch)


def forget_sessions_in_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    """A takeover begins without the spans of open sessions: no record joins one."""
    restore_nothing_of("-open", patch)


def forget_merges_in_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    """A takeover has the spans of a key's sessions as they were before some of them merged."""
    step = changelog_replay.Restore.step

    def unmerged(restore: changelog_replay.Restore, log: LocalLog, store: Store, max_records: int) -> int:
        read = step(restore, log, store, max_records)
        if restore.done and restore.spec.name.endswith("-open"):
            prefix, decode = restore.spec.prefix(restore.partition.partition), restore.spec.value.decode
            records, before = log.read(restore.partition, 0, restore.end, 1 << 30), dict[Any, Any]()
            for key, value in zip(records.keys, records.values, strict=True):
                olds, news = (decode(spans) if spans else () for spans in (before.get(key), value))
                if not any(sum(start <= old[0] and old[1] <= end for old in olds) > 1 for start, end in news):
                    before[key] = value
            store.write([(prefix + key, value) for key, value in before.items()])
        return read

    patch.setattr(changelog_replay.Restore, "step", unmerged)


def remove_versions_by_one_frontier(patch: pytest.MonkeyPatch) -> None:
    """A value is removed once the next one is final, though a record may still ask for it."""
    patch.setattr(joins_as_of, "Slowest", lambda asking, answering: answering)


def forget_what_has_passed_in_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    """A takeover begins without the moments of the records that have passed."""
    restore_nothing_of("-passed", patch)


def believe_a_tie(patch: pytest.MonkeyPatch) -> None:
    """The order of a record is taken as known once all partitions have its time, though one before it may have more."""
    patch.setattr(deduplicate, "is_known", lambda order, up_to: order[:8] <= up_to[:8])


def wait_for_a_record_of_its_own(patch: pytest.MonkeyPatch) -> None:
    """The rows of a partition begin and end when one of their keys changes, not as its time goes on."""
    patch.setattr(ValidRows, "wakes_at", lambda step: None)


def close_by_own_partitions(patch: pytest.MonkeyPatch) -> None:  # private: planted
    """A window closes when the partitions that its own worker reads have passed it."""
    step, at = Marks.step, Marked.at
    gates: dict[Any, Gate] = {}

    def noting(marks: Marks, context: Context, *inputs: Batch) -> Batch:
        gates[marks.marks] = marks.gate
        return step(marks, context, *inputs)

    def own(marked: Marked, context: Context, partition: int) -> int:
        gate = gates.get(marked._marks)
        sources = [source for source in marked._sources if gate is None or source[1] in gate.owned]
        return at(Marked(marked._marks, sources), context, partition)

    patch.setattr(Marks, "step", noting)
    patch.setattr(Marked, "at", own)


def withhold_closed_windows(patch: pytest.MonkeyPatch) -> None:  # private: planted
    """A window that closes while its sum cannot be written is remembered for good."""
    remove = WindowedFold._remove
    patch.setattr(WindowedFold, "_remove", lambda step, due, aside: remove(step, due, None))


FOUND_BY: dict[Plant, list[int]] = {
    forget_the_event_time: [39],
    call_it_done_while_rows_are_due: [109],
    overtake_rows_on_their_way: [554],
    keep_the_parts_of_an_undone_epoch: [276],
    ignore_an_unknown_commit: [25],
    sleep_through_a_rebalance: [95],
    believe_an_answer_of_before_a_pause: [131],
    forget_what_is_set_aside: [96],
    set_aside_what_is_undone: [34],
    set_retractions_aside_as_rows: [36],
    leave_a_withheld_key_in_its_table: [34],
    let_held_rows_leave: [32],
    overlook_a_mended_cycle: [46],
    lose_what_waits_at_an_opened_stop: [46],
    believe_positions_that_others_wrote: [6],
    call_it_done_by_positions_that_others_wrote: [86],
    own_what_a_stranger_has_a_part_of: [71],
    keep_what_a_failed_record_wrote: [8],
    look_after_the_last_record: [38],
    sleep_through_a_moment: [328],
    send_marks_before_rows: [237],
    overtake_rows_by_marks: [227],
    forget_marks_in_a_rebalance: [37],
    close_by_own_partitions: [37],
    withhold_closed_windows: [277],
    forget_who_waits_in_a_rebalance: [10_005],
    forget_moments_in_a_rebalance: [10_016],
    forget_who_is_alone_in_a_rebalance: [10_014],
    forget_sessions_in_a_rebalance: [10_002],
    forget_merges_in_a_rebalance: [10_922],
    remove_versions_by_one_frontier: [10_005],
    forget_what_has_passed_in_a_rebalance: [10_003],
    believe_a_tie: [10_003],
    wait_for_a_record_of_its_own: [10_166],
}
"""Seeds that are tried first, where the first ones do not find a bug; no more than a shorter way."""


PLANTED = [
    take_undone_work_as_done,
    stay_after_an_abort,
    purge_what_is_only_read,
    write_the_store_before_the_commit,
    cut_with_rows_in_loops,
    call_it_done_by_counters_alone,
    keep_the_outbox_of_an_undone_epoch,
    let_zombies_commit,
    restore_nothing,
    keep_memory_after_a_takeover,
    ignore_an_unknown_commit,
    overtake_rows_on_their_way,
    sleep_through_a_rebalance,
    believe_an_answer_of_before_a_pause,
    blame_the_next_record,
    keep_the_parts_of_an_undone_epoch,
    forget_what_is_set_aside,
    set_aside_what_is_undone,
    set_retractions_aside_as_rows,
    leave_a_withheld_key_in_its_table,
    let_held_rows_leave,
    overlook_a_mended_cycle,
    lose_what_waits_at_an_opened_stop,
    forget_the_event_time,
    call_it_done_while_rows_are_due,
    believe_positions_that_others_wrote,
    call_it_done_by_positions_that_others_wrote,
    own_what_a_stranger_has_a_part_of,
    keep_what_a_failed_record_wrote,
    look_after_the_last_record,
    sleep_through_a_moment,
    send_marks_before_rows,
    overtake_rows_by_marks,
    forget_marks_in_a_rebalance,
    close_by_own_partitions,
    withhold_closed_windows,
    forget_who_waits_in_a_rebalance,
    forget_moments_in_a_rebalance,
    forget_who_is_alone_in_a_rebalance,
    forget_sessions_in_a_rebalance,
    forget_merges_in_a_rebalance,
    remove_versions_by_one_frontier,
    forget_what_has_passed_in_a_rebalance,
    believe_a_tie,
    wait_for_a_record_of_its_own,
]


@pytest.mark.parametrize("plant", [*in_turn(PLANTED, 3)], ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in (*FOUND_BY.get(plant, ()), *range(PLANTED_WITHIN)):
        try:
            World(seed).run()
        except (AssertionError, eddy.EddyError):
            return
    pytest.fail(f"{plant.__name__}: not found by {PLANTED_WITHIN} seeds")
