"""What /metrics says: that Prometheus can read it, that it is true, and that the documentation lists all of it."""

import os
import re
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.serve.state import InstanceState
from tests.serve.conftest import Ward, produce

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(eddy_\w+)(?:\{([\w,]+)\})?` \| (\w+) \| ([\w ]+) \| (.+) \|$", re.MULTILINE)

Admit = Callable[..., Ward]
Samples = dict[str, float]


def samples(ward: Ward) -> Samples:
    """What is scraped now, by `name` or `name{value of label,…}`."""
    page = ward.get("/metrics")
    assert (page.status, page.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = [sample for family in text_string_to_metric_families(page.text) for sample in family.samples]
    told = {name_of(sample): sample.value for sample in found}
    assert len(told) == len(found), "each time series is there once"
    return told


def name_of(sample: Sample) -> str:
    return f"{sample.name}{{{','.join(sample.labels.values())}}}" if sample.labels else sample.name


def states(found: Samples) -> set[str]:
    return {name[len("eddy_state{") : -1] for name, value in found.items() if name.startswith("eddy_state{") and value}


def test_figures_move_as_records_are_processed(ward: Ward, log: LocalLog) -> None:
    ward.settle()
    before = samples(ward)
    produce(log, {"leaf": "twig", "twig": "branch", "branch": "tree"})
    ward.now += 3.0
    ward.step()
    after = samples(ward)
    moved = {name: after[name] - before[name] for name in after if after[name] != before[name] and "eddy_" in name}
    done = ward.worker.statistics
    assert moved["eddy_records_total"] == 3
    assert moved["eddy_written_records_total"] == 3
    assert moved["eddy_epochs_total"] == moved["eddy_commit_seconds_count"] == moved["eddy_epoch_seconds_count"] == 1
    assert moved["eddy_waves_total"] == done.waves > 0
    assert moved["eddy_loop_rows_total"] == done.loop_rows > 0
    assert after["eddy_owned_partitions"] == len(ward.worker.positions.entry.positions) > 0
    ward.now += 9.0
    assert samples(ward)["eddy_last_commit_age_seconds"] == samples(ward)["eddy_last_step_age_seconds"] == 9.0


def test_state_is_one_of_all(admit: Admit) -> None:
    ward = admit()
    assert states(samples(ward)) == {"CREATED"}
    assert {name for name in samples(ward) if name.startswith("eddy_state{")} == {
        f"eddy_state{{{s}}}" for s in InstanceState
    }
    ward.admit().settle()
    assert (states(samples(ward)), samples(ward)["eddy_ready"]) == ({"RUNNING"}, 1.0)
    ward.asked_to_stop = True
    assert (states(samples(ward)), samples(ward)["eddy_ready"]) == ({"PENDING_SHUTDOWN"}, 0.0)


def test_lag_is_told_by_topic_as_of_when_it_was_read(ward: Ward, log: LocalLog) -> None:
    ward.settle()
    found = samples(ward)
    assert found["eddy_lag_offsets{nodes}"] == found["eddy_lag_offsets{family-ancestors-loop}"] == 0.0
    assert found["eddy_quiescent"] == 1.0
    produce(log, {"leaf": "twig", "twig": "branch"})
    assert samples(ward)["eddy_quiescent"] == 1.0, "a scrape does not ask the log"
    ward.monitor.refresh()
    ward.now += 4.0
    found = samples(ward)
    assert found["eddy_lag_offsets{nodes}"] >= 2.0
    assert (found["eddy_quiescent"], found["eddy_lag_age_seconds"]) == (0.0, 4.0)


def test_restore_goes_down_to_nothing(admit: Admit, log: LocalLog) -> None:
    produce(log, {f"n{i}": f"n{i // 2}" for i in range(1, 100)})
    ward = admit(config=eddy.Config(restore_records=50))
    with closing(eddy.Worker(ward.topology, log)) as before:
        before.run_until_idle()
    ward.admit()
    left = []
    ward.step()
    while ward.worker.restoring:
        found = samples(ward)
        left.append(found["eddy_restore_remaining_offsets"])
        assert (states(found), found["eddy_ready"]) == ({"REBALANCING"}, 0.0)
        ward.step()
    assert len(left) > 2
    assert left == sorted(left, reverse=True)
    found = samples(ward)
    assert found["eddy_restore_remaining_offsets"] == 0.0
    assert found["eddy_restored_records_total"] == ward.worker.statistics.restored > 100


def test_what_goes_wrong_is_counted(ward: Ward, log: LocalLog) -> None:
    ward.settle()
    produce(log, {"leaf": "twig"})
    log.producer("family-0").close()  # it takes the worker's transactional id
    ward.step()
    ward.now += 5.0
    ward.step()
    found = samples(ward)
    assert found["eddy_failing_seconds"] == 5.0
    assert found["eddy_aborts_total"] == found["eddy_fences_total"] == found["eddy_dropped_producers_total"] == 1.0
    ward.settle()
    assert samples(ward)["eddy_failing_seconds"] == 0.0
    assert samples(ward)["eddy_rebalances_total"] == ward.worker.statistics.rebalances > 0


def test_records_left_out_and_rows_cut_are_counted(admit: Admit, log: LocalLog) -> None:
    ward = admit(config=eddy.Config(on_error="skip")).admit()
    with closing(log.producer(None)) as producer:
        producer.begin()
        producer.send("nodes", 0, [b"\xff", None], [b"x", b"x"], [0, 0])
        producer.commit({}, None)
    ward.settle()
    assert samples(ward)["eddy_skipped_records_total"] == 1.0
    assert samples(ward)["eddy_dropped_records_total"] == 1.0


def windows(admit: Admit, log: LocalLog) -> Ward:
    """A worker with windows, some of them open, and a record that was late."""
    log.create_topics([TopicSpec("clicks", 2)])
    topology = eddy.Topology("clicks")
    groups = topology.stream("clicks", eddy.String, eddy.String).group_by(lambda key, value: value, key=eddy.String)
    groups.windowed_by(eddy.TimeWindows(timedelta(seconds=10), grace=timedelta(seconds=1)), "close").count("counts")
    ward = admit(topology=topology).admit()
    with closing(log.producer(None)) as producer:
        producer.begin()
        producer.send("clicks", [0, 0, 0, 1], [b"a"] * 4, [b"x"] * 4, [1_000, 41_000, 2_000, 5_000])
        producer.commit({}, None)
    ward.settle()
    return ward


def test_late_records_and_the_partition_that_keeps_windows_open_are_told(admit: Admit, log: LocalLog) -> None:
    found = samples(windows(admit, log))
    assert found["eddy_late_records_total"] == 1.0
    assert found["eddy_open_windows_seconds{1,clicks,counts}"] == 30.0


def test_the_partition_that_keeps_windows_open_is_told_and_is_no_illness(admit: Admit, log: LocalLog) -> None:
    ward = windows(admit, log)
    ward.get("/metrics")
    assert ward.get("/readyz").json == {
        "state": "RUNNING",
        "reason": "",
        "waiting": [
            "windows of 'counts' wait for partition 1 of 'clicks', 30 s of event time after the end of the first one"
        ],
    }


def test_purges_are_counted_with_what_they_deleted(admit: Admit, log: LocalLog) -> None:
    config = eddy.Config(max_loop_rows=1, max_epoch_records=1, purge_interval_s=0.0)
    ward = admit(config=config).admit()
    produce(log, {f"n{i}": f"n{i + 1}" for i in range(10)})
    ward.settle()
    ward.step(3)
    found = samples(ward)
    assert found["eddy_purges_total"] > 0
    assert found["eddy_purged_offsets_total"] >= found["eddy_purges_total"]


def test_durations_are_counted_in_buckets_that_add_up(ward: Ward) -> None:
    for seconds in (0.0004, 0.001, 0.002, 10.0, 60.0):
        ward.worker.statistics.commit_s.add(seconds)
    found = samples(ward)
    bounds = ["0.001", "0.0025", "5.0", "10.0", "+Inf"]
    assert [found[f"eddy_commit_seconds_bucket{{{bound}}}"] for bound in bounds] == [2.0, 3.0, 3.0, 4.0, 5.0]
    assert found["eddy_commit_seconds_count"] == 5.0
    assert found["eddy_commit_seconds_sum"] == pytest.approx(70.0034)


def test_build_and_process_are_told(ward: Ward) -> None:
    found = samples(ward)
    assert any(re.fullmatch(r"eddy_build_info\{family,0,3\.\d+\.\d+\S*,\d+\.\d+\.\d+\S*\}", name) for name in found)
    if os.path.exists("/proc/self/stat"):
        assert found["process_resident_memory_bytes"] > 1_000_000


def test_documentation_lists_exactly_what_there_is(ward: Ward, admit: Admit, log: LocalLog) -> None:
    produce(log, {"leaf": "twig"})
    ward.settle()
    pages = [one.get("/metrics").text for one in (ward, windows(admit, log))]
    families = [
        family
        for page in pages
        for family in text_string_to_metric_families(page)
        if family.samples and (page is pages[0] or family.name == "eddy_open_windows_seconds")
    ]
    told = {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            {label for sample in family.samples for label in sample.labels if label != "le"},
        )
        for family in families
        if family.name.startswith("eddy_")
    }
    rows = ROW.findall(DOCUMENT)
    documented = {name: (kind, set(filter(None, labels.split(",")))) for name, labels, kind, _, _ in rows}
    assert documented == told
    assert len(documented) == len(rows), "each is listed once"
    for name, _, kind, unit, _ in rows:
        assert (unit == "seconds") == name.removesuffix("_total").endswith("_seconds"), name
        assert name.endswith("_total") == (kind == "counter"), name


def test_alerts_name_metrics_that_exist() -> None:
    known = {name for name, *_ in ROW.findall(DOCUMENT)}
    named = set(re.findall(r"\beddy_\w+", DOCUMENT))
    assert {name.removesuffix("_bucket") for name in named} == known


@pytest.mark.parametrize("state", InstanceState)
def test_documentation_explains_each_state(state: InstanceState) -> None:
    assert f"| `{state}` |" in DOCUMENT
