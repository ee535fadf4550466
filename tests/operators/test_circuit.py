"""The circuit: one step an epoch, then commit or rollback; errors name the step."""

import pytest

from eddy.errors import DataError
from eddy.operators.aggregate import Count
from eddy.operators.batch import EMPTY, Batch
from eddy.operators.circuit import Output
from eddy.operators.context import OUTSIDE, Context, Tick, Wake, Watermark
from eddy.operators.operator import Operator
from eddy.operators.stateless import Map, MapValues
from eddy.operators.upsert import Upsert
from tests.holding import Once
from tests.operators.bench import Bench, Wiring, built, facts


def counted(wiring: Wiring) -> int:
    table = wiring.add(Upsert("t", wiring.table("t")), wiring.source("in"))
    return wiring.add(Count("c", wiring.table("c")), wiring.add(Map("m", lambda k, v: (v, k)), table))


def test_outputs_are_empty_after_commit_and_after_rollback() -> None:
    bench = Bench(built(counted))
    bench.step({"in": facts([("a", "x")])})
    assert len(bench.circuit.outputs["out"].batches) == 1
    bench.circuit.rollback()
    assert bench.circuit.outputs["out"].batches == []
    bench.epoch(**{"in": facts([("a", "x")])})
    assert bench.circuit.outputs["out"].batches == []


def test_a_step_after_a_rollback_gives_the_same() -> None:
    bench, other = Bench(built(counted)), Bench(built(counted))
    for epoch in ([("a", "x"), ("b", "x")], [("a", "y")], [("b", None)]):
        bench.undone(**{"in": facts([("a", "z"), ("b", None), ("c", "x")])})
        assert bench.epoch(**{"in": facts(epoch)}) == other.epoch(**{"in": facts(epoch)})
    assert bench.states() == other.states() == {"t": {"a": "y"}, "c": {"y": 1}}


def test_changes_are_those_of_the_running_epoch_alone() -> None:
    bench = Bench(built(counted))
    bench.epoch(**{"in": facts([("a", "x")])})
    assert bench.circuit.changes() == {}
    bench.step({"in": facts([("b", "x")])})
    assert sorted(bench.circuit.changes()) == ["c", "t"]


def test_a_function_that_raises_is_named_by_its_step() -> None:
    wiring = Wiring()
    wiring.add(MapValues("halve", lambda value: 1 // value), wiring.source("in"))
    with pytest.raises(DataError, match=r"step 'halve': the function raised ZeroDivisionError") as caught:
        wiring.circuit().step({"in": facts([("a", 0)])})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_row_that_does_not_fit_its_serde_is_named_by_its_state() -> None:
    bench = Bench(built(counted))
    with pytest.raises(DataError, match=r"state 't': a row does not fit its serdes \(key native, value native\)"):
        bench.step({"in": Batch([("a", frozenset())], [1])})


def test_a_step_without_input_is_not_run() -> None:
    wiring = Wiring()
    output = Output("out")
    one, other = wiring.source("one"), wiring.source("other")
    wiring.add(output, wiring.add(MapValues("m", lambda value: value), one))
    wiring.add(MapValues("never", lambda value: 1 // 0), other)
    wiring.circuit().step({"one": facts([("a", 1)]), "other": EMPTY})
    assert [batch.rows for batch in output.batches] == [[("a", 1)]]


class Sleeper(Operator):
    """Wants a step without input at a moment, until it has had one."""

    name = "s"

    def __init__(self, moment: Wake | Tick | Watermark) -> None:
        self.moment: Wake | Tick | Watermark | None = moment

    def wakes_at(self) -> Wake | Tick | Watermark | None:
        return self.moment

    def step(self, context: Context, *inputs: Batch) -> Batch:
        self.moment = None
        return facts([("woken", 1)])


@pytest.mark.parametrize("moment", Wake)
def test_an_operator_is_woken_at_its_moment_and_then_no_more(moment: Wake) -> None:
    bench = Bench(built(lambda wiring: wiring.add(Sleeper(moment), wiring.source("in"))))
    assert (bench.circuit.due(), bench.circuit.unsettled) == (moment is Wake.AT_ONCE, moment is Wake.AT_REST)
    assert bench.epoch() == ({("woken", 1): 1} if moment is Wake.AT_ONCE else {})
    bench.step({}, settling=True)
    assert bench.end().get("out", {}) == ({("woken", 1): 1} if moment is Wake.AT_REST else {})
    assert (bench.circuit.due(), bench.circuit.unsettled) == (False, False)


@pytest.mark.parametrize(
    ("moment", "early", "due"),
    [
        (Tick(10), Context(tick=9), Context(tick=10)),
        (
            Watermark(["in"], {0: 10, 1: 5}),
            Context(event_time={("in", 0): 9, ("in", 1): 4, ("other", 1): 99}),
            Context(event_time={("in", 1): 5}),
        ),
    ],
)
def test_an_operator_is_woken_when_a_clock_has_come_to_its_moment(
    moment: Tick | Watermark, early: Context, due: Context
) -> None:
    bench = Bench(built(lambda wiring: wiring.add(Sleeper(moment), wiring.source("in"))))
    circuit = bench.circuit
    assert circuit.next_tick == (10 if isinstance(moment, Tick) else None)
    for context in (OUTSIDE, early):
        assert not circuit.due(context)
        circuit.step({}, context)
        assert bench.end()["out"] == {}
    assert circuit.due(due)
    circuit.step({}, due)
    assert bench.end()["out"] == {("woken", 1): 1}
    assert (circuit.due(due), circuit.next_tick) == (False, None)


def test_forget_reads_states_anew_from_the_store() -> None:
    bench = Bench(built(counted))
    bench.epoch(**{"in": facts([("a", "x")])})
    key = next(key for key in bench.changelog if key.startswith(b"c\0"))
    bench.store.delete_prefix(key)
    assert bench.states()["c"] == {"x": 1}
    bench.circuit.forget()
    assert bench.states()["c"] == {}


def test_held_is_by_name_and_partition_as_the_last_step_left_it() -> None:
    bench = Bench(built(lambda wiring: wiring.add(Once("d", wiring.arrangement("d"), int), wiring.source("in"))))
    assert bench.circuit.held() == {}
    bench.epoch(**{"in": facts([("a", "x")])})
    assert bench.circuit.held() == {}
    bench.step({"in": facts([("a", "x")])})
    held = {("d", 0): "distinct 'd': key 'a' has 'x' 2 times; take back all but one"}
    assert bench.circuit.held() == held
    bench.circuit.rollback()
    assert bench.circuit.held() == {}
    bench.epoch(**{"in": facts([("a", "x")])})
    assert bench.restarted().circuit.held() == held
    bench.epoch(**{"in": Batch([("a", "x")], [-1])})
    assert bench.circuit.held() == {}
    assert bench.states() == {"d": {("a", "x"): 1}}
