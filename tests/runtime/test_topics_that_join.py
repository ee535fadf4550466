"""Topics that join and go while two workers run, each on a thread of its own."""

import uuid
from contextlib import ExitStack
from datetime import timedelta

import eddy
from eddy.cli.application import find
from eddy.cli.wait import Patience, wait_until_quiescent
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from tests.runtime.counted_keys import last_counts, send_keys
from tests.waiting import PATIENCE_S, wait_for

S, N = eddy.String, eddy.Int64


def test_topics_join_and_go_while_two_workers_run(log: Log) -> None:
    name = f"p{uuid.uuid4().hex[:8]}"
    topology = eddy.Topology(name)
    topology.stream(pattern=f"{name}-in-.*", key=S, value=S).group_by_key().count("counts").to(f"{name}-out")
    first, second, out = f"{name}-in-a", f"{name}-in-b", f"{name}-out"
    log.create_topics([TopicSpec(first, 2), TopicSpec(out, 2)])
    config = eddy.Config(topics_interval_s=0.3)
    keys = [b"k%d" % number for number in range(20)]

    def rests() -> bool:
        return find(topology, log).quiescent(log)

    with ExitStack() as stack:
        for member in "01":
            stack.enter_context(eddy.run(topology, log, config, member=member))
        send_keys(log, first, keys)
        wait_for(lambda: last_counts(log, out) == dict.fromkeys(keys, 1), PATIENCE_S, "the first topic")
        log.create_topics([TopicSpec(second, 2)])
        send_keys(log, second, keys)
        send_keys(log, first, keys[:5])
        wanted = {key: 2 + (key in keys[:5]) for key in keys}
        wait_for(lambda: rests() and last_counts(log, out) == wanted, PATIENCE_S, "the topic that has joined")
        log.delete_topics([second])
        send_keys(log, first, keys)
        wanted = {key: count + 1 for key, count in wanted.items()}
        wait_for(lambda: rests() and last_counts(log, out) == wanted, PATIENCE_S, "the records after a topic has gone")


def test_windows_close_once_while_topics_join_and_go(log: Log) -> None:
    name = f"p{uuid.uuid4().hex[:8]}"
    first, second, third, out = (f"{name}-{topic}" for topic in ("in-a", "in-b", "in-c", "out"))
    topology = eddy.Topology(name)
    groups = topology.stream(pattern=f"{name}-in-.*", key=S, value=S).group_by(lambda key, value: value, key=S)
    counts = groups.windowed_by(eddy.TimeWindows(timedelta(seconds=10)), "close").count("counts").to_stream()
    counts.map(lambda window, n: (f"{window.start_ms}", n), key=S).to(out, value=N)
    log.create_topics([TopicSpec(first, 2), TopicSpec(out, 2)])
    keys = [b"k%d" % number for number in range(20)]

    def wait_for_windows(wanted: dict[bytes, int], what: str) -> None:
        wait_until_quiescent(log, topology, Patience(PATIENCE_S))
        assert last_counts(log, out) == wanted, what

    with ExitStack() as stack:
        for member in "01":
            stack.enter_context(eddy.run(topology, log, eddy.Config(topics_interval_s=0.3), member=member))
        send_keys(log, first, keys, 5_000)
        wait_for_windows({}, "the first topic")
        log.create_topics([TopicSpec(second, 2)])
        send_keys(log, second, keys, 1_000)
        wait_for_windows({}, "the second topic")  # it has joined before the first one's time goes on
        send_keys(log, first, keys, 30_000)
        wait_for_windows({}, "the topic that has joined holds the window open")
        send_keys(log, second, keys, 30_000)
        wait_for_windows({b"0": 40}, "the first window")
        log.create_topics([TopicSpec(third, 2)])
        send_keys(log, third, keys, 1_000)
        wait_for_windows({b"0": 40}, "records that are late")
        send_keys(log, first, keys, 60_000)
        send_keys(log, third, keys, 60_000)
        wait_for_windows({b"0": 40}, "the second topic alone holds a window open")
        log.delete_topics([second])
        wait_for(lambda: not log.topics([second]), PATIENCE_S, "the end of the second topic")
        wait_for_windows({b"0": 40, b"30000": 40}, "windows without the topic that has gone")
    ends = log.end_offsets([TopicPartition(out, partition) for partition in (0, 1)])
    read = [log.read(at, 0, end, 1_000) for at, end in ends.items()]
    assert sum(len(records) for records in read) == 2  # each window once
