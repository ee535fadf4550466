"""Makes the parts that epochs use, from an assembly and the surroundings of a worker."""

from collections.abc import Callable
from typing import NamedTuple

from eddy.config import Config
from eddy.connectors.log import Consumer, Log
from eddy.runtime.assembly import Assembly
from eddy.runtime.clocks import Clocks
from eddy.runtime.cuts import Cuts
from eddy.runtime.dropped_rows import Dropping
from eddy.runtime.epoch import Parts, Stopwatch
from eddy.runtime.holding import Holding
from eddy.runtime.producers import OwnProducer
from eddy.runtime.purging import Purging
from eddy.runtime.recovery import Recovery
from eddy.runtime.rejections import Rejections
from eddy.runtime.unlogged_stores import UnloggedStores
from eddy.state.store import Store
from eddy.statistics import Statistics

__all__ = ["Surroundings", "parts_of"]


class Surroundings(NamedTuple):
    """The objects that a worker keeps as long as it runs, even if the topics that it reads change.

    `restored` is called with the progress of a restore, `observe` with the name of each step of an epoch.
    """

    config: Config
    log: Log
    group: str
    store: Store
    producer: OwnProducer
    statistics: Statistics
    restored: Callable[[str, int, int], None]
    stopwatch: Stopwatch
    clock: Callable[[], float]
    wall: Callable[[], float]
    observe: Callable[[str], None]


def parts_of(made: Assembly, worker: Surroundings, consumer: Consumer) -> Parts:
    """Make the parts that epochs use."""
    config, log, clock, circuit, plan = worker.config, worker.log, worker.clock, made.circuit, made.internal.plan
    cuts = Cuts(made.positions, circuit, config.cut_interval_s, clock)
    restorable = {state.spec.source for state in circuit.states.values()} - {None}
    return Parts(
        config=config,
        log=log,
        consumer=consumer,
        producer=worker.producer,
        store=worker.store,
        circuit=circuit,
        decoder=made.decoder,
        sinks=made.sinks,
        internal=made.internal,
        positions=made.positions,
        recovery=Recovery(log, worker.store, worker.group, plan, made.incarnation, worker.wall, worker.restored),
        global_tables=made.global_tables,
        unlogged=UnloggedStores(circuit.states.values(), worker.store, made.positions),
        rejections=Rejections(made.internal, restorable, config, made.decoder.senders),
        clocks=Clocks(circuit, made.positions, worker.wall, made.idle),
        cuts=cuts,
        holding=Holding(circuit, plan, made.stops, cuts.leads),
        purging=Purging(made.internal, log, worker.group, config.purge_interval_s, clock, worker.statistics),
        dropping=Dropping(clock),
        statistics=worker.statistics,
        stopwatch=worker.stopwatch,
        clock=clock,
        observe=worker.observe,
        restorable=restorable,
        new_plan=made.new_plan,
        take_any_timestamp=made.take_any_timestamp,
    )
