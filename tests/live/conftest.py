"""The fixtures of servers, for live queries."""

from tests.serve.conftest import patient_server

__all__ = ["patient_server"]
