"""A way to a server that a test can cut: bytes are passed on between each client and the server."""

import socket
import threading
from contextlib import suppress

__all__ = ["Proxy"]


class Proxy:
    """Listens on a free port of this machine. `cut` ends all connections; new ones are taken at once.

    Between `hold` and `go_on` connections are taken and nothing is passed on, as by a server that hangs.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._goes_on = threading.Event()
        self._goes_on.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        gone, self._open = self._open, []
        for each in gone:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def hold(self) -> None:
        self._goes_on.clear()

    def go_on(self) -> None:
        self._goes_on.set()

    def close(self) -> None:
        self.go_on()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    client.close()
                    raise
                self._open += [client, server]
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError), one, other:
            while data := one.recv(65_536):
                self._goes_on.wait()
                other.sendall(data)
            other.shutdown(socket.SHUT_RDWR)
