"""The address and the token of the monitor: `--http` and `--http-token-file` as an `Endpoint`.

Without a token only this machine is served. A worker's pages are not public: they contain topics, names of steps, and
in errors the keys of records.
"""

import errno
import importlib.util
import ipaddress
import re
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eddy.errors import ConfigurationError, ConnectorError

__all__ = ["Endpoint", "check_proxies", "check_tls", "endpoint_of", "is_address", "listen", "token_of"]

_ADDRESS = re.compile(r"(?:(?P<host>\[[^\[\]]+\]|[^:\[\]]*):)?(?P<port>\d{1,5})")
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/=-]{16,1024}")
_LOOPBACK = "127.0.0.1"
_BACKLOG = 64
_PACKAGES = ("starlette", "uvicorn", "prometheus_client")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address to listen on, and the token that readers have to send, if any. Port 0: any free port."""

    host: str
    port: int
    token: bytes | None = field(default=None, repr=False)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect.

        Names are not resolved: `localhost` is the only name that counts as this machine.
        """
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_address(text: str) -> bool:
    """Whether a text is `PORT`, `:PORT` or `HOST:PORT`, with a valid port."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and int(found["port"]) <= 0xFFFF


def endpoint_of(address: str, token_file: Path | None = None) -> Endpoint:
    """Return the endpoint for `PORT`, `:PORT` or `HOST:PORT`; without a host, on this machine only.

    Raises: ConfigurationError, also if a host other than this machine is given without a token, or if the packages of
    the extra `http` are not installed.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None or not is_address(address):
        raise ConfigurationError(f"http '{address}': not an address; PORT or HOST:PORT is needed, as in --http 8080")
    host = (found["host"] or _LOOPBACK).strip("[]")
    host = _LOOPBACK if host == "localhost" else host
    endpoint = Endpoint(host, int(found["port"]), None if token_file is None else token_of(token_file))
    if endpoint.token is None and not endpoint.loopback:
        raise ConfigurationError(
            f"http '{address}': others than this machine could read; a token is needed there. Write one into a file, "
            "e.g. by: openssl rand -hex 32, and name it: --http-token-file FILE"
        )
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"http '{address}': {', '.join(missing)} not installed; the extra 'http' is needed. "
            "pip install 'eddy-streams[http]'"
        )
    return endpoint


def token_of(file: Path) -> bytes:
    """Return the token in a file. Raises: ConfigurationError."""
    try:
        token = file.read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"http token '{file}': {error.strerror}; a file that can be read is needed") from error
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"http token '{file}': 16 to 1,024 letters, digits or any of ._~+/=- are needed, on one line. "
            f"Make one: openssl rand -hex 32 > {file}"
        )
    return token


def check_tls(files: tuple[Path, Path] | None) -> None:
    """Check that a certificate and its key, in PEM, can be served. Raises: ConfigurationError."""
    if files is None:
        return
    certificate, key = files
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"http: certificate '{certificate}' with key '{key}' cannot be used: {error.strerror or error}; a "
            "certificate in PEM and its key, without a password, are needed"
        ) from error


def check_proxies(proxies: Sequence[str]) -> None:
    """Check that each proxy is an address or a network. Raises: ConfigurationError."""
    for proxy in proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError as error:
            raise ConfigurationError(
                f"proxy '{proxy}': {error}; an address or a network is needed, as 10.0.0.7 or 10.0.0.0/8"
            ) from error


def listen(endpoint: Endpoint) -> socket.socket:
    """Return a socket that listens at the endpoint.

    Raises: ConnectorError, retriable, if another process has the port; ConfigurationError.
    """
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    try:
        return socket.create_server((endpoint.host, endpoint.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConnectorError(
                f"http {endpoint}: the port is taken by another process; a free one is needed. Name another: --http "
                "PORT, or 0 for any",
                retriable=True,
            ) from error
        raise ConfigurationError(f"http {endpoint}: {error.strerror}; an address of this machine is needed") from error
