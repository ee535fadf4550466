"""The faults: what is done to a rig while its input keeps coming. What was done is counted in `rig.faults`.

When a fault returns, workers may be dead: `both` starts them again.
"""

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from eddy.connectors.broker import Broker
from eddy.connectors.log import TopicPartition
from tests.simulation.world import BEFORE_COMMIT, STEPS
from tests.torture.child import STOP
from tests.torture.damage import DAMAGES, keep_copy
from tests.torture.rig import STOPPED, TRANSACTION_S, Failure, Rig

__all__ = ["FAULTS", "STEPS", "Fault", "both"]

PAIR = ("w0", "w1")
STORM = ("w0", "w1", "w2", "w3", "w4")
LONGEST_RUN_S = 2.5
LONGEST_PAUSE_S = 8.0


def both(rig: Rig) -> None:
    """Two workers run, and input keeps coming."""
    for member in PAIR:
        if member not in rig.slots:
            rig.start(member)
    rig.feed.running.set()


def other(member: str) -> str:
    """The other one of the two."""
    return PAIR[1 - PAIR.index(member)]


def let_other_take_over(rig: Rig, member: str) -> None:
    """The session of a dead or stopped worker runs out; the other one goes on alone."""
    rig.wait_for_takeover(other(member))
    rig.faults["taken over"] += 1


def kill_at_steps(rig: Rig, times: int, broker: Broker | None) -> None:
    """SIGKILL at each named step in turn, and a restart in its slot at once or after the other has taken over."""
    rig.feed.running.set()
    for turn in range(times):
        step, member = STEPS[turn % len(STEPS)], PAIR[2 * turn // times]
        if member in rig.slots:
            rig.signal(member, signal.SIGKILL)
        if other(member) not in rig.slots:
            rig.start(other(member))
        rig.start(member, step, rig.rng.choice([1, 2, 4]))
        rig.bury(member)
        rig.faults[f"SIGKILL at '{step}'"] += 1
        if rig.rng.random() < 0.2:
            let_other_take_over(rig, member)


def kill_at_random(rig: Rig, times: int, broker: Broker | None) -> None:
    """SIGKILL of one or both at any moment, also while they start, join and restore."""
    both(rig)
    for _ in range(times):
        time.sleep(rig.rng.uniform(0, LONGEST_RUN_S))  # pause: a random moment
        rig.look_after()
        victims = rig.rng.choice([["w0"], ["w1"], ["w0", "w1"]])
        for member in victims:
            rig.signal(member, signal.SIGKILL)
            rig.faults["SIGKILL at random"] += 1
        if len(victims) == 1 and rig.rng.random() < 0.25:
            let_other_take_over(rig, victims[0])
        both(rig)


def stop_and_go_on(rig: Rig, times: int, broker: Broker | None) -> None:
    """SIGSTOP past the session, a successor, then SIGCONT: a zombie, of which nothing may be committed."""
    for turn in range(times):
        both(rig)
        member = rig.rng.choice(PAIR)
        if turn % 3 < 2:
            rig.signal(member, signal.SIGKILL)
            rig.start(member, rig.rng.choice(BEFORE_COMMIT), rig.rng.choice([1, 2, 4]), STOP)
            rig.wait_for_stop(member)
        else:
            rig.wait_for_progress()
            rig.signal(member, signal.SIGSTOP)
        let_other_take_over(rig, member)
        _revive(rig, member, turn % 3)
        both(rig)
        rig.wait_for_all()


def _revive(rig: Rig, member: str, how: int) -> None:
    """While its transaction may still be open; after that; or when nobody is left in the group."""
    if how == 1:
        rig.signal(other(member), signal.SIGKILL)
        rig.wait_for(lambda: not rig.members(), "the group is empty")
    elif how == 2:
        time.sleep(TRANSACTION_S)  # pause: longer than a transaction
    rig.signal(member, signal.SIGCONT)
    rig.slots[member].doomed = False
    rig.faults["SIGSTOP, " + ("successor", "successor that dies", "longer than a transaction")[how]] += 1


def pause_past_the_session(rig: Rig, times: int, broker: Broker | None) -> None:
    """SIGSTOP of a worker between any two steps; the other takes over, goes on and purges; then SIGCONT."""
    both(rig)
    rig.wait_for_all()
    for _ in range(times):
        member = rig.rng.choice(PAIR)
        rig.wait_for_progress()
        rig.signal(member, signal.SIGSTOP)
        let_other_take_over(rig, member)
        rig.signal(member, signal.SIGCONT)
        rig.faults["pause"] += 1
        rig.wait_for_all()


def restart_broker(rig: Rig, times: int, broker: Broker | None) -> None:
    """The broker is stopped, killed, or held still for some seconds, in the middle of transactions."""
    assert broker is not None
    both(rig)
    rig.wait_for_progress()
    for turn in range(times):
        time.sleep(rig.rng.uniform(0.2, 1.5))  # pause: a random moment
        number = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)[turn % 3]
        if number == signal.SIGSTOP:
            broker.pause()
            time.sleep(rig.rng.uniform(0.5, LONGEST_PAUSE_S))  # pause: so long the broker is paused
            broker.resume()
        else:
            (broker.kill if number == signal.SIGKILL else broker.stop)()
            broker.start()
        rig.faults[f"{number.name} of the broker"] += 1
        rig.wait_for_progress()


def storm(rig: Rig, times: int, broker: Broker | None) -> None:
    """Somebody joins, leaves or dies every second."""
    both(rig)
    for _ in range(times):
        time.sleep(1.0)  # pause: the pace of the storm
        rig.look_after()
        if len(rig.slots) < 2 or (len(rig.slots) < len(STORM) and rig.rng.random() < 0.5):
            rig.start(rig.rng.choice([member for member in STORM if member not in rig.slots]))
            rig.faults["join"] += 1
            continue
        member = rig.rng.choice(sorted(rig.slots))
        if rig.rng.random() < 0.5:
            rig.signal(member, signal.SIGKILL)
            rig.faults["SIGKILL in the storm"] += 1
        else:
            rig.signal(member, signal.SIGTERM)
            if (status := rig.bury(member)) not in STOPPED:
                raise Failure(f"{member} was told to stop, and ended with status {status}")
            rig.faults["leave"] += 1


def damage_state(rig: Rig, times: int, broker: Broker | None) -> None:
    """A state directory is lost, damaged, or an older one."""
    both(rig)
    for turn in range(times):
        rig.wait_for_all()
        rig.wait_for_progress()
        member = rig.rng.choice(PAIR)
        folder = rig.state / member
        name = list(DAMAGES)[turn % len(DAMAGES)]
        rig.signal(member, signal.SIGKILL)
        if name == "an older copy" and folder.exists():  # it was killed before it had one, else
            keep_copy(folder)
            rig.start(member)
            rig.wait_for_all()
            rig.wait_for_progress()
            rig.signal(member, signal.SIGKILL)
        DAMAGES[name](folder, rig.rng)
        rig.damaged.add(member)
        rig.faults[f"state {name}"] += 1
        rig.start(member)
    rig.wait_for_all()


def change_positions(rig: Rig, times: int, broker: Broker | None) -> None:
    """While nobody runs, the group is deleted, or set to the beginning or the end of its partitions."""
    for turn in range(times):
        both(rig)
        rig.wait_for_progress()
        for member in list(rig.slots):
            rig.signal(member, signal.SIGTERM)
            if (status := rig.bury(member)) not in STOPPED:
                raise Failure(f"{member} was told to stop, and ended with status {status}")
        rig.wait_for(lambda: not rig.members(), "the group is empty")
        name = list(POSITIONS)[turn % len(POSITIONS)]
        POSITIONS[name](rig)
        rig.faults[f"group {name}"] += 1
        both(rig)
        rig.wait_for_all()


def _delete_group(rig: Rig) -> None:
    rig.log.delete_group(rig.application)


def _set_positions(rig: Rig, offsets: Mapping[TopicPartition, int]) -> None:
    """As an operator's tool would."""
    moved = [confluent_kafka.TopicPartition(*where, offset) for where, offset in offsets.items()]
    client = AdminClient({"bootstrap.servers": rig.bootstrap, "log_level": 0})
    request = ConsumerGroupTopicPartitions(rig.application, moved)
    (changed,) = client.alter_consumer_group_offsets([request]).values()
    changed.result()


POSITIONS: Mapping[str, Callable[[Rig], None]] = {
    "deleted": _delete_group,
    "at the beginning": lambda rig: _set_positions(rig, dict.fromkeys(rig.witness.inputs, 0)),
    "at the end": lambda rig: _set_positions(rig, rig.log.end_offsets(list(rig.witness.inputs))),
}


@dataclass(frozen=True)
class Fault:
    """`times` is how often it is done in one scenario of the full form; `config` goes over the rig's."""

    play: Callable[[Rig, int, Broker | None], None]
    times: int
    config: Mapping[str, float] = field(default_factory=dict)


FAULTS = {
    "kill at steps": Fault(kill_at_steps, 10),
    "kill at random": Fault(kill_at_random, 10),
    "stop": Fault(stop_and_go_on, 3),
    "pause": Fault(pause_past_the_session, 5, {"purge_interval_s": 0.1}),
    "broker": Fault(restart_broker, 3),
    "storm": Fault(storm, 20),
    "purge": Fault(kill_at_random, 10, {"purge_interval_s": 0.3}),
    "state": Fault(damage_state, 4),
    "positions": Fault(change_positions, 3),
}
