"""Deprecated: write `from eddy.serve import tables_app`."""

import warnings

from eddy.serve.table_pages import tables_app

__all__ = ["tables_app"]

warnings.warn("write: from eddy.serve import tables_app", DeprecationWarning, stacklevel=2)
