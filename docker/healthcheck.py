"""Whether the workers of this container are alive: asks /healthz on each port that is named; 0 is yes, 1 is no."""

import sys
from http.client import HTTPConnection, HTTPException


def is_alive(port: int) -> bool:
    """Ask the worker that listens on `port`, and print what it says."""
    connection = HTTPConnection("127.0.0.1", port, timeout=3)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        print(port, answer.status, answer.read().decode().strip())
    except (OSError, HTTPException) as error:
        print(port, error)
        return False
    return answer.status == 200


if __name__ == "__main__":
    sys.exit(not all(is_alive(int(port)) for port in sys.argv[1:]))
