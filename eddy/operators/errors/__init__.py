"""Rows that fail: rows on which the author's function raises are set aside, and rows that cannot be written are
reported.
"""
