"""What has no finite answer, as a worker notes it in the application's metadata topic.

The topology holds a group as soon as it has two members, at the partition of the group's key; see `tests.holding`.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.runtime.metadata import read_metadata, write_held
from eddy.state.memory import MemoryStore
from eddy.topology.plan.scopes import Scopes
from tests.children import KilledError, bury
from tests.holding import once_held, reaching, way_round
from tests.simulation.world import BEFORE_COMMIT, STEPS

Held = dict[tuple[str, int], str]


@pytest.fixture(autouse=True)
def _held() -> Iterator[None]:
    with once_held():
        yield


def singles() -> eddy.Topology:
    """Groups with exactly one member: `members` has member -> group."""
    topology = eddy.Topology("app")
    members = topology.table("members", key=eddy.String, value=eddy.String).to_relation()
    groups = members.map(lambda member, group: (group, "member"), key=eddy.String, value=eddy.String)
    groups.distinct("once").group_by_key().count("single").to("singles", value=eddy.Int64)
    return topology


def expected(members: dict[str, str], partitions: int) -> Held:
    """The message of the least group with several members, by partition."""
    held: Held = {}
    groups = list(members.values())
    for group in sorted(set(groups), reverse=True):
        if (count := groups.count(group)) > 1:
            where = "once", partition_of(group.encode(), partitions)
            held[where] = f"distinct 'once': key {group!r} has 'member' {count} times; take back all but one"
    return held


class Group:
    """Workers on the embedded log, with stores in memory."""

    def __init__(self, topology: eddy.Topology, members: int, partitions: int = 4) -> None:
        self.topology, self.partitions, self.log = topology, partitions, LocalLog(None)
        self.log.create_topics([TopicSpec("members", partitions), TopicSpec("singles", partitions)])
        self.fails_at, self.kills = "", False
        self.workers = [self.worker(f"w{i}") for i in range(members)]

    def worker(self, member: str) -> eddy.Worker:
        return eddy.Worker(self.topology, self.log, member=member, store=MemoryStore(), observe=self._observe)

    def _observe(self, step: str) -> None:
        if step == self.fails_at:
            self.fails_at = ""
            if step in BEFORE_COMMIT and not self.kills:
                raise eddy.ConnectorError("planned", retriable=True)
            raise KilledError

    def step(self, number: int) -> int:
        """A step of one worker; where it is killed another takes its place, without its states."""
        worker = self.workers[number]
        try:
            return worker.step() + worker.restoring
        except KilledError:
            bury(worker, self.topology.name, self.log)
            self.workers[number] = self.worker(worker.member)
            return 1

    def write(self, **members: str | None) -> None:
        producer = self.log.producer(None)
        producer.begin()
        for member, group in members.items():
            key, value = member.encode(), None if group is None else group.encode()
            producer.send("members", partition_of(key, self.partitions), [key], [value], [0])
        producer.commit({}, None)
        producer.close()

    def settle(self) -> None:
        quiet = 0
        for _ in range(200):
            taken = [self.step(number) for number in range(len(self.workers))]
            quiet = 0 if any(taken) or not self.workers[0].quiescent() else quiet + 1
            if quiet == 3:
                return
        raise AssertionError("the workers do not come to rest")

    def noted(self) -> Held:
        return read_metadata(self.log, "app-plan").held

    def told(self) -> Held:
        """What all workers say; no two of them of one partition."""
        told = [worker.held() for worker in self.workers]
        assert sum(map(len, told)) == len(set().union(*told))
        return {place: why for one in told for place, why in one.items()}

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.log.close()


edits = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([None, "x", "y", "z"]), min_size=1)


fates = st.sampled_from(["", "leave", "join", "lose", *STEPS, *(f"kill {step}" for step in STEPS)])


@given(st.lists(st.tuples(edits, fates), min_size=1, max_size=5))
def test_the_log_says_what_the_data_says_whatever_befalls_the_workers(story: list[tuple[dict[str, Any], str]]) -> None:
    group, members = Group(singles(), 2), dict[str, str]()
    names = iter("cdefgh")
    for written, fate in story:
        if fate == "leave" and len(group.workers) > 1:
            group.workers.pop().close()
        elif fate == "join":
            group.workers.append(group.worker(next(names)))
        elif fate == "lose":
            group.workers.pop(0).close()
            group.workers.insert(0, group.worker("w0"))
        group.fails_at, group.kills = fate.removeprefix("kill "), fate.startswith("kill ")
        group.write(**written)
        members = {m: g for m, g in {**members, **written}.items() if g is not None}
        group.settle()
        assert group.noted() == group.told() == expected(members, group.partitions)
    group.close()


def test_it_is_noted_with_the_epoch_and_with_nothing_that_is_undone() -> None:
    fails = True

    def observe(step: str) -> None:
        if step == "flushed" and fails:
            raise eddy.ConnectorError("planned", retriable=True)

    group = Group(singles(), 0, partitions=1)
    group.workers = [eddy.Worker(group.topology, group.log, store=MemoryStore(), observe=observe)]
    group.write(a="x", b="x")
    for _ in range(5):
        group.workers[0].step()
        assert (group.noted(), group.told()) == ({}, {})
    fails = False
    group.settle()
    assert group.noted() == group.told() == expected({"a": "x", "b": "x"}, 1)
    group.close()


def test_beginning_and_end_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="eddy.worker")
    group = Group(singles(), 1, partitions=1)
    for written in ({"a": "x", "b": "x"}, {"c": "x"}, {"d": "y"}, {"a": None, "b": None}):
        group.write(**written)
        group.settle()
    (why,) = expected({"a": "x", "b": "x"}, 1).values()
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [("WARNING", f"no finite answer: {why}"), ("INFO", "'once' has a finite answer again, partition 0")]
    group.close()


def test_a_worker_that_takes_over_says_what_is_held_and_mends_it(caplog: pytest.LogCaptureFixture) -> None:
    group = Group(singles(), 1)
    group.write(a="x", b="x")
    group.settle()
    group.workers.pop().close()
    caplog.clear()
    group.workers.append(group.worker("another"))
    group.settle()
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["no finite answer"]
    group.write(a="y")
    group.settle()
    assert group.noted() == group.told() == {}
    group.close()


def test_notes_that_the_states_do_not_bear_out_go() -> None:
    """Of a recursion that the topology has no more, and of states that were made anew."""
    group = Group(singles(), 0)
    producer = group.log.producer(None)
    group.log.create_topics([TopicSpec("app-plan", 1)])
    producer.begin()
    write_held(producer, "app-plan", {("once", 3): "long ago", ("gone", 0): "a recursion of before"})
    producer.commit({}, None)
    producer.close()
    assert group.noted() == {("gone", 0): "a recursion of before", ("once", 3): "long ago"}
    group.workers = [group.worker("a"), group.worker("b")]
    group.settle()
    assert group.noted() == {}
    group.close()


def test_an_earlier_release_reads_past_it() -> None:
    """The first one decodes every key that it does not know as the place of a record left out, and skips tombstones."""
    import msgspec

    group = Group(singles(), 1, partitions=1)
    group.write(a="x", b="x")
    group.settle()
    where = TopicPartition("app-plan", 0)
    records = group.log.read(where, 0, group.log.end_offsets([where])[where], 100)
    values = [v for k, v in zip(records.keys, records.values, strict=True) if k is not None and k.startswith(b"held ")]
    assert [msgspec.json.decode(value or b"", type=tuple[str, int, int]) for value in values] == [("once", 0, -1)]
    assert read_metadata(group.log, "app-plan").left_out == set()
    group.close()


def test_a_driver_tells_it() -> None:
    with eddy.TopologyTestDriver(singles()) as driver:
        driver.input("members").pipe_all([("a", "x"), ("b", "x"), ("c", "y")])
        assert driver.held() == expected({"a": "x", "b": "x"}, 1)
        assert driver.output("singles").read_map() == {"y": 1}
        driver.restart(lose_state=True)
        assert driver.held() == expected({"a": "x", "b": "x"}, 1)
        driver.input("members").pipe("a", None)
        assert driver.held() == {}
        assert driver.output("singles").read_map() == {"x": 1}


@pytest.fixture
def links() -> Iterator[LocalLog]:
    log = LocalLog(None)
    log.create_topics([TopicSpec("links", 2), TopicSpec("reached", 2)])
    yield log
    log.close()


def link(log: LocalLog, **links: str | None) -> None:
    """Write node -> next; by the first letter of a node to one partition or the other."""
    producer = log.producer(None)
    producer.begin()
    for node, after in links.items():
        data = node.encode()
        producer.send("links", partition_of(data, 2), [data], [None if after is None else after.encode()], [0])
    producer.commit({}, None)
    producer.close()


def step(worker: eddy.Worker, times: int) -> None:
    for _ in range(times):
        worker.step()


def reached(log: LocalLog) -> set[str]:
    found: dict[bytes | None, bytes | None] = {}
    for partition in range(2):
        where = TopicPartition("reached", partition)
        records = log.read(where, 0, log.end_offsets([where])[where], 1_000)
        found.update(zip(records.keys, records.values, strict=True))
    return {key.decode() for key, value in found.items() if key is not None and value is not None}


def test_stop_ends_a_worker_only_when_nothing_unread_could_mend_it(links: LocalLog) -> None:
    """The cycle is there after few epochs of one record, and the record that mends it comes many epochs later."""
    mended = {"top": "a", "a": "b", "b": "a"} | {f"leaf{i}": "top" for i in range(100)}
    link(links, **mended)
    link(links, b="c")
    worker = eddy.Worker(reaching("stop"), links, eddy.Config(max_epoch_records=1), store=MemoryStore())
    was_held = False
    for _ in range(1_000):
        worker.step()
        was_held |= bool(worker.held())
    assert was_held, "the cycle was never seen, so that nothing was tried"
    assert worker.quiescent()
    assert reached(links) == {"top", "a", "b", "c"}
    link(links, c="a")
    with pytest.raises(eddy.NoFiniteAnswerError, match="all input is processed") as caught:
        worker.run_until_idle()
    assert str(caught.value).endswith(way_round(*"abca"))
    worker.close()


def test_a_restart_after_a_stop_reads_what_mends_it_and_goes_on(links: LocalLog) -> None:
    link(links, top="a", a="top")
    topology = reaching("stop")
    for _ in range(2):  # nothing has changed: it stops again
        worker = eddy.Worker(topology, links, store=MemoryStore())
        with pytest.raises(eddy.NoFiniteAnswerError, match="top → a → top"):
            worker.run_until_idle()
        worker.close()
    link(links, a="b")
    worker = eddy.Worker(topology, links, store=MemoryStore())
    worker.run_until_idle()
    assert (worker.held(), reached(links)) == ({}, {"top", "a", "b"})
    worker.close()


def test_stop_waits_for_the_input_of_other_workers(links: LocalLog) -> None:
    """Partition 0 has the cycle and partition 1 a leaf; whoever owns the fixpoint owns partition 0."""
    nodes = [f"n{i}" for i in range(20)]
    u, v, *_ = [node for node in nodes if partition_of(node.encode(), 2) == 0]
    leaf = next(node for node in nodes if partition_of(node.encode(), 2) == 1)
    workers = [eddy.Worker(reaching("stop"), links, member=name, store=MemoryStore()) for name in "ab"]
    link(links, top=u)
    for _ in range(20):
        for worker in workers:
            worker.step()
    (owner,) = [one for one in workers if TopicPartition("links", 0) in one.positions.entry.positions]
    (other,) = set(workers) - {owner}
    link(links, **{u: v, v: u, leaf: "top"})
    for _ in range(20):
        owner.step()
    assert owner.held()
    assert not owner.quiescent()
    for _ in range(20):
        other.step()  # it holds nothing itself, so that it goes on
    with pytest.raises(eddy.NoFiniteAnswerError):
        step(owner, 20)
    for worker in workers:
        worker.close()


def test_error_goes_on_where_stop_ends(links: LocalLog) -> None:
    link(links, top="a", a="top")
    worker = eddy.Worker(reaching(), links, store=MemoryStore())
    worker.run_until_idle()
    assert list(worker.held()) == [("reach", 0)]
    worker.close()


def test_stop_is_no_choice_of_a_stream() -> None:
    stream = eddy.Topology("t").stream("s", key=eddy.String, value=eddy.String)
    with pytest.raises(eddy.TopologyError, match="on_limit"):
        stream.recursively(lambda rows: rows.filter(lambda k, v: False), "loop", on_limit="stop")  # type: ignore[arg-type]


def test_stop_and_error_are_one_plan(links: LocalLog) -> None:
    """So that an application may change from one to the other with its states."""
    for on_limit in ("hold", "stop", "hold"):
        worker = eddy.Worker(reaching(on_limit), links, store=MemoryStore())  # type: ignore[arg-type]
        worker.run_until_idle()
        worker.close()


def test_a_message_fits_into_a_record_whatever_it_quotes() -> None:
    group = Group(singles(), 1, partitions=1)
    group.write(a="x" * 100_000, b="x" * 100_000)
    group.settle()
    ((_, why),) = group.noted().items()
    assert 10_000 <= len(why) < 11_000
    assert group.told() == group.noted()
    epochs = group.workers[0].statistics.epochs
    group.settle()
    assert group.workers[0].statistics.epochs == epochs, "what is noted is not noted again"
    group.close()


def test_a_driver_stops_and_goes_on_with_what_mends_it() -> None:
    with eddy.TopologyTestDriver(reaching("stop"), partitions=2) as driver:
        with pytest.raises(eddy.NoFiniteAnswerError):
            driver.input("links").pipe_all([("top", "a"), ("a", "top")])
        with pytest.raises(eddy.NoFiniteAnswerError):
            driver.restart(lose_state=True)
        assert driver.held() == {("reach", 0): way_round("top", "a", "top")}
        driver.input("links").pipe("a", "b")
        assert (driver.held(), set(driver.output("reached").read_map())) == ({}, {"top", "a", "b"})


def test_a_loop_inside_another_stops_in_the_name_of_the_outermost() -> None:
    topology = eddy.Topology("nested")
    edges = topology.table("edges", key=eddy.String, value=eddy.String).to_relation()

    def outer(rows: eddy.Relation[Any, Any]) -> Any:
        def inner(found: eddy.Relation[Any, Any]) -> Any:
            return rows.union(found.join(edges, lambda _, one, after: (after, one))).distinct("inner-distinct")

        return topology.mutually_recursive(inner, name="inner", on_limit="stop").found

    edges.recursively(lambda rows: outer(rows).distinct("outer-distinct"), name="outer")
    edges.recursively(lambda rows: rows.join(edges, lambda _, one, after: (after, one)), name="other")
    edges.recursively(lambda rows: rows.filter(lambda k, v: k < v), name="third", on_limit="stop")
    assert Scopes(topology.plan).stopping() == {"outer", "third"}
