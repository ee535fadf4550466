"""Lets tests share what is under `tests/`, and says how hard the laws are tried: EDDY_EXAMPLES=1000 make test."""

import gc
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = str(Path(__file__).parent.parent)
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from tests import seeds  # noqa: E402
from tests.collecting import Collecting  # noqa: E402
from tests.cost import Cost  # noqa: E402
from tests.kafka import broker, brokers_folder, cluster, hold_session, own_broker, secured_broker  # noqa: E402

__all__ = [
    "broker",
    "brokers_folder",
    "cluster",
    "own_broker",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "secured_broker",
]

LONGEST = ("tests/torture/", "tests/bad_input/", "tests/kill/", "tests/types/")
"""Where single tests take longest. Next to the groups of Spark's they come first; else one would be left at the end."""

PARSES_ALL = "tests/test_project.py"
"""A group of tests on one worker, which would be left at the end, too."""
ON_SPARK = "tests/spark/"
OUTSIDE = (ON_SPARK, "tests/client/", "tests/faust/", "tests/streams_oracle/", "tests/test_wordnet_demo.py")
"""What needs Spark, a browser, Faust or Kafka Streams."""
DEAREST = (
    "tests/cli/test_held.py",
    "tests/cli/test_kafka.py",
    "tests/cli/test_stopping.py",
    "tests/live/server/test_torture.py",
    "tests/operators/test_agreement.py",
    "tests/operators/test_endless.py",
    "tests/recursion/test_bounds.py",
    "tests/recursion/test_held_by_workers.py",
    "tests/recursion/test_workers.py",
    "tests/runtime/test_topics_made_anew.py",
    "tests/runtime/test_topics_that_join.py",
    "tests/serve/test_sql.py",
    "tests/tables/test_torture.py",
)
"""Those of the others that cost most: several workers on Kafka, processes that are stopped, and what is killed."""
OWN_SERVERS = {"spark", "own_broker", "browser"}
PROCESSES = (
    "tests/cli/",
    "tests/serve/",
    "tests/simulation/",
    "tests/upgrade/",
    "tests/schema_registry/",
    "tests/recursion/",
    "tests/state/test_rocksdb.py",
    "tests/test_docker.py",
    "tests/test_suite.py",
)
"""Where tests start commands and servers, or let many workers live long lives; a quick run has none of them."""
SHARED_SERVERS = {"brokers_folder", "page"}
QUICK_ENGINES = ("test driver", "two workers")
"""Those of the conformance suite on which a quick run tries each case: of those in memory, the least alike."""

settings.register_profile("eddy", deadline=None, max_examples=seeds.EXAMPLES)
settings.load_profile("eddy")


def pytest_report_header() -> str:
    """Which seeds are tried."""
    return f"seeds of day {seeds.DAY}; EDDY_SEED={seeds.DAY} tries them again"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `make quick`, and of `make test` and `make test-long`."""
    parser.addoption("--quick", action="store_true", help="leave out tests of other systems, processes and long lives")
    parser.addoption("--turns", action="store_true", help="of tests that cost most, mark those of other days as long")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that are to run, those first that take longest; else they are in their order."""
    if config.getoption("--turns"):
        for days in (5, 10):
            for number, item in enumerate(item for item in items if days_of(item) == days):
                if not seeds.has_turn(number, days):
                    item.add_marker(pytest.mark.long)
    if config.getoption("--quick"):
        left_out = [item for item in items if is_slow(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not is_slow(item)]
    items.sort(key=lambda item: not item.nodeid.startswith((*LONGEST, PARSES_ALL)))


def days_of(item: pytest.Item) -> int:
    """In so many days a test is tried once, so that all that cost most are tried in turn."""
    if item.nodeid.startswith(ON_SPARK):
        return 10
    return 5 if item.nodeid.startswith((*LONGEST, *OUTSIDE, *DEAREST)) or needs(item, OWN_SERVERS) else 1


def is_slow(item: pytest.Item) -> bool:
    """Whether a test is one of those that cost most, needs a server or takes its time."""
    return (
        days_of(item) > 1
        or item.nodeid.startswith(PROCESSES)
        or item.get_closest_marker("slow") is not None
        or needs(item, SHARED_SERVERS)
        or engine_of(item) not in {None, *QUICK_ENGINES}
    )


def engine_of(item: pytest.Item) -> str | None:
    """The engine of a test of the conformance suite."""
    case = getattr(item, "callspec", None)
    return case.params.get("engine") if case and item.nodeid.startswith("tests/conformance/") else None


def needs(item: pytest.Item, servers: set[str]) -> bool:
    """Whether a test has one of these as a fixture."""
    return not servers.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_collection() -> None:
    """What is imported and collected stays until the end: the garbage collector need not look at it."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Nor need it do so while tests run."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """At the end it looks at all: extensions complain of objects that are left."""
    gc.unfreeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Let the brokers of `tests/kafka.py` end with this process, and let processes that tests start hear signals.

    A shell starts `make test &` with SIGINT ignored, and what is ignored stays so in all that it starts.
    """
    hold_session(config)
    config.pluginmanager.register(Cost(config), "eddy-cost")
    left_out = (*LONGEST, *OUTSIDE, *PROCESSES) if config.getoption("--quick") else ()
    config.pluginmanager.register(Collecting(Path(ROOT), left_out), "eddy-collecting")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
