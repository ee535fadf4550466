"""Operators of live queries: filters, counts for `exists`, ordered arrangements, windows, groups and nests."""
