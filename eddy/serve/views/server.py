"""Deprecated: write `from eddy.serve import served`."""

import warnings

from eddy.serve.view_server import served

__all__ = ["served"]

warnings.warn("write: from eddy.serve import served", DeprecationWarning, stacklevel=2)
