"""Rows that fail: those that the author's function refuses are set aside, and those that cannot be written are told."""
