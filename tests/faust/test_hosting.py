"""What `eddy.faust.host` refuses, and the app's sensors."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import faust
import pytest
from faust.sensors.datadog import DatadogMonitor
from faust.sensors.prometheus import setup_prometheus_sensors
from prometheus_client import CollectorRegistry, generate_latest

import eddy
from eddy.faust.app_settings import settings_of
from eddy.faust.sensors import reports
from eddy.serve.worker_watch import WorkerWatch


@pytest.fixture
def app(tmp_path: object) -> faust.App:
    return faust.App("hosting", broker="kafka://one:1;kafka://two", datadir=tmp_path)


@pytest.fixture
def topology() -> eddy.Topology:
    made = eddy.Topology("hosted")
    made.stream("in", eddy.String, eddy.String).to("out")
    return made


def test_the_app_s_brokers_are_those_of_the_worker(app: faust.App) -> None:
    assert settings_of(app).bootstrap == "one:1,two:9092"


def test_credentials_that_only_faust_s_client_can_use_are_refused() -> None:
    credentials = faust.SASLCredentials(username="u", password="p", mechanism="PLAIN")
    app = faust.App("with-login", broker="kafka://one", broker_credentials=credentials)
    with pytest.raises(eddy.ConfigurationError, match=r"log=eddy\.kafka"):
        settings_of(app)


def test_a_mode_that_there_is_not_and_a_second_hosting_are_refused(app: faust.App, topology: eddy.Topology) -> None:
    with pytest.raises(eddy.TopologyError, match="mode='threads'"):
        eddy.faust.host(app, topology, "threads")
    hosted = eddy.faust.host(app, topology)
    with pytest.raises(eddy.TopologyError, match="the app hosts it already"):
        eddy.faust.host(app, topology)
    assert not hosted.alive


def test_a_driver_that_drops_headers_is_refused(topology: eddy.Topology) -> None:
    app = faust.App("confluent", broker="confluent://one:9092")
    with pytest.raises(eddy.ConfigurationError, match="broker='kafka://one:9092'"):
        eddy.faust.host(app, topology)


def test_prometheus_sensor_has_the_figures_while_the_worker_runs(app: faust.App) -> None:
    registry = CollectorRegistry()
    setup_prometheus_sensors(app, registry=registry)
    with reports(app, WorkerWatch(), registry):
        assert b'eddy_state{state="CREATED"} 1.0' in generate_latest(registry)
        with (
            pytest.raises(eddy.ConfigurationError, match="the figures of one worker"),
            reports(app, WorkerWatch(), registry),
        ):
            pass
    assert b"eddy_state" not in generate_latest(registry)


@pytest.fixture
def agent() -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(20.0)
        yield listener


def test_datadog_sensor_is_sent_the_figures(app: faust.App, agent: socket.socket) -> None:
    monitor = DatadogMonitor(host="127.0.0.1", port=agent.getsockname()[1], prefix="app")
    app.monitor = monitor
    with reports(app, WorkerWatch()) as push:
        assert push is not None
        push()
        monitor.client.client.flush()
    monitor.client.client.close_socket()
    assert b"app.eddy_" in agent.recv(65_536)


def test_without_faust_the_error_names_the_extra() -> None:
    program = "import sys; sys.modules['faust'] = None; import eddy; eddy.faust"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'eddy-streams[faust]'" in found.stderr


def test_agents_mode_refuses_faust_s_transactions_and_an_assignor_that_spreads_sources(
    topology: eddy.Topology,
) -> None:
    app = faust.App("exactly", broker="kafka://one", processing_guarantee="exactly_once")
    with pytest.raises(eddy.ConfigurationError, match="Leave the setting out"):
        eddy.faust.host(app, topology, "agents")
    spread = faust.App("spread", broker="kafka://one", table_standby_replicas=0)
    topology.stream("second", eddy.String, eddy.String).to("out")
    with pytest.raises(eddy.ConfigurationError, match="table_standby_replicas=0"):
        eddy.faust.host(spread, topology, "agents")
