"""A second run of the tests: it excuses waits that ran out of time, and nothing else.

The first run writes down each failure and whether it was such a wait: `WaitTimeoutError`, a browser's wait, a process
that did not end in time, the time limit of one test, or one of eddy's own calls that wait for a given time. Hypothesis
wraps such a failure, if it does not happen again, in a group. `pytest --second-run` runs those tests again, alone, and
prints FLAKY with the first failure for each that passes now. It fails without running anything where the first run
failed in any other way: a wrong answer that comes once in ten runs is a defect.
"""

import re
import subprocess
from collections.abc import Generator, Iterable
from typing import Any

import pytest

from eddy.errors import EddyError
from tests.waiting import WaitTimeoutError

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_runtest_makereport",
    "ran_out_of_time",
]

RECORD = "eddy/first_run"
"""Where the first run's failures are in pytest's cache."""

EDDY_WAITED = re.compile(r" (has not (come|ended) within|was not ready after|not idle after) [\d.]+ s([;,]|$)")
"""In the errors of `views.wait`, `Admin.outlast`, `Broker.start` and `RunningWorker.wait_idle`, and in no others."""

WRAPPERS = {"_WrappedBaseException", "PytestUnhandledThreadExceptionWarning"}
"""Hypothesis's for a failure in a group, and pytest's for one in a thread; the failure is the cause."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--second-run", action="store_true", help="run the waits again that ran out of time")


def pytest_configure(config: pytest.Config) -> None:
    """Write down failures, or excuse those that were written down. Workers of pytest-xdist do neither."""
    if hasattr(config, "workerinput"):
        return
    if config.getoption("--second-run", default=False):
        config.pluginmanager.register(_SecondRun(config), "eddy-second-run")
    else:
        config.pluginmanager.register(_FirstRun(config), "eddy-first-run")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note in a report of a failure whether it was a wait that ran out of time."""
    report = yield
    if report.failed:
        report.ran_out_of_time = call.excinfo is not None and ran_out_of_time(call.excinfo.value)
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that are to run a second time."""
    second = config.pluginmanager.get_plugin("eddy-second-run")
    if second is not None:
        left_out = [item for item in items if item.nodeid not in second.failures]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid in second.failures]


def ran_out_of_time(error: BaseException) -> bool:
    """Whether the failure is a wait that ran out of time; of a group, whether each of its parts is one."""
    if isinstance(error, BaseExceptionGroup):
        return all(ran_out_of_time(one) for one in error.exceptions)
    if type(error).__name__ in WRAPPERS and error.__cause__ is not None:
        return ran_out_of_time(error.__cause__)
    return _waited_in_vain(error)


def _waited_in_vain(error: BaseException) -> bool:
    of_one_test = isinstance(error, pytest.fail.Exception) and str(error).startswith("Timeout (>")
    of_a_browser = type(error).__module__.startswith("playwright.") and type(error).__name__ == "TimeoutError"
    of_eddy = isinstance(error, EddyError) and EDDY_WAITED.search(str(error)) is not None
    in_tests = isinstance(error, WaitTimeoutError | subprocess.TimeoutExpired)
    return of_one_test or of_a_browser or of_eddy or in_tests


class _FirstRun:
    """Writes down what failed, at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._failures: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            failure = self._failures.setdefault(report.nodeid, {"excusable": True, "text": report.longreprtext})
            failure["excusable"] &= getattr(report, "ran_out_of_time", False)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        cache = getattr(self._config, "cache", None)
        if cache is not None:
            cache.set(RECORD, {"status": int(exitstatus), "failures": self._failures})


class _SecondRun:
    """Runs again what may be excused, and says what it excused."""

    def __init__(self, config: pytest.Config) -> None:
        cache = getattr(config, "cache", None)
        record = {} if cache is None else cache.get(RECORD, {})
        self.failures: dict[str, dict[str, Any]] = record.get("failures", {})
        wrong = [name for name, failure in self.failures.items() if not failure["excusable"]]
        if wrong or not self.failures or record["status"] != pytest.ExitCode.TESTS_FAILED:
            raise pytest.UsageError("no second run: " + (_listed(wrong) or "the first one did not end by failed tests"))
        self._passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.failures.keys() - {item.nodeid for item in session.items}:  # a test of the first run is not there
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name in sorted(self._passed):
            terminalreporter.section(f"FLAKY {name}: it passed when run again, alone; the first failure")
            terminalreporter.write_line(self.failures[name]["text"])


def _listed(names: Iterable[str]) -> str:
    return "".join(f"\n  {name} failed, and not by a wait that ran out of time" for name in names)
