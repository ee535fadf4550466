"""Checks whether the names of bootstrap servers resolve, so that a wrong name is reported at once.

Otherwise librdkafka would retry such a name, like a broker that is away, until the time limit of a request.
"""

import re
import socket
import threading

__all__ = ["Unresolved", "unresolved"]

_HOST = re.compile(r"(?:\w+://)?(\[[^\]]+\]|[^\s:/@\[\]]+)(?::\d+)?")
_PATIENCE_S = 1.0


class Unresolved(str):
    """The text that names the unknown hosts. `final`: the name server has answered that there are no such names."""

    final: bool

    def __new__(cls, text: str, final: bool) -> "Unresolved":
        """Make the text, with its attribute `final`."""
        made = super().__new__(cls, text)
        made.final = final
        return made


def unresolved(bootstrap: str) -> Unresolved | None:
    """Return the names in `bootstrap`, HOST:PORT,…, with the reasons, if none resolves; None if one may resolve.

    If a name server does not answer within a second, the name may resolve.

    >>> unresolved("127.0.0.1:9092,nowhere.invalid:9092")
    >>> unresolved("[::1]:9092")
    """
    hosts = [found[1].strip("[]") for server in bootstrap.split(",") if (found := _HOST.fullmatch(server.strip()))]
    reasons: dict[str, socket.gaierror | None] = {}
    threads = [threading.Thread(target=_resolve, args=(host, reasons), daemon=True) for host in dict.fromkeys(hosts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE_S)
    answers = dict(reasons)
    if not hosts or None in answers.values() or len(answers) < len(threads):
        return None
    final = all(error is not None and error.errno != socket.EAI_AGAIN for error in answers.values())
    names = ", ".join(f"'{host}'" for host in answers)
    reason = next(error.strerror for error in answers.values() if error is not None)
    return Unresolved(f"the name{'s'[: len(answers) > 1]} {names} cannot be resolved: {reason}", final)


def _resolve(host: str, reasons: dict[str, socket.gaierror | None]) -> None:
    """Look a name up, and note the reason why it does not resolve, or None."""
    try:
        socket.getaddrinfo(host, None)
    except socket.gaierror as error:
        reasons[host] = error
    except (OSError, UnicodeError):
        reasons[host] = None
    else:
        reasons[host] = None
