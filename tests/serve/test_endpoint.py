"""Where the monitor may listen, and with which token."""

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from eddy.errors import ConfigurationError, ConnectorError
from eddy.serve.endpoint import Endpoint, endpoint_of, listen
from eddy.serve.monitor import monitored
from tests.topology.programs import family

TOKEN = "0123456789abcdef"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    return file


@pytest.mark.parametrize(
    ("address", "host", "port", "shown"),
    [
        ("8080", "127.0.0.1", 8080, "127.0.0.1:8080"),
        (":8080", "127.0.0.1", 8080, "127.0.0.1:8080"),
        ("localhost:0", "127.0.0.1", 0, "127.0.0.1:0"),
        ("127.0.0.2:80", "127.0.0.2", 80, "127.0.0.2:80"),
        ("[::1]:65535", "::1", 65535, "[::1]:65535"),
    ],
)
def test_address_without_a_token_is_of_this_machine(address: str, host: str, port: int, shown: str) -> None:
    endpoint = endpoint_of(address)
    assert endpoint == Endpoint(host, port)
    assert endpoint.loopback
    assert str(endpoint) == shown


@pytest.mark.parametrize(
    "address", ["", "host", "host:", "8080x", "70000", "::1:8080", "http://localhost:8080", "a:b:1"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"PORT or HOST:PORT is needed, as in --http 8080"):
        endpoint_of(address)


@pytest.mark.parametrize("address", ["0.0.0.0:8080", "[::]:8080", "192.0.2.1:8080", "worker-0.example.org:8080"])
def test_address_beyond_this_machine_needs_a_token(address: str, token_file: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"a token is needed there.*--http-token-file FILE"):
        endpoint_of(address)
    endpoint = endpoint_of(address, token_file)
    assert (endpoint.token, endpoint.loopback) == (TOKEN.encode(), False)
    assert TOKEN not in repr(endpoint)


@pytest.mark.parametrize("text", ["", "short", "0123456789 abcdef", "0123456789abcdef\n0123456789abcdef", "ä" * 20])
def test_token_that_could_not_be_sent_or_could_be_guessed_is_refused(token_file: Path, text: str) -> None:
    token_file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"16 to 1,024 letters.*openssl rand -hex 32"):
        endpoint_of("8080", token_file)


def test_token_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"token '.*missing': No such file or directory"):
        endpoint_of("8080", tmp_path / "missing")


def test_port_that_is_taken_is_an_error_at_the_start() -> None:
    with closing(listen(Endpoint("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConnectorError, match=rf"http 127\.0\.0\.1:{port}: the port is taken") as caught,
            monitored(Endpoint("127.0.0.1", port), family()),
        ):
            pass
        assert caught.value.retriable


@pytest.mark.parametrize("host", ["192.0.2.1", "nothing.invalid"])
def test_address_of_another_machine_is_an_error_at_the_start(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"an address of this machine is needed"):
        listen(Endpoint(host, 0))


def test_port_is_free_at_once_for_the_next_worker() -> None:
    with closing(listen(Endpoint("127.0.0.1", 0))) as first:
        port = first.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            first.accept()[0].close()
    listen(Endpoint("127.0.0.1", port)).close()


@pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="this machine has no IPv6")
def test_ipv6_is_listened_on() -> None:
    listen(Endpoint("::1", 0)).close()
