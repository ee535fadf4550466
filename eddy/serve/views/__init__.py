"""Deprecated: old paths of `served` and `tables_app`, which are names of `eddy.serve`."""
