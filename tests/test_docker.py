"""No image is built here and no container run; what docker/ says is held against the code instead."""

import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import closing
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from ruamel.yaml import YAML

import eddy
from eddy.cli import lifeline, main
from eddy.cli.load import load
from eddy.connectors.broker import free_port, kafka_version
from eddy.connectors.broker.server_settings import server_settings
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.runtime.compiled_topology import named_topics
from eddy.serve.endpoint import endpoint_of
from eddy.serve.monitor import Monitor, monitored
from tests.commandline import commands_of, parsed, read_by_the_command_line
from tests.topology.programs import family
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parent.parent
DOCKER = ROOT / "docker"
TEXT = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = YAML(typ="safe").load(DOCKER / "compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
KAFKA = SERVICES["kafka"]
SETTINGS = {name: str(value) for name, value in KAFKA["environment"].items() if name != "KAFKA_HEAP_OPTS"}
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
PROGRAM = "/app/examples/wordnet/topology.py"
SECONDS = {"s": 1, "m": 60}

each_of_ours = pytest.mark.parametrize("name", OURS)


@pytest.fixture(autouse=True)
def no_settings_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in read_by_the_command_line():
        monkeypatch.delenv(variable, raising=False)


def instructions(word: str) -> list[str]:
    return re.findall(rf"^{word} (.+)$", TEXT, flags=re.MULTILINE)


def copied() -> dict[str, str]:
    """What of the repository is in the final image, by where it is there."""
    final = TEXT[TEXT.rindex("\nFROM ") :]
    pairs = [line.split() for line in re.findall(r"^COPY (?!--from)(.+)$", final, flags=re.MULTILINE)]
    return {target: source for source, target in pairs}


def in_repository(path: str) -> Path:
    """The file that a path of the image comes from."""
    for target, source in copied().items():
        if PurePosixPath(path).is_relative_to(target):
            return ROOT / source / PurePosixPath(path).relative_to(target)
    raise AssertionError(f"nothing is copied to {path}")


def shell_words(service: dict[str, Any]) -> list[list[str]]:
    """The commands that a service runs: its own, or those of the pipe that it gives to a shell."""
    if "entrypoint" not in service:
        return [["eddy", *service["command"]]]
    assert service["entrypoint"] == ["bash", "-o", "pipefail", "-c"], "a failure anywhere in the pipe has to show"
    (line,) = service["command"]
    return [shlex.split(part) for part in line.split("|")]


def seconds(duration: str) -> float:
    return float(duration[:-1]) * SECONDS[duration[-1]]


class TestImage:
    def test_takes_from_the_repository_what_is_there_and_all_that_is_not_ignored(self) -> None:
        sources = {path for line in instructions("COPY") if "--from" not in line for path in line.split()[:-1]}
        lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        rules = [line for line in lines if line and not line.startswith("#")]
        assert rules[0] == "*"
        assert {rule[1:] for rule in rules if rule.startswith("!")} == sources
        assert [source for source in sources if not (ROOT / source).exists()] == []
        ignored_again = [rule for rule in rules[1:] if not rule.startswith("!")]
        assert not any(fnmatch(source, rule) for source in sources for rule in ignored_again)

    def test_installs_extras_that_there_are_on_a_python_that_the_package_takes(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        (extras,) = re.findall(r"pip install .*'\.\[(.+)\]'", TEXT)
        assert set(extras.split(",")) == {"http", "kafka"} <= project["optional-dependencies"].keys()
        minors = {int(minor) for minor in re.findall(r"^FROM python:3\.(\d+)-slim", TEXT, flags=re.MULTILINE)}
        assert len(minors) == 1
        assert min(minors) >= int(project["requires-python"].removeprefix(">=3."))

    def test_runs_eddy_as_a_user_of_its_own_that_owns_the_data(self) -> None:
        assert instructions("ENTRYPOINT") == ['["eddy"]']
        (user,) = instructions("USER")
        assert int(user) > 0, "a number, so that Kubernetes can see that it is not root"
        assert f"--uid {user} --user-group --home-dir /data eddy && install -d -o eddy -g eddy /data" in TEXT
        assert instructions("VOLUME") == ["/data"]

    def test_sets_variables_that_the_command_line_reads_to_places_in_its_volume(self) -> None:
        (line,) = instructions("ENV")
        variables = dict(pair.split("=") for pair in line.split() if pair.startswith("EDDY_"))
        assert variables.keys() <= read_by_the_command_line()
        assert all(value.startswith("/data/") for value in variables.values())

    def test_asks_the_port_of_the_command_that_it_shows(self) -> None:
        (check,) = instructions("HEALTHCHECK")
        *python, port = re.findall(r'"(.+?)"', check)
        assert python[0] == "python"
        assert in_repository(python[1]).exists()
        (shown,) = re.findall(r"^#   docker run .* (eddy run .*)$", TEXT, flags=re.MULTILINE)
        assert endpoint_of(parsed(shlex.split(shown)).params["http"]).port == int(port)


def healthy(*ports: int) -> int:
    command = [sys.executable, DOCKER / "healthcheck.py", *map(str, ports)]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE_S).returncode


def fail(monitor: Monitor, worker: eddy.Worker) -> None:
    with monitor.watching(worker):
        raise eddy.DataError("a record that the policy does not take")


def test_health_check_says_whether_all_workers_are_alive() -> None:
    topology, endpoint = family(), endpoint_of("0")
    with closing(LocalLog(None)) as log:
        log.create_topics(TopicSpec(name, 1) for name in named_topics(topology))
        with monitored(endpoint, topology) as one, monitored(endpoint, topology) as other:
            assert one.port
            assert other.port
            assert healthy(one.port, other.port) == 0
            assert healthy(one.port, free_port()) == 1, "nobody listens there"
            with closing(eddy.Worker(topology, log)) as worker:
                assert healthy(one.port, other.port) == 0
                with pytest.raises(eddy.DataError):
                    fail(other, worker)
                assert healthy(one.port, other.port) == 1, "one of them has failed"


class TestCompose:
    def test_is_what_the_compose_specification_says(self) -> None:
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
        run = subprocess.run([*command, DOCKER / "compose.yaml"], capture_output=True, text=True)
        assert run.returncode == 0, run.stdout

    def test_builds_our_image_as_the_dockerfile_says(self) -> None:
        for service in OURS.values():
            build = service["build"]
            file = "spark.Dockerfile" if service["image"] == "eddy-spark" else "Dockerfile"
            assert (DOCKER / build["context"] / build["dockerfile"]).samefile(DOCKER / file)
            assert (DOCKER / build["context"]).samefile(ROOT)

    def test_builds_the_image_with_spark_of_ours_with_the_packages_of_the_extra(self) -> None:
        text = (DOCKER / "spark.Dockerfile").read_text(encoding="utf-8")
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        (packages,) = re.findall(r"^RUN pip install --no-cache-dir (.+)$", text, flags=re.MULTILINE)
        assert shlex.split(packages) == project["optional-dependencies"]["spark"]
        assert re.findall(r"^USER (.+)$", text, flags=re.MULTILINE) == ["root", *instructions("USER")]

    @each_of_ours
    def test_runs_commands_that_eddy_takes_and_files_that_are_there(self, name: str) -> None:
        environment = OURS[name]["environment"]
        assert environment.keys() <= read_by_the_command_line()
        for words in shell_words(OURS[name]):
            if words[0] == "python":
                assert in_repository(words[1]).exists()
                continue
            context = parsed(words)
            assert context.command.name == "create" or words[1] in commands_of(main)
            if (program := context.params.get("program")) is not None:
                assert load(str(in_repository(program))).topology.name == "wordnet"

    @each_of_ours
    def test_lets_our_containers_do_no_more_than_they_need(self, name: str) -> None:
        service = OURS[name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not {"privileged", "user", "network_mode", "cap_add", "ports"} & service.keys()

    def test_makes_the_topics_that_the_topology_reads_and_writes_and_fills_its_source(self) -> None:
        topology = load(str(in_repository(PROGRAM))).topology
        made = parsed(shell_words(SERVICES["topics"])[0]).params
        assert sorted(made["names"]) == sorted(named_topics(topology))
        assert made["partitions"] >= parsed(shell_words(SERVICES["worker"])[0]).params["processes"]
        produced, consumed = (
            parsed(shell_words(SERVICES[name])[at]).params for name, at in [("concepts", 1), ("top", 0)]
        )
        assert [produced["topic"]] == [node.topic for node in topology.plan.sources()]
        assert [consumed["topic"]] == [node.topic for node in topology.plan.sinks()]

    def test_asks_every_process_of_the_worker_how_it_is(self) -> None:
        worker = SERVICES["worker"]
        asked = parsed(shell_words(worker)[0]).params
        first = endpoint_of(asked["http"])
        assert first.loopback, "without a token"
        command, python, script, *ports = worker["healthcheck"]["test"]
        assert (command, python) == ("CMD", "python")
        assert in_repository(script).exists()
        assert [int(port) for port in ports] == [first.port + number for number in range(asked["processes"])]

    def test_keeps_states_in_a_volume_and_gives_workers_time_to_stop(self) -> None:
        worker = SERVICES["worker"]
        places = dict(volume.split(":") for volume in worker["volumes"])
        assert list(places.values()) == instructions("VOLUME")
        named = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])]
        assert len(set(named)) == len(named), "a volume each"
        assert set(named) == COMPOSE["volumes"].keys()
        assert {*places, *(volume.split(":")[0] for volume in KAFKA["volumes"])} <= set(named)
        assert seconds(worker["stop_grace_period"]) >= lifeline.PATIENCE_S

    def test_serves_tables_to_other_containers_with_a_token_only(self) -> None:
        serve = SERVICES["serve"]
        asked = parsed(shell_words(serve)[0]).params
        (secret,) = serve["secrets"]
        assert str(asked["http_token_file"]) == f"/run/secrets/{secret}"
        assert COMPOSE["secrets"].keys() == {secret}
        assert not endpoint_of("8080").token
        host, port = asked["http"].split(":")
        assert (host, serve["healthcheck"]["test"][-1]) == ("0.0.0.0", port)
        assert serve["profiles"] == ["serve"]
        assert [volume.split(":")[1] for volume in serve["volumes"]] == instructions("VOLUME")

    def test_waits_for_what_can_come_to_pass(self) -> None:
        for service in SERVICES.values():
            for other, needed in service.get("depends_on", {}).items():
                checked = "test" in SERVICES[other].get("healthcheck", {})
                ends = SERVICES[other]["restart"] == "no"
                assert needed["condition"] in ["service_healthy"] * checked + ["service_completed_successfully"] * ends
                assert set(SERVICES[other].get("profiles", [])) <= set(service.get("profiles", []))

    def test_runs_backfill_before_the_worker_and_verify_behind_it_both_with_spark(self) -> None:
        def before(name: str) -> set[str]:
            named = SERVICES[name].get("depends_on", {}).keys()
            return set(named).union(*map(before, named))

        for name in ("backfill", "verify"):
            service = SERVICES[name]
            assert (service["profiles"], service["image"]) == (["batch"], "eddy-spark")
            words = shell_words(service)[0]
            assert words[:3] == ["eddy", name, PROGRAM]
            assert parsed(words).params["memory"] == "1g"
        assert before("backfill") == {"kafka", "topics", "concepts"}
        assert before("verify") > {"worker", "wait"}

    def test_starts_by_itself_only_what_is_needed(self) -> None:
        assert [name for name, service in SERVICES.items() if "profiles" not in service] == [
            "kafka",
            "topics",
            "concepts",
            "worker",
        ]


def addresses(text: str) -> dict[str, tuple[str, int]]:
    """Listeners by name: host and port."""
    found = re.findall(r"(\w+)://([\w.]*):(\d+)", text)
    return {name: (host, int(port)) for name, host, port in found}


class TestComposeKafka:
    def test_is_the_version_that_eddy_is_tested_with(self) -> None:
        assert KAFKA["image"] == f"apache/kafka:{kafka_version()}"

    def test_has_settings_that_brokers_know_and_one_copy_of_everything(self) -> None:
        ours = server_settings(1, 9092, {1: 9093})
        theirs = {name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in SETTINGS.items()}
        assert theirs.keys() <= ours.keys()
        same = [name for name in theirs if name.endswith((".factor", ".isr", ".roles", ".enable", ".delay.ms"))]
        assert len(same) == 8
        assert {name: theirs[name] for name in same} == {name: ours[name] for name in same}

    def test_is_reached_where_it_says_it_is(self) -> None:
        bound, told = (
            addresses(SETTINGS["KAFKA_LISTENERS"]),
            addresses(SETTINGS["KAFKA_ADVERTISED_LISTENERS"]),
        )
        protocols = dict(pair.split(":") for pair in SETTINGS["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
        assert protocols == dict.fromkeys(bound, "PLAINTEXT")
        assert {name: port for name, (_, port) in told.items()} == {
            name: bound[name][1] for name in ("INSIDE", "OUTSIDE")
        }
        assert SETTINGS["KAFKA_INTER_BROKER_LISTENER_NAME"] == "INSIDE"
        controller = bound[SETTINGS["KAFKA_CONTROLLER_LISTENER_NAMES"]]
        node = SETTINGS["KAFKA_NODE_ID"]
        assert SETTINGS["KAFKA_CONTROLLER_QUORUM_VOTERS"] == f"{node}@{controller[0]}:{controller[1]}"
        host, port = told["INSIDE"]
        assert host in SERVICES
        assert {service["environment"]["EDDY_BOOTSTRAP"] for service in OURS.values()} == {f"{host}:{port}"}
        host, port = told["OUTSIDE"]
        assert KAFKA["ports"] == [f"127.0.0.1:{port}:{port}"], "without a password it is for this machine alone"
        assert KAFKA["healthcheck"]["test"][-2:] == ["--bootstrap-server", f"{host}:{port}"]

    def test_keeps_its_data_in_a_volume(self) -> None:
        (volume,) = KAFKA["volumes"]
        assert volume.split(":")[1] == SETTINGS["KAFKA_LOG_DIRS"]


def test_page_names_files_services_and_commands_that_there_are() -> None:
    text = (DOCKER / "README.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL) for line in block.splitlines()]
    composed = [shlex.split(line, comments=True) for line in lines if line.startswith("docker compose")]
    assert len(composed) >= 5
    for words in composed:
        assert words[:4] == ["docker", "compose", "-f", "docker/compose.yaml"]
        named = [word for word in words[5:] if not word.startswith("-")]
        if words[4] in ("run", "kill", "logs", "restart"):
            assert named[0] in SERVICES
    runs = [line[line.index(" eddy ") + 1 :] for line in lines if line.startswith("docker run")]
    assert runs
    for line in runs:
        words = shlex.split(line, comments=True)
        context = parsed(words)
        if (program := context.params.get("program")) is not None and program.startswith("/app/examples"):
            assert in_repository(program).exists()
