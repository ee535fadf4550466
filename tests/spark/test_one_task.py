"""One task: what comes out of it is what a worker holds that came to it epoch by epoch, states and all."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark import backfill, verify
from eddy.connectors.spark.arrival_order import order_dependent
from eddy.errors import ConfigurationError, LoopLimitError
from tests.conformance.cases import CASES, Case
from tests.conformance.engines import Run
from tests.seeds import in_turn
from tests.spark.rig import Rig, family

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S = eddy.String
HELD_BACK = {
    "a-block-is-empty-while-there-is-an-error": r"binding 'even' still changed in its last .*, e.g. by row \('d'",
    "a-block-is-empty-while-an-inner-limit-is-too-low": r"binding 'steps\.at' still .*, e.g. by row \('d'",
}
"""Cases whose answer rests on earlier input, and why they are refused."""


def determined() -> Iterator[Case]:
    """The cases whose input alone determines what a worker holds."""
    for case in CASES:
        topology = case.topology()
        counts = {source.topic: 2 for source in topology.plan.sources()}
        if not order_dependent(topology.plan, counts) and case.name not in HELD_BACK:
            yield case


def is_expected(case: Case, name: str, note: str) -> bool:
    """Whether a state is compared elsewhere, or arrival decides the order of a stream's records."""
    streams = {f"sink '{sink.topic}'" for sink in case.topology().plan.sinks() if sink.kind == "stream"}
    return "is its changelog" in note or (name in streams and "order of a key's records is not compared" in note)


@pytest.mark.parametrize("case", [*in_turn(determined(), 12)], ids=lambda case: case.name)
def test_every_state_is_the_one_that_a_worker_holds(case: Case, tmp_path: Path, spark: Any) -> None:
    log = LocalLog(tmp_path / "log")
    run = Run(case, log, 2)
    worker = eddy.Worker(run.topology, log, eddy.Config(state_dir=tmp_path / "state"))
    for batch in case.batches:
        run.write(batch)
        worker.run_until_idle()
    worker.step()
    worker.close()
    verdict = verify(run.topology, spark, log, functools.partial(LocalLog, tmp_path / "log"), wait_s=0.0, quick=True)
    log.close()
    assert (verdict.status, verdict.undetermined) == (0, {}), list(verdict.lines())
    assert not {name: note for name, note in verdict.notes.items() if not is_expected(case, name, note)}


@pytest.mark.parametrize("name", HELD_BACK)
def test_a_block_beyond_its_limit_is_refused_step_by_step(name: str, tmp_path: Path, spark: Any) -> None:
    (case,) = [case for case in CASES if case.name == name]
    log = LocalLog(tmp_path / "log")
    run = Run(case, log, 2)
    for batch in case.batches:
        run.write(batch)
    topics = set(log.topics())
    with pytest.raises(LoopLimitError, match=HELD_BACK[name]):
        backfill(run.topology, spark, log, functools.partial(LocalLog, tmp_path / "log"), one_task=0)
    assert set(log.topics()) == topics
    log.close()


def doubling() -> eddy.Topology:
    """Each row makes two, eight times."""
    topology = eddy.Topology("doubling")
    rows = topology.table("nodes", S, S).to_relation().peek(refuse).map(lambda node, up: (node, 1))
    rows = rows.recursively(
        lambda x: x.flat_map(lambda node, _: [(node + "l", 1), (node + "r", 1)]), "doubled", max_depth=8
    )
    rows.map(lambda node, one: (node[0], one), key=S).group_by_key().count("sizes").to("sizes")
    return topology


def refuse(key: Any, value: Any) -> None:
    raise AssertionError("a function that only looks was called")


@pytest.mark.parametrize("rows", [0, 100, 10_000], ids=["step-by-step", "gives-up", "in-one-task"])
def test_a_loop_that_grows_gives_up_and_goes_on_step_by_step(rows: int, tmp_path: Path, spark: Any) -> None:
    topics = [TopicSpec("nodes", 2), TopicSpec("sizes", 2)]
    rig = Rig(tmp_path, doubling, topics, spark)
    rig.write("nodes", [(b"a", b"x"), (b"b", b"x")])
    rig.backfill(one_task=0)
    want = (2**9 - 1).to_bytes(8, "big")
    assert {key: value for key, (_, value) in rig.latest("sizes").items()} == {b"a": want, b"b": want}
    rig.close()


def watched() -> eddy.Topology:
    """A recursion by waves whose errors are read."""
    topology = eddy.Topology("watched")
    parents = topology.table("nodes", S, S)
    seeds = parents.to_relation().map(lambda node, up: (up, 1), key=S, value=eddy.Int64)
    above = seeds.recursively(lambda x: x.join(parents, lambda _, one, up: (up, one)), "above")
    above.errors.group_by_key().reduce(lambda _, new: new, lambda _, old: "", "told").to("told")
    return topology


def test_errors_of_a_recursion_are_refused_where_there_are_some(tmp_path: Path, spark: Any) -> None:
    rig = Rig(tmp_path, watched, [TopicSpec("nodes", 2), TopicSpec("told", 2)], spark)
    rig.write("nodes", [(b"a", b"b"), (b"b", b"a")])
    with pytest.raises(LoopLimitError, match=r"computed by a worker alone: .* a → b → a"):
        rig.backfill(one_task=10_000)
    rig.close()


def test_more_rows_than_a_task_has_memory_for_are_refused(tmp_path: Path, spark: Any) -> None:
    rig = Rig(tmp_path, family, [TopicSpec(topic, 1) for topic in ("nodes", "notes", "descendants", "loud")], spark)
    topics = set(rig.log.topics())
    with pytest.raises(
        ConfigurationError, match=r"up to 10,000,000,000 rows takes some 9,313\.2 GiB, .* --one-task \d+"
    ):
        rig.backfill(one_task=10_000_000_000)
    assert set(rig.log.topics()) == topics
    rig.close()
