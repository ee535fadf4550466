"""Live queries of a view server, from another program: `Client` and `View`, for coroutines.

It needs the extra `client`.
"""

from eddy.client.connection import Client, ClientError
from eddy.client.view import View

__all__ = ["Client", "ClientError", "View"]
