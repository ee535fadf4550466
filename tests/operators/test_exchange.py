"""Exchanges: rows go to the owner of their key; what is ours never leaves."""

import pytest

from eddy.operators.batch import EMPTY, Batch
from eddy.operators.context import OUTSIDE
from eddy.operators.exchange import Budget, Exchange, Gate, Ownership, Received, by_iteration
from eddy.serde import Native
from tests.operators.bench import contents, facts, received


def gate(partitions: int = 4, owned: frozenset[int] | None = None, draining: frozenset[int] = frozenset()) -> Gate:
    """Keys are numbers here, and a key's partition is its remainder."""
    ownership = Ownership()
    if owned is not None:
        ownership.partitions[partitions] = owned
    ownership.draining = {"app-x": draining}
    return Gate("app-x", Native, Native, partitions, ownership, lambda key, count: Native.decode(key) % count)


def test_ownership_of_an_unknown_number_of_partitions_is_whole() -> None:
    ownership = Ownership()
    ownership.partitions[4] = frozenset({1, 3})
    assert ownership.all_of(2)
    assert not ownership.all_of(4)
    assert (ownership.owns(1, 4), ownership.owns(2, 4), ownership.owns(1, 2)) == (True, False, True)


def test_all_rows_go_on_when_everything_is_owned() -> None:
    one, batch = gate(), facts([(1, "a"), (2, "b")])
    assert one.own(batch) is batch
    assert one.outbox == []


def test_rows_of_others_leave_with_their_partition_and_iteration() -> None:
    one = gate(owned=frozenset({1}))
    assert one.own(Batch([(1, "a"), (2, "b"), (5, "c"), (3, "d")], [1, -1, 2, 1], 9), iteration=7).rows == [
        (1, "a"),
        (5, "c"),
    ]
    (out,) = one.outbox
    assert (out.batch.rows, out.batch.weights, out.partitions, out.iteration) == (
        [(2, "b"), (3, "d")],
        [-1, 1],
        [2, 3],
        7,
    )


def test_our_own_rows_leave_too_while_earlier_ones_of_their_partition_wait_in_the_topic() -> None:
    one = gate(owned=frozenset({0, 1, 2, 3}), draining=frozenset({2}))
    assert one.own(facts([(1, "a"), (2, "b")])).rows == [(1, "a")]
    assert one.outbox[0].partitions == [2]


def test_a_row_without_a_key_is_at_home_in_partition_0() -> None:
    one = gate(owned=frozenset({1}))
    assert one.own(facts([(None, "a"), (1, "b")])).rows == [(1, "b")]
    assert one.outbox[0].partitions == [0]


def test_spill_sends_our_own_rows_too() -> None:
    one = gate(owned=frozenset({0, 1, 2, 3}))
    one.spill(facts([(1, "a"), (2, "b")]), iteration=3)
    assert one.outbox[0].partitions == [1, 2]


def test_spill_of_a_topic_with_one_partition_needs_no_serde() -> None:
    one = gate(partitions=1)
    one.spill(facts([([], "not hashable, not native")]), iteration=1)
    assert one.outbox[0].partitions == [0]


def test_an_exchange_passes_on_its_own_rows_and_those_received() -> None:
    one = gate(owned=frozenset({1}))
    out = Exchange("x", one).step(OUTSIDE, facts([(1, "a"), (2, "b")]), facts([(5, "c")]))
    assert out.rows == [(5, "c"), (1, "a")], "what was sent earlier comes first"
    assert Exchange("x", gate()).step(OUTSIDE, EMPTY, facts([(5, "c")])).rows == [(5, "c")]


def test_received_rows_are_told_apart_by_their_hops() -> None:
    one = gate(owned=frozenset())
    one.own(facts([(1, "a")]), iteration=1)
    one.own(facts([(2, "b"), (3, "c")]), iteration=4)
    back = by_iteration(received(one.outbox))
    assert {iteration: contents(batch) for iteration, batch in back.items()} == {
        1: {(1, "a"): 1},
        4: {(2, "b"): 1, (3, "c"): 1},
    }
    assert by_iteration(EMPTY) == {}
    assert list(by_iteration(facts([(1, "a")]))) == [0]


def test_rows_received_in_an_epoch_that_failed_are_forgotten() -> None:
    """Its own rows cannot be placed; the received ones come again, with the epoch that is tried again."""
    exchange = Exchange("x", gate(owned=frozenset({1})))
    with pytest.raises(TypeError, match="no native form"):
        exchange.step(OUTSIDE, facts([(object(), "a")]), Received(facts([(1, "b")]), [0]))
    assert exchange.step(OUTSIDE, facts([(5, "c")]), EMPTY).rows == [(5, "c")]


def test_received_rows_select_like_any_batch() -> None:
    assert Received(facts([(1, "a"), (2, "b")]), [1, 2]).select([True, False]).rows == [(1, "a")]


@pytest.mark.parametrize(("spent", "over"), [(1, False), (2, False), (3, True)])
def test_a_budget_of_rows_is_spent_row_by_row(spent: int, over: bool) -> None:
    budget = Budget(3)
    assert budget.spend(spent) is over


def test_a_budget_of_time_ends_an_epoch_too() -> None:
    assert Budget(100, lambda: True).spend(1)
