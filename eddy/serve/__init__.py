"""HTTP: a worker's health, metrics and topology, and the tables and live queries of an application.

Names are imported when they are first used, because they need packages of the extra `http`.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eddy.serve.endpoint import Endpoint, endpoint_of
    from eddy.serve.table_pages import tables_app
    from eddy.serve.table_server import served

__all__ = ["Endpoint", "endpoint_of", "served", "tables_app"]

_HOME = {
    "Endpoint": "endpoint",
    "endpoint_of": "endpoint",
    "served": "table_server",
    "tables_app": "table_pages",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'eddy.serve' has no attribute '{name}'")
        return getattr(importlib.import_module(f"eddy.serve.{_HOME[name]}"), name)
