"""What arrival order decides is named, with the reason, and what it does not decide is not."""

import pytest

import eddy
from eddy.connectors.spark.arrival_order import check_accepted, order_dependent, tainted
from eddy.errors import ConfigurationError
from tests.spark.rig import ancestors

S, N = eddy.String, eddy.Int64


def plan_of(*builds: object) -> eddy.Topology:
    topology = eddy.Topology("t")
    for build in builds:
        build(topology)  # type: ignore[operator]
    return topology


def refused(build: object, partitions: int = 3, commutes: tuple[str, ...] = ()) -> dict[str, str]:
    plan = plan_of(build).plan
    return order_dependent(plan, {source.topic: partitions for source in plan.sources()}, commutes)


def test_a_stream_table_join_is_named_with_what_is_behind_it() -> None:
    topology = eddy.Topology("t")
    clicks, users = topology.stream("clicks", S, S), topology.table("users", S, S)
    joined = clicks.join(users, lambda click, user: user, value=S, name="who")
    joined.to("out")
    users.to("copy")
    found = order_dependent(topology.plan, {"clicks": 1, "users": 1})
    assert found.keys() == {"who"}
    assert "as it was when the record arrived" in found["who"]
    assert {node.name for node in tainted(topology.plan, found)} >= {"who"}
    assert {sink.topic for sink in topology.plan.sinks() if sink in tainted(topology.plan, found)} == {"out"}


def test_a_fold_is_refused_only_where_the_order_of_a_keys_records_is_not_known() -> None:
    def kept(t: eddy.Topology) -> None:
        t.stream("in", S, N).group_by_key().reduce(lambda a, b: b, "last").to("out")

    def moved(t: eddy.Topology) -> None:
        t.stream("in", S, N).group_by(lambda k, v: k[:1], key=S).reduce(lambda a, b: a + b, "sums").to("out")

    assert refused(kept) == {}
    assert refused(moved).keys() == {"sums"}
    assert refused(moved, partitions=1) == {}
    assert refused(moved, commutes=("sums",)) == {}


def test_a_table_of_merged_streams_and_a_tables_changes_are_refused() -> None:
    def merged(t: eddy.Topology) -> None:
        t.stream("one", S, S).merge(t.stream("two", S, S)).to_table("latest").to("out")

    def changes(t: eddy.Topology) -> None:
        t.table("in", S, S).to_stream("changes").to("out")

    def again(t: eddy.Topology) -> None:
        t.table("in", S, S).to_stream("changes").to_table("again").to("out")

    assert refused(again) == {}
    assert refused(merged).keys() == {"latest"}
    assert refused(changes).keys() == {"changes"}


def test_a_step_that_is_only_downstream_cannot_be_accepted() -> None:
    topology = eddy.Topology("t")
    clicks, users = topology.stream("clicks", S, S), topology.table("users", S, S)
    clicks.join(users, lambda click, user: user, value=S, name="who").filter(lambda k, v: bool(v), "some").to("out")
    found = order_dependent(topology.plan, {"clicks": 1, "users": 1})
    check_accepted(topology.plan, found, ["who"])
    with pytest.raises(ConfigurationError, match=r"'some', .* is only downstream of step 'who'; .* These are: who$"):
        check_accepted(topology.plan, found, ["who", "some"])
    with pytest.raises(ConfigurationError, match=r"'users', .* is determined by the input, .* leave it out$"):
        check_accepted(topology.plan, {}, ["users"])


def test_counts_relations_and_recursions_are_not() -> None:
    def family(t: eddy.Topology) -> None:
        ancestors(t.table("nodes", S, S)).group_by_key().count("descendants").to("out")

    assert refused(family) == {}
