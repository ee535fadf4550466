"""Deprecated: write `eddy.Tables` and `eddy.open_tables`; `TablesSnapshot` is in `eddy.program.open_tables`."""

import warnings
from typing import Any

from eddy.program import open_tables

_NAMES = {"TablesSnapshot": "TablesSnapshot", "Views": "Tables", "views": "open_tables"}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    known = _NAMES[name]
    warnings.warn(f"write: from {open_tables.__name__} import {known}", DeprecationWarning, stacklevel=2)
    return getattr(open_tables, known)
