"""Real Kafka brokers for tests: one that all tests of a session share, and others that a test has for itself.

A test that takes `broker` gets the address of one that is started by the first test that asks for it and that all
pytest-xdist workers use: choose names of topics and groups that no other test has. `secured_broker` is the same with
passwords and ACLs. `own_broker` starts one for the test alone, and `cluster` a cluster, to be killed and paused.

They end with the session, however it ends: a process of its own, the keeper, waits for a lock that the pytest process
holds as long as it lives.
"""

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from eddy.connectors.broker import Broker, free_port
from eddy.connectors.broker.jars import find_jars
from eddy.connectors.broker.process import claimed, launch
from tests.class_data import Archive

SESSION = "EDDY_TESTS_SESSION"
"""The environment variable that tells workers and keeper which file the pytest process has locked."""

STARTS_S = 240.0
"""The most that a broker may take to start; less than a test may, so that the failure says which one it was."""

SHARED_HEAP_MIB = 1024
"""All tests of a session share it; a broker that collects garbage answers late."""

NEVER_FENCED = {"broker.session.timeout.ms": "60000"}
"""A broker that gets no processor for seconds is not taken for dead; these are not killed, so nobody waits for it."""

NEVER_BY_AGE = {"log.retention.ms": "-1"}
"""Records of tests are of 1970: a broker that deletes old ones would do so in the middle of a test."""

RARELY_COMPACTED = {"log.cleaner.backoff.ms": "600000"}
"""Looking for what to compact takes a tenth of the time of a broker with many topics."""

ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
_BROKERS, _NOTES = "brokers", "processor_s"
USERS = {ADMIN: ADMIN_PASSWORD, "eddy": "eddy-secret", "stranger": "stranger-secret"}

OwnBroker = Callable[..., Broker]


def _run_once(java_options: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(prefix="eddy-broker-") as folder:
        broker = Broker(Path(folder, "broker"), heap_mib=256, java_options=java_options)
        try:
            broker.start(STARTS_S)
            broker.stop(STARTS_S)
        finally:
            broker.kill()


QUICK_BROKER = Archive("kafka", lambda: find_jars().files, _run_once)


def hold_session(config: pytest.Config) -> None:
    """Lock a file for as long as this process lives, and name it to its workers. Workers themselves lock none."""
    if hasattr(config, "workerinput"):
        return
    file = tempfile.NamedTemporaryFile(prefix="eddy-tests-", delete=False)  # noqa: SIM115

    def let_go() -> None:
        file.close()
        Path(file.name).unlink(missing_ok=True)  # the keeper may be quicker

    config.add_cleanup(let_go)
    fcntl.flock(file, fcntl.LOCK_EX)
    os.environ[SESSION] = file.name


def keep(session: Path, folder: Path) -> None:
    """The keeper: wait for the end of the session, then end its brokers and remove their data."""
    with contextlib.suppress(FileNotFoundError), session.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    for home in folder.iterdir():
        if home.is_dir():
            Broker(home).kill()
    shutil.rmtree(folder, ignore_errors=True)
    session.unlink(missing_ok=True)


def start_keeper(session: Path, folder: Path) -> None:
    """Start the keeper of what runs in the folders of `folder`, unless there is one."""
    folder.mkdir(exist_ok=True)
    with claimed(folder) as lock:
        if lock is not None:
            launch([sys.executable, "-P", __file__, str(session), str(folder)], folder, lock)


class _Measured(Broker):
    """A broker whose processor time counts as that of the run."""

    def kill(self) -> None:
        _note(self)
        super().kill()

    def stop(self, timeout_s: float = STARTS_S) -> bool:
        _note(self)
        return super().stop(timeout_s)


def _note(broker: Broker) -> None:
    if broker.pid is not None:
        with (broker.folder.parent / _NOTES).open("a") as notes:
            notes.write(f"{_processor_s(broker.pid)}\n")


def _processor_s(pid: int) -> float:
    """The processor seconds of a process; 0 where it has ended, or where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def brokers_processor_s(config: pytest.Config) -> float:  # private: pytest names it to fixtures only
    """The processor seconds of all brokers of a session: of those that have ended, and of those that end with it."""
    folder = Path(config._tmp_path_factory.getbasetemp()) / _BROKERS  # type: ignore[attr-defined]
    noted = (folder / _NOTES).read_text().split() if (folder / _NOTES).exists() else []
    running = [Broker(home).pid for home in folder.glob("*/")]
    return sum(map(float, noted)) + sum(_processor_s(pid) for pid in running if pid is not None)


@pytest.fixture(scope="session")
def brokers_folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Where the session's brokers are, those of all workers."""
    if request.config.getoption("--quick"):
        pytest.skip("--quick leaves out tests of brokers")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / _BROKERS
    start_keeper(Path(os.environ[SESSION]), folder)
    return folder


@pytest.fixture(scope="session")
def broker(brokers_folder: Path) -> str:
    """The address of a broker without passwords, which the tests of the session share."""
    shared = Broker(
        brokers_folder / "shared",
        settings=NEVER_BY_AGE | NEVER_FENCED | RARELY_COMPACTED,
        heap_mib=SHARED_HEAP_MIB,
        java_options=QUICK_BROKER.options(),
    )
    shared.start(STARTS_S)
    return shared.bootstrap


@dataclass(frozen=True)
class Secured:
    """A broker where every client has a password, and may do what an ACL lets it. ADMIN may do everything."""

    bootstrap: str

    def client(self, user: str = ADMIN, password: str | None = None) -> dict[str, str]:
        """What librdkafka needs to come in as `user`; with its own password unless another is given."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user] if password is None else password,
        }


def security() -> dict[str, str]:
    """Kafka's settings for `Secured`."""
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    login = f'username="{ADMIN}" password="{ADMIN_PASSWORD}" {users}'
    return {
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLERS:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {login};"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The node's own controller comes in without a password; no client can reach that port as anyone else.
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
    }


@pytest.fixture(scope="session")
def secured_broker(brokers_folder: Path) -> Secured:
    """A broker with passwords and ACLs, which the tests of the session share."""
    shared = Broker(
        brokers_folder / "secured",
        settings=security() | NEVER_BY_AGE | NEVER_FENCED,
        heap_mib=256,
        java_options=QUICK_BROKER.options(),
    )
    shared.start(STARTS_S)
    return Secured(shared.bootstrap)


@pytest.fixture
def own_broker(brokers_folder: Path) -> Iterator[OwnBroker]:
    """Make a broker for the test alone, not yet started. It is killed and removed with the test."""
    made: list[Broker] = []

    def make(settings: Mapping[str, str] | None = None, **arguments: object) -> Broker:
        folder = brokers_folder / uuid.uuid4().hex[:12]
        settings = NEVER_BY_AGE | dict(settings or {})
        made.append(
            _Measured(
                folder, settings=settings, **{"heap_mib": 256, "java_options": QUICK_BROKER.options(), **arguments}
            )
        )  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.kill()
        shutil.rmtree(one.folder, ignore_errors=True)


@dataclass(frozen=True)
class Cluster:
    """Nodes that run; each is a broker and a controller."""

    nodes: list[Broker]

    @property
    def bootstrap(self) -> str:
        """All addresses."""
        return ",".join(node.bootstrap for node in self.nodes)


StartCluster = Callable[..., Cluster]


@pytest.fixture
def cluster(own_broker: OwnBroker) -> StartCluster:
    """Start a cluster of three nodes for the test alone; settings of Kafka's may be given."""

    def start(nodes: int = 3, settings: Mapping[str, str] | None = None) -> Cluster:
        voters = {node: free_port() for node in range(1, nodes + 1)}
        ports = [free_port() for _ in voters]
        same = {"voters": voters, "cluster_id": "eddyTestsClusterAAAAAA", "settings": settings}
        made = [own_broker(node_id=node, port=port, **same) for node, port in zip(voters, ports, strict=True)]
        for node in made:
            node.launch()
        for node in made:
            node.wait(STARTS_S)
        return Cluster(made)

    return start


if __name__ == "__main__":
    keep(Path(sys.argv[1]), Path(sys.argv[2]))
