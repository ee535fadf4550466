"""Live queries of a view server, from another program: `Client` and `View`, for coroutines.

It needs the extra `client`.
"""

try:
    import httpx  # noqa: F401
except ImportError as error:
    from eddy.errors import ConfigurationError

    raise ConfigurationError(
        "eddy.client: httpx is not installed; it is needed to follow live queries of a server. "
        "Install it: pip install 'eddy-streams[client]'"
    ) from error

from eddy.client.connection import Client, ClientError
from eddy.client.view import View

__all__ = ["Client", "ClientError", "View"]
