"""Deprecated: old paths of `served` and `tables_app`, which are names of `eddy.serve`."""

import warnings
from typing import Any

import eddy.serve

__all__ = ["moved"]


def moved(path: str, name: str, known: str) -> Any:
    """Return the object `known` for a deprecated path. Raises: AttributeError for other names."""
    if name != known:
        raise AttributeError(f"module '{path}' has no attribute '{name}'")
    warnings.warn(f"write: from eddy.serve import {name}", DeprecationWarning, stacklevel=3)
    return getattr(eddy.serve, name)
