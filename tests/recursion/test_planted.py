"""Faults planted into the engine: each is found by the stories, or they prove nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from eddy.operators.batch import EMPTY, Batch
from eddy.operators.nested import operators as nested_operators
from eddy.operators.nested.fixpoint import Fixpoint, NestedBody
from eddy.operators.nested.limit_errors import InnerErrors, LimitBarrier
from eddy.state.iteration_trace import Trace
from tests.recursion import blocks, nested_blocks
from tests.recursion.programs import PROGRAMS
from tests.recursion.rig import play

assert blocks
assert nested_blocks
WITHIN = 8
"""A planted fault is found within so many stories of its program."""

Plant = Callable[[pytest.MonkeyPatch], None]


def look_at_a_key_once(patch: pytest.MonkeyPatch) -> None:
    """A reduction does not look again at the later iterations of a key that it touches."""
    for name in ("_as_of_iteration", "_as_of"):
        as_of = getattr(nested_operators, name)
        patch.setattr(nested_operators, name, lambda cell, time, late, as_of=as_of: as_of(cell, time, []))


def meet_at_once(patch: pytest.MonkeyPatch) -> None:
    """What a join finds in a later iteration leaves in this one."""
    patch.setattr(nested_operators, "lub", lambda one, other: one)


def forget_to_undo_traces(patch: pytest.MonkeyPatch) -> None:
    """A rollback of a trace commits."""
    patch.setattr(Trace, "rollback", Trace.commit)


def write_no_retractions(patch: pytest.MonkeyPatch) -> None:
    """A row of a trace that has gone stays in the store."""
    changes = Trace.changes

    def kept(trace: Trace[Any, Any]) -> Any:
        found = changes(trace)
        return type(found)(found.partitions, found.keys, [value or b"\0" * 8 for value in found.values])

    patch.setattr(Trace, "changes", kept)


def let_held_rows_out(patch: pytest.MonkeyPatch) -> None:
    """Rows leave while the limit's error is there."""
    patch.setattr(LimitBarrier, "__bool__", lambda self: False)


def let_out_what_an_inner_limit_cut(patch: pytest.MonkeyPatch) -> None:
    """The errors of a block inside are not the outermost block's."""
    patch.setattr(InnerErrors, "taken_moves", lambda self: {})


def only_errors_of_the_last_iteration(patch: pytest.MonkeyPatch) -> None:
    """A row that is an error in an early iteration and in no later one is none."""
    step = InnerErrors.step

    def summed(self: InnerErrors, *inputs: Batch) -> Batch:
        made = step(self, *inputs)
        for row, weight in zip(made.rows, made.weights, strict=True):
            summing[row] = summing.get(row, 0) + weight
        return made

    summing: dict[Any, int] = {}

    def moves(self: InnerErrors) -> dict[Any, int]:
        found = dict(summing)
        summing.clear()
        return found

    patch.setattr(InnerErrors, "step", summed)
    patch.setattr(InnerErrors, "taken_moves", moves)


def go_on_where_the_last_iteration_was(patch: pytest.MonkeyPatch) -> None:
    """A block inside counts no iterations of its own beyond the first of the loop around."""
    run = NestedBody.run

    def at_rest(self: NestedBody, time: Any, bindings: Any) -> list[Batch]:
        made = run(self, time, bindings)
        return made if type(time) is int or time[0] == 0 or time[-1] == 0 else [EMPTY for _ in made]

    patch.setattr(NestedBody, "run", at_rest)


def one_iteration_more(patch: pytest.MonkeyPatch) -> None:
    """A limit of n gives the state after n + 1 iterations."""
    init = Fixpoint.__init__

    def longer(self: Fixpoint, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        self._iterations += 1

    patch.setattr(Fixpoint, "__init__", longer)


def feed_back_unmerged(patch: pytest.MonkeyPatch) -> None:  # private: planted
    """What is held up by a cycle stays: retractions do not go round."""
    feed = Fixpoint._feed

    def added(self: Fixpoint, time: Any, made: list[Batch], *others: Any) -> Any:
        after = feed(self, time, made, *others)
        return after and [batch.select([weight > 0 for weight in batch.weights]) for batch in after]

    patch.setattr(Fixpoint, "_feed", added)


@pytest.mark.parametrize(
    ("plant", "program"),
    [
        (look_at_a_key_once, "least-depth"),
        (look_at_a_key_once, "a-new-root-while-a-node-is-not-reached"),
        (meet_at_once, "transitive-closure-as-x-joined-with-itself"),
        (meet_at_once, "strongly-connected-components"),
        (forget_to_undo_traces, "reachability"),
        (write_no_retractions, "reachability"),
        (let_held_rows_out, "depths-hold-at-3"),
        (let_out_what_an_inner_limit_cut, "stepwise-hold-at-2"),
        (only_errors_of_the_last_iteration, "errors-that-come-and-go"),
        (go_on_where_the_last_iteration_was, "stepwise-return-at-3"),
        (one_iteration_more, "stepwise-return-at-2-hold-in-2-rounds"),
        (one_iteration_more, "depths-return-at-3"),
        (one_iteration_more, "win-move-in-an-even-number-of-rounds"),
        (feed_back_unmerged, "reachability"),
    ],
)
def test_a_planted_fault_is_found(plant: Plant, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(WITHIN):
        try:
            play(PROGRAMS[program], seed)
        except (AttributeError, NameError):
            raise  # the planted code itself does not fit
        except Exception:
            return
    pytest.fail(f"{plant.__name__}: not found by {WITHIN} stories of {program}")
