"""The broker goes away: in the middle of a transaction, while nothing is to do, and for longer than is waited for."""

import logging
import re
import threading
from itertools import pairwise
from typing import Any

import pytest

import eddy
from eddy.connectors.broker import Broker
from eddy.connectors.kafka.client_log import cause
from eddy.errors import ConnectorError
from tests.bad_input.rig import Rig
from tests.bad_input.topologies import added_up, sums
from tests.kafka import OwnBroker
from tests.seeds import in_turn
from tests.waiting import PATIENCE_S

OUTAGES_S = {"outputs sent": 4.0, "flushed": 20.0, "cut sent": 6.0}
"""How long it is away, by the step at which it is killed: transactions last 5 s, sessions 2 s."""

HELD_BACK = re.compile(r"; (\d+) similar lines were suppressed")

ROWS = [(f"k{n % 20}", n) for n in range(100)]


@pytest.fixture
def broker(own_broker: OwnBroker) -> Broker:
    made = own_broker()
    made.start()
    return made


@pytest.fixture
def rig(broker: Broker, name: str, rigs: list[Rig]) -> Rig:
    rigs.append(Rig(name, [f"bootstrap.servers={broker.bootstrap}", "producer.transaction.timeout.ms=5000"]))
    return rigs[-1]


@pytest.mark.parametrize("step", [*in_turn(OUTAGES_S, len(OUTAGES_S))])
def test_workers_go_on_by_themselves_once_it_is_back(rig: Rig, broker: Broker, step: str) -> None:
    """It is killed in the middle of a transaction, and is away for less and for more than that lasts."""
    rig.create("in", "sums", partitions=2)
    outages: list[threading.Timer] = []

    def observe(now: str) -> None:
        if now == step and begun and not outages:
            outages.append(threading.Timer(OUTAGES_S[step], broker.start))
            broker.kill()
            outages[0].start()

    begun: list[str] = []
    workers = [rig.worker(sums(rig), member=member, observe=observe) for member in "01"]
    rig.share(*workers)
    rig.write("in", ROWS)
    rig.settle(*workers)
    begun.append("now")
    rig.write("in", ROWS)
    rig.settle(*workers, timeout_s=180.0)
    outages[0].join()
    assert rig.table("sums", eddy.Int64) == added_up(ROWS * 2)
    assert any(worker.statistics.aborts for worker in workers)
    rig.write("in", ROWS)
    rig.settle(*workers)
    assert rig.table("sums", eddy.Int64) == added_up(ROWS * 3)


def test_a_worker_with_nothing_to_do_goes_on_too(rig: Rig, broker: Broker) -> None:
    rig.create("in", "sums")
    worker = rig.worker(sums(rig))
    rig.write("in", ROWS)
    rig.settle(worker)
    broker.stop()
    outage = threading.Timer(4.0, broker.start)
    outage.start()
    rig.wait(lambda: worker.step(0.2) or not outage.is_alive())
    outage.join()
    rig.write("in", ROWS)
    rig.settle(worker)
    assert rig.table("sums", eddy.Int64) == added_up(ROWS * 2)


def test_an_outage_and_its_end_are_said_once(broker: Broker, name: str, rigs: list[Rig], caplog: Any) -> None:
    """Each of a worker's clients tries again twenty times a second: of one cause there is a line in ten seconds."""
    rig = Rig(name, [f"bootstrap.servers={broker.bootstrap}", "consumer.session.timeout.ms=30000"])
    rigs.append(rig)
    rig.create("in", "sums")
    worker = rig.worker(sums(rig))
    rig.write("in", ROWS)
    rig.settle(worker)
    caplog.set_level(logging.INFO)
    broker.kill()
    back = threading.Timer(6.0, broker.start)
    back.start()
    rig.wait(lambda: worker.step(0.1) or "answers again, after" in caplog.text)
    back.join()
    rig.write("in", ROWS)
    rig.settle(worker)
    assert rig.table("sums", eddy.Int64) == added_up(ROWS * 2)
    assert caplog.text.count("no broker answers; trying until one does") == 1
    assert caplog.text.count("answers again, after") == 1
    said: dict[str, list[float]] = {}
    for record in caplog.records:
        if record.name == "eddy.kafka.client":
            said.setdefault(HELD_BACK.sub("", cause(record)), []).append(record.created)
    assert any("Connection refused" in what for what in said), caplog.text
    assert all(after - before > 5.0 for times in said.values() for before, after in pairwise(times)), caplog.text


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call waits half a minute for an answer, and a worker makes several before it gives up."""
    monkeypatch.setattr("eddy.connectors.kafka.producer.PATIENCE_S", 2.0)
    monkeypatch.setattr("eddy.connectors.kafka.admin.REQUEST_S", 1.0)
    monkeypatch.setattr("eddy.connectors.kafka.log.SWEEP_S", 1.0)


def test_a_worker_gives_up_when_it_is_away_for_too_long(
    broker: Broker, name: str, rigs: list[Rig], request: pytest.FixtureRequest
) -> None:
    """What another worker finds then is as it was before."""
    address = f"bootstrap.servers={broker.bootstrap}"
    patient, rig = Rig(name, [address]), Rig(name, [address, "producer.transaction.timeout.ms=1000"])
    rigs += [patient, rig]
    patient.create("in", "sums")
    patient.write("in", ROWS)
    patient.run(sums(patient))  # a broker that has just begun answers late
    request.getfixturevalue("impatient")

    def observe(now: str) -> None:
        if now == "exchanges sent" and begun:
            broker.kill()

    begun: list[str] = []
    worker = rig.worker(sums(rig), eddy.Config(retry_s=2.0), observe=observe)
    rig.settle(worker)
    begun.append("now")
    patient.write("in", ROWS)

    def stepped() -> bool:
        worker.step(0.1)
        return False

    with pytest.raises(ConnectorError) as gave_up:
        rig.wait(stepped)
    assert gave_up.value.retriable
    worker.close()
    broker.start()
    rig.log.reach(PATIENCE_S)  # clients may notice late that it is back
    rig.run(sums(rig))
    assert rig.table("sums", eddy.Int64) == added_up(ROWS * 2)
