"""Live queries of a table server, from another program: `Client` and `RemoteView`, for coroutines.

The package needs the extra `client`.
"""

import warnings

try:
    import httpx  # noqa: F401
except ImportError as error:
    from eddy.errors import ConfigurationError

    raise ConfigurationError(
        "eddy.client: httpx is not installed; it is needed to follow live queries of a server. "
        "Install it: pip install 'eddy-streams[client]'"
    ) from error

from eddy.client.connection import Client
from eddy.client.remote_view import ClientError, RemoteView

__all__ = ["Client", "ClientError", "RemoteView"]


def __getattr__(name: str) -> object:
    if name == "View":
        warnings.warn("eddy.client.View is called RemoteView now", DeprecationWarning, stacklevel=2)
        return RemoteView
    raise AttributeError(f"module 'eddy.client' has no attribute '{name}'")
