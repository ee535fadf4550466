"""Ports of this machine's own address: finds a free port, and checks whether a process listens on one."""

import random
import socket

__all__ = ["HOST", "free_port", "is_free", "listens"]

HOST = "127.0.0.1"
"""The only address on which a broker of eddy listens. No other machine can reach it."""

_LOWEST, _HIGHEST = 20_000, 32_000


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    with socket.socket() as probe:
        # Servers set this option, too, so that connections in TIME_WAIT do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def listens(port: int, timeout_s: float = 1.0) -> bool:
    """Whether a process accepts connections on `port`."""
    try:
        socket.create_connection((HOST, port), timeout=timeout_s).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """Return a port that is free now.

    The port is below the range from which systems give ports to clients. A port of that range may be given to a client
    before the server starts again on it. A client that keeps connecting to such a port while no server listens may also
    reach itself.
    """
    # By the system's random numbers, because two programs with the same seed would choose the same ports.
    while not is_free(port := random.SystemRandom().randrange(_LOWEST, _HIGHEST)):
        pass
    return port
