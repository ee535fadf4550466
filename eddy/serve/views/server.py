"""Deprecated: write `from eddy.serve import served`."""

from typing import Any

from eddy.serve.views import moved


def __getattr__(name: str) -> Any:
    return moved(__name__, name, "served")
