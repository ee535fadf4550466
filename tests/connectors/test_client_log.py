"""What Kafka's clients log: of each cause one line in ten seconds, for the process as a whole."""

import logging

import pytest

from eddy.connectors.kafka.client_log import ClientLog, client_logger

REFUSED = (
    "[thrd:127.0.0.1:1/{0}]: 127.0.0.1:1/{0}: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after {1}ms)"
)


class Clock:
    """Seconds that pass when the test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logger(clock: Clock, caplog: pytest.LogCaptureFixture) -> logging.Logger:
    made = logging.getLogger("test.client")
    made.filters[:] = [ClientLog(clock)]
    caplog.set_level(logging.DEBUG, "test.client")
    return made


def test_of_one_cause_one_line_in_ten_seconds_is_shown_whichever_client_reports_it(
    logger: logging.Logger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for tick in range(640):
        for client in ("consumer-1", "producer-2", "consumer-3"):
            name = "bootstrap" if client == "consumer-1" else "GroupCoordinator"
            logger.error("%s [%s] %s", "FAIL", client, REFUSED.format(name, tick))
        clock.now += 1 / 16
    assert len(caplog.messages) == 4
    assert all(line.startswith("FAIL [consumer-1] [thrd:127.0.0.1:1/bootstrap]") for line in caplog.messages)
    assert caplog.messages[1].endswith("; 479 similar lines were suppressed")


def test_other_causes_have_lines_of_their_own(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    for said in (REFUSED.format("bootstrap", 1), REFUSED.format("1", 2).replace("127.0.0.1:1", "127.0.0.1:2")):
        logger.error("%s [%s] %s", "FAIL", "consumer-1", said)
    logger.error("%s [%s] %s", "REQTMOUT", "consumer-1", "[thrd:a]: a: Timed out 3 in-flight requests")
    logger.error("%s [%s] %s", "REQTMOUT", "consumer-1", "[thrd:b]: a: Timed out 5 in-flight requests")
    assert len(caplog.messages) == 3


def test_lines_for_debugging_are_all_shown(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        logger.debug("%s [%s] %s", "FETCH", "consumer-1", "fetched")
    assert len(caplog.messages) == 5


def test_causes_without_end_take_no_memory_without_end(logger: logging.Logger, clock: Clock) -> None:
    for number in range(1_000):
        logger.error("%s [%s] %s", "FAIL", "consumer-1", f"host-{number}: Connection refused")
    (held,) = logger.filters
    assert isinstance(held, ClientLog)
    assert len(held._causes) == 256  # private: the memory is meant


def test_all_clients_share_one(clock: Clock) -> None:
    assert client_logger() is client_logger()
    assert len([each for each in client_logger().filters if isinstance(each, ClientLog)]) == 1
