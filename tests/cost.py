"""The cost of a run, printed at its end: its time by the clock, its processor time, its folders and its dearest tests.

Processor time is that of a test's process and of the processes that it has waited for. Brokers are nobody's children:
`tests/kafka.py` notes the time of each before it ends, which counts for the whole run only.
"""

import resource
import time
from collections.abc import Generator

import pytest

from tests.kafka import brokers_processor_s

__all__ = ["Cost"]

_DEAREST = 10


def processor_s() -> float:
    """The processor seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class Cost:
    """A plugin: workers of pytest-xdist measure, and the process that has started them prints."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began_s = time.monotonic()
        self._test_began = 0.0, 0.0
        self._tests: list[tuple[float, float, str]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """A test begins."""
        self._test_began = processor_s(), time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A test ends with its teardown, whose report has the cost of all."""
        report = yield
        if call.when == "teardown":
            report.cost = processor_s() - self._test_began[0], time.monotonic() - self._test_began[1]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A report has come, perhaps from another process."""
        if report.when == "teardown":
            self._tests.append((*report.cost, report.nodeid))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The end: workers have been waited for."""
        took_s, brokers_s = time.monotonic() - self._began_s, brokers_processor_s(self._config)
        used_s = processor_s() + brokers_s
        of_brokers = f", {brokers_s / 60:.1f} of them in brokers" if brokers_s else ""
        terminalreporter.section(f"cost: {took_s / 60:.1f} min, of processors {used_s / 60:.1f} min{of_brokers}")
        terminalreporter.write_line("processor s  clock s  tests  folder")
        for folder, tests in sorted(self._folders().items(), key=lambda item: -sum(cost for cost, _ in item[1])):
            used_s, took_s = (sum(each) for each in zip(*tests, strict=True))
            terminalreporter.write_line(f"{used_s:11.1f}  {took_s:7.1f}  {len(tests):5}  {folder}")
        terminalreporter.write_line("processor s  clock s  test")
        for used_s, took_s, name in sorted(self._tests, reverse=True)[:_DEAREST]:
            terminalreporter.write_line(f"{used_s:11.1f}  {took_s:7.1f}  {name}")

    def _folders(self) -> dict[str, list[tuple[float, float]]]:
        """The processor and clock seconds of the tests in each folder, or in each file beside the folders."""
        folders: dict[str, list[tuple[float, float]]] = {}
        for used_s, took_s, name in self._tests:
            folder = "/".join(name.partition("::")[0].split("/")[:2])
            folders.setdefault(folder, []).append((used_s, took_s))
        return folders
